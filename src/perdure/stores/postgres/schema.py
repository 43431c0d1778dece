"""Bringing a schema up to date, whoever else is doing so at the same time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import asyncpg

from perdure.model.errors import StoreMismatch, StoreUnavailable
from perdure.stores.postgres.connections import connect, told
from perdure.stores.postgres.migrations import NEEDED, Migration, migrations
from perdure.stores.postgres.place import Place

#: How long others may be at it.
_PATIENCE: Final = "60s"
#: A key of ours among advisory locks of two numbers ("Prdr" in ASCII); the other one is the schema.
_KEY: Final = 0x50726472

_TABLE: Final = """
    CREATE TABLE IF NOT EXISTS {0}.migrations (
        number integer PRIMARY KEY,
        name text NOT NULL,
        -- Code that knows no migration newer than this one can go on with the schema.
        serves integer NOT NULL,
        applied_at timestamptz NOT NULL DEFAULT clock_timestamp()
    );
"""

_THERE: Final = """
    SELECT relname FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace
    WHERE n.nspname = $1 AND c.relname IN ('migrations', 'runs')
"""

#: Rights that the role of this session lacks: what it is, on what. (Of migrations only a migration writes.)
_LACKING: Final = """
    SELECT r.lacks, 'table', c.relname FROM pg_class AS c
    CROSS JOIN unnest(ARRAY['SELECT', 'INSERT', 'UPDATE', 'DELETE']) AS r (lacks)
    WHERE c.relnamespace = (SELECT oid FROM pg_namespace WHERE nspname = $1)
    AND (c.relname <> 'migrations' OR r.lacks = 'SELECT') AND pg_get_userbyid(c.relowner) IN (
        SELECT pg_get_userbyid(o.relowner) FROM pg_class AS o WHERE o.relnamespace = c.relnamespace AND o.relname = 'runs'
    ) AND CASE c.relkind WHEN 'r' THEN NOT has_table_privilege(c.oid, r.lacks) END
    UNION ALL
    SELECT 'USAGE', 'sequence', c.relname FROM pg_class AS c
    WHERE c.relnamespace = (SELECT oid FROM pg_namespace WHERE nspname = $1)
    AND CASE c.relkind WHEN 'S' THEN NOT has_sequence_privilege(c.oid, 'USAGE') END
    UNION ALL
    SELECT 'EXECUTE', 'function', p.proname FROM pg_proc AS p
    WHERE p.pronamespace = (SELECT oid FROM pg_namespace WHERE nspname = $1) AND NOT has_function_privilege(p.oid, 'EXECUTE')
