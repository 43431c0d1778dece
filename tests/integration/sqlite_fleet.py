"""One process of several on a SQLite file: `python -m tests.integration.sqlite_fleet VERB FILE ARGUMENTS`.

Says "ready", waits for a line, does its part, and prints what came of it as JSON.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Callable
from threading import Thread

from msgspec.structs import replace

from perdure.model.commit import Applied, Create, TurnCommit
from perdure.model.run import RunKey, Status
from perdure.stores.sqlite import SqliteStore
from perdure.testing import ManualClock
from perdure.testing.conformance.kit import LEASE, new, request, resolved, scheduled, to_run


def opened(path: str, synchronous: str = "OFF") -> SqliteStore:
    return SqliteStore(path, clock=ManualClock(), synchronous=synchronous)


def begun(name: str, clock: ManualClock) -> Create:
    """A run held by its creator."""
    first = TurnCommit(
        run=RunKey(name, 0),
        owner=name,
        epoch=1,
        n=0,
        entries=(scheduled(0),),
        status=Status.RUNNING,
        wake_at=clock.now() + LEASE,
    )
    return Create(run=new(name), turn=first)


async def write_runs(path: str, prefix: str, count: int) -> int:
    """Runs of three writes each, one after another; how many writes were applied."""
    store = opened(path)
    await store.open()
    applied = 0
    for number in range(count):
        [answer] = await store.write([begun(f"{prefix}.{number}", ManualClock())])
        assert isinstance(answer, Applied), answer
        assert answer.key is not None
        held_run = TurnCommit(run=answer.key, owner=answer.key.id, epoch=1, n=1, entries=(), status=Status.RUNNING)
        middle = replace(held_run, entries=(resolved(0), scheduled(1)))
        end = replace(held_run, n=3, entries=(resolved(1),), status=Status.COMPLETED, output=b"1")
        for turn in (middle, end):
            assert await store.write([turn]) == [Applied(answer.key)]
            applied += 1
        applied += 1
    await store.close()
    return applied


def write(path: str, prefix: str, threads: str, count: str) -> list[int]:
    """Each thread with a loop and a store of its own."""
    applied: list[int] = []

    def main(number: int) -> None:
        applied.append(asyncio.run(write_runs(path, f"{prefix}.{number}", int(count))))

    workers = [Thread(target=main, args=(number,)) for number in range(int(threads))]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    return applied


def claim(path: str, owner: str, limit: str) -> list[str]:
    """Claims until nothing is due."""

    async def main() -> list[str]:
        store = opened(path)
        await store.open()
        claimed: list[str] = []
        while batch := await store.claim(request(owner, limit=int(limit))):
            claimed += [each.run.id for each in batch]
        await store.close()
        return claimed

    return asyncio.run(main())


def storm(path: str, prefix: str) -> None:
    """Writes two things a transaction, for ever, and prints each number once it is answered."""

    async def main() -> None:
        store = opened(path, "FULL")
        await store.open()
        number = 0
        while True:
            name = f"{prefix}.{number}"
            answers = await store.write([begun(name, ManualClock()), to_run("parent", name.encode())])
            assert all(isinstance(answer, Applied) for answer in answers)
            sys.stdout.write(f"{name}\n")
            sys.stdout.flush()
            number += 1

    asyncio.run(main())


VERBS: dict[str, Callable[..., object]] = {"write": write, "claim": claim, "storm": storm}


if __name__ == "__main__":
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    sys.stdin.readline()
    sys.stdout.write(json.dumps(VERBS[sys.argv[1]](*sys.argv[2:])) + "\n")
