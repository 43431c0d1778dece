"""How what an executor holds comes to rest, and how it is given up. Event loop only."""

from __future__ import annotations

import asyncio
from typing import Any

from perdure.engine.executor import Executor
from perdure.ports.store import Held as Claim
from perdure.ports.store import Store

#: Seconds that cancelled steps get when the process stops.
_LAST_MOMENT = 1.0


async def settled(executor: Executor) -> None:
    """Wait until this process holds no run and none is on its way in."""
    while len(executor.holdings) or executor.holdings.coming:
        await executor.committer.idle()
        await executor.holdings.empty()
        await asyncio.sleep(0)


def busy(executor: Executor) -> bool:
    """True if something goes on besides steps in flight."""
    coming = executor.holdings.coming or executor.nudges.busy
    return bool(coming) or not all(held.waits_for_steps() for held in executor.holdings.all())


async def stop(executor: Executor, store: Store, owner: str) -> None:
    """Give back what is still held, and drop everything. Whatever comes after finds nobody."""
    tasks: list[asyncio.Task[Any]] = []
    executor.holdings.stopped = True
    claims = _drop_all(executor, tasks)
    try:
        async with asyncio.timeout(_LAST_MOMENT):
            await executor.committer.idle()
    except TimeoutError:
        await executor.committer.give_up()
    finally:
        executor.committer.close()
        claims += _drop_all(executor, tasks)  # what was created in the last moment
        executor.cache.clear()
        executor.steps.close()
        executor.tell.endings.close()
        executor.tell.tails.close()
    if tasks:
        # Cancelled steps may clean up, for a moment; nothing they return is recorded.
        await asyncio.wait(tasks, timeout=_LAST_MOMENT)
    if claims:
        await store.release(owner, claims)


def _drop_all(executor: Executor, tasks: list[asyncio.Task[Any]]) -> list[Claim]:
    """Stop all that runs here, adding its tasks to the list; what is to be given back."""
    claims = executor.holdings.claims()
    for held in executor.holdings.all():
        tasks += [task for task in held.tasks.values() if isinstance(task, asyncio.Task)]
        executor.holdings.drop(held)
        held.instance.close()
    return claims
