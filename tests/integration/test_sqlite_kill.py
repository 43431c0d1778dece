"""A process is killed at each statement of each verb: the file then holds the whole transition, or nothing of it."""

from __future__ import annotations

import json
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from perdure.stores.sqlite import SqliteStore
from perdure.testing import ManualClock
from tests.integration.sqlite_scenarios import SCENARIOS

ROOT = Path(__file__).parents[2]


def cut(scenario: str, folder: Path) -> list[tuple[Path, str]]:
    """The files that killed processes left, and what each was about to do."""
    command = [sys.executable, "-m", "tests.integration.sqlite_cuts", scenario, str(folder)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    return [(folder / line["file"], line["at"]) for line in lines]


def contents(path: Path) -> dict[str, list[Any]]:
    """Every row of every table. Opens the file as the next process would, and checks its soundness."""
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        names = [name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        return {name: sorted(connection.execute(f"SELECT * FROM {name}").fetchall(), key=repr) for name in names}


async def found_by_the_audit(path: Path) -> list[Any]:
    store = SqliteStore(str(path), clock=ManualClock())
    await store.open()
    findings = list(await store.audit(heal=False))
    await store.close()
    return findings


@pytest.mark.parametrize("scenario", SCENARIOS)
async def test_a_killed_process_leaves_all_or_nothing(scenario: str, tmp_path: Path) -> None:
    cuts = cut(scenario, tmp_path)
    before, after = contents(tmp_path / "before.db"), contents(tmp_path / "after.db")
    assert before != after, "the deed did nothing"
    places = [what for _, what in cuts]
    assert "BEGIN IMMEDIATE" in places
    inside = places[places.index("BEGIN IMMEDIATE") + 1 :]
    assert [what for what in inside if what.startswith(("INSERT", "UPDATE", "DELETE"))], (
        "no kill landed in a transaction"
    )
    for path, what in cuts:
        assert contents(path) in (before, after), f"half of it was done at: {what}"
        assert await found_by_the_audit(path) == [], what


async def test_f86_a_process_killed_in_a_migration_leaves_a_file_that_opens(tmp_path: Path) -> None:
    cuts = cut("open", tmp_path)
    after = contents(tmp_path / "after.db")
    assert [what for _, what in cuts if "CREATE" in what], "no kill landed in the migration"
    for path, what in cuts:
        assert await found_by_the_audit(path) == []
        assert contents(path) == after, what
