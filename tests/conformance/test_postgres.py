"""The PostgreSQL store keeps the contract, on every server that there is."""

from __future__ import annotations

import pytest

from perdure.ports.store import Store
from perdure.stores.postgres import PostgresStore
from perdure.testing import ManualClock
from perdure.testing.conformance import CASES, Case, run_case, run_oracle
from tests.servers.databases import Schema
from tests.servers.sql import Admin


class Factory:
    """Stores in one schema that is empty at first."""

    def __init__(self, schema: Schema, admin: Admin) -> None:
        self._schema = schema
        self._admin = admin
        self._clocks: dict[int, ManualClock] = {}

    async def make(self, clock: ManualClock) -> Store:
        store = PostgresStore(self._schema.store, clock=clock)
        await store.open()
        self._clocks[id(store)] = clock
        return store

    async def reopen(self, store: Store) -> Store:
        await store.close()
        return await self.second(store)

    async def second(self, store: Store) -> Store:
        return await self.make(self._clocks[id(store)])

    async def lose_wake(self, store: Store, incarnation: int) -> None:
        self._admin.execute(f'UPDATE "{self._schema.name}".runs SET wake_at = NULL WHERE incarnation = $1', incarnation)

    async def dispose(self, store: Store) -> None:
        await store.close()


@pytest.fixture
def factory(postgres_migrated: Schema, postgres_admin: Admin) -> Factory:
    return Factory(postgres_migrated, postgres_admin)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_conformance(case: Case, factory: Factory) -> None:
    run_case(case, factory)


@pytest.mark.parametrize("seed", range(12))
def test_oracle(seed: int, factory: Factory) -> None:
    run_oracle(seed, factory)
