"""The workers of a crash test, as whoever kills them sees them: their slots, and the log of their steps."""

from __future__ import annotations

import asyncio
import mmap
import os
import signal
import subprocess
import sys
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from tests.crash.nursery import SLOTS


@dataclass(frozen=True)
class Line:
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
                line = Line(int(pid), what, run, int(seq), int(attempt), name)
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

    def close(self) -> None:
        asyncio.get_running_loop().remove_reader(self._fd)


class Workers:
    """Alive or stopped, by slot."""

    def __init__(self, url: str, pipe: int, folder: Path) -> None:
        marks, errors = folder / "marks", folder / "errors"
        marks.write_bytes(bytes(SLOTS))
        with marks.open("r+b") as file:
            self._marks = mmap.mmap(file.fileno(), SLOTS)
        self._errors = errors
        with errors.open("wb") as stderr:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.crash.nursery", url, str(pipe), str(marks)],
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

    def where(self, slot: int) -> int:
        """Where the worker of a slot is (see `nursery`)."""
        return self._marks[slot]

    def kill(self, slot: int) -> tuple[int, int]:
        """Kill the worker of a slot; its pid, and where it was."""
        pid = self.alive.pop(slot)
        self.stopped.discard(slot)
        os.kill(pid, signal.SIGKILL)
        return pid, self._marks[slot]

    def stop(self, slot: int) -> None:
        """Have it do nothing, as a process on a machine that sleeps; it knows nothing of it."""
        os.kill(self.alive[slot], signal.SIGSTOP)
        self.stopped.add(slot)

    def go_on(self) -> None:
        """All that were stopped."""
        for slot in self.stopped:
            os.kill(self.alive[slot], signal.SIGCONT)
        self.stopped.clear()

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
        self._marks.close()
