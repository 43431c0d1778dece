"""Beside a million runs, no verb walks through a table, and none takes longer than 20 ms; with statistics and without.

What a statement within a function does is seen by what PostgreSQL counts: sequential scans of each table that is large here.
Each verb is called often enough that the server has settled on one plan for all its parameters.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator
from typing import Any, Final

import pytest

from perdure.model.commit import Cancel, Create, Delete
from perdure.model.conditions import attr
from perdure.model.run import RunKey, Status
from perdure.ports.fleet import Serves
from perdure.ports.store import Held, RunQuery, Store
from perdure.stores.postgres import PostgresStore
from perdure.testing import ManualClock
from perdure.testing.conformance.kit import new, request, to_run, to_token
from tests.integration.postgres_million import RUNS, fill, forget, leave_alone
from tests.servers import migrated
from tests.servers.databases import Databases, Schema
from tests.servers.postgres import Server
from tests.servers.sql import Admin

#: Seconds, of the best call.
LIMIT: Final = 0.02

#: More than the five after which PostgreSQL considers a plan that serves all parameters.
CALLS: Final = 10

#: How often a verb that was slow is tried again: the machine has others to serve.
AGAIN: Final = 3

WORK, BUSY, QUIET, OLD = (Serves(name, "1", "print-b") for name in ("work", "busy", "quiet", "old"))
NAMESPACES = tuple(f"ns{number}" for number in range(0, 1000, 50))


def listing(**fields: Any) -> Callable[[Store], Awaitable[Any]]:
    async def call(store: Store) -> int:
        return len(await store.runs(RunQuery(**fields)))

    return call


def claiming(*serves: Serves, **fields: Any) -> Callable[[Store], Awaitable[Any]]:
    async def call(store: Store) -> int:
        return len(await store.claim(request(serves=serves, **fields)))

    return call


def due(*serves: Serves, **fields: Any) -> Callable[[Store], Awaitable[Any]]:
    async def call(store: Store) -> bool:
        return await store.next_wake(request(serves=serves, **fields)) is not None

    return call


def writing(*makes: Callable[[int], Any]) -> Callable[[Store], Awaitable[Any]]:
    """Batches of one, each time another."""
    number = 0

    async def call(store: Store) -> bool:
        nonlocal number
        number += 1
        for make in makes:
            await store.write([make(number)])
        return True

    return call


async def _standing(store: Store) -> int:
    return len(await store.standing(range(1, RUNS, 10_000)))


async def _renewing(store: Store) -> int:
    await store.release("ada", [Held(incarnation, 5, 0) for incarnation in range(1, RUNS, 10_000)])
    return 1


async def _unblocking(store: Store) -> int:
    return 1 + await store.unblock([QUIET, OLD])


async def _auditing(store: Store) -> int:
    return 1 + len(await store.audit())


async def _blocking(store: Store) -> int:
    return len(await store.block_unserved(0))


async def _blocking_nothing(store: Store) -> int:
    return len(await store.block_unserved(10**15))


async def _reading(store: Store) -> int:
    await store.messages(RUNS)
    await store.values(RUNS, ["k"])
    return len(await store.history(range(1, RUNS, 10_000)))


#: Each returns something other than 0 where it found what it is to find.
VERBS: Final[dict[str, Callable[[Store], Awaitable[Any]]]] = {
    "newest page": listing(),
    "deep page": listing(before=RUNS // 2),
    "status": listing(statuses=(Status.COMPLETED,)),
    "rare status": listing(statuses=(Status.FAILED,)),
    "statuses": listing(statuses=(Status.PENDING, Status.RUNNING, Status.SUSPENDED, Status.BLOCKED)),
    "status, deep": listing(statuses=(Status.COMPLETED,), before=RUNS // 3),
    "workflow": listing(workflow="work"),
    "old workflow": listing(workflow="old"),
    "workflow, deep": listing(workflow="old", before=RUNS // 3),
    "namespace": listing(namespace="ns7"),
    "namespace, deep": listing(namespace="ns7", before=RUNS // 2),
    "tag": listing(tags=("even",)),
    "tag, deep": listing(tags=("even",), before=RUNS // 2),
    "rare tag": listing(tags=("rare",)),
    "attribute": listing(where=(attr("plan") == "free",)),
    "rare attribute": listing(where=(attr("customer") == 41,)),
    "attributes": listing(where=(attr("customer") == 41, attr("plan") == "pro")),
    "attribute, deep": listing(where=(attr("plan") == "pro",), before=RUNS // 2),
    "status and rare tag": listing(tags=("rare",), statuses=(Status.COMPLETED,)),
    "workflow and rare attribute": listing(where=(attr("customer") == 41,), workflow="work"),
    "range of an attribute": listing(where=(attr("customer") >= 40, attr("customer") < 42)),
    "range of an attribute, deep": listing(
        where=(attr("customer") > 8_000, attr("customer") < 8_010), before=RUNS // 2
    ),
    "rare attribute and a range": listing(where=(attr("plan") != "free", attr("customer") == 41)),
    "tag and range": listing(tags=("even",), where=(attr("customer") > 41,)),
    "several tags": listing(tags=("rare", "even")),
    "children": listing(parent=RunKey("", 500_001)),
    "due": due(WORK),
    "due, several": due(WORK, BUSY, OLD),
    "due, some namespaces": due(WORK, QUIET, namespaces=NAMESPACES),
    "claim from a backlog": claiming(BUSY, limit=20),
    "claim the few": claiming(WORK, BUSY, limit=40),
    "claim from some namespaces": claiming(WORK, BUSY, limit=5, namespaces=("busy", *NAMESPACES)),
    "audit": _auditing,
    "unblock": _unblocking,
    "standing": _standing,
    "renew": _renewing,
    "reading": _reading,
    "start": writing(lambda number: Create(run=new(f"new {time.monotonic_ns()} {number}", tags=("even",)))),
    "send": writing(lambda number: to_run(f"new {number}"), lambda number: to_token(f"token {number}")),
    "cancel": writing(
        lambda number: Create(run=new("to cancel")),
        lambda number: Cancel("to cancel", b'"stop"'),
        lambda number: Delete("to cancel", b'"gone"'),
    ),
}

#: Blocks two hundred runs with each call, which the others found.
LAST = {"block what nobody serves": _blocking}

NOTHING = {"claim nothing": claiming(QUIET, OLD, limit=20), "block nothing": _blocking_nothing}

SCANS = """
    SELECT relname, seq_scan FROM pg_stat_user_tables
    WHERE schemaname = $1 AND relname IN ('runs', 'tags', 'attributes', 'history')