"""
#: So many of them are told.
_SHOWN: Final = 4

#: What the driver raises, also where the connection is lost.
_DRIVERS: Final = (asyncpg.PostgresError, asyncpg.InterfaceError, OSError, TimeoutError)

#: The oldest code (by the newest migration it knows) that can go on after each migration.
_SERVES: Final = {1: 1}


async def prepare(connection: asyncpg.Connection[Any], place: Place, *, migrate: bool) -> None:
    """Check the schema and bring it up to date, each migration in a transaction of its own.

    Raises `StoreMismatch` for a newer or (without `migrate`) a lacking schema, or a missing privilege; `StoreUnavailable`.
    """
    try:
        todo = await pending(connection, place)
        if todo and not migrate:
            lacking = [each for each in todo if each.number <= NEEDED]
            if lacking:
                raise _lacking(place, lacking)
            todo = ()
        for migration in todo:
            await _apply(connection, place, migration)
        await _check_rights(connection, place)
    except asyncpg.LockNotAvailableError as error:
        raise StoreUnavailable(
            f"the store {place} is being migrated by another process for more than {_PATIENCE}; try again, or look for it"
        ) from error
    except asyncpg.ReadOnlySQLTransactionError as error:
        raise StoreMismatch(
            f"the store {place} cannot be migrated: {error}; the server takes no writes: is it a replica?"
        ) from error
    except _DRIVERS as error:
        raise told(place, error) from error


async def pending(connection: asyncpg.Connection[Any], place: Place) -> Sequence[Migration]:
    """The migrations that the schema lacks. Raises `StoreMismatch` if the schema is none of ours, or too new."""
    known = migrations()
    # In one look: between two of them somebody else may have made both tables.
    there = {row["relname"] for row in await connection.fetch(_THERE, place.schema)}
    if "migrations" not in there:
        if there:
            raise StoreMismatch(f"the store {place} has a table runs that is not ours; choose another schema")
        return known
    try:
        rows = await connection.fetch(f"SELECT number, serves FROM {place.quoted}.migrations")
    except asyncpg.UndefinedColumnError as error:
        raise StoreMismatch(
            f"the store {place} has a table migrations that is not ours; choose another schema: ?schema=..."
        ) from error
    done = {row["number"] for row in rows}
    serves = max((row["serves"] for row in rows), default=0)
    if serves > known[-1].number:
        raise StoreMismatch(
            f"the store {place} has schema {max(done)}, which serves Perdures that know schema {serves} or newer; this one "
            f"knows up to {known[-1].number}: update Perdure to use it"
        )
    return [each for each in known if each.number not in done]


async def _check_rights(connection: asyncpg.Connection[Any], place: Place) -> None:
    """Raises `StoreMismatch` if this role may not do all that we do with what a migration made."""
    lacking = await connection.fetch(_LACKING, place.schema)
    if lacking:
        role = await connection.fetchval("SELECT current_user")
        rights = ", ".join(f"{right} on {kind} {name}" for right, kind, name in lacking[:_SHOWN])
        more = f" and {len(lacking) - _SHOWN} more" if len(lacking) > _SHOWN else ""
        raise StoreMismatch(
            f"the store {place} cannot be used by role {role}: it lacks {rights}{more}; as the role that migrated, GRANT "
            f"SELECT, INSERT, UPDATE, DELETE ON ALL TABLES, USAGE ON ALL SEQUENCES and EXECUTE ON ALL FUNCTIONS IN SCHEMA "
            f"{place.quoted}"
        )


async def _apply(connection: asyncpg.Connection[Any], place: Place, migration: Migration) -> None:
    """Does nothing if another process was faster."""
    async with connection.transaction():
        await connection.execute(f"SET LOCAL lock_timeout = '{_PATIENCE}'")
        await connection.execute("SELECT pg_advisory_xact_lock($1, hashtext($2))", _KEY, place.schema, timeout=90)
        if not await connection.fetchval("SELECT to_regclass($1) IS NOT NULL", f"{place.quoted}.migrations"):
            # Not IF NOT EXISTS: that asks for the right to create schemas also where this one is there.
            if not await connection.fetchval("SELECT to_regnamespace($1) IS NOT NULL", place.quoted):
                await connection.execute(f"CREATE SCHEMA {place.quoted}")
            await connection.execute(_TABLE.format(place.quoted))
        done = await connection.fetchval(
            f"SELECT true FROM {place.quoted}.migrations WHERE number = $1", migration.number
        )
        if not done:
            await connection.execute(migration.text(place.quoted), timeout=600)
            await connection.execute(
                f"INSERT INTO {place.quoted}.migrations (number, name, serves) VALUES ($1, $2, $3)",
                migration.number,
                migration.name,
                _SERVES[migration.number],
            )


def _lacking(place: Place, todo: Sequence[Migration]) -> StoreMismatch:
    names = ", ".join(f"{migration.number} ({migration.name})" for migration in todo)
    return StoreMismatch(f"the store {place} lacks the migrations {names}; run `perdure migrate` first")


async def plan(place: Place) -> Sequence[Migration]:
    """The migrations that the schema lacks. Changes nothing; raises as `prepare`."""
    connection = await connect(place)
    try:
        return await pending(connection, place)
    except _DRIVERS as error:
        raise told(place, error) from error
    finally:
        await connection.close()
