"""The workloads on DBOS, as its documentation has them written: async workflows and steps, `start_workflow_async`, `send_async`
and `recv_async`, and its own default settings. A process a measurement: DBOS is one to a process.

`python -m benchmarks.dbos_side <workload> <store URL as ours> <sizes as JSON>` prints its figures as one JSON object. It runs
in the environment of `make bench-peers`, the only one that has DBOS.
"""

from __future__ import annotations

import asyncio
import gc
import json
import statistics
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from time import perf_counter

import sqlalchemy
from dbos import DBOS, DBOSConfig, WorkflowHandleAsync
from dbos._dbos import _get_dbos_instance

from benchmarks.address import parted
from benchmarks.memory import resident
from benchmarks.sizes import Sizes
from benchmarks.speed import check

#: Seconds a waiting run waits: longer than any benchmark.
_LONG = 100_000.0


@DBOS.step()
async def add_one(n: int) -> int:
    return n + 1


@DBOS.workflow()
async def one_step(n: int) -> int:
    return await add_one(n)


@DBOS.workflow()
async def three_steps(n: int) -> int:
    return await add_one(await add_one(await add_one(n)))


@DBOS.workflow()
async def steps_in_a_row(count: int) -> int:
    n = 0
    for _ in range(count):
        n = await add_one(n)
    return n


@DBOS.workflow()
async def steps_side_by_side(count: int) -> int:
    return sum(await asyncio.gather(*(add_one(n) for n in range(count))))


@DBOS.workflow()
async def one_signal() -> int:
    received: int = await DBOS.recv_async("go", timeout_seconds=_LONG)
    return received


class Here:
    """Of this process: where `linger` says that it has begun; then it never ends. None: it ends at once."""

    lingering: asyncio.Queue[int] | None = None


@DBOS.step()
async def linger(n: int) -> int:
    if Here.lingering is not None:
        Here.lingering.put_nowait(n)
        await asyncio.Event().wait()
    return n


@DBOS.workflow()
async def cut_off(n: int) -> int:
    return await linger(await add_one(n))


@asynccontextmanager
async def launched(url: str) -> AsyncIterator[None]:
    """DBOS on a store, with its own defaults for all that matters."""
    database, schema = parted(url) if url.startswith("postgresql:") else (url, None)
    config: DBOSConfig = {
        "name": "bench",
        # Its driver by name: SQLAlchemy's default is another one.
        "system_database_url": database.replace("postgresql:", "postgresql+psycopg:", 1),
        "dbos_system_schema": schema,
        "log_level": "ERROR",
        # Who was cut off finds what it was at by this pair.
        "executor_id": "bench",
        "application_version": "1",
    }
    DBOS(config=config)
    DBOS.launch()
    try:
        yield
    finally:
        DBOS.destroy()


