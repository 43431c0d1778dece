"""Opening a file: making the schema, refusing what is not ours, and many processes doing so at once."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from perdure.model.commit import Create
from perdure.model.conditions import attr
from perdure.model.errors import StoreMismatch, StoreUnavailable, UsageError
from perdure.ports.store import RunQuery
from perdure.stores.sqlite import SqliteStore, migrations, schema
from perdure.stores.sqlite.migrations import MIGRATIONS, Migration
from perdure.testing import ManualClock
from perdure.testing.conformance.kit import new

ROOT = Path(__file__).parents[2]

OPEN = """
import asyncio, sys
from perdure.stores.sqlite import SqliteStore
from perdure.testing import ManualClock
store = SqliteStore(sys.argv[1], clock=ManualClock())
print("ready", flush=True)
sys.stdin.readline()
async def main():
    await store.open()
    await store.close()
asyncio.run(main())
"""


def make(path: Path, synchronous: str = "FULL") -> SqliteStore:
    return SqliteStore(str(path), clock=ManualClock(), synchronous=synchronous)


def pragma(path: Path, name: str) -> object:
    with closing(sqlite3.connect(path)) as connection:
        return connection.execute(f"PRAGMA {name}").fetchone()[0]


def tables(path: Path) -> list[tuple[str, str]]:
    with closing(sqlite3.connect(path)) as connection:
        return sorted(connection.execute("SELECT name, sql FROM sqlite_master WHERE sql IS NOT NULL"))


async def refused(path: Path, *, migrate: bool = True) -> str:
    """The words of the refusal; the file, and its folder, must stay as they are."""
    before = {file.name: file.read_bytes() for file in path.parent.iterdir()}
    with pytest.raises(StoreMismatch) as error:
        await make(path).open(migrate=migrate)
    assert {file.name: file.read_bytes() for file in path.parent.iterdir()} == before
    assert path.name in str(error.value)
    return str(error.value)


def test_making_a_store_opens_nothing(tmp_path: Path) -> None:
    make(tmp_path / "s.db")
    assert list(tmp_path.iterdir()) == []


async def test_a_new_file(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    store = make(path)
    assert list(store.plan()) == list(MIGRATIONS)
    await store.open()
    assert list(store.plan()) == []
    await store.close()
    assert pragma(path, "application_id") == schema.APPLICATION_ID
    assert pragma(path, "user_version") == MIGRATIONS[-1].number
    assert pragma(path, "journal_mode") == "wal"


async def test_every_answered_write_survives_a_power_cut_unless_asked_otherwise(tmp_path: Path) -> None:
    for store, expected in (
        (SqliteStore(str(tmp_path / "s.db"), clock=ManualClock()), 2),
        (make(tmp_path / "s.db", synchronous="normal"), 1),
    ):
        await store.open()
        assert await store.pragma("synchronous") == expected
        await store.close()


async def test_opening_again_changes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    store = make(path)
    await store.open()
    await store.write([Create(run=new("r"))])
    await store.close()
    before = tables(path)
    await store.open(migrate=False)
    run = await store.get("r")
    assert run is not None
    await store.close()
    assert tables(path) == before


@pytest.mark.parametrize("content", [b"x", b"not a database\n" * 100, b"\0" * 4096, b"SQLite format 3\0short"])
async def test_a_file_that_is_no_database(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "notes.txt"
    path.write_bytes(content)
    assert "not a SQLite database" in await refused(path)


async def test_a_database_of_somebody_else(tmp_path: Path) -> None:
    path = tmp_path / "music.db"
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE songs (name)")
    assert "not a Perdure store" in await refused(path)
    with pytest.raises(StoreMismatch, match="not a Perdure store"):
        make(path).plan()


async def test_a_foreign_database_with_a_version_and_a_log(tmp_path: Path) -> None:
    path = tmp_path / "music.db"
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA user_version = 1")
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("CREATE TABLE songs (name)")
        assert "not a Perdure store" in await refused(path)


async def test_a_store_of_a_newer_perdure(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    store = make(path)
    await store.open()
    await store.close()
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA user_version = 999")
    message = await refused(path)
    assert "999" in message
    assert "update Perdure" in message


async def test_a_newer_version_that_is_still_in_the_log(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    store = make(path)
    await store.open()
    await store.close()
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA user_version = 999")
        with pytest.raises(StoreMismatch, match="999"):
            await make(path).open()


async def test_without_migrating_a_missing_file_is_refused(tmp_path: Path) -> None:
    assert "perdure migrate" in await refused(tmp_path / "s.db", migrate=False)


async def test_without_migrating_an_empty_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    path.touch()
    assert "perdure migrate" in await refused(path, migrate=False)


async def test_an_older_store_is_migrated_or_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "s.db"
    store = make(path)
    await store.open()
    await store.write([Create(run=new("r"))])
    await store.close()
    number = MIGRATIONS[-1].number + 1
    following = Migration(number, "notes", ("CREATE TABLE notes (text)", "INSERT INTO notes VALUES ('hello')"))
    monkeypatch.setattr(schema, "MIGRATIONS", (*MIGRATIONS, following))
    assert f"{number} (notes)" in await refused(path, migrate=False)
    assert list(store.plan()) == [following]
    await store.open()
    assert await store.get("r") is not None
    await store.close()
    assert pragma(path, "user_version") == number


@pytest.mark.parametrize("before", ["fleet", "attributes"])
async def test_attributes_of_runs_that_were_there_before_are_indexed_by_the_migrations(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, before: str
) -> None:
    path, fresh = tmp_path / "s.db", make(tmp_path / "fresh.db")
    data = [None, b'{"customer":42,"plan":"pro\\u0000\\ud83d\\ude80"}', b"\xff", b'{"customer":42.0,"no":[1]}', b"[1]"]
    await fresh.open()
    await fresh.write([Create(run=new(f"r{index}", attributes=each)) for index, each in enumerate(data)])
    await fresh.close()
    with monkeypatch.context() as earlier:
        count = next(number for number, each in enumerate(MIGRATIONS, start=1) if each.name == before)
        earlier.setattr(schema, "MIGRATIONS", MIGRATIONS[:count])
        await opened_and_closed(path)
    with closing(sqlite3.connect(path)) as connection:
        columns = ", ".join(row[1] for row in connection.execute("PRAGMA table_info(runs)"))
        connection.execute("ATTACH ? AS other", (str(tmp_path / "fresh.db"),))
        connection.execute(f"INSERT INTO runs ({columns}) SELECT {columns} FROM other.runs")
        if before == "attributes":
            connection.execute("INSERT INTO attributes VALUES ('customer', '42', 2), ('customer', '42.0', 4)")
        connection.commit()
    store = make(path)
    await store.open()
    assert [run.id for run in await store.runs(RunQuery(where=(attr("customer") == 42,)))] == ["r3", "r1"]
    assert [run.id for run in await store.runs(RunQuery(where=(attr("plan") == "pro\0\U0001f680",)))] == ["r1"]
    await store.close()
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("ATTACH ? AS other", (str(tmp_path / "fresh.db"),))
        found = sorted(connection.execute("SELECT * FROM main.attributes"))
        assert found == sorted(connection.execute("SELECT * FROM other.attributes"))
    assert len(found) == 3


async def test_a_store_of_each_earlier_schema_is_brought_up_to_date(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fresh = tmp_path / "fresh.db"
    await opened_and_closed(fresh)
    for count in range(1, len(MIGRATIONS)):
        path = tmp_path / f"{count}.db"
        with monkeypatch.context() as earlier:
            earlier.setattr(schema, "MIGRATIONS", MIGRATIONS[:count])
            await opened_and_closed(path)
        assert pragma(path, "user_version") == count
        await opened_and_closed(path)
        assert tables(path) == tables(fresh)


async def opened_and_closed(path: Path) -> None:
    store = make(path)
    await store.open()
    await store.close()


async def test_a_migration_that_fails_leaves_the_one_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "s.db"
    broken = Migration(MIGRATIONS[-1].number + 1, "broken", ("CREATE TABLE notes (text)", "CREATE TABLE notes (text)"))
    monkeypatch.setattr(schema, "MIGRATIONS", (*MIGRATIONS, broken))
    with pytest.raises(StoreUnavailable, match="notes"):
        await make(path).open()
    assert pragma(path, "user_version") == MIGRATIONS[-1].number
    assert "notes" not in dict(tables(path))


def test_f86_ten_processes_open_an_empty_file_at_once(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    command = [sys.executable, "-c", OPEN, str(path)]
    processes = [
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        for _ in range(10)
    ]
    for process in processes:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    for process in processes:
        _, errors = process.communicate()
        assert process.returncode == 0, errors
    alone = tmp_path / "alone.db"
    subprocess.run([sys.executable, "-c", OPEN, str(alone)], input="go\n", text=True, check=True, capture_output=True)
    assert tables(path) == tables(alone)
    assert pragma(path, "journal_mode") == "wal"


def test_migrations_are_numbered_without_a_gap() -> None:
    assert [migration.number for migration in migrations.MIGRATIONS] == list(range(1, len(MIGRATIONS) + 1))


@pytest.mark.parametrize("path", ["", ":memory:", "file:x.db?mode=ro"])
def test_a_path_that_is_none(path: str) -> None:
    with pytest.raises(UsageError, match="path of a file"):
        SqliteStore(path, clock=ManualClock())


def test_an_unknown_setting_for_flushing() -> None:
    with pytest.raises(UsageError, match="NORMAL"):
        SqliteStore("s.db", clock=ManualClock(), synchronous="sometimes")


async def test_a_folder_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(StoreUnavailable, match="check"):
        await make(tmp_path / "missing" / "s.db").open()


async def test_a_folder_in_place_of_a_file(tmp_path: Path) -> None:
    with pytest.raises(StoreUnavailable, match="check"):
        await make(tmp_path).open()
