"""SQLite as the store under test: fresh files, how it is set, and what the file system gives without us."""

from __future__ import annotations

import asyncio
import itertools
import sqlite3
from collections.abc import Sequence
from pathlib import Path
from time import perf_counter

from benchmarks.figures import Figure, figures
from benchmarks.sizes import Sizes
from benchmarks.subject import Workload
from benchmarks.workloads import EVERYWHERE, ONCE
from perdure.app import open_store, parse_url
from perdure.engine.systemclock import SystemClock
from perdure.stores.sqlite import SqliteStore
from perdure.stores.sqlite.transaction import Transaction

#: What a row of the bare commits holds: about as much as a step's result.
PAYLOAD = b"x" * 100

_SYNCHRONOUS = ("OFF", "NORMAL", "FULL", "EXTRA")


class Sqlite:
    """A subject of the benchmark. All files lie in `folder`, which decides about the disk."""

    name = "sqlite"
    workloads: Sequence[Workload] = EVERYWHERE
    once: Sequence[Workload] = ONCE

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._numbers = itertools.count()

    def url(self) -> str:
        """A store that nobody has used."""
        return f"sqlite:///{self._fresh()}"

    def raw(self, count: int, warm: int) -> dict[str, float]:
        """Commits a second of one small row each, one after another on a fresh file, by bare sqlite3 in the same folder.

        There is one writer at a time: many at once are no faster.
        """
        connection = sqlite3.connect(self._fresh(), isolation_level=None)
        try:
            connection.execute("PRAGMA journal_mode=WAL")
            connection.execute("PRAGMA synchronous=FULL")
            connection.execute("CREATE TABLE bare (i INTEGER PRIMARY KEY, payload BLOB)")
            for _ in range(warm):
                connection.execute("INSERT INTO bare (payload) VALUES (?)", (PAYLOAD,))
            began = perf_counter()
            for _ in range(count):
                connection.execute("INSERT INTO bare (payload) VALUES (?)", (PAYLOAD,))
            return {"raw_commits_per_s": count / (perf_counter() - began)}
        finally:
            connection.close()

    def settings(self) -> str:
        return asyncio.run(self._settings())

    async def _settings(self) -> str:
        """How the store's own writing connection is set, asked of that connection itself: no other one can tell."""
        url = self.url()
        store = open_store(url, SystemClock())
        assert isinstance(store, SqliteStore)
        await store.open()
        try:
            journal, synchronous = await store._writing().call(_pragmas)
        finally:
            await store.close()
        return f"{parse_url(url)[0]} {sqlite3.sqlite_version}, journal_mode={journal}, synchronous={synchronous}"

    def figures(self, sizes: Sizes) -> tuple[Figure, ...]:
        return figures(sizes, self.name)

    def _fresh(self) -> Path:
        return self._folder / f"{self.name}{next(self._numbers)}.db"


def _pragmas(tx: Transaction) -> tuple[str, str]:
    (journal,) = tx.execute("PRAGMA journal_mode").fetchone()
    (synchronous,) = tx.execute("PRAGMA synchronous").fetchone()
    return str(journal), _SYNCHRONOUS[synchronous]
