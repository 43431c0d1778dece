"""The crash test: workers are killed at random while a mixed load runs, until it is through; then everything is checked.

`python -m tests.crash.crash KILLS SEED` runs a long one by hand.
"""

from __future__ import annotations

import asyncio
import mmap
import os
import random
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from perdure import Perdure, Status

from tests.crash import load
from tests.crash.nursery import SLOTS

#: Workers alive at a time.
WORKERS = 2


@dataclass
class Report:
    kills: int = 0
    in_step: int = 0
    in_commit: int = 0
    runs: int = 0
    attempts: int = 0
    cut: int = 0
    problems: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        return (
            f"{self.kills} kills, {self.in_step} inside a step, {self.in_commit} inside a commit; {self.runs} runs, "
            f"{self.attempts} attempts of steps, {self.cut} of them cut off; {len(self.problems)} problems"
        )


@dataclass(frozen=True)
class Line:
    pid: int
    what: str
    run: str
    seq: int
    attempt: int
    name: str


class Log:
    """What the steps of all workers wrote, and a way to wait for more of it."""

    def __init__(self, fd: int) -> None:
        self.lines: list[Line] = []
        self._fd = fd
        self._rest = b""
        self._grown = asyncio.Event()
        os.set_blocking(fd, False)
        asyncio.get_running_loop().add_reader(fd, self.read)

    def read(self) -> None:
        while True:
            try:
                data = os.read(self._fd, 65536)
            except BlockingIOError:
                return
            *lines, self._rest = (self._rest + data).split(b"\n")
            for line in lines:
                pid, what, run, seq, attempt, name = line.decode().split(" ")
                self.lines.append(Line(int(pid), what, run, int(seq), int(attempt), name))
            self._grown.set()
            if not data:
                return

    async def grow(self, by: int) -> None:
        """Wait for so many lines more."""
        wanted = len(self.lines) + by
        while len(self.lines) < wanted:
            self._grown.clear()
            await self._grown.wait()

    def unfinished(self, pid: int) -> int:
        """Attempts that this process began and did not end."""
        count: Counter[tuple[str, int, int]] = Counter()
        for line in self.lines:
            if line.pid == pid:
                count[line.run, line.seq, line.attempt] += 1 if line.what == "begin" else -1
        return sum(1 for value in count.values() if value > 0)

    def close(self) -> None:
        asyncio.get_running_loop().remove_reader(self._fd)


class Nursery:
    """Workers, by slot."""

    def __init__(self, url: str, pipe: int, map_path: Path) -> None:
        map_path.write_bytes(bytes(SLOTS))
        with map_path.open("r+b") as file:
            self._marks = mmap.mmap(file.fileno(), SLOTS)
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.crash.nursery", url, str(pipe), str(map_path)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            pass_fds=[pipe],
            text=True,
        )
        self.alive: dict[int, int] = {}

    def spawn(self, slot: int) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{slot}\n")
        self._process.stdin.flush()
        self.alive[slot] = int(self._process.stdout.readline())

    def kill(self, slot: int) -> tuple[int, bool]:
        """Kill the worker of a slot; its pid, and whether it was inside a commit."""
        pid = self.alive.pop(slot)
        os.kill(pid, signal.SIGKILL)
        return pid, self._marks[slot] == 1

    def close(self) -> None:
        for slot in list(self.alive):
            self.kill(slot)
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait()
        self._process.stdout.close()
        self._marks.close()


async def crash(kills: int, seed: int, folder: Path) -> Report:
    """Run the load under so many kills, and check what came of it."""
    rng = random.Random(seed)
    report = Report()
    url = f"sqlite:///{folder / 'crash.db'}"
    reading, writing = os.pipe()
    log = Log(reading)
    nursery = Nursery(url, writing, folder / "marks")
    try:
        async with Perdure(url, include=[load], consume=False, poll=0.2) as app:
            await _kill_on(app, kills, rng, log, nursery, report)
            await _check(app, log, report)
    finally:
        nursery.close()
        log.close()
        os.close(reading)
        os.close(writing)
    return report


