"""A program that is killed while it works on a SQLite store: at each statement, and inside long ones.

`python -m tests.integration.sqlite_cuts SCENARIO FOLDER` prepares `before.db` in the folder; then for each place a process
of its own, on a copy, begins the scenario's deed and kills itself with SIGKILL there. Prints a JSON line for each: the copy,
and what SQLite was about to do. The last one comes to its end, on `after.db`. SCENARIO `open` is the first opening of a file.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import shutil
import signal
import sqlite3
import sys
from pathlib import Path

from perdure.stores.sqlite import SqliteStore
from perdure.stores.sqlite import connection as connections
from perdure.testing import ManualClock
from tests.integration.sqlite_scenarios import SCENARIOS

#: Steps of SQLite's virtual machine between two places inside a statement.
STRIDE = 150


class Cut:
    """Kills this process at the place of a number, once armed. Before that, writes what it is about to do to `report`."""

    def __init__(self, place: int, report: int) -> None:
        self.armed = False
        self._left = place
        self._report = report
        self._statement = ""

    def watch(self, connection: sqlite3.Connection) -> None:
        connection.set_trace_callback(self._begin)
        connection.set_progress_handler(self._inside, STRIDE)

    def _begin(self, statement: str) -> None:
        self._statement = " ".join(statement.split())[:60]
        self._place(self._statement)

    def _inside(self) -> int:
        self._place("inside " + self._statement)
        return 0

    def _place(self, what: str) -> None:
        if not self.armed:
            return
        self._left -= 1
        if not self._left:
            os.write(self._report, what.encode())
            os.kill(os.getpid(), signal.SIGKILL)


async def prepare(scenario: str, path: Path) -> None:
    store = SqliteStore(str(path), clock=ManualClock(), synchronous="OFF")
    await store.open()
    await SCENARIOS[scenario].prepare(store)
    await store.close()


async def act(scenario: str, path: Path, cut: Cut) -> None:
    connect = connections.connect

    def watched(path: str, synchronous: str) -> sqlite3.Connection:
        connection = connect(path, synchronous)
        cut.watch(connection)
        return connection

    connections.connect = watched
    clock = ManualClock()
    clock.advance(1)
    store = SqliteStore(str(path), clock=clock, synchronous="OFF")
    if scenario == "open":
        cut.armed = True
        await store.open()
    else:
        await store.open()
        deed = await SCENARIOS[scenario].begin(store)
        cut.armed = True
        await deed()
    cut.armed = False
    await store.close()


def die_at(place: int, scenario: str, path: Path) -> tuple[int, str]:
    """The exit status of a process that does the deed on `path`, and what it was about to do."""
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        status = 1
        try:
            asyncio.run(act(scenario, path, Cut(place, writing)))
            status = 0
        finally:
            os._exit(status)
    os.close(writing)
    _, status = os.waitpid(child, 0)
    with os.fdopen(reading, "rb") as report:
        return status, report.read().decode()


def main() -> None:
    scenario, folder = sys.argv[1], Path(sys.argv[2])
    before = folder / "before.db"
    if scenario != "open":
        asyncio.run(prepare(scenario, before))
    for place in itertools.count(1):
        path = folder / f"cut-{place}.db"
        if before.exists():
            shutil.copy(before, path)
        status, what = die_at(place, scenario, path)
        if os.WIFSIGNALED(status):
            sys.stdout.write(json.dumps({"file": path.name, "at": what}) + "\n")
            continue
        assert status == 0, f"the process ended with {status}"
        path.rename(folder / "after.db")
        return


if __name__ == "__main__":
    main()
