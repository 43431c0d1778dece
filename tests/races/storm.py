"""A process that writes random batches, a few at a time, to runs and tokens that it shares with others like it.

`python -m tests.races.storm URL SEED BATCHES`: says "ready", begins when it is told to, and prints what came of it as JSON.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections import Counter
from collections.abc import Sequence

from perdure.engine.systemclock import SystemClock
from perdure.model.commit import Create, Write
from perdure.model.run import Status
from perdure.ports.store import Store
from perdure.stores.postgres import PostgresStore
from perdure.testing.conformance import script as scripts
from perdure.testing.conformance.kit import LEASE, complete, new, park
from perdure.testing.conformance.oracle import EVERYTHING
from perdure.testing.conformance.script import Script

#: Batches in flight at once, and how many are drawn from one look at what there is.
AT_ONCE, FROM_ONE_LOOK = 4, 2

#: More than the oracle's few: most that is drawn shall be applied.
IDS = tuple("abcdefghijklmnop")
WINDOW = 20


async def look(store: Store, script: Script) -> None:
    script.now = store.now()
    script.runs = await store.runs(EVERYTHING)
    script.unread = {run.incarnation: [*range(max(1, run.inbox - 3), run.inbox + 1)] for run in script.runs}


def plain(script: Script, since: int) -> Sequence[Write]:
    """A batch that goes the short way: new runs, also such as others begin, and turns that only add to their run."""
    ids = [f"plain {number}" for number in range(since, since + WINDOW)]
    running = [run for run in script.runs if run.status is Status.RUNNING]
    held = script.random.sample(running, min(4, len(running)))
    turns: list[Write] = [complete(run) if script.chance(5) else park(run) for run in held]
    news: list[Write] = [Create(run=new(run_id)) for run_id in script.random.sample(ids, WINDOW // 2)]
    batch = turns + news
    script.random.shuffle(batch)
    return batch


async def act(store: Store, script: Script, counts: Counter[str]) -> None:
    draw = script.random.randrange(100)
    owner, held = script.held()
    if draw < 70:
        batch = script.batch() if script.chance(8) else plain(script, counts["deeds"] // 8)
        for write, answer in zip(batch, await store.write(batch), strict=True):
            counts[f"{type(write).__name__} {type(answer).__name__}"] += 1
    elif draw < 90:
        counts["claimed"] += len(await store.claim(script.request()))
    elif draw < 94:
        renewer = store.renewer()
        await asyncio.to_thread(renewer.renew, owner, LEASE, held)
        await asyncio.to_thread(renewer.close)
    elif draw < 97:
        await store.release(owner, held)
    elif draw < 99:
        await store.unblock(script.serves())
    elif script.chance(5):
        await store.audit()
    else:
        await store.block_unserved(0)
    counts["deeds"] += 1


async def storm(url: str, seed: int, batches: int) -> Counter[str]:
    store = PostgresStore(url, clock=SystemClock())
    await store.open()
    counts: Counter[str] = Counter()
    scripts.RUN_IDS = IDS

    async def one(which: int) -> None:
        script = Script(seed * 100 + which)
        # A position is used once, whoever draws it.
        script._seq = (seed * 100 + which) * 1_000_000
        for number in range(batches):
            if number % FROM_ONE_LOOK == 0:
                await look(store, script)
            await act(store, script, counts)

    try:
        os.write(sys.stdout.fileno(), b"ready\n")
        await asyncio.to_thread(sys.stdin.readline)
        await asyncio.gather(*map(one, range(AT_ONCE)))
        counts["begun anew"] = store.begun_anew
    finally:
        await store.close()
    return counts


if __name__ == "__main__":
    result = asyncio.run(storm(sys.argv[1], int(sys.argv[2]), int(sys.argv[3])))
    os.write(sys.stdout.fileno(), json.dumps(result).encode())
