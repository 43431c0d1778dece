"""Recovery: a process with many runs in flight is killed (SIGKILL); how long does another one take to finish them?

Each run has one step behind it and waits for a second one when its process dies. The clock starts in the new process right
before it opens its app, and stops when the last of these runs has completed there: it claims them, loads and replays their
histories, runs the step again, and ends them. The dead process's leases have run out by then; waiting for that is not counted.
"""

from __future__ import annotations

import asyncio
import sys
from time import perf_counter, sleep

from benchmarks import children, workflows
from benchmarks.sizes import Sizes
from benchmarks.workflows import Here
from perdure import Lifecycle, Perdure


def recovery(url: str, sizes: Sizes) -> dict[str, float]:
    """Kill a process that has runs in flight, and measure in the next one."""
    count, lease = str(sizes.recovered), str(sizes.recovered_lease)
    with children.begin(__name__, "hold", url, count, lease) as holder:
        try:
            children.line(holder)
        finally:
            holder.kill()
    sleep(sizes.recovered_lease)  # renewed at most at the kill: after this no lease holds
    return {f"recover{count}_s": children.figure(__name__, "recover", url, count)}


async def hold(url: str, count: int, lease: float) -> None:
    """Get runs to where they wait for a step that never ends here; say so, and stay."""
    begun = Here.lingering = asyncio.Queue()
    async with Perdure(url, lease=lease) as app:
        await asyncio.gather(*(app.start(workflows.cut_off, n) for n in range(count)))
        for _ in range(count):
            await begun.get()
        print("holding", flush=True)
        await asyncio.Event().wait()


async def recover(url: str, count: int) -> float:
    """Seconds from opening an app until that many runs have completed."""
    completed: set[str] = set()
    enough = asyncio.Event()

    def watch(event: Lifecycle) -> None:
        if event.kind == "run.completed":
            completed.add(event.run_id)
            if len(completed) == count:
                enough.set()

    began = perf_counter()
    async with Perdure(url, include=[workflows]) as app:
        app.subscribe(watch)
        # The app is at work since it was opened: some may have completed before we could watch.
        for run in await app.runs(status="completed", limit=count):
            completed.add(run.id)
        if len(completed) < count:
            await enough.wait()
        return perf_counter() - began


def main() -> None:
    match sys.argv[1:]:
        case ["hold", url, count, lease]:
            asyncio.run(hold(url, int(count), float(lease)))
        case ["recover", url, count]:
            print(asyncio.run(recover(url, int(count))))
        case _:
            raise SystemExit("this is started by the benchmark: python -m benchmarks")


if __name__ == "__main__":
    main()
