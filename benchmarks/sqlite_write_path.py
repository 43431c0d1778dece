"""How fast the SQLite store writes, through the Store port alone: `python benchmarks/sqlite_write_path.py [seconds]`.

Prints, for the file system of the current folder: raw single-row commits a second; a turn alone; turns a second at several
numbers in flight and batch sizes, on an idle process and beside a thread that never lets go of Python's global lock; and
loading histories. A three-step run is four writes: a creation with its first turn, two turns, and the one that ends it.
"""

from __future__ import annotations

import asyncio
import os
import sqlite3
import statistics
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from threading import Event as Flag
from threading import Thread

from perdure.model.commit import Applied, Create, TurnCommit, Write
from perdure.model.history import Entry, Event, Op
from perdure.model.run import NewRun, RunKey, Status
from perdure.ports.clock import Alarm
from perdure.stores.sqlite import SqliteStore

PAYLOAD = b'{"ok":true,"data":"' + b"x" * 80 + b'"}'


class WallClock:
    def now(self) -> int:
        return time.time_ns() // 1000

    def call_at(self, when: int, callback: Callable[[], None]) -> Alarm:
        raise NotImplementedError("the store sets no alarms")


@asynccontextmanager
async def opened(folder: Path, synchronous: str = "FULL") -> AsyncIterator[SqliteStore]:
    store = SqliteStore(str(folder / f"{time.monotonic_ns()}.db"), clock=WallClock(), synchronous=synchronous)
    await store.open()
    try:
        yield store
    finally:
        await store.close()


def raw_commits(folder: Path, seconds: float) -> float:
    """Single-row commits a second, one at a time, with plain sqlite3."""
    connection = sqlite3.connect(folder / "raw.db", isolation_level=None)
    connection.execute("PRAGMA journal_mode=WAL")
    connection.execute("PRAGMA synchronous=FULL")
    connection.execute("CREATE TABLE t (i INTEGER PRIMARY KEY, payload BLOB)")
    count, start = 0, time.perf_counter()
    while time.perf_counter() - start < seconds:
        connection.execute("INSERT INTO t (payload) VALUES (?)", (PAYLOAD,))
        count += 1
    rate = count / (time.perf_counter() - start)
    connection.close()
    return rate


# ---------------------------------------------------------------- the writes of a three-step run


