"""What the memory store has beyond the port: cuts at every commit, views, and hints to those that share it."""

from __future__ import annotations

import asyncio
import threading

import pytest

from perdure.model.commit import Applied, Create
from perdure.ports.store import Held, Store
from perdure.stores.memory import MemoryStore
from perdure.testing import ManualClock
from perdure.testing.conformance.kit import LEASE, WORKFLOW, complete, new, request, to_run


class CrashError(Exception):
    """The process dies here."""


class Cuts:
    """Notes every point, and crashes at one."""

    def __init__(self, at: str) -> None:
        self.at = at
        self.points: list[str] = []

    def __call__(self, point: str) -> None:
        self.points.append(point)
        if point == self.at:
            raise CrashError(point)


def make(at: str = "") -> tuple[MemoryStore, Cuts]:
    cuts = Cuts(at)
    return MemoryStore(ManualClock(), fault=cuts), cuts


async def test_a_cut_before_a_write_leaves_nothing() -> None:
    store, cuts = make("before write")
    with pytest.raises(CrashError):
        await store.write([Create(run=new("a")), Create(run=new("b"))])
    assert cuts.points == ["before write"]
    assert await store.get("a") is None


async def test_a_cut_after_a_write_leaves_all_of_it() -> None:
    store, cuts = make("after write")
    with pytest.raises(CrashError):
        await store.write([Create(run=new("a")), Create(run=new("b"))])
    assert cuts.points == ["before write", "after write"]
    assert await store.get("a") is not None
    assert await store.get("b") is not None


async def test_a_cut_before_a_claim_leaves_the_run_to_others() -> None:
    store, cuts = make("before claim")
    await store.write([Create(run=new("a"))])
    with pytest.raises(CrashError):
        await store.claim(request())
    cuts.at = ""
    [claimed] = await store.claim(request("bob"))
    assert (claimed.run.epoch, claimed.orphaned) == (1, False)


async def test_a_cut_after_a_claim_leaves_an_orphan() -> None:
    clock = ManualClock()
    store = MemoryStore(clock, fault=Cuts("after claim"))
    await store.write([Create(run=new("a"))])
    with pytest.raises(CrashError):
        await store.claim(request())
    store.fault = None
    assert await store.claim(request("bob")) == []
    clock.advance(30)
    [claimed] = await store.claim(request("bob"))
    assert (claimed.run.epoch, claimed.orphaned) == (2, True)


async def test_every_verb_that_changes_something_can_be_cut() -> None:
    store, cuts = make()
    await store.write([])
    await store.claim(request())
    renewer = store.renewer()
    renewer.renew("ada", LEASE, [])
    renewer.release("ada", [])
    await store.release("ada", [])
    await store.unblock([WORKFLOW])
    await store.audit()
    verbs = ["write", "claim", "renew", "release", "release", "unblock", "audit"]
    assert cuts.points == [f"{when} {verb}" for verb in verbs for when in ("before", "after")]


async def test_reading_cannot_be_cut() -> None:
    store, cuts = make()
    await store.get("a")
    await store.history([1])
    await store.messages(1)
    await store.next_wake(request())
    assert cuts.points == []


async def test_an_error_that_is_not_the_datas_takes_the_whole_batch_back() -> None:
    store, _ = make()
    await store.write([Create(run=new("before"))])
    with pytest.raises(AttributeError):
        await store.write([Create(run=new("a")), Create(run=None)])  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    assert await store.get("a") is None
    assert [each.run.id for each in await store.claim(request())] == ["before"]


async def test_a_view_is_another_process_on_the_same_data() -> None:
    store, cuts = make()
    view: Store = store.view()
    await view.write([Create(run=new("a"))])
    assert cuts.points == []  # cuts are one process's own
    assert await store.get("a") == await view.get("a")
    await view.close()
    assert await store.get("a") is not None


async def test_whoever_listens_hears_of_every_view() -> None:
    store, cuts = make()
    heard: list[str] = []
    stop = store.on_change(lambda: heard.append("store"))
    view = store.view()
    view.on_change(lambda: heard.append("view"))
    await view.write([Create(run=new("a"))])
    assert heard == ["store", "view"]
    await store.claim(request())
    assert heard == ["store", "view"]  # who is claimed from needs no hint
    stop()
    stop()
    await store.write([to_run("a")])
    assert heard == ["store", "view", "view"]
    cuts.at = "after write"
    with pytest.raises(CrashError):
        await store.write([to_run("a")])
    assert heard == ["store", "view", "view"]  # the dead tell nobody


async def test_threads_and_loops_share_it() -> None:
    clock = ManualClock()
    store = MemoryStore(clock)
    start = threading.Barrier(4)
    count = 200

    def work(worker: int) -> None:
        async def create() -> None:
            for index in range(count):
                await store.write([Create(run=new(f"{worker}.{index}"))])

        start.wait()
        asyncio.run(create())

    threads = [threading.Thread(target=work, args=(worker,)) for worker in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    claimed = await store.claim(request(limit=10_000))
    assert len({each.run.incarnation for each in claimed}) == 4 * count
    renewals = store.renewer().renew("ada", LEASE, [Held(each.run.incarnation, 1, 0) for each in claimed])
    assert not any(renewal.lost for renewal in renewals)
    answers = await store.write([complete(each.run) for each in claimed])
    assert all(isinstance(answer, Applied) for answer in answers)
