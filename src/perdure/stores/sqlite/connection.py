"""Connections to one SQLite file: how they are opened, and what SQLite's errors mean to us.

SQLite's own busy handler backs off in steps that grow to 100 ms and starves a process among eager ones for seconds, so it
is off (`busy_timeout` 0); whoever needs the write lock asks again after a short random pause (see :class:`Patience`).
"""

from __future__ import annotations

import os
import random
import sqlite3
import time  # noqa: TID251  # how long a lock is waited for is elapsed time, not the store's
from enum import Enum, auto
from threading import Event
from typing import Final

from perdure.model.errors import StoreMismatch, StoreUnavailable, UsageError

#: `UPDATE ... FROM` came with 3.33.
OLDEST_SQLITE: Final = (3, 33, 0)

SYNCHRONOUS: Final = ("OFF", "NORMAL", "FULL", "EXTRA")

#: Seconds. How long the write lock is asked for before `StoreUnavailable`.
BUSY_DEADLINE: Final = 30.0

#: Every statement text of ours, in all its sizes, stays prepared.
_CACHED_STATEMENTS: Final = 512


class Fault(Enum):
    """What an exception from SQLite says about the world."""

    BUSY = auto()  # another connection holds the lock: ask again
    DATA = auto()  # this write's data cannot be stored
    STORE = auto()  # disk full, input/output error, file gone or damaged


_BUSY = {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_PROTOCOL}
_STORE = {
    sqlite3.SQLITE_CANTOPEN,
    sqlite3.SQLITE_CORRUPT,
    sqlite3.SQLITE_FULL,
    sqlite3.SQLITE_IOERR,
    sqlite3.SQLITE_NOMEM,
    sqlite3.SQLITE_NOTADB,
    sqlite3.SQLITE_PERM,
    sqlite3.SQLITE_READONLY,
}


def fault_of(error: BaseException) -> Fault:
    """Everything that is not plainly the lock or the disk is taken for the data's fault, and so hurts one write only."""
    if isinstance(error, sqlite3.Error):
        code = getattr(error, "sqlite_errorcode", 0) & 0xFF
        if code in _BUSY:
            return Fault.BUSY
        if code in _STORE:
            return Fault.STORE
        if isinstance(error, sqlite3.ProgrammingError) and "closed" in str(error):
            return Fault.STORE
    return Fault.DATA


def unavailable(path: str, error: BaseException) -> StoreUnavailable:
    """The error to give to a caller for a `Fault.STORE` or an exhausted `Fault.BUSY`."""
    if fault_of(error) is Fault.BUSY:
        return StoreUnavailable(
            f"the store {path} stayed locked by another process for too long ({error}); "
            "look for one that holds a long transaction on the file, then try again"
        )
    return StoreUnavailable(f"the store {path} cannot be used: {error}; {_advice(path)}")


def _advice(path: str) -> str:
    folder = os.path.dirname(path)
    if os.path.isdir(path):
        return "check the path: it is a folder, and must be a file"
    if not os.path.isdir(folder):
        return f"check the path: there is no folder {folder}"
    return "check the disk, its free space and permissions"


class Patience:
    """Asking again for a lock, until a deadline. One attempt series a value; use from one thread."""

    def __init__(self, deadline: float = BUSY_DEADLINE, *, eager: bool = False) -> None:
        # The pause is short beside a commit (some 0.2 ms), so that a process among many gets its turn by chance alone.
        self._longest = 0.0005 if eager else 0.002
        self._until = time.monotonic() + deadline
        self._pause = Event()
        self._chance = random.Random()

    def again(self, error: BaseException) -> bool:
        """Pause, if `error` says busy and the deadline has not passed; then True."""
        if fault_of(error) is not Fault.BUSY or time.monotonic() >= self._until:
            return False
        self._pause.wait(self._chance.uniform(0.0001, self._longest))
        return True


def check_arguments(path: str, synchronous: str) -> None:
    """Raises `UsageError` or `StoreMismatch`, before anything is opened."""
    if not path or path == ":memory:" or path.startswith("file:"):
        raise UsageError(
            f"a SQLite store needs the path of a file, not {path!r}; for a store in memory use MemoryStore"
        )
    if synchronous.upper() not in SYNCHRONOUS:
        raise UsageError(f"synchronous must be one of {', '.join(SYNCHRONOUS)}, not {synchronous!r}")
    if sqlite3.sqlite_version_info < OLDEST_SQLITE:
        wanted = ".".join(map(str, OLDEST_SQLITE))
        raise StoreMismatch(
            f"this Python is linked to SQLite {sqlite3.sqlite_version}; Perdure needs {wanted} or newer"
        )


def patiently(connection: sqlite3.Connection, statement: str) -> object:
    """Execute one that may find the file locked; returns the first value of its first row, if there is one."""
    patience = Patience()
    while True:
        try:
            row = connection.execute(statement).fetchone()
        except sqlite3.Error as error:
            if not patience.again(error):
                raise
        else:
            return row[0] if row else None


def connect(path: str, synchronous: str) -> sqlite3.Connection:
    """A connection in autocommit mode, to be used by one thread at a time. Raises `StoreUnavailable`."""
    connection: sqlite3.Connection | None = None
    try:
        connection = sqlite3.connect(
            path, timeout=0.0, isolation_level=None, cached_statements=_CACHED_STATEMENTS, check_same_thread=False
        )
        # The first one reads the schema, which another process may have locked.
        patiently(connection, f"PRAGMA synchronous={synchronous}")
        patiently(connection, "PRAGMA temp_store=MEMORY")
        patiently(connection, "PRAGMA cache_size=-16000")
        # SQLite's default, kept on purpose: a log that grows makes each flush dearer than rarer checkpoints save.
        patiently(connection, "PRAGMA wal_autocheckpoint=1000")
    except sqlite3.Error as error:
        if connection is not None:
            connection.close()
        raise unavailable(path, error) from error
    return connection


def begin(connection: sqlite3.Connection, deadline: float = BUSY_DEADLINE, *, eager: bool = False) -> None:
    """Take the write lock, however often it must be asked for; raises the last `sqlite3.Error` past the deadline."""
    try:
        connection.execute("BEGIN IMMEDIATE")
        return
    except sqlite3.Error as first:
        error = first
    patience = Patience(deadline, eager=eager)
    while patience.again(error):
        try:
            connection.execute("BEGIN IMMEDIATE")
            return
        except sqlite3.Error as next_error:
            error = next_error
    raise error


def rollback(connection: sqlite3.Connection) -> bool:
    """Undo what is open. False: it cannot be undone, and the connection was closed, which undoes it too."""
    try:
        if connection.in_transaction:  # SQLite may have rolled back by itself: the disk is full.
            connection.execute("ROLLBACK")
    except sqlite3.Error:
        connection.close()
        return False
    return True
