"""Several processes on one store.

*A signal across*: this process serves runs that wait for a signal; another one, which runs nothing itself, signals one after
another. Its clock starts when it calls `signal` and stops when it knows the run's result.

*Two processes*: each opens an app, warms up, and says so; then both are let go at the same moment, and each starts as many
runs of three steps as one process does in `runs3_per_s`, with as many in flight. The clock stops when the last run of both has
ended. Each may take over what the other one started: they are one fleet.
"""

from __future__ import annotations

import asyncio
import gc
import statistics
import subprocess
import sys
from time import perf_counter

from benchmarks import children, speed, workflows
from benchmarks.sizes import Sizes
from perdure import Perdure

#: As many waiting runs at once: signals must not find a nearly empty table.
_AT_ONCE = 100


def signal_across(url: str, sizes: Sizes) -> dict[str, float]:
    """Milliseconds from a client's call of `signal` until it has the result of a run in another process; the median."""
    return asyncio.run(_signal_across(url, sizes))


async def _signal_across(url: str, sizes: Sizes) -> dict[str, float]:
    async with Perdure(url) as app:
        client = children.begin(__name__, "client", url, str(sizes.warm))
        try:
            for first in range(0, sizes.warm + sizes.signals, _AT_ONCE):
                size = min(_AT_ONCE, sizes.warm + sizes.signals - first)
                runs = await asyncio.gather(*(app.start(workflows.one_signal) for _ in range(size)))
                for run in runs:
                    speed.check(str(await run.wait()), "suspended")
                await asyncio.to_thread(children.tell, client, " ".join(run.id for run in runs))
                await asyncio.to_thread(children.line, client)
            await asyncio.to_thread(children.tell, client, "")
            return {"signal_across_p50_ms": float(await asyncio.to_thread(children.line, client))}
        finally:
            children.end(client)


async def client(url: str, warm: int) -> float:
    """Signal the runs whose ids come in lines, until an empty one; the median of all but the first `warm`."""
    taken: list[float] = []
    async with Perdure(url, consume=False) as app:
        while ids := (await asyncio.to_thread(sys.stdin.readline)).split():
            gc.collect()
            for number, run_id in enumerate(ids):
                run = app.get_run(run_id, workflows.one_signal)
                began = perf_counter()
                await run.signal("go", number)
                result = await run.result()
                taken.append(perf_counter() - began)
                speed.check(result, number)
            print("done", flush=True)
    return statistics.median(taken[warm:]) * 1e3


def two_processes(url: str, sizes: Sizes) -> dict[str, float]:
    """Runs of three steps a second that two processes end together."""
    workers: list[subprocess.Popen[str]] = []
    try:
        for _ in range(2):
            workers.append(
                children.begin(__name__, "worker", url, str(sizes.warm), str(sizes.runs3), str(sizes.runs3_in_flight))
            )
            children.line(workers[-1])
        began = perf_counter()
        for worker in workers:
            children.tell(worker, "go")
        for worker in workers:
            children.line(worker)
        taken = perf_counter() - began
        for worker in workers:
            children.tell(worker, "end")
            speed.check(worker.wait(), 0)
    finally:
        for worker in workers:
            children.end(worker)
    return {"runs3_2proc_per_s": 2 * sizes.runs3 / taken}


async def worker(url: str, warm: int, count: int, in_flight: int) -> None:
    """Start runs when told to; serve until told to end, since the other process's runs may be here."""
    async with Perdure(url, include=[workflows]) as app:
        await speed.lines(app, warm, in_flight)
        gc.collect()
        print("ready", flush=True)
        await asyncio.to_thread(sys.stdin.readline)
        await speed.lines(app, count, in_flight)
        print("done", flush=True)
        await asyncio.to_thread(sys.stdin.readline)


def main() -> None:
    match sys.argv[1:]:
        case ["client", url, warm]:
            print(asyncio.run(client(url, int(warm))), flush=True)
        case ["worker", url, warm, count, in_flight]:
            asyncio.run(worker(url, int(warm), int(count), int(in_flight)))
        case _:
            raise SystemExit("this is started by the benchmark: python -m benchmarks")


if __name__ == "__main__":
    main()
