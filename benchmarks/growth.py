"""What a claim and a commit cost beside few and beside many other runs, on PostgreSQL.

The others are written into the store's tables by SQL, since a million real runs would take minutes: half have ended, the others
wait, of these half for a time far ahead and half for a signal. All are of the workflow, version and namespace that the claims
are for, so that they lie in the same ranges of the indexes. Each has the history of one step.

Then runs come that are due, and are claimed one by one, and ended one by one, through the Store port: the time of a call, from
the loop and back. Medians.
"""

from __future__ import annotations

import asyncio
import gc
import statistics
from contextlib import suppress
from time import perf_counter

import asyncpg

from benchmarks.address import parted
from benchmarks.figures import short
from benchmarks.sizes import Sizes
from benchmarks.speed import check
from perdure.app import open_store
from perdure.engine.systemclock import SystemClock
from perdure.model.commit import Applied, Create, TurnCommit
from perdure.model.history import Entry, Event, Op
from perdure.model.run import DEFAULT_NAMESPACE, NewRun, RunKey, Status
from perdure.ports.fleet import Serves
from perdure.ports.store import Claimed, ClaimRequest, Store

_WORKFLOW, _VERSION = "benchmarks.growth", "1"
_PAYLOAD = b'{"ok":true,"data":"' + b"x" * 80 + b'"}'
_LEASE = 30_000_000
#: Microseconds that sleepers sleep from now on, at least.
_FAR = 10**12

_FILL = (
    """
    INSERT INTO {schema}.runs (
        id, incarnation, workflow, version, namespace, status, input, seed, output, epoch, n, inbox, seen, wake_at, listening,
        depth, format, recoveries, created_at, started_at, updated_at, ended_at, urgency, definition
    )
    SELECT 'filled:' || i, nextval('{schema}.incarnations'), $1, $2, $3,
        CASE WHEN i % 2 = 0 THEN 4 ELSE 2 END, $4::bytea, i, CASE WHEN i % 2 = 0 THEN $4::bytea END, 1, 2, 0, 0,
        CASE WHEN i % 4 = 1 THEN {schema}.clock_1() + $5 + i END, i % 2 = 1, 0, 1, 0,
        {schema}.clock_1(), {schema}.clock_1(), {schema}.clock_1(), CASE WHEN i % 2 = 0 THEN {schema}.clock_1() END, 0,
        {schema}.definition_1($1, $2)
    FROM generate_series(1, $6) AS i
    """,
    """
    INSERT INTO {schema}.history (incarnation, n, event, seq, op, name, payload, at, commit_n)
    SELECT incarnation, m, 3 * m, 0, CASE WHEN m = 0 THEN 'step' END, 'charge', input, created_at, m
    FROM {schema}.runs CROSS JOIN generate_series(0, 1) AS m
    """,
)


def few_and_many(url: str, sizes: Sizes) -> dict[str, float]:
    """`claim_10k_ms`, `commit_10k_ms`, `claim_1m_ms`, `commit_1m_ms`, with the sizes' own numbers in the names."""
    return asyncio.run(_few_and_many(url, sizes))


async def _few_and_many(url: str, sizes: Sizes) -> dict[str, float]:
    figures: dict[str, float] = {}
    store = open_store(url, SystemClock())
    await store.open()
    try:
        for count in sizes.others:
            await fill(url, count)
            claim, commit = await _cost(store, f"beside {count}", sizes.claims)
            name = short(count)
            figures |= {f"claim_{name}_ms": claim * 1e3, f"commit_{name}_ms": commit * 1e3}
    finally:
        await store.close()
    return figures


async def fill(url: str, count: int) -> None:
    """Put so many runs that have ended or wait in place of all that are there, and have the server tidy up."""
    database, schema = parted(url)
    connection = await asyncpg.connect(database)
    try:
        runs, history = (statement.format(schema=schema) for statement in _FILL)
        await connection.execute(f"TRUNCATE {schema}.history, {schema}.runs")
        await connection.execute(runs, _WORKFLOW, _VERSION, DEFAULT_NAMESPACE, _PAYLOAD, _FAR, count, timeout=600)
        await connection.execute(history, timeout=600)
        await connection.execute(f"VACUUM (ANALYZE) {schema}.runs, {schema}.history", timeout=600)
        # What was filled in is written to disk now, not while we measure. (Only who may: else the figures are worse for it.)
        with suppress(asyncpg.InsufficientPrivilegeError):
            await connection.execute("CHECKPOINT", timeout=600)
    finally:
        await connection.close()


async def _cost(store: Store, name: str, count: int) -> tuple[float, float]:
    """Seconds of a claim and of a commit, medians of `count`."""
    request = ClaimRequest(
        owner="bench",
        namespaces=(DEFAULT_NAMESPACE,),
        serves=(Serves(_WORKFLOW, _VERSION, "bench"),),
        limit=1,
        lease=_LEASE,
        format=1,
    )
    for write in [_creation(f"{name}:{number}") for number in range(count)]:
        [answer] = await store.write([write])
        check(type(answer), Applied)
    claims: list[float] = []
    commits: list[float] = []
    claimed: list[Claimed] = []
    gc.collect()
    for _ in range(count):
        began = perf_counter()
        found = await store.claim(request)
        claims.append(perf_counter() - began)
        check(len(found), 1)
        claimed.extend(found)
    for each in claimed:
        end = _end(each, store.now())
        began = perf_counter()
        [answer] = await store.write([end])
        commits.append(perf_counter() - began)
        check(type(answer), Applied)
    check(await store.claim(request), [])
    return statistics.median(claims), statistics.median(commits)


def _creation(run_id: str) -> Create:
    return Create(run=NewRun(id=run_id, workflow=_WORKFLOW, version=_VERSION, input=_PAYLOAD, seed=7))


def _end(claimed: Claimed, now: int) -> TurnCommit:
    return TurnCommit(
        run=RunKey(claimed.run.id, claimed.run.incarnation),
        owner="bench",
        epoch=claimed.run.epoch,
        n=claimed.run.n,
        entries=(
            Entry(Event.SCHEDULED, 0, Op.STEP, "charge", _PAYLOAD, now),
            Entry(Event.RESOLVED, 0, None, "", _PAYLOAD, now),
        ),
        status=Status.COMPLETED,
        output=_PAYLOAD,
    )
