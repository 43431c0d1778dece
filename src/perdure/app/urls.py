"""Store URLs: the only place that knows concrete stores."""

from __future__ import annotations

from urllib.parse import parse_qsl, unquote, urlsplit

from perdure.model.errors import UsageError
from perdure.model.shown import shown, without_secrets
from perdure.ports.clock import Clock
from perdure.ports.store import Store


def parse_url(url: str) -> tuple[str, str, dict[str, str]]:
    """Kind, path (of a database: the whole URL) and options of a store's URL. Raises `UsageError`."""
    try:
        parts = urlsplit(url) if isinstance(url, str) else urlsplit("")
    except ValueError:
        parts = urlsplit("")
    if parts.scheme in ("postgresql", "postgres") and parts.netloc + parts.path.strip("/"):
        return "postgresql", url, {}
    options = dict(parse_qsl(parts.query, keep_blank_values=True))
    known = {"synchronous"} if parts.scheme == "sqlite" else set[str]()
    if parts.scheme in ("sqlite", "memory") and (unknown := options.keys() - known):
        raise UsageError(
            f"the store URL {shown(url)} has an unknown option {shown(min(unknown))}; sqlite:// has synchronous"
        )
    if parts.scheme == "memory" and not parts.path:
        return "memory", "", options
    path = unquote(parts.path[1:])
    if parts.scheme == "sqlite" and path and path.isprintable() and not (parts.netloc or parts.fragment):
        return "sqlite", path, options
    given = shown(without_secrets(url) if isinstance(url, str) else url)
    raise UsageError(
        f"{given} is no store URL; write sqlite:///orders.db (a path below this folder), sqlite:////var/lib/orders.db (an "
        "absolute one), postgresql://user@host/database or memory://"
    )


def open_store(url: str, clock: Clock) -> Store:
    """The store of a URL, not opened yet. Raises `UsageError`."""
    kind, path, options = parse_url(url)
    if kind == "memory":
        from perdure.stores.memory import MemoryStore

        return MemoryStore(clock)
    if kind == "postgresql":
        try:
            from perdure.stores.postgres import PostgresStore
        except ModuleNotFoundError as error:
            if error.name != "asyncpg":
                raise
            raise UsageError(
                "a postgresql:// store needs the driver asyncpg: pip install 'perdure[postgres]'"
            ) from None
        return PostgresStore(path, clock=clock)
    from perdure.stores.sqlite import SqliteStore

    return SqliteStore(path, clock=clock, synchronous=options.get("synchronous", "FULL").upper())
