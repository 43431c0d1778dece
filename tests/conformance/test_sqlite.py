"""The SQLite store keeps the contract."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from perdure.ports.store import Store
from perdure.stores.sqlite import SqliteStore
from perdure.testing import ManualClock
from perdure.testing.conformance import CASES, Case, run_case, run_oracle


class Factory:
    """Stores on one file of the test's own folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._made = 0
        self._opened: dict[int, tuple[Path, ManualClock]] = {}

    async def make(self, clock: ManualClock) -> Store:
        self._made += 1
        return await self._open(self._folder / f"{self._made}.db", clock)

    async def reopen(self, store: Store) -> Store:
        await store.close()
        return await self._open(*self._opened[id(store)])

    async def second(self, store: Store) -> Store:
        return await self._open(*self._opened[id(store)])

    async def lose_wake(self, store: Store, incarnation: int) -> None:
        path, _ = self._opened[id(store)]
        with closing(sqlite3.connect(path)) as connection, connection:
            connection.execute("UPDATE runs SET wake_at = NULL WHERE incarnation = ?", (incarnation,))

    async def dispose(self, store: Store) -> None:
        await store.close()

    async def _open(self, path: Path, clock: ManualClock) -> Store:
        # Nothing here cuts the power, so that the disk need not be waited for.
        store = SqliteStore(str(path), clock=clock, synchronous="OFF")
        await store.open()
        self._opened[id(store)] = (path, clock)
        return store


@pytest.mark.parametrize("case", CASES, ids=str)
def test_conformance(case: Case, tmp_path: Path) -> None:
    run_case(case, Factory(tmp_path))


@pytest.mark.parametrize("seed", range(30))
def test_oracle(seed: int, tmp_path: Path) -> None:
    run_oracle(seed, Factory(tmp_path))
