"""QUEUE, SINGLE: four processes under load, one is killed: no more are inside than may be, and all get through."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from pathlib import Path

from perdure import Perdure, Status
from tests.integration import process_gates
from tests.integration.process_gates import SLOTS, declare, most_at_once, single, through
from tests.integration.process_parent import Part, until

OPTIONS = {"lease": 1.0, "poll": 0.1, "include": [process_gates.__name__]}
RUNS = 60
KEYS = ("x", "y")


async def test_queue_the_limits_hold_for_four_processes_one_of_which_is_killed(url: str, tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.touch()
    async with AsyncExitStack() as stack:
        parts = [await stack.enter_async_context(Part("serve", name, url, OPTIONS)) for name in "abcd"]
        for part in parts:
            await part.line("ready")
        app = Perdure(url, include=[process_gates], consume=False, poll=0.1)
        declare(app)
        await stack.enter_async_context(app)
        for number in range(RUNS):
            await app.start(through, str(log), id=f"through:{number}")
            await app.start(single, str(log), KEYS[number % 2], id=f"single:{number}")
        await until(app, lambda: _done(app, 10))
        parts[0].kill()
        await until(app, lambda: _done(app, 2 * RUNS))
        queues = await app.queues()
        for part in parts[1:]:
            part.terminate()
        await asyncio.gather(*(part.ended() for part in parts))
    assert [(each.key.name, each.held, each.waiting) for each in queues] == [("narrow", 0, 0)]
    text = log.read_text()
    assert {line.split()[3] for line in text.splitlines()} == set("abcd")
    assert most_at_once(text) == {"narrow": SLOTS, "x": 1, "y": 1}


async def _done(app: Perdure, count: int) -> bool:
    return len(await app.runs(status=Status.COMPLETED, limit=1000)) >= count
