"""Where a crash test's runs are stored: what can be done to the store itself, and what must be in it afterwards."""

from __future__ import annotations

import random
import sqlite3
from collections.abc import Iterable
from contextlib import closing
from pathlib import Path
from typing import Protocol

from tests.crash.report import Report

#: What must not be once every run has ended, and how it is counted. Both stores call these things the same.
LEFT_OVERS = {
    "waits of runs that have ended or are gone": "{at}waits WHERE incarnation NOT IN (SELECT incarnation FROM {at}runs "
    "WHERE status < 4)",
    "messages kept at a token": "{at}kept",
    "messages of runs that are gone": "{at}messages WHERE incarnation NOT IN (SELECT incarnation FROM {at}runs)",
    "dedup ids of runs that are gone": "{at}deliveries WHERE incarnation NOT IN (SELECT incarnation FROM {at}runs)",
    "history of runs that are gone": "{at}history WHERE incarnation NOT IN (SELECT incarnation FROM {at}runs)",
    "chunks of runs that are gone": "{at}chunks WHERE incarnation NOT IN (SELECT incarnation FROM {at}runs)",
    "values of runs that are gone": "{at}run_values WHERE incarnation NOT IN (SELECT incarnation FROM {at}runs)",
}


class Site(Protocol):
    @property
    def url(self) -> str: ...

    async def harm(self, rng: random.Random, share: float) -> bool:
        """Harm the store, perhaps; False if nothing was done. `share`: how much of the test is over, 1 is all."""
        ...

    async def left_over(self) -> Iterable[str]:
        """What is in the store that must not be."""
        ...

    async def leaked(self, processes: int) -> Iterable[str]:
        """Connections that nobody has any more, when so many processes are there; they get time to go."""
        ...

    def who_holds(self) -> list[str]:
        """Who has which lock, as far as it can be told, for a test in which nothing moves."""
        ...

    def done(self) -> list[str]:
        """What was done to the store, in words."""
        ...

    def missed(self, report: Report) -> list[str]:
        """What should have been hit, and was not yet."""
        ...


class SqliteSite:
    """A file, which is left alone."""

    def __init__(self, path: Path) -> None:
        self.url = f"sqlite:///{path}"
        self._path = path

    async def harm(self, rng: random.Random, share: float) -> bool:
        return False

    async def left_over(self) -> Iterable[str]:
        problems: list[str] = []
        with closing(sqlite3.connect(self._path)) as connection:
            for (verdict,) in connection.execute("PRAGMA integrity_check"):
                if verdict != "ok":
                    problems.append(f"the file is damaged: {verdict}")
            for what, rows in LEFT_OVERS.items():
                [left] = connection.execute(f"SELECT count(*) FROM {rows.format(at='')}").fetchone()
                if left:
                    problems.append(f"{left} {what}")
        return problems

    async def leaked(self, processes: int) -> Iterable[str]:
        return ()

    def who_holds(self) -> list[str]:
        table = Path("/proc/locks")
        if not table.exists():
            return []
        files = {f"{self._path}{suffix}" for suffix in ("", "-wal", "-shm")}
        inodes = {str(Path(file).stat().st_ino): file for file in files if Path(file).exists()}
        return [
            f"{inodes[inode]}: {line}"
            for line in table.read_text().splitlines()
            for inode in inodes
            if f":{inode} " in line
        ]

    def done(self) -> list[str]:
        return []

    def missed(self, report: Report) -> list[str]:
        return []
