"""PostgreSQL as the store under test: schemas that nobody has used, how the server is set, and what it gives without us.

The server is the first one that the tests would use: that of PERDURE_TEST_POSTGRES_URL, else the one that listens on the usual
local port and lets `postgres` in without a password, else one that is brought along. Everything lies in schemas of our own,
which are dropped again.
"""

from __future__ import annotations

import asyncio
import itertools
import os
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from time import perf_counter
from types import TracebackType
from typing import Any, Self, TypeVar

import asyncpg

from benchmarks.address import joined
from benchmarks.figures import Figure, figures, fleet_figures
from benchmarks.sizes import Sizes
from benchmarks.sqlite import PAYLOAD
from benchmarks.subject import Workload
from benchmarks.workloads import EVERYWHERE, FLEET, FLEET_ONCE, ONCE
from tests.servers import postgres as servers
from tests.servers import wheel
from tests.servers.own import PrivateServer

T = TypeVar("T")

#: Connections that insert at once for the second raw limit.
_MANY = 16
#: What decides about the cost of a commit.
_SETTINGS = ("fsync", "synchronous_commit", "full_page_writes", "wal_sync_method")
#: Seconds that a server has to answer.
_PATIENCE = 5


class NoServer(Exception):
    """There is no PostgreSQL to measure on."""


@contextmanager
def server() -> Iterator[str]:
    """The URL of a database to measure in. Raises `NoServer`."""
    try:
        names = servers.find()
    except OSError as error:
        raise NoServer(f"asking for servers failed: {error}") from error
    if not names:
        raise NoServer("there is no PostgreSQL, and no wheel that brings one")
    if names[0] in wheel.INSTALLS:
        with PrivateServer(names[-1]) as own:
            yield own.url()
    else:
        url = servers.Server(names[0]).url() if names[0] == "usual" else os.environ[servers.URL]
        try:
            asyncio.run(_connected(url, _nothing))
        except (OSError, TimeoutError, asyncpg.PostgresError) as error:
            raise NoServer(f"no PostgreSQL answers at {url} ({error or type(error).__name__})") from error
        yield url


class Postgres:
    """A subject of the benchmark, in a database. Use it as a context manager: it cleans up behind it."""

    name = "postgres"
    workloads: Sequence[Workload] = (*EVERYWHERE, *FLEET)
    once: Sequence[Workload] = (*ONCE, *FLEET_ONCE)

    def __init__(self, database: str) -> None:
        self.database = database
        self._prefix = f"perdure_bench_{os.getpid()}_{self.name}"
        self._numbers = itertools.count()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._clean()

    def schema(self) -> str:
        """A schema that nobody has used, not made yet. Drops the ones before: they would cost the server's vacuum."""
        self._clean()
        return f"{self._prefix}_{next(self._numbers)}"

    def url(self) -> str:
        """A store that nobody has used."""
        return joined(self.database, self.schema())

    def raw(self, count: int, warm: int) -> dict[str, float]:
        """Commits a second of one small row each: on one connection one after another, and on several at once."""
        return asyncio.run(self._raw(self.schema(), count, warm))

    async def _raw(self, schema: str, count: int, warm: int) -> dict[str, float]:
        async def inserts(connection: Any, count: int) -> None:
            # A prepared statement, as drivers do it anyway from the second time on.
            statement = await connection.prepare(f"INSERT INTO {schema}.bare (payload) VALUES ($1)")
            for _ in range(count):
                await statement.fetch(PAYLOAD)

        async def timed(connections: list[Any], count: int) -> float:
            began = perf_counter()
            await asyncio.gather(
                *(inserts(connection, max(1, count // len(connections))) for connection in connections)
            )
            return count / (perf_counter() - began)

        connections = [await asyncpg.connect(self.database, timeout=_PATIENCE) for _ in range(_MANY)]
        try:
            await connections[0].execute(f"CREATE SCHEMA {schema}")
            await connections[0].execute(f"CREATE TABLE {schema}.bare (i bigserial PRIMARY KEY, payload bytea)")
            await timed(connections, warm)
            await timed(connections[:1], warm)
            alone = await timed(connections[:1], count)
            many = await timed(connections, 2 * count)
        finally:
            for connection in connections:
                await connection.close()
        return {"raw_inserts_1_per_s": alone, f"raw_inserts_{_MANY}_per_s": many}

    def settings(self) -> str:
        """What of the server's settings decides about the cost of a commit."""

        async def ask(connection: Any) -> str:
            version = (await connection.fetchval("SHOW server_version")).split()[0]
            values = [f"{name}={await connection.fetchval(f'SHOW {name}')}" for name in _SETTINGS]
            return f"PostgreSQL {version}, {', '.join(values)}; asyncpg {asyncpg.__version__}"

        return asyncio.run(_connected(self.database, ask))

    def figures(self, sizes: Sizes) -> tuple[Figure, ...]:
        return (*figures(sizes, self.name), *fleet_figures(sizes))

    def _clean(self) -> None:
        """Drop every schema of ours."""

        async def drop(connection: Any) -> None:
            names = await connection.fetch(
                "SELECT nspname FROM pg_namespace WHERE starts_with(nspname, $1)", self._prefix
            )
            for (name,) in names:
                await connection.execute(f'DROP SCHEMA "{name}" CASCADE')

        asyncio.run(_connected(self.database, drop))


async def _nothing(connection: Any) -> None:
    pass


async def _connected(url: str, work: Callable[[Any], Awaitable[T]]) -> T:
    connection = await asyncpg.connect(url, timeout=_PATIENCE)
    try:
        return await work(connection)
    finally:
        await connection.close()
