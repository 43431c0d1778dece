"""Making the schema and bringing it up to date: by many at once, cut off, waited for, and refused."""

from __future__ import annotations

import asyncio
import contextlib
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from perdure.model.commit import Applied, Cancel, Changed, Create, Ended, Send
from perdure.model.errors import StoreMismatch, StoreUnavailable
from perdure.model.messages import MessageKind, Outgoing
from perdure.ports.store import RunQuery, Store
from perdure.stores.postgres import PostgresStore, migrations, schema
from perdure.stores.postgres.migrations import Migration
from perdure.testing import ManualClock
from perdure.testing.conformance import CASES, Case, run_case
from perdure.testing.conformance.kit import new, request, to_token
from tests.integration.postgres_look import looks
from tests.integration.releases.kept import CURRENT, released
from tests.servers.databases import Schema
from tests.servers.sql import Admin

PROCESS = """
import asyncio, os, sys
from perdure.engine.systemclock import SystemClock
from perdure.stores.postgres import PostgresStore
async def main():
    store = PostgresStore(sys.argv[1], clock=SystemClock())
    os.write(1, b"ready\\n")
    sys.stdin.readline()
    await store.open()
    await store.close()
asyncio.run(main())
"""

#: What a later release might add.
LATER = Migration(
    2,
    "later",
    """
    CREATE TABLE @schema@.doors (name text PRIMARY KEY, room integer NOT NULL);
    ALTER TABLE @schema@.runs ADD COLUMN door text;
    CREATE INDEX runs_by_door ON @schema@.runs (door) WHERE door IS NOT NULL;
    CREATE FUNCTION @schema@.clock_2() RETURNS bigint LANGUAGE sql AS $$ SELECT @schema@.clock_1() $$;
    """,
)


def make(schema: Schema) -> PostgresStore:
    return PostgresStore(schema.store, clock=ManualClock())


async def opened(schema: Schema, *, migrate: bool = True) -> None:
    """Open a store, and close it."""
    store = make(schema)
    await store.open(migrate=migrate)
    await store.close()


@contextlib.contextmanager
def newer(monkeypatch: pytest.MonkeyPatch, serves: int) -> Iterator[None]:
    """Within, the code is that of a later release, whose schema serves code that knows `serves` or newer."""
    with monkeypatch.context() as patch:
        patch.setattr(schema, "migrations", lambda: [*migrations.migrations(), LATER])
        patch.setitem(schema._SERVES, 2, serves)
        yield


def begun(schema: Schema) -> subprocess.Popen[str]:
    """A process that opens the store when it is told to."""
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    process = subprocess.Popen([sys.executable, "-c", PROCESS, schema.store], text=True, **pipes)
    assert process.stdout is not None
    return process


def go(process: subprocess.Popen[str]) -> None:
    assert process.stdin is not None
    process.stdin.write("go\n")
    process.stdin.flush()


def test_f86_ten_processes_begin_at_once_on_an_empty_database(postgres_database: Callable[..., str]) -> None:
    alone = Schema(postgres_database("alone"), "perdure")
    asyncio.run(opened(alone))
    shared = Schema(postgres_database("shared"), "perdure")
    processes = [begun(shared) for _ in range(10)]
    try:
        for process in processes:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
        for process in processes:
            go(process)
        for process in processes:
            _, error = process.communicate(timeout=50)
            assert (process.returncode, error) == (0, "")
    finally:
        for process in processes:
            process.kill()
            process.communicate()
    with Admin(shared.url) as admin, Admin(alone.url) as other:
        assert admin.value("SELECT count(*) FROM perdure.migrations") == len(migrations.migrations())
        assert looks(admin, "perdure") == looks(other, "perdure")


HELD_UP = """
    SELECT pid FROM pg_stat_activity
    WHERE datname = current_database() AND application_name = 'perdure' AND wait_event_type = 'Lock'
"""


