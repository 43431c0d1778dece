"""EVT-01 beside a crowd: a publish reads the waits that have one of its fields, however many others wait for its name.

Counted, not timed: how many rows PostgreSQL read of the waits, how many steps SQLite's machine took.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Final

import pytest

from perdure.model.commit import Cancel, Create, Published
from perdure.model.events import EventWait, facet
from perdure.ports.store import Store
from perdure.stores.postgres import PostgresStore
from perdure.stores.sqlite import SqliteStore
from perdure.stores.sqlite import connection as connections
from perdure.testing import ManualClock
from perdure.testing.conformance.events import having, publish
from perdure.testing.conformance.kit import new, of, request, turn
from tests.servers import migrated
from tests.servers.databases import Schema
from tests.servers.sql import Admin

CROWD: Final = 4_000
#: Far below one for each of the crowd.
FEW: Final = 400


def match(order: int) -> tuple[str, ...]:
    return (facet("orderId", order), facet("kind", "order"))


async def gather(store: Store) -> None:
    """A run that waits for each order, another one that waits for one, and as many events kept of another name."""
    await store.write([Create(run=new("crowd"))])
    [claimed] = await store.claim(request())
    listens = tuple(EventWait(order, "paid", match(order)) for order in range(CROWD))
    await store.write([turn(claimed.run, listens=listens)])
    kept = [publish(f"kept {order}", name="sent", facets=having(orderId=order)) for order in range(CROWD)]
    await store.write(kept)


async def reach(store: Store, orders: Sequence[int]) -> None:
    """One order each: published, kept, and taken when it was kept."""
    for order in orders:
        event = publish(f"x {order}", name="paid", facets=having(orderId=order, kind="order", amount=5))
        assert of(Published, (await store.write([event]))[0]).reached == 1
        nobody = publish(f"y {order}", name="paid", facets=having(orderId=-order - 1, kind="order"), keep=None)
        assert of(Published, (await store.write([nobody]))[0]).reached == 0
    await store.write([Create(run=new(f"late {orders[0]}", priority=9))])
    [claimed] = await store.claim(request(limit=1))
    listens = tuple(EventWait(order, "sent", having(orderId=order)) for order in orders)
    await store.write([turn(claimed.run, listens=listens)])
    assert len(await store.messages(claimed.run.incarnation)) == len(orders)
    await store.write([Cancel(claimed.run.id, b'"stop"')])


READ = """
    SELECT coalesce(sum(idx_tup_read), 0) FROM pg_stat_user_indexes
    WHERE schemaname = $1 AND relname IN ('waits', 'kept_events', 'kept_facets')
"""


def read(admin: Admin, schema: Schema) -> int:
    """Index entries read so far. What a connection did is counted when it has ended."""
    while admin.value(
        "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'perdure' AND datname = current_database()"
    ):
        pass
    return int(admin.value(READ, schema.name))


async def opened(schema: Schema, *deeds: Callable[[Store], Awaitable[None]]) -> None:
    """Do this in one session."""
    store = PostgresStore(schema.store, clock=ManualClock())
    await store.open()
    try:
        for deed in deeds:
            await deed(store)
    finally:
        await store.close()


@pytest.mark.parametrize("plans", ["made-before", "made-after"])
def test_evt_01_a_publish_on_postgres_does_not_read_the_crowd(
    postgres_database: Callable[..., str], plans: str
) -> None:
    schema = Schema(postgres_database("crowd"), "perdure")
    migrated.migrate(schema)
    with Admin(schema.url) as admin:
        if plans == "made-after":
            asyncio.run(opened(schema, gather))
            admin.execute("ANALYZE")
            gathered: list[Callable[[Store], Awaitable[None]]] = []
        else:
            gathered = [small, gather]
        # So often that PostgreSQL has settled on its plans.
        asyncio.run(
            opened(schema, *gathered, partial(reach, orders=range(100, 110)), partial(reach, orders=range(20, 30)))
        )
        before = read(admin, schema)
        asyncio.run(opened(schema, partial(reach, orders=range(200, 210))))
        assert read(admin, schema) - before < FEW


async def test_evt_01_a_publish_on_sqlite_does_not_read_the_crowd(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps = [0]
    connect = connections.connect

    def watched(path: str, synchronous: str) -> sqlite3.Connection:
        def tick() -> None:
            steps[0] += 100

        connection = connect(path, synchronous)
        connection.set_progress_handler(tick, 100)
        return connection

    monkeypatch.setattr(connections, "connect", watched)
    taken: list[int] = []
    for crowd in (False, True):
        store = SqliteStore(str(tmp_path / f"{crowd}.db"), clock=ManualClock(), synchronous="OFF")
        await store.open()
        if crowd:
            await gather(store)
        else:
            await small(store)
        steps[0] = 0
        await reach(store, range(10))
        taken.append(steps[0])
        await store.close()
    assert taken[1] < 2 * taken[0], taken


async def small(store: Store) -> None:
    """Nobody but those that are reached."""
    await store.write([Create(run=new("few"))])
    [claimed] = await store.claim(request())
    await store.write([turn(claimed.run, listens=tuple(EventWait(order, "paid", match(order)) for order in range(10)))])
    await store.write([publish(f"kept {order}", name="sent", facets=having(orderId=order)) for order in range(10)])
