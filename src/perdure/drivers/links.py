"""One connection of a user's driver, and what is done with it: one class a driver, blocking and awaited ones alike.

What a link returns may have to be awaited: `performing` knows which links those are.
"""

from __future__ import annotations

import sqlite3
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from perdure.model.errors import UsageError
from perdure.ports.databases import Ask, Hands

T = TypeVar("T")


class Link(ABC):
    """`handle` is what the user's function is given: a connection, or a session."""

    def __init__(self, handle: Any) -> None:
        self.handle = handle

    @abstractmethod
    def begin(self) -> Any: ...
    @abstractmethod
    def commit(self) -> Any: ...
    @abstractmethod
    def rollback(self) -> Any:
        """What was begun; nothing, if nothing was."""

    @abstractmethod
    def close(self) -> Any:
        """Give the connection back to where it comes from."""

    @abstractmethod
    def ask(self, ask: Ask) -> Any:
        """The one text it gives."""

    def within(self, work: Callable[[Hands], T]) -> Any:
        """What `work` returns for the connection."""
        raise UsageError(
            f"the store is a SQLite file, and {type(self.handle).__module__}.{type(self.handle).__qualname__} is a connection "
            "to a PostgreSQL database; use one to the store's own file (sqlite3, SQLAlchemy)"
        )


class SqliteHands:
    """A connection of `sqlite3`, or SQLAlchemy's for aiosqlite, which looks the same within its greenlet."""

    def __init__(self, connection: Any, state: Any) -> None:
        self._cursor = connection.cursor
        self._state = state

    def execute(self, statement: str, parameters: Sequence[Any] = (), /) -> Any:
        cursor = self._cursor()
        if isinstance(cursor, sqlite3.Cursor):
            cursor.row_factory = None  # the user's rows may be anything
        cursor.execute(statement, parameters)
        return cursor

    @property
    def in_transaction(self) -> bool:
        return bool(self._state.in_transaction)

    @property
    def autocommit(self) -> bool:
        # From Python 3.12 on there is an attribute that says it; it is no boolean where the older one decides.
        modern = getattr(self._state, "autocommit", None)
        return modern if isinstance(modern, bool) else self._state.isolation_level is None


def plainly(connection: sqlite3.Connection, work: Callable[[], T]) -> T:
    """What `work` returns, while texts are read as texts."""
    factory = connection.text_factory
    connection.text_factory = str
    try:
        return work()
    finally:
        connection.text_factory = factory


class SqliteLink(Link):
    """A connection of `sqlite3`, from any thread that may use it."""

    def begin(self) -> None:
        """The store's script begins: it knows how to wait for the file's lock."""

    def commit(self) -> None:
        self.handle.execute("COMMIT")  # in every mode that a connection may be in

    def rollback(self) -> None:
        if self.handle.in_transaction:
            self.handle.execute("ROLLBACK")

    def close(self) -> None:
        self.handle.close()

    def ask(self, ask: Ask) -> Any:
        raise UsageError(
            "the store is a PostgreSQL database, and this is a connection of sqlite3; use one to the store's own database"
        )

    def within(self, work: Callable[[Hands], T]) -> T:
        try:
            return plainly(self.handle, lambda: work(SqliteHands(self.handle, self.handle)))
        except sqlite3.ProgrammingError as error:
            if "thread" not in str(error):
                raise
            raise UsageError(
                "this sqlite3 connection was made in another thread; make it where it is used, on the app's event loop"
            ) from error


class PsycopgLink(Link):
    """A connection of psycopg, blocking or awaited. It begins a transaction with its first statement, unless it autocommits."""

    def begin(self) -> Any:
        return self.handle.execute("BEGIN") if self.handle.autocommit else None

    def commit(self) -> Any:
        return self.handle.execute("COMMIT") if self.handle.autocommit else self.handle.commit()

    def rollback(self) -> Any:
        return self.handle.rollback()

    def close(self) -> Any:
        return self.handle.close()

    def ask(self, ask: Ask) -> Any:
        from psycopg.rows import tuple_row

        statement = f"{ask.head.replace('%', '%%')}%s{ask.tail.replace('%', '%%')}"
        cursor = self.handle.cursor(row_factory=tuple_row)
        executed = cursor.execute(statement, (ask.parameter,))
        if hasattr(executed, "__await__"):
            return self._awaited(cursor, executed)
        return cursor.fetchone()[0]

    @staticmethod
    async def _awaited(cursor: Any, executed: Any) -> Any:
        await executed
        return (await cursor.fetchone())[0]


class AsyncpgLink(Link):
    """A connection of asyncpg, or a pool's."""

    def __init__(self, handle: Any, close: Callable[[Any], Any] | None = None) -> None:
        super().__init__(handle)
        self._close = close
        self._transaction: Any = None

    async def begin(self) -> None:
        transaction = self.handle.transaction()
        await transaction.start()
        self._transaction = transaction

    async def commit(self) -> None:
        transaction, self._transaction = self._transaction, None
        await transaction.commit()

    async def rollback(self) -> None:
        transaction, self._transaction = self._transaction, None
        if transaction is not None and not self.handle.is_closed():
            await transaction.rollback()

    async def close(self) -> None:
        await (self.handle.close() if self._close is None else self._close(self.handle))

    async def ask(self, ask: Ask) -> Any:
        return await self.handle.fetchval(f"{ask.head}$1{ask.tail}", ask.parameter)