@pytest.mark.parametrize("how", ["client killed", "connection ended"])
def test_f86_a_crash_while_a_migration_runs_leaves_nothing_half_done(
    how: str, postgres_schema: Schema, postgres_admin: Admin
) -> None:
    with Admin(postgres_schema.url) as other:
        # The last table but a few is being made by somebody else, so that the migration waits when most of it is done.
        other.execute(f'CREATE SCHEMA "{postgres_schema.name}"')
        other.execute(f'BEGIN; CREATE TABLE "{postgres_schema.name}".run_values ()')
        process = begun(postgres_schema)
        try:
            go(process)
            while not (waiting := postgres_admin.rows(HELD_UP)):
                assert process.poll() is None
            if how == "client killed":
                process.kill()
            else:
                postgres_admin.execute("SELECT pg_terminate_backend($1)", waiting[0]["pid"])
            _, error = process.communicate(timeout=30)
            assert ("StoreUnavailable" in error) == (how == "connection ended")
        finally:
            process.kill()
            process.communicate()
        other.execute("ROLLBACK")
    while postgres_admin.value("SELECT count(*) FROM pg_stat_activity WHERE application_name = 'perdure'"):
        pass
    assert looks(postgres_admin, postgres_schema.name) == []
    asyncio.run(opened(postgres_schema))
    asyncio.run(opened(postgres_schema, migrate=False))


