"""F4: what several processes put into one store is run exactly once by several others, each of which is killed once."""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import AsyncExitStack
from typing import Any

from perdure import Perdure, Status
from perdure.model.history import Event
from tests.integration.process_parent import Part, client, until

SHORT: dict[str, Any] = {"lease": 1.0, "poll": 0.1}
PROCESSES = 3
EACH = 334


async def enqueue(url: str, name: str, killed_after: int) -> None:
    """Start the runs; be killed on the way, and begin again from the first: those that exist are not started twice."""
    async with Part("enqueue", name, url, {"count": EACH}) as part:
        for _ in range(killed_after):
            await part.line("started")
        part.kill()
        await part.ended()
    async with Part("enqueue", name, url, {"count": EACH}) as part:
        await part.line("left")


async def execute(url: str, name: str, killed_after: int, over: asyncio.Event) -> list[list[str]]:
    """Serve; be killed on the way, serve again until all is done. What its steps did."""
    async with Part("serve", name, url, SHORT) as part:
        for _ in range(killed_after):
            await part.line("counts")
        part.kill()
        await part.ended()
        lines = part.lines
    async with Part("serve", name, url, SHORT) as part:
        await over.wait()
        part.kill()
        await part.ended()
        return [line for line in (*lines, *part.lines) if line[0] == "counts"]


async def test_f4_a_thousand_runs_are_run_exactly_once_though_every_process_is_killed(url: str) -> None:
    names = "abc"
    total = PROCESSES * EACH
    over = asyncio.Event()
    async with AsyncExitStack() as stack:
        app = await stack.enter_async_context(client(url))
        group = await stack.enter_async_context(asyncio.TaskGroup())
        executing = [group.create_task(execute(url, name, 60 + 40 * i, over)) for i, name in enumerate(names)]
        for i, name in enumerate("xyz"):
            group.create_task(enqueue(url, name, 50 + 70 * i))
        await until(app, lambda: _all_done(app, total))
        over.set()
        lines = [line for each in await asyncio.gather(*executing) for line in each]
        await _check(app, lines, total)


async def _all_done(app: Perdure, total: int) -> bool:
    # Looked at often: cheaply as long as there is something to do.
    if await app.runs(status=["pending", "running"], limit=1):
        return False
    return len(await app.runs(status="completed", limit=10_000)) == total


async def _check(app: Perdure, lines: list[list[str]], total: int) -> None:
    runs = await app.runs(limit=10_000)
    assert len(runs) == total
    assert {run.status for run in runs} == {Status.COMPLETED}
    assert {run.id for run in runs} == {f"{name}:{number}" for name in "xyz" for number in range(EACH)}
    histories = await app.engine.store.history([run.incarnation for run in runs])
    begun = Counter(run_id for _, run_id, _ in lines)
    again = 0
    for run in runs:
        events = Counter(entry.event for entry in histories[run.incarnation])
        assert (events[Event.SCHEDULED], events[Event.RESOLVED], events[Event.END]) == (1, 1, 1)
        assert 1 <= begun[run.id] <= 1 + events[Event.ATTEMPT_CUT], f"{run.id} was run {begun[run.id]} times"
        again += begun[run.id] - 1
    assert len(set(map(tuple, lines))) == len(lines), "an attempt began twice"
    assert len(lines) == total + again
    assert await app.engine.store.audit(heal=False) == []
