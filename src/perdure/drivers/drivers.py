"""Where users' connections come from, and how scripts are performed on them."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from perdure.drivers.alchemy import AlchemyLink, AwaitedAlchemyLink
from perdure.drivers.links import AsyncpgLink, Link, PsycopgLink, SqliteLink
from perdure.drivers.performing import perform, perform_awaited
from perdure.model.databases import Kind, Role, is_awaited, is_factory, kind_of
from perdure.model.errors import UsageError
from perdure.model.shown import shown
from perdure.ports.databases import Script

T = TypeVar("T")

InThread = Callable[[Callable[[], Any]], Awaitable[Any]]


class Drivers:
    """See `perdure.ports.databases.Databases`."""

    async def transact(self, on: Any, script: Script[Any], in_thread: InThread, begun: Callable[[], None]) -> Any:
        kind = kind_of(on)
        if kind is None and is_factory(on):
            return await _from_factory(on, script, in_thread, begun)
        if kind is None or kind.role is not Role.SOURCE:
            raise UsageError(f"a transaction cannot be run on {shown(on)}: it is no source of connections")
        if kind.awaited:
            begun()
            return await _pooled(on, kind, script)
        return await in_thread(lambda: _pooled_blocking(on, kind, script))

    async def join(self, connection: Any, script: Script[Any]) -> Any:
        kind = kind_of(connection)
        if kind is None or kind.role is not Role.CONNECTION:
            raise UsageError(
                f"connection must be one connection or session (of SQLAlchemy, asyncpg, psycopg or sqlite3) with an open "
                f"transaction, not {shown(connection)}"
            )
        link = _link(connection, kind)
        if kind.awaited or kind.library == "sqlite3" or _is_on_sqlite(connection):
            return await perform_awaited(script, link)  # a connection to SQLite belongs to its thread: it is this one
        return await asyncio.to_thread(
            perform, script, link
        )  # on PostgreSQL, somebody's lock may have to be waited for


# ---------------------------------------------------------------- transactions of their own


async def _from_factory(on: Any, script: Script[Any], in_thread: InThread, begun: Callable[[], None]) -> Any:
    """Whether what a plain function gives has to be awaited shows when it is called; and SQLite's belong to their thread."""
    if is_awaited(on):
        begun()
        return await _opened(await on(), script)

    def call() -> Any:
        made = on()
        if inspect.isawaitable(made):
            return _Made(made)
        kind = kind_of(made)
        if kind is not None and kind.awaited:
            return _Made(made)
        link = _link(made, kind)
        try:
            return perform(script, link)
        finally:
            link.close()

    result = await in_thread(call)
    if not isinstance(result, _Made):
        return result
    begun()
    made = result.what
    return await _opened(await made if inspect.isawaitable(made) else made, script)


class _Made:
    """Something that is to be used on the event loop."""

    def __init__(self, what: Any) -> None:
        self.what = what


async def _opened(connection: Any, script: Script[Any]) -> Any:
    kind = kind_of(connection)
    if kind is not None and not kind.awaited:
        raise UsageError(
            f"an asynchronous function gave the blocking {shown(connection)}; give a plain function that opens it"
        )
    link = _link(connection, kind)
    try:
        return await perform_awaited(script, link)
    finally:
        await link.close()


async def _pooled(on: Any, kind: Kind, script: Script[Any]) -> Any:
    if kind.library == "asyncpg":
        connection = await on.acquire()
        link: Link = AsyncpgLink(connection, on.release)
    elif kind.library == "psycopg_pool":
        async with on.connection() as connection:
            return await perform_awaited(script, PsycopgLink(connection))
    else:
        link = AwaitedAlchemyLink(on.connect() if hasattr(on, "connect") else on())
    try:
        return await perform_awaited(script, link)
    finally:
        await link.close()


def _pooled_blocking(on: Any, kind: Kind, script: Script[Any]) -> Any:
    if kind.library == "psycopg_pool":
        with on.connection() as connection:
            return perform(script, PsycopgLink(connection))
    link = AlchemyLink(on.connect() if hasattr(on, "connect") else on())
    try:
        return perform(script, link)
    finally:
        link.close()


# ---------------------------------------------------------------- connections


def _link(connection: Any, kind: Kind | None) -> Link:
    """What to do with a connection that was given to us or opened for us."""
    if kind is None or kind.role is not Role.CONNECTION:
        raise UsageError(
            f"{shown(connection)} is no connection that Perdure knows; it knows those of SQLAlchemy, asyncpg, psycopg and "
            "sqlite3"
        )
    match kind.library:
        case "sqlite3":
            return SqliteLink(connection)
        case "asyncpg":
            return AsyncpgLink(connection)
        case "psycopg":
            return PsycopgLink(connection)
        case _:
            return (AwaitedAlchemyLink if kind.awaited else AlchemyLink)(connection)


def _is_on_sqlite(connection: Any) -> bool:
    """Of a blocking connection or session of SQLAlchemy."""
    try:
        dialect = connection.dialect if hasattr(connection, "dialect") else connection.get_bind().dialect
    except Exception:  # a session that needs to know for which table
        return False
    return bool(dialect.name == "sqlite")
