"""SQL from tests, without a loop of the test's own."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Coroutine
from types import TracebackType
from typing import Any, TypeVar

import asyncpg

T = TypeVar("T")

#: What our connections are called in `pg_stat_activity`.
APPLICATION = "perdure-tests"

#: Seconds that a statement may take: a test that waits for its own lock fails in its own name.
LIMIT = 30.0


class Admin:
    """One connection, on a thread and a loop of its own; a lost one is made again. Each call blocks.

    From any thread, also one that runs a loop: that loop stands still meanwhile.
    """

    def __init__(self, url: str) -> None:
        self._url = url
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="test-admin", daemon=True)
        self._thread.start()
        self._connection: asyncpg.Connection | None = None
        self._turn = asyncio.Lock()

    def execute(self, sql: str, *arguments: Any) -> str:
        """Run one statement, or several without arguments; the answer is PostgreSQL's, as `INSERT 0 1`."""
        return self._wait(self._execute(sql, *arguments))

    def rows(self, sql: str, *arguments: Any) -> list[asyncpg.Record]:
        return self._wait(self._rows(sql, *arguments))

    def value(self, sql: str, *arguments: Any) -> Any:
        """The first column of the first row; None if there is none."""
        rows = self.rows(sql, *arguments)
        return rows[0][0] if rows else None

    def close(self) -> None:
        """Close the connection and end the thread. The second time nothing happens."""
        if self._loop.is_closed():
            return
        self._wait(self._disconnect())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def __enter__(self) -> Admin:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _wait(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    async def _execute(self, sql: str, *arguments: Any) -> str:
        async with self._turn:
            return await (await self._connected()).execute(sql, *arguments, timeout=LIMIT)

    async def _rows(self, sql: str, *arguments: Any) -> list[asyncpg.Record]:
        async with self._turn:
            return await (await self._connected()).fetch(sql, *arguments, timeout=LIMIT)

    async def _connected(self) -> asyncpg.Connection:
        if self._connection is None or self._connection.is_closed():
            self._connection = await asyncpg.connect(self._url, server_settings={"application_name": APPLICATION})
        return self._connection

    async def _disconnect(self) -> None:
        if self._connection is not None:
            with contextlib.suppress(OSError, asyncpg.PostgresError, asyncpg.InterfaceError):
                await self._connection.close(timeout=5)
