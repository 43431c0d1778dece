"""Which objects of which database libraries we know: by the names of their classes, so that nothing is imported for it."""

from __future__ import annotations

import inspect
from enum import Enum
from typing import Any, Final

from msgspec import Struct

from perdure.model.errors import UsageError


class Role(Enum):
    """What an object is for."""

    #: Connections come from it: an engine, a pool, a session maker.
    SOURCE = "source"
    #: It is one connection, or a session on one.
    CONNECTION = "connection"


class Kind(Struct, frozen=True):
    """What an object of a database library is to us."""

    library: str
    name: str
    role: Role
    #: True: it is used with `await`.
    awaited: bool


def _kinds(
    library: str, role: Role, blocking: tuple[str, ...], awaited: tuple[str, ...]
) -> dict[tuple[str, str], Kind]:
    return {
        (library, name): Kind(library, name, role, is_awaited)
        for names, is_awaited in ((blocking, False), (awaited, True))
        for name in names
    }


_KINDS: Final[dict[tuple[str, str], Kind]] = {
    **_kinds("sqlalchemy", Role.SOURCE, ("Engine", "sessionmaker"), ("AsyncEngine", "async_sessionmaker")),
    **_kinds("sqlalchemy", Role.CONNECTION, ("Connection", "Session"), ("AsyncConnection", "AsyncSession")),
    **_kinds("asyncpg", Role.SOURCE, (), ("Pool",)),
    **_kinds("asyncpg", Role.CONNECTION, (), ("Connection", "PoolConnectionProxy")),
    **_kinds("psycopg_pool", Role.SOURCE, ("ConnectionPool",), ("AsyncConnectionPool",)),
    **_kinds("psycopg", Role.CONNECTION, ("Connection",), ("AsyncConnection",)),
    **_kinds("sqlite3", Role.CONNECTION, ("Connection",), ()),
}


def kind_of(value: object) -> Kind | None:
    """What a library's object is; None for anything else, classes too."""
    for each in type(value).__mro__:
        found = _KINDS.get((each.__module__.partition(".")[0], each.__name__))
        if found is not None:
            return found
    return None


def is_factory(value: object) -> bool:
    """A function that gives a connection."""
    return callable(value) and kind_of(value) is None


def is_awaited(fn: object) -> bool:
    """True for `async def`, also behind `functools.partial` and as a `__call__`."""
    return inspect.iscoroutinefunction(fn) or inspect.iscoroutinefunction(getattr(fn, "__call__", None))  # noqa: B004


def check_source(on: object, fn: Any, what: str) -> None:
    """Raise `UsageError` for what no transaction can be begun on, or for a function that does not go with it."""
    kind = kind_of(on)
    if on is not None and (kind is None or kind.role is not Role.SOURCE) and not is_factory(on):
        hint = "; a connection cannot be shared by attempts: give where it comes from" if kind is not None else ""
        raise UsageError(
            f"{what} cannot be run on {type(on).__module__}.{type(on).__qualname__}{hint}. Give an engine or session maker of "
            "SQLAlchemy, a pool of asyncpg or psycopg, or a function that opens a connection (sqlite3, asyncpg, psycopg)"
        )
    if kind is not None and not kind.awaited and is_awaited(fn):
        raise UsageError(
            f"{what} is run on a blocking {kind.name}, in a thread, so its function must be a plain one; or give the "
            "asynchronous engine, session maker or pool"
        )