async def _kill_on(app: Perdure, kills: int, rng: random.Random, log: Log, nursery: Nursery, report: Report) -> None:
    runs: dict[str, tuple[str, int]] = {}
    for slot in range(WORKERS):
        nursery.spawn(slot)
    stop = asyncio.Event()
    feeding = asyncio.create_task(_feed(app, rng, runs, stop))
    try:
        for _ in range(kills):
            await log.grow(rng.randint(1, 25))
            slot = rng.choice(list(nursery.alive))
            pid, in_commit = nursery.kill(slot)
            log.read()
            report.kills += 1
            report.in_commit += in_commit
            report.in_step += log.unfinished(pid) > 0
            nursery.spawn(slot)
        stop.set()
        await feeding
        for run_id, (name, n) in runs.items():
            result = await app.get_run(run_id).result(timeout=60)
            if result != load.expected(name, n):
                report.problems.append(f"{run_id} returned {result}, not {load.expected(name, n)}")
    finally:
        feeding.cancel()
    report.runs = len(runs)


#: So many runs are unfinished at a time.
_OPEN = 30


async def _feed(app: Perdure, rng: random.Random, runs: dict[str, tuple[str, int]], stop: asyncio.Event) -> None:
    """Keep the workers busy until the last kill."""
    room = asyncio.Semaphore(_OPEN)
    async with asyncio.TaskGroup() as group:
        while not stop.is_set():
            await room.acquire()
            name = rng.choice(["sequence", "fan", "timers", "family", "counter"])
            n = rng.randint(0, 100)
            run_id = f"{name}:{len(runs)}"
            runs[run_id] = (name, n)
            group.create_task(_one(app, name, n, run_id, room))


async def _one(app: Perdure, name: str, n: int, run_id: str, room: asyncio.Semaphore) -> None:
    try:
        if name == "counter":
            run = await app.start("counter", 0, 0, load.SIGNALS, id=run_id)
            for i in range(load.SIGNALS):
                await run.signal("add", n, id=f"{i}")
                await run.signal("add", n, id=f"{i}")  # as a sender does that lost the answer
        else:
            run = await app.start(name, n, id=run_id)
        await run.result(timeout=120)
    finally:
        room.release()


async def _check(app: Perdure, log: Log, report: Report) -> None:
    """What must hold whatever was killed when."""
    for finding in await app.engine.store.audit(heal=False):
        report.problems.append(f"the audit found: {finding.run.id} {finding.what}")
    runs = await app.runs(limit=100_000)
    for run in runs:
        if run.status is not Status.COMPLETED:
            report.problems.append(f"{run.id} is {run.status}")
    histories = await app.engine.store.history([run.incarnation for run in runs])
    for run in runs:
        report.cut += sum(1 for entry in histories[run.incarnation] if entry.event.name == "ATTEMPT_CUT")
    report.problems += _steps_out_of_order(log)
    report.attempts = sum(1 for line in log.lines if line.what == "begin")


def _steps_out_of_order(log: Log) -> list[str]:
    """In a sequence, a later step begins only after an earlier one's result is durable: so that one must never run again.

    And the number of an attempt must never be used twice.
    """
    problems: list[str] = []
    furthest: dict[str, int] = {}
    seen: set[tuple[str, int, int, str]] = set()
    for line in log.lines:
        if line.what != "begin":
            continue
        attempt = (line.run, line.seq, line.attempt, line.name)
        if attempt in seen:
            problems.append(f"attempt {line.attempt} of {line.run}#{line.seq} began twice")
        seen.add(attempt)
        if line.run.startswith("sequence") and line.seq < furthest.get(line.run, 0):
            problems.append(f"{line.run}#{line.seq} ran again after #{furthest[line.run]} had begun")
        furthest[line.run] = max(line.seq, furthest.get(line.run, 0))
    return problems


async def main() -> None:
    kills, seed = int(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else random.randrange(10**9)
    print("seed", seed)
    with tempfile.TemporaryDirectory() as folder:
        report = await crash(kills, seed, Path(folder))
    print(report)
    for problem in report.problems[:20]:
        print(" ", problem)


if __name__ == "__main__":
    asyncio.run(main())
