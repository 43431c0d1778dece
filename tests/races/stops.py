"""A store whose SQL functions can be stopped behind any of their statements.

The functions of the migrations are replaced by copies that call `stop()` behind each statement that reads, locks or writes a
table, and the tables `runs` and `messages` get triggers that do so before the commit. The first transaction that comes to the
stop whose number is in the table `stops` waits there until the test opens the gate; nobody else ever waits at one.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any, Final

import asyncpg

from perdure.stores.postgres.migrations import migrations
from tests.servers import migrated
from tests.servers.databases import Schema
from tests.servers.sql import APPLICATION, Admin

#: Advisory locks of two numbers: nobody else uses the first of these.
CLAIM, GATE = 0x53746F70, 0x47617465

#: Seconds after which a transaction that neither ends nor waits fails the test.
PATIENCE: Final = 20.0

STOP = """
CREATE TABLE @schema@.stops (number integer NOT NULL);

-- Not within the store's lock_timeout: a stop may take long.
CREATE FUNCTION @schema@.stop() RETURNS boolean LANGUAGE plpgsql SET lock_timeout = 0 AS $$
DECLARE
    _number integer := coalesce(nullif(current_setting('stops.passed', true), ''), '0')::integer + 1;
BEGIN
    PERFORM set_config('stops.passed', _number::text, true);
    IF _number = (SELECT number FROM @schema@.stops) AND pg_try_advisory_xact_lock(@claim@, 0) THEN
        PERFORM pg_advisory_xact_lock(@gate@, 0);
    END IF;
    RETURN false;
END $$;

CREATE FUNCTION @schema@.stop_at_commit() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM @schema@.stop();
    RETURN NULL;
END $$;
CREATE CONSTRAINT TRIGGER stop_runs AFTER INSERT OR UPDATE OR DELETE ON @schema@.runs
    DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION @schema@.stop_at_commit();
CREATE CONSTRAINT TRIGGER stop_messages AFTER INSERT OR UPDATE OR DELETE ON @schema@.messages
    DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION @schema@.stop_at_commit();
"""

FUNCTION = re.compile(r"^CREATE FUNCTION .*?^(?:END )?\$\$;$", re.MULTILINE | re.DOTALL)

#: A statement that others may see, or that sees what others did.
TOUCHES = re.compile(
    r"(FROM|JOIN|INTO|UPDATE|USING) @schema@\.(?!urgencies_1|(due_)?spaces_1|name_1)"
    r"|\b(hold_name_1|hold_last_1|chain_1|tree_1|candidates_1)\("
)


def instrumented(function: str) -> str:
    """A function's text with a stop behind each statement that touches a table."""
    lines = function.splitlines()
    if "LANGUAGE plpgsql" not in function or "BEGIN" not in lines:
        return ""
    body = lines.index("BEGIN") + 1
    result, statement = lines[:body], ""
    for line in lines[body:]:
        result.append(line)
        statement += line + "\n"
        ends = line.rstrip().endswith(";")
        if (
            ends
            and TOUCHES.search(statement)
            and "RETURN" not in statement.replace("RETURNING", "")
            and line != "END $$;"
        ):
            # As a condition: a statement would change FOUND and ROW_COUNT.
            result.append("IF @schema@.stop() THEN NULL; END IF;")
        if ends or line.rstrip().endswith((" THEN", " LOOP", "ELSE")) or line.strip() in ("THEN", "LOOP", "BEGIN"):
            statement = ""
    return "\n".join(result).replace("CREATE FUNCTION", "CREATE OR REPLACE FUNCTION", 1)


def prepare(schema: Schema, change: Callable[[str], str] = lambda sql: sql) -> None:
    """A migrated schema whose functions stop; for `kept_schema_on`. `change` may spoil them."""
    migrated.migrate(schema)
    functions = "\n".join(
        instrumented(found.group()) for migration in migrations() for found in FUNCTION.finditer(change(migration.sql))
    )
    text = (STOP + functions).replace("@claim@", str(CLAIM)).replace("@gate@", str(GATE))
    with Admin(schema.url) as admin:
        admin.execute(text.replace("@schema@", f'"{schema.name}"'))


TABLES = """
    SELECT format('%I.%I', nspname, relname) FROM pg_class JOIN pg_namespace ON pg_namespace.oid = relnamespace
    WHERE nspname = $1 AND relkind = 'r' AND relname <> 'migrations'
"""

WAITING = """
    SELECT pid FROM pg_locks
    WHERE locktype = 'advisory' AND NOT granted AND classid = $1 AND database = (
        SELECT oid FROM pg_database WHERE datname = current_database()
    )
"""

#: Who waits for a lock that this one holds, or for somebody who does.
BLOCKED = """
    SELECT EXISTS (SELECT FROM pg_stat_activity WHERE datname = current_database() AND application_name <> $2
        AND wait_event_type = 'Lock' AND $1 = ANY (pg_blocking_pids(pid)))
"""


class Gate:
    """Holds the first transaction that comes to a stop: for as long as a `with` block, or until it is opened."""

    def __init__(self, schema: Schema) -> None:
        self._schema = schema
        self._connection: asyncpg.Connection[Any] | None = None
        self._stopped: int | None = None
        self._emptying = ""

    async def __aenter__(self) -> Gate:
        self._connection = await asyncpg.connect(self._schema.url, server_settings={"application_name": APPLICATION})
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._sql.close()

    async def empty(self) -> None:
        """Nothing is left in any table of the store."""
        if not self._emptying:
            tables = await self._sql.fetch(TABLES, self._schema.name)
            self._emptying = "; ".join(f"DELETE FROM {row[0]}" for row in tables)
        await self._sql.execute(self._emptying)

    async def shut(self, number: int) -> None:
        """Who first comes to its stop of this number waits there."""
        self._stopped = None
        stops = f'"{self._schema.name}".stops'
        await self._sql.execute(
            f"DELETE FROM {stops}; INSERT INTO {stops} VALUES ({number}); SELECT pg_advisory_lock({GATE}, 0)"
        )

    async def rows(self, sql: str) -> Sequence[Any]:
        return await self._sql.fetch(sql)

    async def open(self) -> None:
        """Who waits goes on."""
        await self._sql.execute("SELECT pg_advisory_unlock_all()")

    async def stands(self, work: asyncio.Task[Any]) -> bool:
        """Wait until it waits at the gate; False: it has ended without coming there."""
        async with asyncio.timeout(PATIENCE):
            while not work.done():
                self._stopped = await self._sql.fetchval(WAITING, GATE)
                if self._stopped is not None:
                    return True
        return False

    async def as_far_as_it_can(self, work: asyncio.Task[Any]) -> bool:
        """Wait until it waits for the one at the gate, or has ended. Returns whether it waits."""
        async with asyncio.timeout(PATIENCE):
            while not work.done():
                if await self._sql.fetchval(BLOCKED, self._stopped, APPLICATION):
                    return True
        return False

    @property
    def _sql(self) -> asyncpg.Connection[Any]:
        assert self._connection is not None
        return self._connection
