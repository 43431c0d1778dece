"""QUEUE: to give a slot to the next in line costs the same whether a hundred wait or a hundred thousand."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from perdure.model.commit import Create
from perdure.model.gates import Ask, Rules
from perdure.model.run import Run
from perdure.ports.store import Store
from perdure.stores.postgres import PostgresStore
from perdure.stores.sqlite import SqliteStore
from perdure.stores.sqlite import connection as connections
from perdure.testing import ManualClock
from perdure.testing.conformance.kit import new, park, request, turn
from tests.servers import migrated, postgres
from tests.servers.databases import Schema

SHORT, LONG = 100, 100_000
#: In a fair gate each waits under a key of its own, which is the dearest case.
RULES = {"plain": Rules(limit=1), "fair": Rules(limit=1, fair=True)}

SQLITE = """
    INSERT INTO tickets (gate, incarnation, seq, held, urgency, fairness, lane, rank, since)
    WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ?)
    SELECT 1, (SELECT incarnation FROM runs WHERE id = 'crowd'), i, 0, i % 3, 'k' || i, CASE WHEN ? THEN 'k' || i ELSE '' END,
        1000 + i, 0 FROM n
"""
LANES = """
    INSERT INTO lanes SELECT gate, urgency, lane, min(rank), 0 FROM tickets WHERE {waits} GROUP BY gate, urgency, lane
"""
POSTGRES = """
    INSERT INTO tickets (gate, incarnation, seq, held, urgency, fairness, lane, rank, since)
    SELECT (SELECT id FROM gates), (SELECT incarnation FROM runs WHERE id = 'crowd'), i, false, i % 3, 'k' || i,
        CASE WHEN $2 THEN 'k' || i ELSE '' END, 1000 + i, 0 FROM generate_series(1, $1::integer) AS i
"""


async def holder(store: Store, rules: Rules) -> Run:
    """A run that holds the one slot of a gate; beside it there is one that shall wait very often."""
    await store.write([Create(run=new("holder")), Create(run=new("crowd", start_at=2**60))])
    [claimed] = await store.claim(request())
    run = claimed.run
    await store.write([turn(run, asks=(Ask(seq=0, name="g", rules=rules, fairness="holder"),))])
    return run


@pytest.mark.parametrize("rules", RULES)
async def test_queue_sqlite_takes_as_many_steps_for_a_long_line(
    rules: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Counted in instructions of SQLite's machine."""
    counts = [
        await _instructions(RULES[rules], tmp_path / str(length), length, monkeypatch) for length in (SHORT, LONG)
    ]
    assert counts[0] > 100
    assert counts[1] < 1.5 * counts[0]


async def _instructions(rules: Rules, path: Path, length: int, monkeypatch: pytest.MonkeyPatch) -> int:
    count = 0

    def step() -> int:
        nonlocal count
        count += 1
        return 0

    connect = connections.connect

    def watched(path: str, synchronous: str) -> sqlite3.Connection:
        connection = connect(path, synchronous)
        connection.set_progress_handler(step, 1)
        return connection

    store = SqliteStore(str(path), clock=ManualClock(), synchronous="OFF")
    await store.open()
    run = await holder(store, rules)
    await store.close()
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute(SQLITE, (length, rules.fair))
        connection.execute(LANES.format(waits="held = 0"))
        connection.execute("UPDATE gates SET waiting = ?", (length,))
        connection.execute("UPDATE runs SET tickets = ? WHERE id = 'crowd'", (length,))
    with monkeypatch.context() as patch:
        patch.setattr(connections, "connect", watched)
        await store.open()
        count = 0
        await store.write([park(run, seen=1, releases=(0,))])
        taken = count
        [gate] = await store.gates()
        await store.close()
    assert (gate.held, gate.waiting) == (1, length - 1)
    assert gate.tickets[0].priority == 2
    return taken


@pytest.fixture
def schema(request: pytest.FixtureRequest) -> Schema:
    servers = postgres.servers()
    if not servers:
        pytest.skip(f"no PostgreSQL: {postgres.URL} is not set, none listens locally, and no wheel brings one")
    made: Schema = request.getfixturevalue("kept_schema_on")(servers[0], migrated.migrate)
    return made


@pytest.mark.parametrize("analyzed", [True, False])
@pytest.mark.parametrize("rules", RULES)
async def test_queue_postgres_reads_as_many_rows_for_a_long_line(rules: str, analyzed: bool, schema: Schema) -> None:
    """Counted in rows, by the server."""
    store = PostgresStore(schema.store, clock=ManualClock())
    await store.open()
    run = await holder(store, RULES[rules])
    await store.close()
    connection: Any = await asyncpg.connect(schema.url)
    try:
        await connection.execute(f"SET search_path = {schema.name}")
        await connection.execute(POSTGRES, LONG, RULES[rules].fair)
        await connection.execute(LANES.format(waits="NOT held"))
        await connection.execute(f"UPDATE gates SET waiting = {LONG}")
        await connection.execute(f"UPDATE runs SET tickets = {LONG} WHERE id = 'crowd'")
        if analyzed:
            await connection.execute("ANALYZE tickets, lanes, services, gates, runs, messages")
        async with connection.transaction():
            before = await _read(connection)
            await connection.execute("SELECT give_back_1(ARRAY[$1::bigint], ARRAY[0::bigint], 5)", run.incarnation)
            after = await _read(connection)
        assert await connection.fetchval("SELECT held FROM gates") == 1
    finally:
        await connection.close()
    assert {table: after[table] - before[table] for table in after if after[table] - before[table] > 40} == {}


async def _read(connection: Any) -> dict[str, int]:
    rows = await connection.fetch(
        "SELECT relname, coalesce(seq_tup_read, 0) + coalesce(idx_tup_fetch, 0) FROM pg_stat_xact_user_tables "
        "WHERE schemaname = current_schema()"
    )
    return dict(rows)
