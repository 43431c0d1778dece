"""The memory store keeps the contract."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from perdure.ports.store import Store
from perdure.stores.memory import MemoryStore
from perdure.testing import ManualClock
from perdure.testing.conformance import CASES, Case, run_case, run_oracle


class Forgetful(MemoryStore):
    """Can be made to do what no verb does."""

    def lose_wake(self, incarnation: int) -> None:
        with self._changing("tamper") as tables:
            tables.put_run(replace(tables.actors[incarnation].run, wake_at=None))


class Factory:
    async def make(self, clock: ManualClock) -> Store:
        return Forgetful(clock)

    async def reopen(self, store: Store) -> Store:
        await store.close()
        await store.open()
        return store

    async def second(self, store: Store) -> Store:
        assert isinstance(store, MemoryStore)
        return store.view()

    async def lose_wake(self, store: Store, incarnation: int) -> None:
        assert isinstance(store, Forgetful)
        store.lose_wake(incarnation)

    async def dispose(self, store: Store) -> None:
        await store.close()


@pytest.mark.parametrize("case", CASES, ids=str)
def test_conformance(case: Case) -> None:
    run_case(case, Factory())


@pytest.mark.parametrize("seed", range(20))
def test_oracle(seed: int) -> None:
    """A memory store equals another: what is checked here is the script, which must not stumble."""
    run_oracle(seed, Factory())
