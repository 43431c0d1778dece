"""Hints between processes on PostgreSQL: lost and found again, and done without."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from perdure import Context, Perdure, StoreUnavailable, step, workflow
from perdure.ports.store import RunQuery
from perdure.stores.postgres import PostgresStore, hints
from perdure.stores.postgres.hints import Hints
from perdure.stores.postgres.place import place_of
from perdure.testing import ManualClock
from tests.servers.databases import Schema
from tests.servers.proxy import Proxy
from tests.servers.sql import Admin

#: Who listens, and who tells: what they said last was said so.
WHO = (
    "FROM pg_stat_activity WHERE datname = current_database() AND query LIKE '%pg_notify(%' AND pid <> pg_backend_pid()"
)


class Listener:
    """One that counts what it was told."""

    def __init__(self, store: str, ping: float = 5.0, echo: float = 5.0) -> None:
        self.hints = Hints(place_of(store), ping=ping, echo=echo)
        self.heard = 0
        self._more = asyncio.Event()
        self.hints.add(self._hear)

    def _hear(self) -> None:
        self.heard += 1
        self._more.set()

    async def up_to(self, number: int) -> None:
        while self.heard < number:
            self._more.clear()
            await self._more.wait()


@asynccontextmanager
async def listening(store: str, ping: float = 5.0, echo: float = 5.0) -> AsyncIterator[Listener]:
    listener = Listener(store, ping, echo)
    try:
        await listener.up_to(1)  # The first look, at what was told before.
        yield listener
    finally:
        await listener.hints.stop()


async def known(listener: Listener, others: int = 1) -> None:
    """Until it knows of so many others."""
    while len(listener.hints._teller._others) < others:  # noqa: ASYNC110  # nobody tells us
        await asyncio.sleep(0.01)


async def test_f22_a_listener_whose_backend_is_killed_listens_again_and_looks_once(
    postgres_migrated: Schema, postgres_admin: Admin
) -> None:
    async with listening(postgres_migrated.store) as one, Proxy(postgres_migrated.url) as proxy:
        through = Schema(proxy.url, postgres_migrated.name)
        async with listening(through.store) as other:
            await known(other)  # it has said hello, and was answered
            made = proxy.made
            assert await asyncio.to_thread(postgres_admin.value, f"SELECT count(pg_terminate_backend(pid)) {WHO}")
            await proxy.connected(made + 1)
            await other.up_to(2)  # nobody told it anything: it looks
            await one.up_to(2)
            await asyncio.gather(one.hints.listening.wait(), other.hints.listening.wait())
            heard = other.heard
            one.hints.changed()
            await other.up_to(heard + 1)
            heard = one.heard
            other.hints.changed()
            await one.up_to(heard + 1)
            assert proxy.made - made <= 3  # to listen, to tell, and perhaps once more
            assert other.heard <= 4  # a hello and its answer are nothing to look for


async def test_who_comes_and_goes_and_writes_nothing_has_nobody_look(postgres_migrated: Schema) -> None:
    async with listening(postgres_migrated.store) as one, listening(postgres_migrated.store) as two:
        await asyncio.gather(known(one), known(two))
        async with listening(postgres_migrated.store) as visitor:
            await known(visitor, 2)
        assert (one.heard, two.heard) == (1, 1)
        two.hints.changed()
        await one.up_to(2)


async def test_f22_while_the_server_is_away_it_is_tried_less_and_less_often(
    postgres_migrated: Schema, monkeypatch: pytest.MonkeyPatch
) -> None:
    paused: list[float] = []
    enough = asyncio.Event()

    async def connect(*arguments: object, **options: object) -> None:
        raise StoreUnavailable("away")

    async def pause(self: Hints, seconds: float) -> None:
        paused.append(seconds)
        if len(paused) < 10:
            await asyncio.sleep(0)
        else:
            enough.set()
            await asyncio.Event().wait()

    monkeypatch.setattr(hints, "connect", connect)
    monkeypatch.setattr(Hints, "_pause", pause)
    listener = Listener(postgres_migrated.store)
    await enough.wait()
    await listener.hints.stop()
    assert paused == pytest.approx([0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 5.0, 5.0, 5.0, 5.0])


async def test_f23_a_connection_that_is_dead_without_saying_so_is_found_by_its_ping(postgres_migrated: Schema) -> None:
    async with listening(postgres_migrated.store, 0.1) as one, Proxy(postgres_migrated.url) as proxy:
        through = Schema(proxy.url, postgres_migrated.name)
        async with listening(through.store, ping=0.1, echo=0.3) as other:
            proxy.silence()
            await other.up_to(2)
            one.hints.changed()
            await other.up_to(3)


async def test_f23_a_call_on_such_a_connection_is_given_up_and_the_next_one_works(postgres_migrated: Schema) -> None:
    async with Proxy(postgres_migrated.url) as proxy:
        through = Schema(proxy.url, postgres_migrated.name)
        store = PostgresStore(through.store, clock=ManualClock(), patience=0.3)
        await store.open()
        try:
            assert await store.runs(RunQuery()) == []
            proxy.silence()
            with pytest.raises(StoreUnavailable, match="cannot be reached"):
                await store.runs(RunQuery())
            assert await store.runs(RunQuery()) == []
        finally:
            await store.close()


@step
async def doubled(n: int) -> int:
    return 2 * n


@workflow
async def asked(ctx: Context, n: int) -> int:
    return await doubled(n) + await ctx.wait_for_signal("more", type=int)


@workflow
async def asks(ctx: Context, n: int) -> int:
    return await asked.using(id="child").run(n)


async def test_without_notifications_everything_works_only_later(
    postgres_migrated: Schema, postgres_admin: Admin
) -> None:
    """As through a PgBouncer, where nobody can listen: processes find what others did when they look next."""
    url = f"{postgres_migrated.store}&pgbouncer=true"
    async with (
        Perdure(url, include=[asks], poll=0.05),
        Perdure(url, include=[asked, doubled], poll=0.05),
        Perdure(url, include=[asks, asked], poll=0.05, consume=False) as client,
    ):
        run = await client.start(asks, 3, id="parent")
        await client.signal_with_start(asked, 1, id="other", signal="more", payload=5)
        assert await client.get_run("other").result(timeout=30) == 7
        await client.get_run("parent").wait(timeout=30)
        await client.get_run("child").wait(timeout=30)
        await client.get_run("child").signal("more", 4)
        assert await run.result(timeout=30) == 10
        assert await asyncio.to_thread(postgres_admin.value, f"SELECT count(*) {WHO}") == 0
