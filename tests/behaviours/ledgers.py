"""A user's own table in a store's database, and all the ways to write to it that Perdure knows."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import sqlite3
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import asyncpg
import psycopg
import psycopg_pool
import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncSession, async_sessionmaker, create_async_engine
from sqlalchemy.orm import Session, sessionmaker
from sqlalchemy.pool import NullPool

from perdure.stores.postgres.place import place_of

#: What a transaction can be run on, by the store's kind.
SOURCES = {
    "sqlite": ("own", "sqlite3", "sqlite3 autocommit", "engine", "sessionmaker", "async engine", "async sessionmaker"),
    "postgres": (
        "own", "asyncpg pool", "asyncpg", "psycopg pool", "psycopg", "psycopg autocommit", "async psycopg pool",
        "async psycopg", "engine", "sessionmaker", "async engine", "async sessionmaker", "async psycopg engine",
    ),
}  # fmt: skip

#: A store's kind and a way: for `parametrize(("world", "way"), WAYS, indirect=["world"])`.
WAYS = [(kind, way) for kind, ways in SOURCES.items() for way in ways]
#: One blocking and one asynchronous of each.
SOME = [("sqlite", "engine"), ("sqlite", "async engine"), ("postgres", "engine"), ("postgres", "asyncpg pool")]
#: The same, for what one connection or session is opened of.
CONNECTIONS = [pair for pair in WAYS if pair[1] != "own" and "pool" not in pair[1]] + [("postgres", "asyncpg pool")]


class Ledger:
    """The table. Made with an open store."""

    def __init__(self, url: str) -> None:
        self.on_sqlite = url.startswith("sqlite")
        self.address = url.removeprefix("sqlite:///").partition("?")[0] if self.on_sqlite else place_of(url).dsn
        self.table = f"ledger_{secrets.token_hex(4)}"
        self.insert = f"INSERT INTO {self.table} (line) VALUES "

    async def execute(self, statement: str) -> list[tuple[Any, ...]]:
        """On a connection of its own."""
        if self.on_sqlite:
            with contextlib.closing(sqlite3.connect(self.address)) as connection, connection:
                return connection.execute(statement).fetchall()
        server = await asyncpg.connect(self.address)
        try:
            return [tuple(row) for row in await server.fetch(statement)]
        finally:
            await server.close()

    async def lines(self) -> list[str]:
        return [line for (line,) in await self.execute(f"SELECT line FROM {self.table} ORDER BY line")]

    def sqlalchemy(self, *, asynchronous: bool, driver: str = "") -> str:
        if self.on_sqlite:
            return f"sqlite{'+aiosqlite' if asynchronous else ''}:///{self.address}"
        driver = driver or ("asyncpg" if asynchronous else "psycopg")
        address = self.address.partition("?")[0] if driver == "asyncpg" else self.address  # it has other options
        return address.replace("postgresql://", f"postgresql+{driver}://")

    @contextlib.asynccontextmanager
    async def source(self, way: str) -> AsyncIterator[Any]:
        """What `way` names."""
        address = self.address
        pool: Any
        engine: Any
        match way:
            case "own":
                yield None
            case "sqlite3":
                yield lambda: sqlite3.connect(address)
            case "sqlite3 autocommit":
                yield lambda: sqlite3.connect(address, isolation_level=None)
            case "asyncpg pool":
                async with asyncpg.create_pool(address, min_size=0, max_size=3) as pool:
                    yield pool
            case "asyncpg":
                yield lambda: asyncpg.connect(address)
            case "psycopg pool":
                pool = psycopg_pool.ConnectionPool(address, min_size=0, max_size=3, open=False)
                await asyncio.to_thread(pool.open)
                try:
                    yield pool
                finally:
                    await asyncio.to_thread(pool.close)
            case "psycopg":
                yield lambda: psycopg.connect(address)
            case "psycopg autocommit":
                yield lambda: psycopg.connect(address, autocommit=True)
            case "async psycopg pool":
                async with psycopg_pool.AsyncConnectionPool(address, min_size=0, max_size=3, open=False) as pool:
                    yield pool
            case "async psycopg":

                async def connect() -> psycopg.AsyncConnection[Any]:
                    return await psycopg.AsyncConnection.connect(address)

                yield connect
            case "engine" | "sessionmaker":
                engine = sa.create_engine(self.sqlalchemy(asynchronous=False))
                try:
                    yield engine if way == "engine" else sessionmaker(engine)
                finally:
                    await asyncio.to_thread(engine.dispose)
            case _:
                driver = "psycopg" if "psycopg" in way else ""
                engine = create_async_engine(self.sqlalchemy(asynchronous=True, driver=driver), poolclass=NullPool)
                try:
                    yield async_sessionmaker(engine) if "sessionmaker" in way else engine
                finally:
                    await engine.dispose()

    def writing(self, way: str, line: str, then: Callable[[], Any] = lambda: None) -> Callable[[Any], Any]:
        """A function that writes a line, does something, and returns the line."""
        statement = f"{self.insert}('{line}')"
        if self._is_awaited(way):

            async def write(handle: Any) -> str:
                await handle.execute(self._text(handle, statement))
                result = then()
                if isinstance(result, Awaitable):
                    await result
                return line

            return write

        def write_now(handle: Any) -> str:
            handle.execute(self._text(handle, statement))
            then()
            return line

        return write_now

    def _is_awaited(self, way: str) -> bool:
        return way.startswith(("async ", "asyncpg")) or (way == "own" and not self.on_sqlite)

    @staticmethod
    def _text(handle: Any, statement: str) -> Any:
        return sa.text(statement) if type(handle).__module__.startswith("sqlalchemy") else statement

    @contextlib.asynccontextmanager
    async def connection(self, way: str) -> AsyncIterator[Any]:
        """One connection or session, as a user opens it, with an open transaction."""
        async with self.source(way) as source, contextlib.AsyncExitStack() as stack:
            if way == "asyncpg pool":
                handle = await stack.enter_async_context(source.acquire())
            elif hasattr(source, "connect") or "sessionmaker" in way:
                handle = source.connect() if hasattr(source, "connect") else source()
                if way.startswith("async"):
                    await stack.enter_async_context(handle)
                else:
                    stack.enter_context(handle)
            else:
                handle = source()
                handle = await handle if isinstance(handle, Awaitable) else handle
                stack.push_async_callback(_settled, handle.close)
            if way.startswith("asyncpg") or "autocommit" in way:
                await _settled(lambda: handle.execute("BEGIN"))
            yield handle

    async def write(self, handle: Any, line: str) -> None:
        await _settled(lambda: handle.execute(self._text(handle, f"{self.insert}('{line}')")))

    async def end(self, handle: Any, verb: str) -> None:
        """`commit` or `rollback`."""
        end: Any = getattr(handle, verb, None)
        plain = (
            end is None or getattr(handle, "isolation_level", "") is None or getattr(handle, "autocommit", -1) is True
        )
        await _settled((lambda: handle.execute(verb.upper())) if plain else end)


async def _settled(call: Callable[[], Any]) -> Any:
    result = call()
    return await result if isinstance(result, Awaitable) else result


@contextlib.asynccontextmanager
async def ledger_in(url: str) -> AsyncIterator[Ledger]:
    """A new table. It goes in the end."""
    ledger = Ledger(url)
    await ledger.execute(f"CREATE TABLE {ledger.table} (line TEXT NOT NULL)")
    try:
        yield ledger
    finally:
        await ledger.execute(f"DROP TABLE {ledger.table}")


__all__ = ["CONNECTIONS", "SOME", "WAYS", "AsyncSession", "Ledger", "Session", "ledger_in"]
