"""The workers of a crash test, as whoever kills them sees them: their slots, and the log of their steps."""

from __future__ import annotations

import asyncio
import mmap
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from tests.crash.marks import SIZE, Marks


class Line(NamedTuple):
    pid: int
    what: str
    run: str
    seq: int
    attempt: int
    name: str


class Log:
    """What the steps of all workers wrote, and a way to wait until they did more."""

    def __init__(self, fd: int) -> None:
        self.lines: list[Line] = []
        self._fd = fd
        self._rest = b""
        self._grown = asyncio.Event()
        self._done = 0
        #: What workers told beside their steps: (pid, what), and how often.
        self.told: Counter[tuple[int, str]] = Counter()
        #: What has begun and not ended, by process.
        self._open: Counter[int] = Counter()
        os.set_blocking(fd, False)
        asyncio.get_running_loop().add_reader(fd, self.read)

    def read(self) -> None:
        while True:
            try:
                data = os.read(self._fd, 65536)
            except BlockingIOError:
                return
            *lines, self._rest = (self._rest + data).split(b"\n")
            for text in lines:
                pid, what, run, seq, attempt, name = text.decode().split(" ")
                if name == "-":
                    self.told[int(pid), what] += 1
                    continue
                line = Line(int(pid), sys.intern(what), run, int(seq), int(attempt), sys.intern(name))
                self.lines.append(line)
                self._open[line.pid] += 1 if what == "begin" else -1
                self._done += what != "begin"
            self._grown.set()
            if not data:
                return

    async def grow(self, by: int) -> None:
        """Wait for the ends of so many more attempts."""
        wanted = self._done + by
        while self._done < wanted:
            self._grown.clear()
            await self._grown.wait()

    def in_step(self, pid: int) -> bool:
        """True if this process began an attempt that it did not end."""
        self.read()
        return self._open[pid] > 0

    def count(self, what: str, pids: Iterable[int] | None = None) -> int:
        """How often workers (only these) told that."""
        return sum(n for (pid, each), n in self.told.items() if each == what and (pids is None or pid in pids))

    def close(self) -> None:
        asyncio.get_running_loop().remove_reader(self._fd)


class Workers:
    """Alive or stopped, by slot."""

    def __init__(self, url: str, pipe: int, folder: Path, lease: float) -> None:
        marks, errors = folder / "marks", folder / "errors"
        marks.write_bytes(bytes(SIZE))
        with marks.open("r+b") as file:
            self._shared = mmap.mmap(file.fileno(), SIZE)
        self._errors = errors
        with errors.open("wb") as stderr:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.crash.nursery", url, str(pipe), str(marks), str(lease)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=stderr,
                pass_fds=[pipe],
                text=True,
            )
        self.alive: dict[int, int] = {}
        self.stopped: set[int] = set()

    def spawn(self, slot: int) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{slot}\n")
        self._process.stdin.flush()
        self.alive[slot] = int(self._process.stdout.readline())

    def where(self, slot: int) -> Marks:
        """Where the worker of a slot is, or was."""
        return Marks(self._shared, slot)

    def kill(self, slot: int) -> int:
        """Kill the worker of a slot; its pid."""
        pid = self.alive.pop(slot)
        self.stopped.discard(slot)
        os.kill(pid, signal.SIGKILL)
        return pid

    def stop(self, slot: int) -> int:
        """Have it do nothing, as a process on a machine that sleeps; it knows nothing of it. Its pid."""
        os.kill(self.alive[slot], signal.SIGSTOP)
        self.stopped.add(slot)
        return self.alive[slot]

    def go_on(self, slot: int, pid: int) -> None:
        """If it was not killed meanwhile."""
        if self.alive.get(slot) == pid:
            os.kill(pid, signal.SIGCONT)
            self.stopped.discard(slot)

    def tell_stacks(self) -> None:
        """Have all that run write their stacks to standard error."""
        for pid in self.alive.values():
            os.kill(pid, signal.SIGUSR1)

    def errors(self) -> list[str]:
        """What the workers wrote to standard error."""
        return self._errors.read_text(errors="replace").splitlines()

    def close(self) -> None:
        for slot in list(self.alive):
            self.kill(slot)
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait()
        self._process.stdout.close()
        self._shared.close()