async def measure_one_step(sizes: Sizes) -> dict[str, float]:
    async def timed(n: int) -> float:
        began = perf_counter()
        run = await DBOS.start_workflow_async(one_step, n)
        result = await run.get_result()
        taken = perf_counter() - began
        check(result, n + 1)
        return taken

    for n in range(sizes.warm):
        await timed(n)
    gc.collect()
    taken = sorted([await timed(n) for n in range(sizes.one_step_runs)])
    return {
        "one_step_p50_ms": statistics.median(taken) * 1e3,
        "one_step_p99_ms": taken[len(taken) * 99 // 100] * 1e3,
    }


async def measure_sequential_steps(sizes: Sizes) -> dict[str, float]:
    async def timed(count: int) -> float:
        began = perf_counter()
        run = await DBOS.start_workflow_async(steps_in_a_row, count)
        check(await run.get_result(), count)
        return perf_counter() - began

    await timed(sizes.warm)
    gc.collect()
    return {"sequential_steps_per_s": sizes.sequential_steps / await timed(sizes.sequential_steps)}


async def measure_runs_of_three(sizes: Sizes) -> dict[str, float]:
    async def line(numbers: Iterator[int]) -> None:
        for n in numbers:
            run = await DBOS.start_workflow_async(three_steps, n)
            check(await run.get_result(), n + 3)

    async def timed(count: int) -> float:
        numbers = iter(range(count))
        began = perf_counter()
        await asyncio.gather(*(line(numbers) for _ in range(sizes.runs3_in_flight)))
        return perf_counter() - began

    await timed(sizes.warm)
    gc.collect()
    return {"runs3_per_s": sizes.runs3 / await timed(sizes.runs3)}


async def measure_signal(sizes: Sizes) -> dict[str, float]:
    # On SQLite DBOS looks for messages once a second, so what a signal takes depends on when it comes: they fall evenly into
    # that second.
    spread = 1.0 / sizes.signals if sys.argv[2].startswith("sqlite:") else 0.0

    async def timed(number: int) -> float:
        run = await DBOS.start_workflow_async(one_signal)
        await waiting(1)
        await asyncio.sleep(number * spread)
        began = perf_counter()
        await DBOS.send_async(run.workflow_id, number, "go")
        result = await run.get_result()
        taken = perf_counter() - began
        check(result, number)
        return taken

    for number in range(1 if spread else sizes.warm):
        await timed(number)
    gc.collect()
    taken = [await timed(number) for number in range(sizes.signals)]
    return {"signal_p50_ms": statistics.median(taken) * 1e3}


async def measure_parallel_steps(sizes: Sizes) -> dict[str, float]:
    async def timed(count: int) -> float:
        began = perf_counter()
        run = await DBOS.start_workflow_async(steps_side_by_side, count)
        result = await run.get_result()
        taken = perf_counter() - began
        check(result, count * (count + 1) // 2)
        return taken

    await timed(sizes.parallel)
    gc.collect()
    return {f"parallel{sizes.parallel}_s": await timed(sizes.parallel)}


async def measure_parked(sizes: Sizes) -> dict[str, float]:
    """Warmed up with as many runs that waited and ended, as on our side."""
    at_once = 100

    async def park() -> AsyncIterator[list[WorkflowHandleAsync[int]]]:
        before = parked_now()
        for first in range(0, sizes.parked, at_once):
            size = min(at_once, sizes.parked - first)
            runs = await asyncio.gather(*(DBOS.start_workflow_async(one_signal) for _ in range(size)))
            await waiting(before + size)
            yield runs
            before = parked_now()

    async for runs in park():
        await asyncio.gather(*(DBOS.send_async(run.workflow_id, 0, "go") for run in runs))
        await asyncio.gather(*(run.get_result() for run in runs))
    before = resident()
    async for _ in park():
        pass
    return {"parked_kib": (resident() - before) / sizes.parked}


async def measure_hold(sizes: Sizes) -> dict[str, float]:
    """Get runs to where they wait for a step that never ends here; say so, and stay until killed."""
    begun = Here.lingering = asyncio.Queue()
    await asyncio.gather(*(DBOS.start_workflow_async(cut_off, n) for n in range(sizes.recovered)))
    for _ in range(sizes.recovered):
        await begun.get()
    print("{}", flush=True)
    await asyncio.Event().wait()
    return {}


async def settings(_: Sizes) -> dict[str, float | str]:
    """How DBOS' own connections are set, asked of one of them."""
    import importlib.metadata

    engine = _get_dbos_instance()._sys_db.engine
    said = f"dbos {importlib.metadata.version('dbos')}"
    with engine.connect() as connection:
        names = ("journal_mode", "synchronous") if engine.dialect.name == "sqlite" else ("synchronous_commit",)
        for name in names:
            asked = f"PRAGMA {name}" if engine.dialect.name == "sqlite" else f"SHOW {name}"
            value = connection.execute(sqlalchemy.text(asked)).scalar()
            said += f", {name}={'FULL' if (name, value) == ('synchronous', 2) else value}"
    return {"settings": f"{said}, pool of {engine.pool.size()}"}


def parked_now() -> int:
    """How many runs wait for a message here. DBOS does not tell; its listener's map knows."""
    return len(_get_dbos_instance()._sys_db.notifications_map._dict)


async def waiting(count: int) -> None:
    """Until so many runs wait."""
    while parked_now() < count:  # noqa: ASYNC110 - nothing tells when
        await asyncio.sleep(0.001)
    await asyncio.sleep(0.02)  # It is in the map a little before it has written that it waits.


WORKLOADS: dict[str, Callable[[Sizes], Awaitable[dict[str, float] | dict[str, float | str]]]] = {
    "one_step": measure_one_step,
    "sequential_steps": measure_sequential_steps,
    "runs_of_three": measure_runs_of_three,
    "signal": measure_signal,
    "parallel_steps": measure_parallel_steps,
    "parked": measure_parked,
    "hold": measure_hold,
    "settings": settings,
}


async def recover(url: str, count: int) -> dict[str, float]:
    """Seconds from launching DBOS until the runs that another process left have succeeded."""
    began = perf_counter()
    async with launched(url):
        runs = await DBOS.list_workflows_async(limit=count)
        handles = [await DBOS.retrieve_workflow_async(run.workflow_id) for run in runs]
        results = [await handle.get_result(polling_interval_sec=0.01) for handle in handles]
        taken = perf_counter() - began
    check(sorted(results), list(range(1, count + 1)))
    return {f"recover{count}_s": taken}


async def main(workload: str, url: str, sizes: Sizes) -> None:
    if workload == "recover":
        print(json.dumps(await recover(url, sizes.recovered)))
        return
    async with launched(url):
        print(json.dumps(await WORKLOADS[workload](sizes)), flush=True)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], Sizes(**json.loads(sys.argv[3]))))
