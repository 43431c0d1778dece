"""SQLAlchemy's connections and sessions, over whatever driver they are."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from typing import Any, Final, TypeVar

from perdure.drivers.links import Link, SqliteHands, plainly
from perdure.model.errors import UsageError
from perdure.ports.databases import Ask, Hands

T = TypeVar("T")

_PLACEHOLDERS: Final = {"qmark": "?", "format": "%s", "pyformat": "%s", "numeric_dollar": "$1", "numeric": ":1"}


def _asked(connection: Any, ask: Ask) -> Any:
    """On a blocking `Connection` (or within a greenlet of an awaited one)."""
    if connection.dialect.name != "postgresql":
        raise UsageError(
            f"the store is a PostgreSQL database, and this is a connection to {_named(connection)}; use one to the store's own"
        )
    placeholder = _PLACEHOLDERS[connection.dialect.paramstyle]
    head, tail = (
        (ask.head, ask.tail) if placeholder != "%s" else (ask.head.replace("%", "%%"), ask.tail.replace("%", "%%"))
    )
    return connection.exec_driver_sql(f"{head}{placeholder}{tail}", (ask.parameter,)).scalar_one()


def _done(connection: Any, work: Callable[[Hands], T]) -> T:
    """As `_asked`."""
    if connection.dialect.name != "sqlite":
        raise UsageError(
            f"the store is a SQLite file, and this is a connection to {_named(connection)}; use one to the store's own file"
        )
    if not connection.in_transaction():
        connection.begin()  # so that SQLAlchemy knows that there is something to commit
    pooled = connection.connection
    hands = SqliteHands(pooled.dbapi_connection, pooled.driver_connection)
    if isinstance(pooled.driver_connection, sqlite3.Connection):
        return plainly(pooled.driver_connection, lambda: work(hands))
    return work(hands)


def _named(connection: Any) -> str:
    """Without the password."""
    return str(connection.engine.url.render_as_string(hide_password=True))


class AlchemyLink(Link):
    """A `Connection` or `Session`."""

    def begin(self) -> None:
        self.handle.begin()

    def commit(self) -> None:
        self.handle.commit()

    def rollback(self) -> None:
        self.handle.rollback()

    def close(self) -> None:
        self.handle.close()

    def ask(self, ask: Ask) -> Any:
        return _asked(self._connection(), ask)

    def within(self, work: Callable[[Hands], T]) -> T:
        return _done(self._connection(), work)

    def _connection(self) -> Any:
        # A session's lies in its transaction, which it begins if there is none.
        return self.handle if hasattr(self.handle, "exec_driver_sql") else self.handle.connection()


class AwaitedAlchemyLink(Link):
    """An `AsyncConnection` or `AsyncSession`. (An `AsyncConnection` that was not started yet is started.)"""

    async def begin(self) -> None:
        if hasattr(self.handle, "start"):
            await self.handle.start()
        await self.handle.begin()

    async def commit(self) -> None:
        await self.handle.commit()

    async def rollback(self) -> None:
        await self.handle.rollback()

    async def close(self) -> None:
        await self.handle.close()

    async def ask(self, ask: Ask) -> Any:
        return await (await self._connection()).run_sync(_asked, ask)

    async def within(self, work: Callable[[Hands], T]) -> Any:
        return await (await self._connection()).run_sync(_done, work)

    async def _connection(self) -> Any:
        return self.handle if hasattr(self.handle, "exec_driver_sql") else await self.handle.connection()
