"""Through a PgBouncer in transaction mode: each transaction may run in another session of the server."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from urllib.parse import quote

import pytest

from perdure import Context, Perdure, Status, step, workflow
from perdure.model.commit import Applied, Create
from perdure.model.errors import StoreMismatch
from perdure.ports.store import Store
from perdure.stores.postgres import PostgresStore
from perdure.testing import ManualClock
from perdure.testing.conformance import CASES, Case, run_case, run_oracle
from perdure.testing.conformance.kit import new
from tests.servers.databases import Schema
from tests.servers.pgbouncer import PgBouncer
from tests.servers.sql import Admin

#: Each topic's first, and all where two are at work at once.
SOME = [
    case for number, case in enumerate(CASES) if case.topic == "concurrency" or CASES[number - 1].topic != case.topic
]


class Factory:
    """Stores through PgBouncer."""

    def __init__(self, schema: Schema, admin: Admin, direct: Schema) -> None:
        self._url = pooled(schema, direct)
        self._schema = schema
        self._admin = admin
        self._clocks: dict[int, ManualClock] = {}

    async def make(self, clock: ManualClock) -> Store:
        store = PostgresStore(self._url, clock=clock)
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


def pooled(schema: Schema, direct: Schema | None = None) -> str:
    """The store's URL; with `direct`, it listens there."""
    listen = "" if direct is None else f"&listen={quote(direct.url, safe='')}"
    return f"{schema.store}&pgbouncer=true{listen}"


@pytest.fixture
def narrow(postgres_migrated: Schema) -> Iterator[Schema]:
    """Through a PgBouncer that has three sessions for all."""
    with PgBouncer(postgres_migrated.url, {"default_pool_size": 3}) as bouncer:
        yield Schema(bouncer.url, postgres_migrated.name)


@pytest.mark.parametrize("case", SOME, ids=str)
def test_conformance(case: Case, narrow: Schema, postgres_migrated: Schema, postgres_admin: Admin) -> None:
    run_case(case, Factory(narrow, postgres_admin, postgres_migrated))


@pytest.mark.parametrize("seed", range(3))
def test_oracle(seed: int, narrow: Schema, postgres_migrated: Schema, postgres_admin: Admin) -> None:
    run_oracle(seed, Factory(narrow, postgres_admin, postgres_migrated))


@step
async def double(number: int) -> int:
    return 2 * number


@workflow(name="bounced", version="1")
async def bounced(ctx: Context, number: int) -> int:
    doubled = await double(number)
    more: int = await ctx.wait_for_signal("more", type=int)
    return doubled + more


async def through(url: str, poll: float, callers_poll: float) -> None:
    """Some runs from one app to another, with a signal each."""
    async with (
        Perdure(url, include=[bounced, double], poll=poll),
        Perdure(url, include=[bounced], consume=False, poll=callers_poll) as caller,
    ):
        runs = [await caller.start(bounced, number, id=f"{number}") for number in range(10)]
        for run in runs:
            await run.signal("more", 1)
        assert [await run.result(timeout=30) for run in runs] == [2 * number + 1 for number in range(10)]
        assert [await run.status() for run in runs] == [Status.COMPLETED] * 10


async def test_an_app_migrates_and_works_through_it_and_hears_past_it(
    bouncer_schema: Schema, postgres_schema: Schema
) -> None:
    """Polling would take an hour."""
    await through(pooled(bouncer_schema, postgres_schema), poll=3600, callers_poll=3600)


async def test_where_it_cannot_listen_it_polls(bouncer_schema: Schema) -> None:
    await through(pooled(bouncer_schema), poll=0.1, callers_poll=0.1)


TELLS = "add pgbouncer=true to the URL"


async def test_who_forgets_to_say_so_is_told(bouncer_schema: Schema) -> None:
    with pytest.raises(StoreMismatch, match=TELLS):
        await PostgresStore(bouncer_schema.store, clock=ManualClock()).open()


async def test_who_forgets_to_say_so_to_one_that_lets_it_pass_is_told_or_it_works(postgres_migrated: Schema) -> None:
    """That depends on whose statements lie in the sessions that it gets."""
    settings: dict[str, str | int] = {
        "ignore_startup_parameters": "jit,lock_timeout,plan_cache_mode",
        "default_pool_size": 2,
    }
    with PgBouncer(postgres_migrated.url, settings) as bouncer:
        url = Schema(bouncer.url, postgres_migrated.name).store
        for result in await asyncio.gather(*(used(url, which) for which in range(4)), return_exceptions=True):
            if result is not None:
                assert isinstance(result, StoreMismatch), result
                assert TELLS in str(result)


async def used(url: str, which: int) -> None:
    store = PostgresStore(url, clock=ManualClock())
    await store.open()
    try:
        for number in range(20):
            [answer] = await store.write([Create(run=new(f"{which} {number}"))])
            assert isinstance(answer, Applied)
            assert await store.get(f"{which} {number}")
    finally:
        await store.close()
