"""The crash test: workers are killed and stopped at random while a mixed load runs, until it is through; then all is checked.

`python -m tests.crash.crash KILLS SEED [WORKERS]` runs a long one by hand.
"""

from __future__ import annotations

import asyncio
import os
import random
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from perdure import Perdure
from tests.crash import checks, load
from tests.crash.clients import CLIENTS, End, end_of, expected
from tests.crash.nursery import IN_COMMIT, OPENING
from tests.crash.workers import Log, Workers

#: So many runs are unfinished at a time.
_OPEN = 12

#: Seconds. Some times the lease.
_STANDSTILL = 2

#: Seconds that one run may take. They take a second or two.
_PATIENCE = 60


@dataclass
class Report:
    """What was hit, and what came of it."""

    kills: int = 0
    in_step: int = 0
    in_commit: int = 0
    opening: int = 0
    stops: int = 0
    runs: int = 0
    attempts: int = 0
    cut: int = 0
    problems: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        return (
            f"{self.kills} kills ({self.in_step} inside a step, {self.in_commit} inside a commit, {self.opening} while "
            f"opening) and {self.stops} stops; {self.runs} runs, {self.attempts} attempts of steps, {self.cut} of them cut "
            f"off; {len(self.problems)} problems"
        )


class Crash:
    """One load under so many kills."""

    def __init__(self, app: Perdure, path: Path, rng: random.Random, log: Log, workers: Workers) -> None:
        self.report = Report()
        self._app = app
        self._path = path
        self._rng = rng
        self._log = log
        self._workers = workers
        self._told: dict[str, tuple[End, End]] = {}
        self._over = asyncio.Event()

    async def run(self, kills: int, workers: int) -> None:
        for slot in range(workers):
            self._workers.spawn(slot)
        feeding = asyncio.create_task(self._feed())
        try:
            while self.report.kills < kills:
                await self._harm()
            self._workers.go_on()
            self._over.set()
            await feeding
        finally:
            feeding.cancel()
        self.report.runs = len(self._told)
        for run_id, (end, due) in self._told.items():
            if end != due:
                self.report.problems.append(f"{run_id} ended with {end!r}, not {due!r}")

    async def check(self) -> None:
        report, lines = self.report, self._log.lines
        report.problems += await checks.everything(self._app, self._path, lines)
        report.attempts = sum(line.what == "begin" for line in lines)
        report.cut = 2 * report.attempts - len(lines)
        for run_id, (_, due) in self._told.items():
            if any(problem.startswith(f"{run_id}:") for problem in report.problems):
                continue  # it did not end; nobody knows what it waits for
            again = await end_of(self._app.get_run(run_id))
            if again != due:
                report.problems.append(f"{run_id} had ended with {due!r}, and then {again!r}")

    # -- harm ---------------------------------------------------------------------------------------------------------

    async def _harm(self) -> None:
        rng, workers = self._rng, self._workers
        running = [slot for slot in workers.alive if slot not in workers.stopped]
        if rng.random() < 0.1 and len(running) > 1:
            workers.stop(rng.choice(running))
            self.report.stops += 1
            return
        if rng.random() < 0.15:
            workers.go_on()
        slots = list(workers.alive)
        if rng.random() > 0.1:  # else perhaps one that is just being born
            await self._progress(rng.randint(1, 40))
            slots = [slot for slot in slots if workers.where(slot) != OPENING] or slots
        slot = rng.choice(slots)
        pid, where = workers.kill(slot)
        self.report.kills += 1
        self.report.in_commit += where == IN_COMMIT
        self.report.opening += where == OPENING
        self.report.in_step += self._log.in_step(pid)
        workers.spawn(slot)

    async def _progress(self, steps: int) -> None:
        """Wait until so many more steps were done. One that stopped inside a commit has the lock, and must go on first."""
        try:
            await asyncio.wait_for(self._log.grow(steps), _STANDSTILL if self._workers.stopped else 10 * _STANDSTILL)
        except TimeoutError:
            if not self._workers.stopped:
                self.report.problems += ["nothing was done for a long time", *checks.who_holds(self._path)]
                self._workers.tell_stacks()
            self._workers.go_on()

    # -- load ---------------------------------------------------------------------------------------------------------

    async def _feed(self) -> None:
        """Keep the workers busy until the last kill."""
        room = asyncio.Semaphore(_OPEN)
        async with asyncio.TaskGroup() as group:
            number = 0
            while not self._over.is_set():
                await room.acquire()
                name = self._rng.choice(list(CLIENTS))
                group.create_task(self._one(name, f"{name}:{number}", self._rng.randint(0, 100), room))
                number += 1

    async def _one(self, name: str, run_id: str, n: int, room: asyncio.Semaphore) -> None:
        due = expected(name, n)
        try:
            async with asyncio.timeout(_PATIENCE):
                end = await CLIENTS[name](self._app, run_id, n, random.Random(f"{run_id}{n}"))
        except Exception as error:
            end = f"{type(error).__name__}: {error}"
            self.report.problems += [f"{run_id}: {end}", *await checks.how_it_stands(self._app, run_id)]
            self.report.problems += checks.who_holds(self._path)
        finally:
            room.release()
        self._told[run_id] = (end, due)


@contextmanager
def _pipe() -> Iterator[tuple[int, int]]:
    reading, writing = os.pipe()
    try:
        yield reading, writing
    finally:
        os.close(reading)
        os.close(writing)


async def crash(kills: int, seed: int, folder: Path, workers: int = 2) -> Report:
    """Run the load under so many kills, and check what came of it."""
    path = folder / "crash.db"
    url = f"sqlite:///{path}"
    with _pipe() as (reading, writing):
        log = Log(reading)
        fleet = Workers(url, writing, folder)
        try:
            async with Perdure(url, include=[load], consume=False, poll=0.2) as app:
                test = Crash(app, path, random.Random(seed), log, fleet)
                await test.run(kills, workers)
                await test.check()
        finally:
            fleet.close()
            log.close()
    test.report.problems += [line for line in fleet.errors() if "fault in Perdure" in line or "Traceback" in line]
    return test.report


async def main() -> None:
    kills, seed = int(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else random.randrange(10**9)
    workers = int(sys.argv[3]) if len(sys.argv) > 3 else 2
    with tempfile.TemporaryDirectory() as folder:
        report = await crash(kills, seed, Path(folder), workers)
        lines = [f"seed {seed}, {workers} workers: {report}", *report.problems[:20]]
        if report.problems:
            lines.append((Path(folder) / "errors").read_text(errors="replace")[-5000:])
    sys.stdout.write("\n  ".join(lines) + "\n")


if __name__ == "__main__":
    asyncio.run(main())