async def test_f86_a_lock_that_somebody_keeps_is_not_waited_for_for_ever(
    postgres_schema: Schema, postgres_admin: Admin, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(schema, "_PATIENCE", "100ms")
    with Admin(postgres_schema.url) as other:
        other.execute("SELECT pg_advisory_lock($1, hashtext($2))", schema._KEY, postgres_schema.name)
        with pytest.raises(StoreUnavailable, match=f"schema {postgres_schema.name}.* is being migrated by another"):
            await opened(postgres_schema)
    assert looks(postgres_admin, postgres_schema.name) == []
    await opened(postgres_schema)


async def test_what_is_lacking_is_named_and_changes_nothing(postgres_schema: Schema, postgres_admin: Admin) -> None:
    store = make(postgres_schema)
    assert [each.number for each in await asyncio.to_thread(store.plan)] == [1]
    with pytest.raises(StoreMismatch, match=r"lacks the migrations 1 \(initial\); run `perdure migrate`"):
        await store.open(migrate=False)
    assert looks(postgres_admin, postgres_schema.name) == []
    await store.open()
    assert await asyncio.to_thread(store.plan) == []
    await store.close()


@pytest.mark.parametrize("migrate", [True, False])
async def test_a_table_of_somebody_else_is_refused(
    migrate: bool, postgres_schema: Schema, postgres_admin: Admin
) -> None:
    postgres_admin.execute(
        f'CREATE SCHEMA "{postgres_schema.name}"; CREATE TABLE "{postgres_schema.name}".runs (x int)'
    )
    before = looks(postgres_admin, postgres_schema.name)
    with pytest.raises(StoreMismatch, match=r"has a table runs that is not ours; choose another schema"):
        await opened(postgres_schema, migrate=migrate)
    assert looks(postgres_admin, postgres_schema.name) == before


# -- expand, then contract --------------------------------------------------------------------------------------------


def test_what_was_released_is_never_edited() -> None:
    """Before its release: `python -m tests.integration.releases --again`."""
    assert [folder.name for folder in released()] == [f"{each.number:04}" for each in migrations.migrations()]
    for folder in released():
        kept = {file.name: file.read_bytes() for file in folder.iterdir()}
        assert kept == {file.name: file.read_bytes() for file in CURRENT.glob(f"{folder.name}_*.sql")}, (
            f"the SQL of migration {folder.name} is not as it was kept; {__doc__}"
        )


@pytest.mark.parametrize("folder", released(), ids=lambda folder: folder.name)
async def test_f86_a_schema_of_each_release_becomes_what_a_new_one_is(
    folder: Path, postgres_database: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    before = [
        Migration(int(each.name), "released", "\n".join(file.read_text() for file in sorted(each.iterdir())))
        for each in released()
        if each.name <= folder.name
    ]
    old, fresh = Schema(postgres_database("old"), "perdure"), Schema(postgres_database("fresh"), "perdure")
    with monkeypatch.context() as patch:
        patch.setattr(schema, "migrations", lambda: before)
        await opened(old)
    await opened(old)
    await opened(fresh)
    with Admin(old.url) as one, Admin(fresh.url) as other:
        assert looks(one, "perdure") == looks(other, "perdure")


class OnLaterSchema:
    """Stores of today's code on the schema of a later release."""

    def __init__(self, schema: Schema) -> None:
        self._schema = schema
        self._clocks: list[ManualClock] = []

    async def make(self, clock: ManualClock) -> Store:
        self._clocks.append(clock)
        store = PostgresStore(self._schema.store, clock=clock)
        await store.open(migrate=False)
        return store

    async def reopen(self, store: Store) -> Store:
        raise NotImplementedError

    async def second(self, store: Store) -> Store:
        return await self.make(self._clocks[0])

    async def lose_wake(self, store: Store, incarnation: int) -> None:
        raise NotImplementedError

    async def dispose(self, store: Store) -> None:
        await store.close()


TOPICS = ("create", "turns", "claims", "tokens", "children", "continuation", "cancels", "deletion", "listing")
SOME = [case for case in CASES if case.topic in TOPICS][::12]


@pytest.mark.parametrize("case", SOME, ids=str)
def test_old_code_works_on_the_schema_of_a_later_release(
    case: Case,
    postgres_schema: Schema,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with newer(monkeypatch, serves=1):
        asyncio.run(opened(postgres_schema))
    assert make(postgres_schema).plan() == []
    asyncio.run(opened(postgres_schema))
    run_case(case, OnLaterSchema(postgres_schema))


async def test_a_process_that_is_at_work_outlives_a_migration(
    postgres_schema: Schema, postgres_admin: Admin, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the driver knew of the tables is old: a call may fail once, as if the connection had been lost, and not again."""
    store = make(postgres_schema)
    await store.open()
    await store.write([Create(run=new("r")), Create(run=new("s"))])
    message = Outgoing(kind=MessageKind.SIGNAL, run_id="r", name="go", dedup="once")
    await store.write([Send(message)])
    await store.write([Cancel("s", b'"stop"')])
    assert await store.get("s")
    await store.claim(request())
    with newer(monkeypatch, serves=1):
        await opened(postgres_schema)
    assert "door" in "".join(looks(postgres_admin, postgres_schema.name))
    run = await store.get("r")
    assert run is not None
    assert await store.write([Send(message), to_token("t")]) == [Applied(), Applied()]
    with contextlib.suppress(StoreUnavailable):
        assert isinstance((await store.write([Cancel("r", b'"stop"')]))[0], Changed)
    [again] = await store.write([Cancel("r", b'"stop"')])
    assert isinstance(again, Ended)
    assert again.run == replace(again.run, id="r", inbox=1)
    await store.claim(request())
    assert await store.runs(RunQuery()) == [await store.get("s"), await store.get("r")]
    await store.close()


async def test_code_that_a_later_schema_does_not_serve_is_refused(
    postgres_schema: Schema, monkeypatch: pytest.MonkeyPatch
) -> None:
    await opened(postgres_schema)
    with newer(monkeypatch, serves=2):
        await opened(postgres_schema)
        await opened(postgres_schema, migrate=False)
    for migrate in (True, False):
        with pytest.raises(StoreMismatch, match=r"has schema 2, which serves .* schema 2 or newer.* up to 1: update"):
            await opened(postgres_schema, migrate=migrate)


async def test_new_code_works_on_yesterdays_schema_until_it_cannot_do_without_its_own(
    postgres_schema: Schema, monkeypatch: pytest.MonkeyPatch
) -> None:
    await opened(postgres_schema)
    with newer(monkeypatch, serves=1):
        store = make(postgres_schema)
        assert await asyncio.to_thread(store.plan) == [LATER]
        await opened(postgres_schema, migrate=False)
        monkeypatch.setattr(schema, "NEEDED", 2)
        with pytest.raises(StoreMismatch, match=r"lacks the migrations 2 \(later\)"):
            await opened(postgres_schema, migrate=False)
