"""Bringing a file's schema up to date, and refusing files that are not ours.

A file that cannot be ours is recognised by its header, before SQLite may touch it (opening would recover a foreign journal).
Our mark, the `application_id`, is written with the first migration while the file still is in rollback-journal mode; so it
stands in the file itself from the first moment on, never only in a write-ahead log.

The header is read through SQLite, never with `open`: closing any handle of a file drops all locks that the process holds on
it, those of other connections too. SQLite knows of them and waits with closing.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from typing import Final
from urllib.parse import quote

import msgspec

from perdure.model.attributes import searchable
from perdure.model.errors import StoreMismatch, StoreUnavailable
from perdure.stores.sqlite.connection import begin, connect, patiently, rollback, unavailable
from perdure.stores.sqlite.migrations import MIGRATIONS, Migration

#: "Prdr" in ASCII.
APPLICATION_ID: Final = 0x50726472


def check_file(path: str, *, migrate: bool = True) -> None:
    """Raises `StoreMismatch` if there is a file at `path` that is not one of our stores, or a newer one.

    Without `migrate` also if there is none. Touches nothing.
    """
    try:
        size = os.path.getsize(path)
    except FileNotFoundError:
        if not migrate:
            raise _lacking(path, MIGRATIONS) from None
        return
    except OSError as error:
        raise unavailable(path, error) from error
    if size:
        _check_header(path, size)


def _check_header(path: str, size: int) -> None:
    try:
        # Immutable: no locks, no log, no journal.
        with closing(sqlite3.connect(f"file:{quote(path)}?mode=ro&immutable=1", uri=True)) as connection:
            application = connection.execute("PRAGMA application_id").fetchone()[0]
            version = connection.execute("PRAGMA user_version").fetchone()[0]
    except sqlite3.Error as error:
        foreign = getattr(error, "sqlite_errorcode", 0) == sqlite3.SQLITE_NOTADB
    else:
        foreign = size == 1  # SQLite takes a single byte for an empty file.
        if not foreign:
            _check_marks(path, application, version)
    # Any other error may come from reading without locks while somebody writes: the real opening will tell.
    if foreign:
        raise StoreMismatch(f"{path} is not a SQLite database; give the path of a Perdure store or of a file to create")


def _check_marks(path: str, application: int, version: int) -> None:
    if application != APPLICATION_ID:
        raise StoreMismatch(f"{path} is a SQLite database, but not a Perdure store; give Perdure a file of its own")
    newest = MIGRATIONS[-1].number
    if version > newest:
        raise StoreMismatch(
            f"{path} has schema {version}, but this Perdure knows schemas up to {newest}; update Perdure to use it"
        )


def _lacking(path: str, todo: Sequence[Migration]) -> StoreMismatch:
    names = ", ".join(f"{migration.number} ({migration.name})" for migration in todo)
    return StoreMismatch(f"the store {path} lacks the migrations {names}; run `perdure migrate` first")


def pending(connection: sqlite3.Connection) -> Sequence[Migration]:
    """The migrations that the file lacks."""
    version = _read(connection, "PRAGMA user_version")
    return [migration for migration in MIGRATIONS if migration.number > version]


def prepare(connection: sqlite3.Connection, path: str, *, migrate: bool) -> None:
    """Check the schema and bring it up to date, whoever else is doing so at the same time; then switch to WAL.

    Raises `StoreMismatch` for a newer or (without `migrate`) an older file, `StoreUnavailable`.
    """
    try:
        if _read(connection, "PRAGMA user_version"):
            _check_marks(path, _read(connection, "PRAGMA application_id"), _read(connection, "PRAGMA user_version"))
        todo = pending(connection)
        if todo and not migrate:
            raise _lacking(path, todo)
        for migration in todo:
            _apply(connection, migration)
        _use_wal(connection, path)
    except sqlite3.Error as error:
        raise unavailable(path, error) from error


def _apply(connection: sqlite3.Connection, migration: Migration) -> None:
    """In a transaction of its own; does nothing if another process was faster."""
    connection.create_function("searchable", 1, _searchable, deterministic=True)
    begin(connection)
    try:
        if _read(connection, "PRAGMA user_version") < migration.number:
            for statement in migration.statements:
                connection.execute(statement)
            connection.execute(f"PRAGMA application_id={APPLICATION_ID}")
            connection.execute(f"PRAGMA user_version={migration.number}")
        patiently(connection, "COMMIT")
    except BaseException:
        rollback(connection)
        raise


def _searchable(attributes: bytes | None) -> str:
    """For migrations: `perdure.model.attributes.searchable`, as JSON."""
    return msgspec.json.encode(searchable(attributes)).decode()


def _use_wal(connection: sqlite3.Connection, path: str) -> None:
    mode = patiently(connection, "PRAGMA journal_mode=WAL")
    if mode != "wal":
        raise StoreUnavailable(
            f"the store {path} cannot use a write-ahead log (its journal mode stays {mode}); put it on a local file system"
        )


def _read(connection: sqlite3.Connection, pragma: str) -> int:
    return int(str(patiently(connection, pragma)))


def plan(path: str) -> Sequence[Migration]:
    """The migrations that the file at `path` lacks; all, if there is none. Changes nothing; raises as `prepare`."""
    check_file(path)
    if not os.path.exists(path):
        return MIGRATIONS
    connection = connect(path, "OFF")  # It writes nothing.
    try:
        return pending(connection)
    except sqlite3.Error as error:
        raise unavailable(path, error) from error
    finally:
        connection.close()
