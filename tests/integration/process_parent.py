"""The parent's side of process tests: processes that are started, listened to, told things and killed; and a way to wait for
what they do to the store."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from perdure import Perdure
from tests.integration import process_load as load

ROOT = Path(__file__).parents[2]


class Part:
    """A process (see `process_part`). Killed at the end, if it has not ended."""

    def __init__(self, verb: str, name: str, url: str, options: dict[str, Any], blocker: int | None = None) -> None:
        self.name = name
        self.lines: list[list[str]] = []
        self.stderr = ""
        self._complained = asyncio.Event()
        self._command = [sys.executable, "-m", "tests.integration.process_part", verb, name, url, json.dumps(options)]
        self._command += [] if blocker is None else [str(blocker)]
        self._pass = () if blocker is None else (blocker,)

    async def __aenter__(self) -> Self:
        pipe = asyncio.subprocess.PIPE
        self._process = await asyncio.create_subprocess_exec(
            *self._command, cwd=ROOT, stdin=pipe, stdout=pipe, stderr=pipe, pass_fds=self._pass
        )
        self._errors = asyncio.create_task(self._read_errors())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._process.returncode is None:
            self._process.kill()
        await self.ended()

    async def line(self, *wanted: str) -> list[str]:
        """The next line that begins with these words after the name."""
        assert self._process.stdout is not None
        while True:
            raw = await self._process.stdout.readline()
            if not raw:
                raise AssertionError(f"{self.name} ended without {wanted}; it wrote {self.lines} and {self.stderr}")
            words = raw.decode().split()[1:]
            self.lines.append(words)
            if words[: len(wanted)] == list(wanted):
                return words

    async def complains(self, text: str) -> None:
        """Wait until it has said this on stderr."""
        while text not in self.stderr:
            self._complained.clear()
            await self._complained.wait()

    async def go(self) -> None:
        """Let its steps end."""
        assert self._process.stdin is not None
        self._process.stdin.write(b"go\n")
        await self._process.stdin.drain()

    def kill(self) -> None:
        self._process.kill()

    def terminate(self) -> None:
        self._process.send_signal(signal.SIGTERM)

    async def ended(self) -> int:
        """Its exit code; what it wrote until then is in `lines` and `stderr`."""
        assert self._process.stdout is not None
        rest = await self._process.stdout.read()
        self.lines += [line.split()[1:] for line in rest.decode().splitlines()]
        await self._errors
        return await self._process.wait()

    async def _read_errors(self) -> None:
        assert self._process.stderr is not None
        async for line in self._process.stderr:
            self.stderr += line.decode()
            self._complained.set()


@asynccontextmanager
async def client(url: str) -> AsyncIterator[Perdure]:
    """An app that only looks and asks."""
    async with Perdure(url, include=[load], consume=False, poll=0.1) as app:
        yield app


async def until(app: Perdure, holds: Callable[[], Awaitable[bool]]) -> None:
    """Wait until something holds that other processes bring about in the store."""
    changed = asyncio.Event()
    loop = asyncio.get_running_loop()
    unsubscribe = app.engine.store.on_change(lambda: void(loop.call_soon_threadsafe(changed.set)))
    try:
        while True:
            changed.clear()
            if await holds():
                return
            # A store's hints may be lost, as when a listener comes and goes.
            with suppress(TimeoutError):
                await asyncio.wait_for(changed.wait(), 1)
    finally:
        unsubscribe()


def void(thing: object) -> None:
    """For calls whose result nobody wants."""


async def until_renewed(app: Perdure, run_id: str, times: int) -> None:
    """Wait until a run's lease was pushed on so often."""
    leases: set[int | None] = set()

    async def renewed() -> bool:
        leases.add((await app.get_run(run_id).info()).wake_at)
        return len(leases) > times

    await until(app, renewed)


@asynccontextmanager
async def pipe() -> AsyncIterator[tuple[int, int]]:
    """A pipe for a process that blocks on it: its reading end, and ours."""
    reading, writing = os.pipe()
    try:
        yield reading, writing
    finally:
        os.close(reading)
        os.close(writing)
