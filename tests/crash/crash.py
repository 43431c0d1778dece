"""The crash test: workers are killed and paused at random, and the store is harmed where it can be, while a mixed load runs,
until it is through; then all is checked.

`python -m tests.crash.crash sqlite KILLS [SEED] [WORKERS]` runs a long one by hand; `tests.crash.soak` the one on PostgreSQL.
"""

from __future__ import annotations

import asyncio
import os
import random
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from perdure import Perdure
from tests.crash import checks, load
from tests.crash.clients import CLIENTS, End, end_of, expected
from tests.crash.report import Plan, Report
from tests.crash.sites import Site, SqliteSite
from tests.crash.workers import Log, Workers

#: Seconds without the end of any step that are a problem. A server takes a few to come back.
_STANDSTILL = 20

#: How often as much as planned is done, if it has not hit everything yet.
_CHANCE = 4

#: A pause, in leases.
_PAUSE = (1.5, 3.0)

#: Runs are asked for their end again by so many at a time.
_ASKERS = 20


class Crash:
    """One load under one plan."""

    def __init__(self, app: Perdure, site: Site, plan: Plan, rng: random.Random, log: Log, workers: Workers) -> None:
        self.report = Report()
        self._app = app
        self._site = site
        self._plan = plan
        self._rng = rng
        self._log = log
        self._workers = workers
        self._told: dict[str, tuple[End, End]] = {}
        #: Who was ever paused.
        self._slept: set[int] = set()
        self._over = False

    async def run(self, progress: Callable[[str], None]) -> None:
        for slot in range(self._plan.workers):
            self._workers.spawn(slot)
        feeding = asyncio.create_task(self._feed(progress))
        try:
            while not self._enough():
                await self._harm()
            self._over = True
            await feeding
        finally:
            feeding.cancel()
        for run_id, (end, due) in self._told.items():
            if end != due:
                self.report.problems.append(f"{run_id} ended with {end!r}, not {due!r}")

    async def check(self) -> None:
        """After the run, while the workers still serve."""
        report, log = self.report, self._log
        report.problems += await self._site.leaked(len(self._workers.alive) + 1)
        log.read()
        await checks.everything(self._app, self._site, log.lines, self._slept, report)
        report.attempts = sum(line.what == "begin" for line in log.lines)
        report.cut = 2 * report.attempts - len(log.lines)
        self._count()
        asked = iter(list(self._told.items()))
        await asyncio.gather(*[self._ask_again(asked) for _ in range(_ASKERS)])

    async def _ask_again(self, asked: Iterator[tuple[str, tuple[End, End]]]) -> None:
        for run_id, (_, due) in asked:
            if any(problem.startswith(f"{run_id}:") for problem in self.report.problems):
                continue  # it did not end; nobody knows what it waits for
            again = await end_of(self._app.get_run(run_id))
            if again != due:
                self.report.problems.append(f"{run_id} had ended with {due!r}, and then {again!r}")

    def _count(self) -> None:
        report, log = self.report, self._log
        report.fenced = log.count("fenced", self._slept)
        report.asked, report.adopted = log.count("asked"), log.count("adopted")

    def _enough(self) -> bool:
        """The plan is done, and hit what it should; or it has had its chance."""
        if self._share() < 1:
            return False
        self._count()
        return self._share() >= _CHANCE or not [*self.report.missed(), *self._site.missed(self.report)]

    def _share(self) -> float:
        """How much of the plan is done."""
        kills = self.report.kills.all / self._plan.kills
        return min(kills, self.report.started / self._plan.runs) if self._plan.runs else kills

    # -- harm ---------------------------------------------------------------------------------------------------------

    async def _harm(self) -> None:
        rng, workers = self._rng, self._workers
        if await self._site.harm(rng, self._share()):
            await self._progress(rng.randint(*self._plan.pace))
            return
        running = [slot for slot in workers.alive if slot not in workers.stopped]
        if rng.random() < self._plan.pausing and len(running) > 1:
            busy = [
                slot for slot in running if self._log.in_step(workers.alive[slot]) or workers.where(slot).in_commit()
            ]
            self._pause(rng.choice(busy or running))
            return
        # Most of those that sleep shall live to see that they have lost their runs.
        slots = running if rng.random() > 0.1 else list(workers.alive)
        if rng.random() > 0.1:  # else perhaps one that is just being born
            await self._progress(rng.randint(*self._plan.pace))
            slots = [slot for slot in slots if not workers.where(slot).is_opening()] or slots
        slot = rng.choice(slots)
        pid, where, hits = workers.kill(slot), workers.where(slot), self.report.kills
        hits.all += 1
        hits.in_commit += where.in_commit()
        hits.opening += where.is_opening()
        hits.in_step += self._log.in_step(pid)
        workers.spawn(slot)

    def _pause(self, slot: int) -> None:
        """For longer than its leases last. (One that is paused inside a commit to a file has the file's lock all the while.)"""
        pid, where, hits = self._workers.stop(slot), self._workers.where(slot), self.report.pauses
        self._slept.add(pid)
        hits.all += 1
        hits.in_commit += where.in_commit()
        hits.opening += where.is_opening()
        hits.in_step += self._log.in_step(pid)
        seconds = self._rng.uniform(*_PAUSE) * self._plan.lease
        asyncio.get_running_loop().call_later(seconds, self._workers.go_on, slot, pid)

    async def _progress(self, steps: int) -> None:
        """Wait until so many more steps were done."""
        try:
            await asyncio.wait_for(self._log.grow(steps), _STANDSTILL)
        except TimeoutError:
            self.report.problems += ["nothing was done for a long time", *self._site.who_holds()]
            self._workers.tell_stacks()

    # -- load ---------------------------------------------------------------------------------------------------------

    async def _feed(self, progress: Callable[[str], None]) -> None:
        """Keep the workers busy until the plan is done."""
        room = asyncio.Semaphore(self._plan.crowd)
        async with asyncio.TaskGroup() as group:
            while not self._over:
                await room.acquire()
                number, name = self.report.started, self._rng.choice(list(CLIENTS))
                group.create_task(self._one(name, f"{name}:{number}", self._rng.randint(0, 100), room))
                self.report.started += 1
                if self.report.started % 1000 == 0:
                    progress(f"{self.report.started} runs started, {self.report.kills.all} kills")

    async def _one(self, name: str, run_id: str, n: int, room: asyncio.Semaphore) -> None:
        due = expected(name, n)
        try:
            async with asyncio.timeout(self._plan.patience):
                end = await CLIENTS[name](self._app, run_id, n, random.Random(f"{run_id}{n}"))
        except Exception as error:
            end = f"{type(error).__name__}: {error}"
            self.report.problems += [f"{run_id}: {end}", *await checks.how_it_stands(self._app, run_id)]
            self.report.problems += self._site.who_holds()
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


