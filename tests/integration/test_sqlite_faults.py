"""Bad data, a full disk, a locked file: who is hurt, and what the others see."""

from __future__ import annotations

import asyncio
import sqlite3
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, closing, contextmanager
from functools import partial
from pathlib import Path
from threading import Event, Thread
from typing import Any

import pytest

from perdure.model.commit import Applied, Create, Fenced, Unstorable
from perdure.model.errors import StoreUnavailable
from perdure.model.run import Run
from perdure.ports.store import RunQuery
from perdure.stores.sqlite import SqliteStore
from perdure.stores.sqlite.turnstile import Turnstile
from perdure.testing import ManualClock
from perdure.testing.conformance.kit import LEASE, held, new, request, resolved, scheduled, turn

ROOT = Path(__file__).parents[2]

SURROGATE = "half \ud83d of it"

#: A process that may write no file beyond a megabyte, until it is told otherwise: to SQLite, a full disk.
FULL_DISK = """
import asyncio, resource, sys
from perdure.model.commit import Create
from perdure.model.errors import StoreUnavailable
from perdure.ports.store import RunQuery
from perdure.stores.sqlite import SqliteStore
from perdure.testing import ManualClock
from perdure.testing.conformance.kit import new

async def main():
    store = SqliteStore(sys.argv[1], clock=ManualClock())
    await store.open()
    resource.setrlimit(resource.RLIMIT_FSIZE, (1_000_000, resource.RLIM_INFINITY))
    answered = set()
    for number in range(1_000):
        batch = [Create(run=new(f"{number}.{i}", input=b"9" * 20_000)) for i in range(3)]
        try:
            await store.write(batch)
        except StoreUnavailable as error:
            assert "free space" in str(error), error
            break
        answered |= {create.run.id for create in batch}
    else:
        raise AssertionError("the disk was never full")
    assert answered
    assert {run.id for run in await store.runs(RunQuery(limit=10_000))} == answered
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    await store.write(batch)
    answered |= {create.run.id for create in batch}
    await store.close()
    await store.open()
    assert {run.id for run in await store.runs(RunQuery(limit=10_000))} == answered
    await store.close()

asyncio.run(main())
"""


@asynccontextmanager
async def opened(path: Path, patience: float = 30.0) -> AsyncIterator[SqliteStore]:
    store = SqliteStore(str(path), clock=ManualClock(), synchronous="OFF", patience=patience)
    await store.open()
    try:
        yield store
    finally:
        await store.close()


@contextmanager
def locked(path: Path) -> Iterator[sqlite3.Connection]:
    """Another process's long transaction, as far as SQLite can tell."""
    with closing(sqlite3.connect(path, isolation_level=None, check_same_thread=False)) as connection:
        connection.execute("BEGIN IMMEDIATE")
        yield connection


async def hold(store: SqliteStore, *names: str) -> list[Run]:
    await store.write([Create(run=new(name)) for name in names])
    return [claimed.run for claimed in await store.claim(request())]


async def test_one_bad_write_among_callers_hurts_only_itself(tmp_path: Path) -> None:
    """Callers whose writes share a transaction: the one with bad data is told, the others are applied."""
    async with opened(tmp_path / "s.db") as store:
        runs = await hold(store, *(f"{i}" for i in range(20)))
        spoiled = 7

        def batch(place: int) -> list[object]:
            name = SURROGATE if place == spoiled else "step"
            return [turn(runs[place], entries=(scheduled(0, name), resolved(0)))]

        answers = await asyncio.gather(*(store.write(batch(i)) for i in range(20)))  # type: ignore[arg-type]
        for place, [answer] in enumerate(answers):
            if place == spoiled:
                assert isinstance(answer, Unstorable)
                assert "surrogates" in answer.reason
            else:
                assert answer == Applied(runs[place].key)
        histories = await store.history([run.incarnation for run in runs])
        assert [len(histories[run.incarnation]) for run in runs] == [0 if i == spoiled else 2 for i in range(20)]
        # Nothing of it was applied: its owner can still commit, with other data.
        [answer] = await store.write([turn(runs[spoiled], entries=(scheduled(0),))])
        assert answer == Applied(runs[spoiled].key)


async def test_a_run_that_is_written_twice_in_a_transaction(tmp_path: Path) -> None:
    """Two turns of one run: the second names the n that the first leaves, or is fenced."""
    async with opened(tmp_path / "s.db") as store:
        [run] = await hold(store, "r")
        first = turn(run, entries=(scheduled(0),))
        later = turn(run, n=1, entries=(resolved(0),))
        answers = await store.write([first, first, later])
        assert answers[0] == answers[2] == Applied(run.key)
        assert isinstance(answers[1], Fenced)
        assert [entry.seq for entry in (await store.history([run.incarnation]))[run.incarnation]] == [0, 0]


