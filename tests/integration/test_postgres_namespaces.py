"""What claims cost beside namespaces whose runs only sleep: counted in pages, not in time."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Final

import pytest

from perdure.model.commit import Create
from perdure.model.run import Status
from perdure.ports.store import RunQuery
from perdure.stores.postgres import PostgresStore, connections
from perdure.testing import ManualClock
from perdure.testing.clock import START
from perdure.testing.conformance.kit import SECOND, ids, new, request
from tests.servers import migrated
from tests.servers.databases import Schema
from tests.servers.sql import Admin

#: Namespaces in each of which one run sleeps.
NAMESPACES: Final = (10, 1_000, 20_000)

#: For this session, as our own have it.
AS_OURS: Final = "; ".join(f"SET {name} = '{value}'" for name, value in connections._SETTINGS.items())

SLEEPERS: Final = """
INSERT INTO perdure.runs (
    id, incarnation, workflow, version, namespace, status, input, seed, epoch, n, inbox, seen, wake_at, listening, depth,
    format, recoveries, created_at, updated_at, urgency, definition
)
SELECT @name@ || i, nextval('perdure.incarnations'), 'work', '1', @space@, 2, '{}', 7, 0, 0, 0, 0, @wake@, false, 0, 1,
    0, 0, 0, 0, perdure.definition_1('work', '1')
FROM generate_series(1, @many@) AS i
"""

NOW: Final = START
CLAIM: Final = f"SELECT * FROM perdure.claim_1({NOW}, 'ada', NULL, ARRAY['work'], ARRAY['1'], 10, 1000000, 1, NULL)"
ASKED: Final = {
    "claim": CLAIM,
    "next wake": "SELECT perdure.next_wake_1(ARRAY['work'], ARRAY['1'], NULL, 1)",
    "unserved": f"SELECT * FROM perdure.unserved_1({NOW}, {NOW}, 200)",
}


def fill(admin: Admin, many: int, name: str, space: str, wake: str) -> None:
    text = SLEEPERS
    for key, value in {"many": f"{many}", "name": f"'{name}'", "space": space, "wake": wake}.items():
        text = text.replace(f"@{key}@", value)
    admin.execute(text)


def pages(admin: Admin, query: str) -> int:
    """How many a query looks at; what it changes is undone."""
    plan = ""
    for _ in range(2):  # The first time it reads catalogs, too.
        admin.execute("BEGIN")
        plan = admin.value(f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) {query}")
        admin.execute("ROLLBACK")
    node = json.loads(plan)[0]["Plan"]
    return int(node["Shared Hit Blocks"]) + int(node["Shared Read Blocks"])


@pytest.fixture
def schema(postgres_database: Callable[..., str]) -> Schema:
    schema = Schema(postgres_database("spaces"), "perdure")
    migrated.migrate(schema)
    return schema


def test_claims_cost_the_same_beside_any_number_of_namespaces_that_sleep(schema: Schema) -> None:
    with Admin(schema.url) as admin:
        admin.execute(AS_OURS)
        costs: dict[str, list[int]] = {name: [] for name in ASKED}
        there = 0
        for many in NAMESPACES:
            fill(admin, many - there, f"s{many}-", f"'ns{many}-' || i", f"{NOW + 3600 * SECOND} + i")
            there = many
            if many == NAMESPACES[0]:
                fill(admin, 5, "due", "'ns' || i", f"{NOW - 5}")
            for name, query in ASKED.items():
                costs[name].append(pages(admin, query))
    # The tree of an index grows by a level; and a claim looks at a hundred namespaces before it looks only at what is due.
    *others, few, much = costs.pop("claim")
    assert much <= few + 200, (others, few, much)
    assert all(cost[-1] <= 2 * cost[0] for cost in costs.values()), costs


def test_a_backlog_costs_no_more_and_starves_nobody_among_thousands_of_namespaces(schema: Schema) -> None:
    with Admin(schema.url) as admin:
        fill(admin, 20_000, "s", "'ns' || i", f"{NOW + 3600 * SECOND} + i")
        fill(admin, 100_000, "backlog", "'busy'", f"{NOW} - 200000 + i")
        fill(admin, 1, "last", "'zzz'", f"{NOW} - 1")
        admin.execute(AS_OURS)
        assert pages(admin, CLAIM) < 2_500


async def test_every_namespace_has_its_turn_where_there_are_too_many_for_one_look(schema: Schema) -> None:
    with Admin(schema.url) as admin:
        fill(admin, 1_000, "s", "'ns' || i", f"{NOW + 3600 * SECOND} + i")
        fill(admin, 1_000, "backlog", "'busy'", f"{NOW} - 200000 + i")
    store = PostgresStore(schema.store, clock=ManualClock())
    await store.open()
    try:
        await store.write([Create(run=new("last", namespace="zzz")), Create(run=new("first", namespace="aaa"))])
        claimed: list[str] = []
        for _ in range(12):
            claimed += ids(await store.claim(request(limit=5)))
        assert len(claimed) == 60
        assert {"first", "last"} <= set(claimed)
        assert claimed.index("first") < 5
        assert {run.namespace for run in await store.runs(RunQuery(statuses=(Status.RUNNING,), limit=100))} == {
            "aaa",
            "busy",
            "zzz",
        }
    finally:
        await store.close()
