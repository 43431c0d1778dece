"""Opening and closing: nothing is lost, nothing is left."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from perdure.model.commit import Applied, Create
from perdure.model.errors import StoreUnavailable
from perdure.ports.store import RunQuery
from perdure.stores.sqlite import SqliteStore
from perdure.testing import ManualClock
from perdure.testing.conformance.kit import LEASE, held, new, request

ROOT = Path(__file__).parents[2]

FORK = """
import asyncio, os, sys
from perdure.model.commit import Create
from perdure.model.errors import StoreUnavailable
from perdure.stores.sqlite import SqliteStore
from perdure.testing import ManualClock
from perdure.testing.conformance.kit import LEASE, held, new

def make():
    return SqliteStore(sys.argv[1], clock=ManualClock())

async def child(inherited, renewer):
    for use in (
        lambda: inherited.write([Create(run=new("x"))]),
        lambda: inherited.get("x"),
        lambda: inherited.open(),
    ):
        try:
            await use()
        except StoreUnavailable as error:
            assert "forked" in str(error), error
        else:
            raise AssertionError("an inherited store was used")
    try:
        renewer.renew("ada", LEASE, held(run))
    except StoreUnavailable as error:
        assert "forked" in str(error), error
    else:
        raise AssertionError("an inherited renewer was used")
    await inherited.close()
    own = make()
    await own.open()
    await own.write([Create(run=new("child"))])
    await own.close()

async def begin(store):
    await store.open()
    await store.write([Create(run=new("before"))])
    return await store.get("before")

async def end(store):
    await store.write([Create(run=new("after"))])
    assert [await store.get(name) is not None for name in ("before", "child", "after")] == [True] * 3
    await store.close()

store = make()
with asyncio.Runner() as runner:
    run = runner.run(begin(store))
    renewer = store.renewer()
    renewer.renew("ada", LEASE, held(run))
    pid = os.fork()
    if not pid:
        status = 1
        try:
            asyncio.run(child(store, renewer))
            status = 0
        finally:
            os._exit(status)
    _, status = os.waitpid(pid, 0)
    assert status == 0, status
    renewer.renew("ada", LEASE, held(run))
    renewer.close()
    runner.run(end(store))
"""


def make(path: Path) -> SqliteStore:
    return SqliteStore(str(path), clock=ManualClock(), synchronous="OFF")


def our_threads() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("perdure")]


async def test_closing_finishes_what_was_accepted(tmp_path: Path) -> None:
    store = make(tmp_path / "s.db")
    await store.open()
    writes = [asyncio.ensure_future(store.write([Create(run=new(f"{i}"))])) for i in range(50)]
    reads = [asyncio.ensure_future(store.get("missing")) for _ in range(5)]
    await asyncio.wait([asyncio.ensure_future(asyncio.wait_for(asyncio.shield(writes[0]), None))])
    await store.close()
    assert all(isinstance(answer, Applied) for [answer] in await asyncio.gather(*writes))
    assert await asyncio.gather(*reads) == [None] * 5
    await store.open()
    assert len(await store.runs(RunQuery(limit=100))) == 50
    await store.close()


async def test_closing_leaves_no_thread_and_no_log(tmp_path: Path) -> None:
    store = make(tmp_path / "s.db")
    await store.open()
    await store.write([Create(run=new("r"))])
    unsubscribe = store.on_change(lambda: None)
    store.on_change(lambda: None)
    assert len(our_threads()) == 3
    unsubscribe()
    await store.close()
    assert our_threads() == []
    assert os.listdir(tmp_path) == ["s.db"]


async def test_closing_twice_and_opening_twice(tmp_path: Path) -> None:
    store = make(tmp_path / "s.db")
    await store.close()
    await store.open()
    await store.open()
    assert len(our_threads()) == 2
    await store.close()
    assert await store.get("r") is None  # it is open for the other one
    await store.close()
    assert our_threads() == []
    await store.close()
    await store.open()
    await store.close()
    assert our_threads() == []


async def test_a_closed_store_says_so(tmp_path: Path) -> None:
    store = make(tmp_path / "s.db")
    with pytest.raises(StoreUnavailable, match="not open"):
        await store.get("r")
    await store.open()
    renewer = store.renewer()
    await store.close()
    with pytest.raises(StoreUnavailable, match="not open"):
        await store.write([])
    with pytest.raises(StoreUnavailable, match="not open"):
        renewer.renew("ada", LEASE, [])
    renewer.close()


async def test_an_opening_that_fails_leaves_nothing(tmp_path: Path) -> None:
    store = make(tmp_path / "missing" / "s.db")
    with pytest.raises(StoreUnavailable):
        await store.open()
    assert our_threads() == []


async def test_a_caller_that_is_cancelled_takes_nobody_along(tmp_path: Path) -> None:
    store = make(tmp_path / "s.db")
    await store.open()
    impatient = asyncio.ensure_future(store.write([Create(run=new("a"))]))
    patient = asyncio.ensure_future(store.write([Create(run=new("b"))]))
    await asyncio.wait([impatient, patient], timeout=0)
    impatient.cancel()
    [answer] = await patient
    assert isinstance(answer, Applied)
    assert impatient.cancelled() or impatient.done()
    # What was accepted is written, whether or not somebody waits for the answer.
    assert await store.get("a") is not None
    await store.close()


def test_one_store_serves_one_loop_after_another(tmp_path: Path) -> None:
    store = make(tmp_path / "s.db")

    async def use(name: str) -> int:
        await store.open()
        await store.write([Create(run=new(name))])
        found = len(await store.claim(request()))
        await store.close()
        return found

    assert [asyncio.run(use(name)) for name in ("a", "b")] == [1, 1]


def test_f52_a_forked_process_must_open_its_own(tmp_path: Path) -> None:
    command = [sys.executable, "-W", "ignore", "-c", FORK, str(tmp_path / "s.db")]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


async def test_a_renewer_is_used_from_its_own_thread(tmp_path: Path) -> None:
    store = make(tmp_path / "s.db")
    await store.open()
    await store.write([Create(run=new("r"))])
    [claimed] = await store.claim(request())
    renewer = store.renewer()
    found: list[bool] = []

    def renew() -> None:
        found.extend(renewal.lost for renewal in renewer.renew("ada", LEASE, held(claimed.run)))
        found.extend(renewal.lost for renewal in renewer.renew("bob", LEASE, held(claimed.run)))
        renewer.close()

    thread = threading.Thread(target=renew)
    thread.start()
    thread.join()
    assert found == [False, True]
    await store.close()
