"""The fleet: who is there, and what becomes of runs that nobody there can take."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

from msgspec.structs import replace

from perdure.model.commit import Changed, Fenced, Requeue
from perdure.model.endings import unserved_failure
from perdure.model.failure import encode_failure
from perdure.model.run import Run, Status
from perdure.ports.fleet import Member, Process, Serves
from perdure.ports.store import MOST_UNSERVED, Finding
from perdure.testing.conformance.kit import (
    LEASE,
    SECOND,
    WORKFLOW,
    Kit,
    complete,
    control,
    of,
    park,
    request,
    to_run,
    turn,
)

TTL = 90 * SECOND
GRACE = 60 * SECOND
OTHER = Serves("other", "1", "print-o")


def process(owner: str = "ada", **fields: Any) -> Process:
    usual: dict[str, Any] = {
        "owner": owner,
        "host": "host",
        "pid": 7,
        "perdure": "1.2.3",
        "namespaces": None,
        "serves": (WORKFLOW,),
        "held": 0,
        "limit": 100,
        "lag": 0,
        "started_at": 5,
        "draining": False,
    }
    return Process(**usual | fields)


def beat(kit: Kit, *processes: Process, ttl: int = TTL) -> None:
    renewer = kit.store.renewer()
    for each in processes:
        renewer.beat(each, ttl)
    renewer.close()


async def members(kit: Kit) -> list[str]:
    return [member.process.owner for member in await kit.store.fleet()]


def findings(*runs: Run) -> list[Finding]:
    return [Finding(run.key, unserved_failure(run.workflow, run.version).message) for run in runs]


async def blocks(kit: Kit, *runs: Run, grace: int = GRACE) -> None:
    """Exactly these are blocked, in this order, and are not found again."""
    assert list(await kit.store.block_unserved(grace)) == findings(*runs)
    assert list(await kit.store.block_unserved(grace)) == []


async def is_blocked(kit: Kit, before: Run) -> Run:
    error = encode_failure(unserved_failure(before.workflow, before.version))
    return await kit.expect(
        before,
        status=Status.BLOCKED,
        owner=None,
        epoch=before.epoch + (before.status is Status.RUNNING),
        wake_at=None,
        listening=False,
        error=error,
        fingerprint="",
    )


# ---------------------------------------------------------------- who is there


async def test_a_beat_says_all_about_a_process(kit: Kit) -> None:
    assert list(await kit.store.fleet()) == []
    full = process(
        "host:7:ä", namespaces=("red", "blue"), serves=(WORKFLOW, OTHER), held=3, lag=12_345, started_at=kit.now
    )
    beat(kit, full)
    assert list(await kit.store.fleet()) == [Member(full, kit.now, kit.now + TTL)]


async def test_the_next_beat_replaces_what_was_said(kit: Kit) -> None:
    beat(kit, process())
    kit.clock.advance(10)
    later = process(held=2, draining=True, serves=(), namespaces=(), started_at=6)
    beat(kit, later, ttl=20 * SECOND)
    assert list(await kit.store.fleet()) == [Member(later, kit.now, kit.now + 20 * SECOND)]


async def test_the_oldest_comes_first(kit: Kit) -> None:
    beat(
        kit,
        process("c", started_at=2),
        process("b", started_at=3),
        process("d", started_at=1),
        process("a", started_at=2),
    )
    assert await members(kit) == ["d", "a", "c", "b"]


async def test_who_does_not_beat_expires_to_the_microsecond(kit: Kit) -> None:
    beat(kit, process("ada"), process("bob", started_at=6), ttl=SECOND)
    kit.clock.set(kit.now + SECOND - 1)
    assert await members(kit) == ["ada", "bob"]
    beat(kit, process("bob", started_at=6), ttl=SECOND)
    kit.clock.set(kit.now + 1)
    assert await members(kit) == ["bob"]
    beat(kit, process("ada", started_at=9))
    assert await members(kit) == ["bob", "ada"]


async def test_f2_who_departs_is_gone_at_once(kit: Kit) -> None:
    beat(kit, process("ada"), process("bob"))
    renewer = kit.store.renewer()
    renewer.depart("ada")
    renewer.depart("nobody")
    renewer.close()
    assert await members(kit) == ["bob"]


async def test_another_process_and_a_restart_see_the_same(kit: Kit) -> None:
    beat(kit, process("ada"))
    other = await kit.second()
    assert list(await other.fleet()) == list(await kit.store.fleet())
    await kit.reopen()
    assert await members(kit) == ["ada"]


async def test_a_beat_comes_from_any_thread(kit: Kit) -> None:
    renewer = kit.store.renewer()

    def work() -> None:
        renewer.beat(process("ada"), TTL)
        renewer.beat(process("bob"), TTL)
        renewer.depart("ada")
        renewer.close()

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert await members(kit) == ["bob"]


# ---------------------------------------------------------------- what nobody serves


async def test_what_somebody_serves_is_left_alone(kit: Kit) -> None:
    runs = [await kit.create("r"), await kit.create("s", namespace="red", priority=5)]
    beat(kit, process())
    kit.clock.advance(80)
    await blocks(kit)
    await kit.unchanged(*runs)


async def test_what_nobody_serves_is_blocked_after_the_grace_and_not_before(kit: Kit) -> None:
    run = await kit.create("r")
    beat(kit, process(serves=(OTHER,)), ttl=3 * TTL)
    kit.clock.set((run.wake_at or 0) + GRACE - 1)
    await blocks(kit)
    await kit.unchanged(run)
    kit.clock.set(kit.now + 1)
    await blocks(kit, run)
    await is_blocked(kit, run)
    assert await kit.claim() == []


async def test_a_store_without_processes_serves_nothing(kit: Kit) -> None:
    run = await kit.create("r")
    await blocks(kit, run, grace=0)


async def test_whoever_expired_or_departed_serves_nothing(kit: Kit) -> None:
    run = await kit.create("r")
    beat(kit, process("ada"), process("bob"))
    kit.clock.advance(61)
    renewer = kit.store.renewer()
    renewer.depart("ada")
    renewer.close()
    await blocks(kit)
    kit.clock.advance(29)
    await blocks(kit, run)


async def test_whoever_drains_still_serves(kit: Kit) -> None:
    run = await kit.create("r")
    beat(kit, process(draining=True))
    kit.clock.advance(80)
    await blocks(kit)
    await kit.unchanged(run)


async def test_ns_02_a_process_serves_its_namespaces_only(kit: Kit) -> None:
    red, blue, green = [await kit.create(name, namespace=name) for name in ("red", "blue", "green")]
    beat(kit, process("ada", namespaces=("red",)), process("bob", namespaces=("blue",), serves=(WORKFLOW, OTHER)))
    kit.clock.advance(80)
    await blocks(kit, green)
    await kit.unchanged(red, blue)
    beat(kit, process("eve", namespaces=()))
    await blocks(kit)


async def test_each_version_is_served_by_itself(kit: Kit) -> None:
    old = await kit.create("old")
    new = await kit.create("new", version="2")
    other = await kit.create("other", workflow="other")
    beat(kit, process(serves=(WORKFLOW, Serves("other", "2", "print-o"))))
    kit.clock.advance(80)
    await blocks(kit, new, other)
    await kit.unchanged(old)


async def test_only_what_is_due(kit: Kit) -> None:
    held, listening, sleeping, ended, blocked, deadline = [
        await kit.hold(name) for name in ("held", "listening", "sleeping", "ended", "blocked", "deadline")
    ]
    delayed = await kit.create("delayed", start_at=kit.now + 600 * SECOND)
    await kit.apply(
        turn(held, wake_at=kit.now + 600 * SECOND),
        park(listening),
        park(sleeping, listening=False, wake_at=kit.now + 600 * SECOND),
        complete(ended),
        turn(blocked, Status.BLOCKED, error=b'"why"', fingerprint="print-a"),
        turn(deadline, Status.BLOCKED, error=b'"why"', fingerprint="print-a", wake_at=kit.now + SECOND),
    )
    renewer = kit.store.renewer()
    kit.clock.advance(80)
    renewer.beat(process(serves=()), TTL)
    renewer.close()
    names = ("listening", "sleeping", "ended", "blocked", "deadline")
    rows = [delayed, *[await kit.run(name) for name in names]]
    # Of all, only the one whose lease ended long ago.
    kit.clock.advance(31)
    assert ids_of(await kit.store.block_unserved(GRACE)) == ["held"]
    await kit.unchanged(*rows)


async def test_a_run_is_blocked_from_wherever_it_stands(kit: Kit) -> None:
    orphan, parked = await kit.hold("orphan"), await kit.hold("parked")
    await kit.apply(park(parked, wake_at=kit.now + SECOND, seen=0), to_run("orphan"))
    pending = await kit.create("pending", timeout=5 * SECOND)
    orphan, parked = await kit.run("orphan"), await kit.run("parked")
    kit.clock.advance(91)
    await blocks(kit, orphan, parked, pending)
    for before in (orphan, parked, pending):
        await is_blocked(kit, before)
    assert (await kit.run("orphan")).epoch == orphan.epoch + 1
    assert await kit.one(complete(orphan)) == Fenced(await kit.run("orphan"))
    assert await kit.store.audit() == []


async def test_whoever_serves_it_makes_it_due_again(kit: Kit) -> None:
    runs = [await kit.create("r"), await kit.create("s", version="2")]
    kit.clock.advance(61)
    await blocks(kit, *runs)
    assert await kit.store.unblock([OTHER]) == 0
    before = await kit.run("r")
    kit.clock.advance(1)
    assert await kit.store.unblock([WORKFLOW]) == 1
    await kit.expect(before, wake_at=kit.now)
    [claimed] = await kit.claim("bob")
    assert (claimed.was, claimed.orphaned, claimed.run.recoveries) == (Status.BLOCKED, False, 0)
    await kit.apply(complete(claimed.run))
    done = await kit.run("r")
    assert (done.status, done.error, done.fingerprint) == (Status.COMPLETED, None, None)


async def test_what_is_due_again_may_be_blocked_no_more(kit: Kit) -> None:
    """A blocked run that is due has been found by somebody who serves it, or by an operator: it is left to them."""
    run = await kit.create("r")
    kit.clock.advance(61)
    await blocks(kit, run)
    await kit.store.unblock([WORKFLOW])
    kit.clock.advance(61)
    await blocks(kit)


async def test_messages_come_in_and_do_not_unblock(kit: Kit) -> None:
    parked = await kit.hold("r")
    await kit.apply(park(parked, wake_at=kit.now + SECOND))
    before = await kit.run("r")
    kit.clock.advance(62)
    await blocks(kit, before)
    before = await is_blocked(kit, before)
    await kit.apply(to_run("r"), control("r"))
    await kit.expect(before, inbox=2)
    assert await kit.claim() == []
    await kit.store.unblock([WORKFLOW])
    [claimed] = await kit.claim()
    assert [message.number for message in claimed.messages] == [1, 2]


async def test_a_requeue_by_hand_makes_it_due(kit: Kit) -> None:
    run = await kit.create("r")
    kit.clock.advance(61)
    await blocks(kit, run)
    before = await kit.run("r")
    [changed] = of(Changed, await kit.one(Requeue("r"))).runs
    assert changed == await kit.expect(before, wake_at=kit.now)


async def test_so_many_at_a_time_the_oldest_first(kit: Kit) -> None:
    runs: list[Run] = []
    for number in range(MOST_UNSERVED + 2):
        kind = {"namespace": ("red", "blue")[number % 2], "priority": number % 3, "version": str(number % 2 + 1)}
        runs.append(await kit.create(f"r{number}", **kind))
    kit.clock.advance(61)
    assert list(await kit.store.block_unserved(GRACE)) == findings(*runs[:MOST_UNSERVED])
    assert list(await kit.store.block_unserved(GRACE)) == findings(*runs[MOST_UNSERVED:])
    assert list(await kit.store.block_unserved(GRACE)) == []
    await is_blocked(kit, runs[-1])


async def test_the_deadline_is_kept_for_whoever_takes_it(kit: Kit) -> None:
    run = await kit.create("r", timeout=5 * SECOND)
    kit.clock.advance(61)
    await blocks(kit, run)
    await kit.store.unblock([WORKFLOW])
    [claimed] = await kit.claim()
    assert claimed.run.deadline == run.deadline
    assert claimed.run.wake_at == kit.now + LEASE
    assert await kit.store.next_wake(request()) == kit.now + LEASE
    assert replace(claimed.run, fingerprint=None) == await kit.run("r")


def ids_of(found: Sequence[Finding]) -> list[str]:
    return [finding.run.id for finding in found]
