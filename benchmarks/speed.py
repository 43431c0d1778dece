"""The workloads that are about time, in this process. Each takes a store's URL, opens an app on it, warms up, and measures."""

from __future__ import annotations

import asyncio
import gc
import statistics
from collections.abc import Iterator
from time import perf_counter
from typing import TypeVar

from benchmarks import workflows
from benchmarks.sizes import Sizes
from perdure import Lifecycle, Perdure

T = TypeVar("T")


def check(result: T, expected: T) -> None:
    """A benchmark of wrong results is worth nothing."""
    if result != expected:
        raise AssertionError(f"expected {expected!r}, got {result!r}")


async def one_step(url: str, sizes: Sizes) -> dict[str, float]:
    """Runs of one step, one run after another: from the call of `start` until the result is here."""
    async with Perdure(url) as app:

        async def timed(n: int) -> float:
            began = perf_counter()
            run = await app.start(workflows.one_step, n)
            result = await run.result()
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


async def sequential_steps(url: str, sizes: Sizes) -> dict[str, float]:
    """One run of many steps, one step after another."""
    async with Perdure(url) as app:

        async def timed(count: int) -> float:
            began = perf_counter()
            run = await app.start(workflows.steps_in_a_row, count)
            check(await run.result(), count)
            return perf_counter() - began

        await timed(sizes.warm)
        gc.collect()
        taken = await timed(sizes.sequential_steps)
    return {"sequential_steps_per_s": sizes.sequential_steps / taken}


async def runs_of_three(url: str, sizes: Sizes) -> dict[str, float]:
    """Runs of three steps, many in flight: whenever one has ended the next is started."""
    async with Perdure(url) as app:
        await lines(app, sizes.warm, sizes.runs3_in_flight)
        gc.collect()
        taken = await lines(app, sizes.runs3, sizes.runs3_in_flight)
    return {"runs3_per_s": sizes.runs3 / taken}


async def lines(app: Perdure, count: int, in_flight: int) -> float:
    """Seconds of `count` runs of three steps: one starts whenever one ends."""

    async def line(numbers: Iterator[int]) -> None:
        for n in numbers:
            run = await app.start(workflows.three_steps, n)
            check(await run.result(), n + 3)

    numbers = iter(range(count))
    began = perf_counter()
    await asyncio.gather(*(line(numbers) for _ in range(in_flight)))
    return perf_counter() - began


async def signal(url: str, sizes: Sizes) -> dict[str, float]:
    """A parked run gets the signal it waits for and ends: from the call of `signal` until the result is here."""
    async with Perdure(url) as app:

        async def timed(number: int) -> float:
            run = await app.start(workflows.one_signal)
            check(str(await run.wait()), "suspended")
            began = perf_counter()
            await run.signal("go", number)
            result = await run.result()
            taken = perf_counter() - began
            check(result, number)
            return taken

        for number in range(sizes.warm):
            await timed(number)
        gc.collect()
        taken = [await timed(number) for number in range(sizes.signals)]
    return {"signal_p50_ms": statistics.median(taken) * 1e3}


async def parallel_steps(url: str, sizes: Sizes) -> dict[str, float]:
    """One run that gathers many steps: from the call of `start` until the result is here."""
    async with Perdure(url) as app:

        async def timed(count: int) -> float:
            began = perf_counter()
            run = await app.start(workflows.steps_side_by_side, count)
            result = await run.result()
            taken = perf_counter() - began
            check(result, count * (count + 1) // 2)
            return taken

        await timed(sizes.parallel)
        gc.collect()
        taken = await timed(sizes.parallel)
    return {f"parallel{sizes.parallel}_s": taken}


async def loops(url: str, sizes: Sizes) -> dict[str, float]:
    """One run that waits for a signal N times. It is sent the next one when it has parked, so each turn of its loop is a
    commit that parks it, one that accepts the signal, and what it takes to wake it."""
    parked = asyncio.Event()

    def watch(event: Lifecycle) -> None:
        if event.kind == "run.suspended":
            parked.set()

    async with Perdure(url) as app:
        app.subscribe(watch)

        async def timed(count: int) -> float:
            began = perf_counter()
            run = await app.start(workflows.many_signals, count)
            for _ in range(count):
                await parked.wait()
                parked.clear()
                await run.signal("go", 1)
            result = await run.result()
            taken = perf_counter() - began
            check(result, count)
            return taken

        await timed(sizes.warm)
        seconds: dict[str, float] = {}
        for count in sizes.loops:
            gc.collect()
            seconds[f"loop_{count}_s"] = await timed(count)
    return seconds
