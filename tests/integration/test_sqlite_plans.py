"""No verb walks through a table: each statement finds its rows by a key or an index, however many others there are."""

from __future__ import annotations

import re
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from perdure.model.commit import Create
from perdure.model.conditions import attr
from perdure.model.run import RunKey, Status
from perdure.ports.store import Facet, RunQuery
from perdure.stores.sqlite import SqliteStore
from perdure.stores.sqlite import connection as connections
from perdure.testing import ManualClock
from perdure.testing.conformance.fleet import process
from perdure.testing.conformance.kit import LEASE, new, request
from tests.integration.sqlite_scenarios import SCENARIOS, find

#: What may be walked through: rows that came with the statement, the tags of one run, its own intermediate results, an index
#: that holds only what is wrong, the first entry of the index of those that wait, and the few processes there are.
HARMLESS = re.compile(
    r"SCAN (\d+ )?(CONSTANT ROWS?|\(.*\)|v|found|heads|tree|chain|(asked|p|f|json_each) VIRTUAL TABLE INDEX 1:"
    r"|each_tag VIRTUAL TABLE INDEX 1:( LEFT-JOIN)?|[cht]|arrivals|processes"
    r"|runs USING INDEX runs_astray|s USING COVERING INDEX runs_due)$"
)

QUERIES = (
    RunQuery(statuses=(Status.FAILED, Status.DEAD)),
    RunQuery(workflow="work"),
    RunQuery(namespace="red"),
    RunQuery(origin="cron"),
    RunQuery(tags=("x",), before=7),
    RunQuery(tags=("x", "y"), origin="cron"),
    RunQuery(where=(attr("customer") == 42, attr("plan") == "pro"), before=7),
    RunQuery(where=(attr("customer") == 42,), tags=("x",), statuses=(Status.FAILED, Status.DEAD)),
    RunQuery(where=(attr("amount") > 42, attr("amount") < 50, attr("plan") != "pro"), before=7),
    RunQuery(where=(attr("amount") > 42,), statuses=(Status.FAILED,)),
    RunQuery(where=(attr("amount") > 42,), tags=("x",)),
    RunQuery(parent=RunKey("parent", 1), statuses=(Status.RUNNING,)),
)


def walks(path: Path, statements: set[str]) -> list[str]:
    """The statements that look at more rows than they need."""
    found: list[str] = []
    with closing(sqlite3.connect(path)) as connection:
        for statement in sorted(statements):
            if statement.split()[0] in ("SELECT", "INSERT", "UPDATE", "DELETE", "WITH"):
                plan = [row[3] for row in connection.execute(f"EXPLAIN QUERY PLAN {statement}")]
                found += [
                    f"{step}: {statement}" for step in plan if step.startswith("SCAN") and not HARMLESS.match(step)
                ]
    return found


async def everything(store: SqliteStore) -> None:
    """What only reads, and what keeps the store well."""
    for query in QUERIES:
        await store.runs(query)
        await store.count(query, (Facet.STATUS, Facet.ORIGIN, Facet.TAG))
    run = await find(store, "parent")
    await store.history([run.incarnation])
    await store.standing([run.incarnation, run.incarnation + 1])
    await store.messages(run.incarnation)
    await store.values(run.incarnation, ["k"])
    await store.next_wake(request())
    await store.next_wake(request(namespaces=("red", "default")))
    await store.claim(request(namespaces=("red", "default")))
    await store.audit()
    renewer = store.renewer()
    renewer.beat(process(), LEASE)
    await store.fleet()
    await store.block_unserved(0)
    renewer.beat(process(serves=()), LEASE)
    await store.write([Create(run=new("unserved"))])
    await store.block_unserved(0)
    renewer.depart("ada")
    renewer.close()


@pytest.mark.parametrize("scenario", SCENARIOS)
async def test_no_statement_walks_through_a_table(
    scenario: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "s.db"
    statements: set[str] = set()
    connect = connections.connect

    def watched(path: str, synchronous: str) -> sqlite3.Connection:
        connection = connect(path, synchronous)
        connection.set_trace_callback(statements.add)
        return connection

    store = SqliteStore(str(path), clock=ManualClock(), synchronous="OFF")
    await store.open()
    await SCENARIOS[scenario].prepare(store)
    await store.close()
    monkeypatch.setattr(connections, "connect", watched)
    await store.open()
    deed = await SCENARIOS[scenario].begin(store)
    await deed()
    if SCENARIOS[scenario].prepare.__name__ == "family" and scenario != "delete":
        await everything(store)
    await store.close()
    assert len(statements) > 5
    assert walks(path, statements) == []