def scheduled(seq: int) -> Entry:
    return Entry(Event.SCHEDULED, seq, Op.STEP, "charge", PAYLOAD, time.time_ns() // 1000)


def resolved(seq: int) -> Entry:
    return Entry(Event.RESOLVED, seq, None, "", PAYLOAD, time.time_ns() // 1000)


def creation(run_id: str) -> Create:
    turn = TurnCommit(
        run=RunKey(run_id, 0),
        owner="me",
        epoch=1,
        n=0,
        entries=(scheduled(0),),
        status=Status.RUNNING,
        wake_at=time.time_ns() // 1000 + 30_000_000,
        started_at=1,
    )
    return Create(run=NewRun(id=run_id, workflow="checkout", version="1", input=PAYLOAD, seed=7), turn=turn)


def later_turn(key: RunKey, step: int, last: bool) -> TurnCommit:
    entries = (resolved(step),) if last else (resolved(step), scheduled(step + 1))
    return TurnCommit(
        run=key,
        owner="me",
        epoch=1,
        n=1 + 2 * step,
        entries=entries,
        status=Status.COMPLETED if last else Status.RUNNING,
        output=PAYLOAD if last else None,
    )


def key_of(answer: object) -> RunKey:
    assert isinstance(answer, Applied)
    assert answer.key is not None
    return answer.key


# ---------------------------------------------------------------- measurements


async def alone(store: SqliteStore, seconds: float) -> list[float]:
    """Seconds of each turn, one at a time."""
    taken: list[float] = []
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        [answer] = await store.write([creation(f"a{time.monotonic_ns()}")])
        key = key_of(answer)
        for step in range(3):
            start = time.perf_counter()
            await store.write([later_turn(key, step, step == 2)])
            taken.append(time.perf_counter() - start)
    return taken


async def in_flight(store: SqliteStore, count: int, seconds: float) -> float:
    """Writes a second where `count` runs go on at once, each with a call of its own for each of its writes."""
    end = time.perf_counter() + seconds
    written = 0

    async def runs(number: int) -> None:
        nonlocal written
        turn = 0
        while time.perf_counter() < end:
            turn += 1
            [answer] = await store.write([creation(f"f{number}.{turn}")])
            key = key_of(answer)
            for step in range(3):
                await store.write([later_turn(key, step, step == 2)])
            written += 4

    start = time.perf_counter()
    await asyncio.gather(*(runs(number) for number in range(count)))
    return written / (time.perf_counter() - start)


async def in_batches(store: SqliteStore, size: int, seconds: float) -> float:
    """Writes a second in batches of `size`, one batch after another."""
    end = time.perf_counter() + seconds
    written, batch = 0, 0
    start = time.perf_counter()
    while time.perf_counter() < end:
        batch += 1
        keys = [key_of(answer) for answer in await store.write([creation(f"b{batch}.{i}") for i in range(size)])]
        for step in range(3):
            turns: Sequence[Write] = [later_turn(key, step, step == 2) for key in keys]
            for answer in await store.write(turns):
                key_of(answer)
        written += 4 * size
    return written / (time.perf_counter() - start)


async def loading(store: SqliteStore) -> float:
    """Seconds to load the histories of 500 runs of 20 entries."""
    entries = tuple(entry for seq in range(10) for entry in (scheduled(seq), resolved(seq)))
    creations = [creation(f"l{i}") for i in range(500)]
    answers = await store.write(creations)
    keys = [key_of(answer) for answer in answers]
    await store.write(
        [TurnCommit(run=key, owner="me", epoch=1, n=1, entries=entries, status=Status.RUNNING) for key in keys]
    )
    start = time.perf_counter()
    loaded = await store.history([key.incarnation for key in keys])
    taken = time.perf_counter() - start
    assert all(len(rows) == 21 for rows in loaded.values())
    return taken


def beside_a_busy_thread(measure: Callable[[], None]) -> None:
    stop = Flag()

    def spin() -> None:
        while not stop.is_set():
            sum(range(1000))

    thread = Thread(target=spin)
    thread.start()
    try:
        measure()
    finally:
        stop.set()
        thread.join()


def main() -> None:
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 1.0
    with tempfile.TemporaryDirectory(dir=os.getcwd(), prefix=".bench-") as name:
        folder = Path(name)
        raw = raw_commits(folder, seconds)
        print(f"raw single-row commits        {raw:10,.0f} /s")
        asyncio.run(report(folder, seconds, raw))
        print("beside a busy thread:")
        beside_a_busy_thread(lambda: asyncio.run(report(folder, seconds, raw)))


async def report(folder: Path, seconds: float, raw: float) -> None:
    async with opened(folder) as store:
        taken = sorted(await alone(store, seconds))
        rate = len(taken) / sum(taken)
        print(
            f"a turn alone                  {rate:10,.0f} /s   {rate / raw:.2f} of raw, "
            f"p50 {statistics.median(taken) * 1e3:.2f} ms, p99 {taken[len(taken) * 99 // 100] * 1e3:.2f} ms"
        )
    for size in (1, 50, 200):
        async with opened(folder) as store:
            print(f"writes in batches of {size:<4}      {await in_batches(store, size, seconds):10,.0f} /s")
    for count in (50, 200):
        async with opened(folder) as store:
            rate = await in_flight(store, count, seconds)
            print(f"writes with {count:<4} runs at once  {rate:10,.0f} /s   {rate / 4:,.0f} three-step runs/s")
    async with opened(folder) as store:
        print(f"500 histories of 21 entries   {await loading(store) * 1e3:10.1f} ms")


if __name__ == "__main__":
    main()
