"""Several processes on one file."""

from __future__ import annotations

import asyncio
import json
import signal
import sqlite3
import subprocess
import sys
from collections import Counter
from contextlib import closing
from pathlib import Path
from random import Random
from typing import Any

import pytest

from perdure.model.commit import Create
from perdure.model.run import Status
from perdure.ports.store import RunQuery
from perdure.stores.sqlite import SqliteStore
from perdure.testing import ManualClock
from perdure.testing.conformance.kit import new

ROOT = Path(__file__).parents[2]


def start(*arguments: object) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "tests.integration.sqlite_fleet", *map(str, arguments)]
    return subprocess.Popen(
        command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def let_go(*processes: subprocess.Popen[str]) -> None:
    """Once all are ready, all begin."""
    for process in processes:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()


def finish(*processes: subprocess.Popen[str]) -> list[Any]:
    results: list[Any] = []
    for process in processes:
        output, errors = process.communicate()
        assert (process.returncode, errors) == (0, "")
        results.append(json.loads(output))
    return results


async def opened(path: Path) -> SqliteStore:
    store = SqliteStore(str(path), clock=ManualClock(), synchronous="OFF")
    await store.open()
    return store


async def test_f82_threads_and_processes_write_to_one_file(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    processes = [start("write", path, name, 3, 40) for name in ("a", "b", "c")]
    let_go(*processes)
    assert finish(*processes) == [[120] * 3] * 3
    store = await opened(path)
    runs = await store.runs(RunQuery(limit=1_000, statuses=(Status.COMPLETED,)))
    assert len(runs) == 3 * 3 * 40
    histories = await store.history([run.incarnation for run in runs])
    assert {len(entries) for entries in histories.values()} == {4}
    await store.close()


async def test_f4_a_thousand_runs_are_claimed_exactly_once(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    store = await opened(path)
    await store.write([Create(run=new(f"{i}", namespace=("red", "blue")[i % 2])) for i in range(1_000)])
    processes = [start("claim", path, owner, limit) for owner, limit in (("a", 7), ("b", 1), ("c", 20), ("d", 3))]
    let_go(*processes)
    claimed = Counter(run_id for ids in finish(*processes) for run_id in ids)
    assert claimed == Counter(f"{i}" for i in range(1_000))
    runs = await store.runs(RunQuery(limit=2_000))
    assert {(run.status, run.epoch) for run in runs} == {(Status.RUNNING, 1)}
    await store.close()


@pytest.mark.parametrize("seed", range(4))
async def test_killed_at_any_moment_what_was_answered_is_there(seed: int, tmp_path: Path) -> None:
    """Two processes write without end, one is killed: what it was told is durable, and nothing is half there."""
    path = tmp_path / "s.db"
    store = await opened(path)
    await store.write([Create(run=new("parent"))])
    await store.close()
    processes = [start("storm", path, name) for name in ("a", "b")]
    let_go(*processes)
    doomed = Random(seed).randrange(20, 200)
    answered: set[str] = set()
    for process in processes:
        assert process.stdout is not None
        for _ in range(doomed):
            answered.add(process.stdout.readline().strip())
        process.kill()
    for process in processes:
        assert process.stdout is not None
        answered |= {line.strip() for line in process.stdout if line.endswith("\n")}
        process.communicate()
        assert process.returncode == -signal.SIGKILL
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    store = await opened(path)
    parent = await store.get("parent")
    assert parent is not None
    messages = {
        str(message.payload, "ascii") for message in await store.messages(parent.incarnation) if message.payload
    }
    runs = {run.id: run for run in await store.runs(RunQuery(limit=100_000)) if run.id != "parent"}
    assert answered <= messages
    assert messages == set(runs)
    assert len(messages - answered) <= len(processes)
    assert parent.inbox == len(messages)
    assert {run.n for run in runs.values()} == {1}
    assert await store.audit() == []
    await store.close()


async def test_another_process_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    store = await opened(path)
    heard = asyncio.Event()
    loop = asyncio.get_running_loop()

    def tell() -> None:
        loop.call_soon_threadsafe(heard.set)

    store.on_change(tell)
    process = start("write", path, "a", 1, 1)
    let_go(process)
    finish(process)
    await heard.wait()
    await store.close()