def _silent(line: str) -> None:
    """Nobody wants to hear of the progress."""


async def crash(site: Site, plan: Plan, seed: int, folder: Path, progress: Callable[[str], None] = _silent) -> Report:
    """Carry out the plan, and check what came of it. `folder` is for files beside the store's."""
    with _pipe() as (reading, writing):
        log = Log(reading)
        fleet = Workers(site.url, writing, folder, plan.lease)
        try:
            async with Perdure(site.url, include=[load], consume=False, poll=0.2) as app:
                test = Crash(app, site, plan, random.Random(seed), log, fleet)
                await test.run(progress)
                progress("all have ended; checking")
                await test.check()
        finally:
            fleet.close()
            log.close()
    report = test.report
    report.problems += await site.leaked(0)
    report.problems += [line for line in fleet.errors() if "fault in Perdure" in line or "Traceback" in line]
    report.store += site.done()
    report.missing += [*report.missed(), *site.missed(report)]
    return report


async def main() -> None:
    kills, seed = int(sys.argv[2]), int(sys.argv[3]) if len(sys.argv) > 3 else random.randrange(10**9)
    plan = Plan(kills=kills, workers=int(sys.argv[4]) if len(sys.argv) > 4 else 2)
    with tempfile.TemporaryDirectory() as folder:
        report = await crash(SqliteSite(Path(folder) / "crash.db"), plan, seed, Path(folder))
        lines = [f"seed {seed}: {plan}", str(report), *report.missing]
        if report.problems:
            lines.append((Path(folder) / "errors").read_text(errors="replace")[-5000:])
    sys.stdout.write("\n".join(lines) + "\n")


if __name__ == "__main__":
    asyncio.run(main())
