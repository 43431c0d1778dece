"""Who gets which run, and when: exactly one owner, what is due, in order, fair between namespaces."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from msgspec.structs import replace

from perdure.model.commit import Create, Write
from perdure.model.run import FORMAT, Status
from perdure.ports.fleet import Serves
from perdure.ports.store import Claimed
from perdure.testing.conformance.kit import (
    LEASE,
    SECOND,
    WORKFLOW,
    Kit,
    complete,
    ids,
    new,
    park,
    request,
    to_run,
    turn,
)


async def test_a_claim_takes_the_run_with_its_messages(kit: Kit) -> None:
    run = await kit.create("r")
    await kit.apply(to_run("r", b"1"), to_run("r", b"2"))
    run = await kit.run("r")
    messages = await kit.inbox(run)
    assert len(messages) == 2
    [claimed] = await kit.claim("ada", lease=7 * SECOND)
    taken = await kit.expect(run, status=Status.RUNNING, owner="ada", epoch=1, wake_at=kit.now + 7 * SECOND)
    assert claimed == Claimed(taken, tuple(messages), orphaned=False, was=Status.PENDING)


async def test_a_claimed_run_is_not_there_for_others(kit: Kit) -> None:
    await kit.hold("r")
    assert await kit.claim("bob") == []
    assert await kit.claim("ada") == []


async def test_time_07_a_due_timer_is_claimed_once(kit: Kit) -> None:
    run = await kit.hold("r")
    await kit.apply(park(run, wake_at=kit.now + 5 * SECOND, listening=False))
    parked = await kit.run("r")
    kit.clock.set((parked.wake_at or 0) - 1_001)
    assert await kit.claim() == []
    kit.clock.set(parked.wake_at or 0)
    [claimed] = await kit.claim("bob")
    assert claimed.run == await kit.expect(parked, status=Status.RUNNING, owner="bob", epoch=2, wake_at=kit.now + LEASE)
    assert (claimed.was, claimed.orphaned) == (Status.SUSPENDED, False)
    assert await kit.claim("ada") == []


async def test_time_01_a_run_is_due_at_its_wake_time_to_the_microsecond(kit: Kit) -> None:
    run = await kit.hold("r")
    due = kit.now + SECOND
    await kit.apply(park(run, wake_at=due))
    kit.clock.set(due - 1)
    assert await kit.store.claim(request()) == []
    kit.clock.set(due)
    assert ids(await kit.store.claim(request())) == ["r"]


async def test_a_run_parked_on_messages_alone_is_never_due(kit: Kit) -> None:
    run = await kit.hold("r")
    await kit.apply(park(run))
    kit.clock.advance(10_000_000)
    assert await kit.claim() == []
    await kit.apply(to_run("r"))
    [claimed] = await kit.claim()
    assert not claimed.run.listening


async def test_ended_runs_are_never_claimed(kit: Kit) -> None:
    for status in (Status.COMPLETED, Status.FAILED, Status.CANCELLED, Status.DEAD):
        await kit.apply(turn(await kit.hold(status.value), status, wake_at=kit.now))
    kit.clock.advance(1_000)
    assert await kit.claim() == []


# ---------------------------------------------------------------- exactly one


async def test_lease_04_two_owners_share_what_is_due(kit: Kit) -> None:
    other = await kit.second()
    await kit.apply(*(Create(run=new(f"r{index}")) for index in range(1_000)))

    async def take(owner: str, mine: bool) -> list[Claimed]:
        taken: list[Claimed] = []
        while batch := await (kit.store if mine else other).claim(request(owner, limit=30)):
            taken += batch
        return taken

    ada, bob = await asyncio.gather(take("ada", True), take("bob", False))
    assert sorted(ids([*ada, *bob])) == sorted(f"r{index}" for index in range(1_000))
    for claimed in (*ada, *bob):
        assert (claimed.run.epoch, claimed.orphaned) == (1, False)
    assert {each.run.owner for each in ada} <= {"ada"}
    assert {each.run.owner for each in bob} <= {"bob"}


async def test_lease_04_two_owners_at_one_orphan(kit: Kit) -> None:
    other = await kit.second()
    await kit.hold("r")
    kit.clock.advance(31)
    both: Sequence[Sequence[Claimed]] = await asyncio.gather(
        kit.store.claim(request("bob")), other.claim(request("eve"))
    )
    [claimed] = [*both[0], *both[1]]
    assert claimed.orphaned
    assert await kit.run("r") == claimed.run


# ---------------------------------------------------------------- order


async def test_the_oldest_wake_time_comes_first(kit: Kit) -> None:
    start = kit.now
    await kit.create("late", start_at=start + 3 * SECOND)
    await kit.create("early", start_at=start + 1 * SECOND)
    await kit.create("middle", start_at=start + 2 * SECOND)
    kit.clock.advance(10)
    await kit.create("now")
    assert ids(await kit.claim()) == ["early", "middle", "late", "now"]


async def test_greater_priority_comes_first_and_absent_is_zero(kit: Kit) -> None:
    for name, priority in [("none", None), ("low", -1), ("high", 7), ("zero", 0), ("top", 100)]:
        await kit.create(name, priority=priority)
    assert ids(await kit.claim()) == ["top", "high", "none", "zero", "low"]


async def test_the_limit_takes_the_first_in_order(kit: Kit) -> None:
    for name, priority in [("a", None), ("b", 5), ("c", None), ("d", 5)]:
        await kit.create(name, priority=priority)
    assert ids(await kit.claim(limit=3)) == ["b", "d", "a"]
    assert ids(await kit.claim(limit=3)) == ["c"]


async def test_time_05_a_backlog_drains_in_batches(kit: Kit) -> None:
    await kit.apply(*(Create(run=new(f"r{index:03}")) for index in range(45)))
    batches = [ids(await kit.claim(limit=20)) for _ in range(4)]
    assert [len(batch) for batch in batches] == [20, 20, 5, 0]
    assert [each for batch in batches for each in batch] == [f"r{index:03}" for index in range(45)]


async def test_f79_namespaces_take_turns(kit: Kit) -> None:
    crowd: list[Write] = [Create(run=new(f"big{index}", namespace="big")) for index in range(50)]
    await kit.apply(*crowd)
    await kit.create("small0", namespace="small")
    await kit.create("small1", namespace="small")
    await kit.create("tiny0", namespace="tiny")
    assert ids(await kit.claim(limit=6)) == ["big0", "small0", "tiny0", "big1", "small1", "big2"]
    assert ids(await kit.claim(limit=3)) == ["big3", "big4", "big5"]


async def test_priority_goes_before_the_turns_of_namespaces(kit: Kit) -> None:
    for name, namespace, priority in [("a0", "a", 0), ("b0", "b", 0), ("a1", "a", 9), ("a2", "a", 9), ("b1", "b", 9)]:
        await kit.create(name, namespace=namespace, priority=priority)
    assert ids(await kit.claim()) == ["a1", "b1", "a2", "a0", "b0"]


async def test_a_woken_run_keeps_its_place_in_the_line(kit: Kit) -> None:
    run = await kit.hold("flooded")
    await kit.apply(park(run))
    await kit.apply(to_run("flooded"))
    woken = await kit.run("flooded")
    await kit.create("other")
    await kit.apply(to_run("flooded"))
    await kit.expect(woken, inbox=2)
    assert ids(await kit.claim()) == ["flooded", "other"]


# ---------------------------------------------------------------- whose


async def test_ns_02_only_the_namespaces_asked_for(kit: Kit) -> None:
    for namespace in ("blue", "red", "default"):
        await kit.create(namespace, namespace=namespace)
    assert await kit.claim(namespaces=()) == []
    assert ids(await kit.claim(namespaces=("red",))) == ["red"]
    assert ids(await kit.claim(namespaces=("red", "blue"))) == ["blue"]
    assert ids(await kit.claim(namespaces=None)) == ["default"]


async def test_only_the_definitions_served(kit: Kit) -> None:
    await kit.create("v1")
    await kit.create("v2", version="2")
    await kit.create("other", workflow="other", version="2")
    assert await kit.claim(serves=()) == []
    assert await kit.claim(serves=(Serves("other", "1", "x"), Serves("work", "3", "x"))) == []
    assert ids(await kit.claim(serves=(Serves("work", "2", "x"),))) == ["v2"]
    assert ids(await kit.claim(serves=(Serves("other", "2", "x"), WORKFLOW))) == ["v1", "other"]


async def test_runs_of_a_newer_format_are_left_alone(kit: Kit) -> None:
    run = await kit.create("newer", format=FORMAT + 1)
    old = await kit.create("r")
    assert ids(await kit.claim()) == [old.id]
    await kit.unchanged(run)
    assert await kit.store.next_wake(request()) == (await kit.run("r")).wake_at
    assert ids(await kit.claim(format=FORMAT + 1)) == ["newer"]


# ---------------------------------------------------------------- next wake


async def test_next_wake_is_the_earliest_that_could_be_claimed(kit: Kit) -> None:
    assert await kit.store.next_wake(request()) is None
    start = kit.now
    await kit.create("hour", start_at=start + 3600 * SECOND)
    assert await kit.store.next_wake(request()) == start + 3600 * SECOND
    await kit.create("minute", start_at=start + 60 * SECOND, namespace="red")
    await kit.create("second", start_at=start + SECOND, workflow="other")
    assert await kit.store.next_wake(request()) == start + 60 * SECOND
    assert await kit.store.next_wake(request(namespaces=("default",))) == start + 3600 * SECOND
    assert await kit.store.next_wake(request(serves=())) is None
    due = await kit.create("due")
    assert await kit.store.next_wake(request()) == due.wake_at


async def test_next_wake_counts_leases_and_not_what_waits_for_messages(kit: Kit) -> None:
    run = await kit.hold("r")
    assert await kit.store.next_wake(request("bob")) == run.wake_at
    await kit.apply(park(run))
    assert await kit.store.next_wake(request("bob")) is None
    await kit.apply(to_run("r"))
    assert await kit.store.next_wake(request("bob")) == kit.now
    run = await kit.take("r")
    await kit.apply(complete(replace(run, seen=1)))
    assert await kit.store.next_wake(request("bob")) is None