"""


@pytest.fixture(scope="module", params=[False, True], ids=["without-statistics", "with-statistics"])
def million(
    request: pytest.FixtureRequest, postgres_server: Server, databases_on: Callable[[Server], Databases]
) -> Iterator[Schema]:
    databases = databases_on(postgres_server)
    url = databases.create("million", durable=False)
    schema = Schema(url, "perdure")
    try:
        migrated.migrate(schema)
        fill(schema)
        if request.param:
            databases.admin(url).execute("ANALYZE")
        yield schema
    finally:
        databases.drop(url)


async def best_of(call: Callable[[Store], Awaitable[Any]], store: Store) -> tuple[float, Any]:
    times: list[float] = []
    found: Any = None
    for _ in range(CALLS):
        began = time.perf_counter()
        found = await call(store)
        times.append(time.perf_counter() - began)
    return min(times[CALLS // 2 :]), found


def test_no_verb_walks_through_a_million_runs(million: Schema) -> None:
    slow: list[str] = []
    with Admin(million.url) as admin:
        for name, call in (VERBS | NOTHING | LAST).items():
            before = scans(admin, million)
            taken, found = asyncio.run(measured(million, call))
            for _ in range(AGAIN):
                if taken > LIMIT:  # Others may have been at it.
                    taken = min(taken, asyncio.run(measured(million, call))[0])
            walked = [table for table, number in scans(admin, million).items() if number != before[table]]
            if (taken > LIMIT and name not in LAST) or walked or bool(found) == (name in NOTHING):
                slow.append(f"{name}: {taken * 1000:.1f} ms, found {found}, walked through {walked}")
    assert slow == []


#: Of a million: enough for a walk to be seen.
PARTS: Final = 10

#: Rows: so many are read by whoever fills the tables, and a few more by those that come to empty ones.
FILLING: Final = RUNS // PARTS + 1_000


def test_plans_made_while_there_was_nothing_serve_when_there_is_much(postgres_database: Callable[..., str]) -> None:
    """A process that begins on an empty database keeps its plans until somebody analyzes the tables: a minute or more."""
    schema = Schema(postgres_database("growing"), "perdure")
    migrated.migrate(schema)
    with Admin(schema.url) as admin:
        leave_alone(schema, admin)
        taken = asyncio.run(grown(schema, admin))
        scans(admin, schema)
        walked = {row[0]: row[1] for row in admin.rows(READ, schema.name) if row[1] > FILLING}
    assert walked == {}
    assert {name: time for name, time in taken.items() if time > LIMIT} == {}


async def grown(schema: Schema, admin: Admin) -> dict[str, float]:
    """How long each verb takes in a session that was there before the runs were."""
    store = PostgresStore(schema.store, clock=ManualClock())
    await store.open()
    try:
        for call in VERBS.values():
            await best_of(call, store)
        forget(schema, admin)
        await asyncio.to_thread(fill, schema, PARTS)
        return {name: min([(await best_of(call, store))[0] for _ in range(2)]) for name, call in VERBS.items()}
    finally:
        await store.close()


READ = """
    SELECT relname, seq_tup_read FROM pg_stat_user_tables
    WHERE schemaname = $1 AND relname IN ('runs', 'tags', 'attributes', 'history')
"""


async def measured(schema: Schema, call: Callable[[Store], Awaitable[Any]]) -> tuple[float, Any]:
    store = PostgresStore(schema.store, clock=ManualClock())
    await store.open()
    try:
        return await best_of(call, store)
    finally:
        await store.close()


def scans(admin: Admin, schema: Schema) -> dict[str, int]:
    """Sequential scans so far. What a connection did is counted when it has ended."""
    while admin.value(
        "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'perdure' AND datname = current_database()"
    ):
        pass
    return {row["relname"]: row["seq_scan"] for row in admin.rows(SCANS, schema.name)}
