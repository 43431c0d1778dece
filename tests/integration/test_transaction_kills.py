"""Processes are killed inside and after transactions: there is one row, and the run ends with what that row says. TASK-05."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import pytest

from perdure import Perdure
from perdure.model.history import Event
from tests.behaviours.ledgers import Ledger, ledger_in

ROOT = Path(__file__).parents[2]


class Payer:
    """A process (see `transaction_load`). Killed at the end, if it has not ended."""

    def __init__(self, url: str, ledger: Ledger, where: str) -> None:
        self._command = [sys.executable, "-m", "tests.integration.transaction_load", url, ledger.table, where]

    async def __aenter__(self) -> Payer:
        pipe = asyncio.subprocess.PIPE
        self.process = await asyncio.create_subprocess_exec(*self._command, cwd=ROOT, stdout=pipe, stderr=pipe)
        return self

    async def __aexit__(self, *raised: object) -> None:
        if self.process.returncode is None:
            self.process.kill()
        await self.process.communicate()

    async def line(self) -> str:
        assert self.process.stdout is not None
        assert self.process.stderr is not None
        raw = await self.process.stdout.readline()
        if not raw:
            raise AssertionError((await self.process.stderr.read()).decode())
        return raw.decode().strip()

    async def kill(self) -> None:
        self.process.kill()
        assert await self.process.wait() == -9


@pytest.mark.parametrize("where", ["inside", "after"])
async def test_task05_killed_inside_or_after_a_transaction(url: str, where: str) -> None:
    async with Perdure(url, consume=False) as app, ledger_in(url) as ledger:
        async with Payer(url, ledger, where) as lost:
            assert await lost.line() == "wrote"
            if where == "after":
                assert await lost.line() == "committed"
                assert await ledger.lines() == [f"paid by {lost.process.pid}"]
            await lost.kill()
        async with Payer(url, ledger, "nowhere") as heir:
            lines = [await heir.line()]
            while not lines[-1].startswith("result"):
                lines.append(await heir.line())
            payer = lost if where == "after" else heir
            assert lines == (["wrote"] if where == "inside" else []) + [f"result paid by {payer.process.pid}"]
            assert await heir.process.wait() == 0
        assert await ledger.lines() == [f"paid by {payer.process.pid}"]
        history = await app.get_run("r1").history()
        assert [entry.event for entry in history if entry.seq == 0].count(Event.ATTEMPT_CUT) == 1
