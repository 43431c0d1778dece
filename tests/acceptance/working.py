"""`perdure worker` as a process: how tests start it, listen to it and give it work."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from perdure import Status
from tests.acceptance import shop

ROOT = Path(__file__).parents[2]

#: A step that waits until the test opens the gate: it is in flight for as long as the test wants.
PROGRAM = """
import asyncio
from pathlib import Path

from perdure import Perdure, step, workflow


@step
async def pass_gate(gate: str) -> str:
    return await asyncio.to_thread(Path(gate).read_text)


@workflow(version="2")
async def walk(gate: str) -> str:
    return await pass_gate(gate)


app = Perdure({url!r}, drain=60)
idle = Perdure({url!r}, consume=False)
"""


class Worker:
    """A worker process that tells its events as JSON, or (with `quiet`) only people what it does."""

    def __init__(self, folder: Path, *arguments: str, quiet: bool = False) -> None:
        command = [sys.executable, "-W", "error", "-m", "perdure.cli", "worker", "program:app", *arguments]
        command += [] if quiet else ["--json"]
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        self.process = subprocess.Popen(
            command,
            cwd=folder,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def until(self, event: str) -> dict[str, Any]:
        """Read on until this event, and return it. Lines of the program itself are passed over."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if line.startswith("{"):
                told: dict[str, Any] = json.loads(line)
                if told["event"] == event:
                    return told
        raise AssertionError(f"the worker ended without {event}: {self.end()}")

    def end(self) -> tuple[int, str]:
        """Wait for its end: exit code, and standard error."""
        _, err = self.process.communicate(timeout=60)
        return self.process.returncode, err


def begin(folder: Path, worker: Worker) -> dict[str, Any]:
    """Have the worker run a step that stands before the gate. Returns the event of its start."""
    command = [sys.executable, "-m", "perdure.cli", "start", "program:app", "walk", json.dumps(str(folder / "gate"))]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    subprocess.run([*command, "--id", "w"], cwd=folder, env=environment, check=True, timeout=60, capture_output=True)
    return worker.until("step.started")


def status(folder: Path) -> tuple[Status, Any]:
    async def look() -> tuple[Status, Any]:
        async with shop.app(folder).client() as client:
            info = await client.get_run("w").info()
            return info.status, info.output

    return asyncio.run(look())
