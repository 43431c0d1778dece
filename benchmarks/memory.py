"""Memory: how much a process grows for each run that waits for a signal, kept in memory ("parked") or not ("evicted").

In a process of its own that has been warmed up: with as many runs which waited and ended, so that the interpreter's pools have
their size, and with large values, so that the store's page cache is full. Then resident memory before and after, with the
collector run.
"""

from __future__ import annotations

import asyncio
import gc
import os
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

from benchmarks import children, workflows
from benchmarks.sizes import Sizes
from perdure import Perdure, RunHandle

_AT_ONCE = 100
_LARGE = "x" * 100_000


def parked(url: str, sizes: Sizes) -> dict[str, float]:
    """KiB a waiting run that is kept in the cache."""
    return {"parked_kib": children.figure(__name__, url, str(sizes.parked), str(2 * sizes.parked))}


def evicted(url: str, sizes: Sizes) -> dict[str, float]:
    """KiB a waiting run where the cache keeps none."""
    return {"evicted_kib": children.figure(__name__, url, str(sizes.parked), "0")}


async def growth(url: str, count: int, cache: int) -> float:
    """KiB a run that a process grows by `count` runs which wait."""
    async with Perdure(url, cache=cache) as app:
        for _ in range(count // 20):
            run = await app.start(workflows.nothing, _LARGE)
            await run.result()
        async for handles in parked_runs(app, count):
            # Ended at once: had they all waited together, what they leave free would hide what the others take.
            await asyncio.gather(*(handle.signal("go", 0) for handle in handles))
            await asyncio.gather(*(handle.result() for handle in handles))
        before = resident()
        async for _ in parked_runs(app, count):
            pass
        return (resident() - before) / count


async def parked_runs(app: Perdure, count: int) -> AsyncIterator[list[RunHandle[int]]]:
    """Start runs, a limited number at once, each time until all of them wait."""
    for first in range(0, count, _AT_ONCE):
        size = min(_AT_ONCE, count - first)
        handles = await asyncio.gather(*(app.start(workflows.one_signal) for _ in range(size)))
        await asyncio.gather(*(handle.wait() for handle in handles))
        yield handles


def resident() -> float:
    """KiB of this process that are in memory, after a collection."""
    gc.collect()
    statm = Path("/proc/self/statm")
    if statm.exists():
        return int(statm.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1024
    return float(subprocess.check_output(["ps", "-o", "rss=", "-p", str(os.getpid())]))


if __name__ == "__main__":
    print(asyncio.run(growth(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))))