def test_a_full_disk_takes_nothing_and_loses_nothing(tmp_path: Path) -> None:
    command = [sys.executable, "-c", FULL_DISK, str(tmp_path / "s.db")]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


class Failing(sqlite3.Connection):
    """Fails at statements that begin so, as a disk with bad blocks does."""

    at: tuple[str, ...] = ()

    def execute(self, sql: str, parameters: Any = (), /) -> sqlite3.Cursor:
        if sql.startswith(self.at):
            error = sqlite3.OperationalError("disk I/O error")
            error.sqlite_errorcode = sqlite3.SQLITE_IOERR
            raise error
        return super().execute(sql, parameters)


@pytest.mark.parametrize("at", [("COMMIT",), ("COMMIT", "ROLLBACK"), ("INSERT INTO history",), ("BEGIN",)])
async def test_a_failing_disk_takes_nothing_of_a_transaction(
    at: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All who share the transaction are told, and the next one finds a connection that works."""
    monkeypatch.setattr(sqlite3, "connect", partial(sqlite3.connect, factory=Failing))
    async with opened(tmp_path / "s.db") as store:
        runs = await hold(store, "a", "b")
        monkeypatch.setattr(Failing, "at", at)
        turns = [turn(run, entries=(scheduled(0),)) for run in runs]
        failed = await asyncio.gather(*(store.write([each]) for each in turns), return_exceptions=True)
        assert all(isinstance(each, StoreUnavailable) and "disk I/O error" in str(each) for each in failed)
        monkeypatch.setattr(Failing, "at", ())
        assert await store.history([run.incarnation for run in runs]) == {run.incarnation: [] for run in runs}
        assert await store.write(turns) == [Applied(run.key) for run in runs]


async def test_f82_a_locked_file_is_waited_for(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    async with opened(path) as store:
        with locked(path) as other:
            writing = asyncio.ensure_future(store.write([Create(run=new("r"))]))
            assert await store.get("r") is None  # Reading does not wait.
            assert not writing.done()
            other.execute("COMMIT")
            [answer] = await writing
        assert isinstance(answer, Applied)


async def test_f82_a_file_that_stays_locked_is_an_error_in_the_end(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    async with opened(path, patience=0.01) as store:
        runs = await hold(store, "r")
        renewer = store.renewer()
        with locked(path):
            with pytest.raises(StoreUnavailable, match="locked by another process"):
                await store.write([Create(run=new("late"))])
            with pytest.raises(StoreUnavailable, match="locked by another process"):
                renewer.renew("ada", LEASE, held(*runs))
        [renewal] = renewer.renew("ada", LEASE, held(*runs))
        assert not renewal.lost
        renewer.close()
        [answer] = await store.write([Create(run=new("late"))])
        assert isinstance(answer, Applied)


async def test_what_cannot_be_asked_is_the_askers_error_alone(tmp_path: Path) -> None:
    """A claim that SQLite refuses, in one transaction with a write that it does not."""
    async with opened(tmp_path / "s.db") as store:
        await store.write([Create(run=new("due"))])
        claim = store.claim(request(owner=SURROGATE))
        write = store.write([Create(run=new("r"))])
        refused, written = await asyncio.gather(claim, write, return_exceptions=True)
        assert isinstance(refused, UnicodeEncodeError)
        assert isinstance(written, list)
        assert {claimed.run.id for claimed in await store.claim(request())} == {"due", "r"}


def test_a_renewal_goes_before_what_waits_already() -> None:
    turnstile = Turnstile()
    order: list[str] = []
    urgent_waits, ordinary_waits = Event(), Event()

    def urgent() -> None:
        urgent_waits.set()
        with turnstile.urgent():
            order.append("urgent")

    def ordinary() -> None:
        ordinary_waits.set()
        with turnstile.ordinary():
            order.append("ordinary")

    threads = [Thread(target=urgent), Thread(target=ordinary)]
    with turnstile.ordinary():
        threads[0].start()
        urgent_waits.wait()
        while not turnstile.urgent_waiting():
            pass
        threads[1].start()
        ordinary_waits.wait()
    for thread in threads:
        thread.join()
    assert order == ["urgent", "ordinary"]


async def test_renewals_get_through_while_the_writer_is_never_idle(tmp_path: Path) -> None:
    async with opened(tmp_path / "s.db") as store:
        runs = await hold(store, "r")
        renewed = asyncio.Event()
        loop = asyncio.get_running_loop()

        def renew() -> None:
            renewer = store.renewer()
            for _ in range(20):
                [renewal] = renewer.renew("ada", LEASE, held(*runs))
                assert not renewal.lost
            renewer.close()
            loop.call_soon_threadsafe(renewed.set)

        thread = Thread(target=renew)
        thread.start()
        number = 0
        while not renewed.is_set():
            number += 1
            await store.write([Create(run=new(f"{number}"))])
        thread.join()
        assert len(await store.runs(RunQuery(limit=100_000))) == number + 1
