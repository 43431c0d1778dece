"""Blocked runs: they wait for other code, not for time; but their deadlines still count."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from perdure.model.run import Run, Status
from perdure.ports.fleet import Serves
from perdure.testing.conformance.kit import (
    LEASE,
    SECOND,
    WORKFLOW,
    Kit,
    park,
    request,
    to_run,
    turn,
)

FIXED = replace(WORKFLOW, fingerprint="print-b")


async def block(kit: Kit, run_id: str, fingerprint: str | None = "print-a", **fields: Any) -> Run:
    """A run that blocked, with no deadline."""
    run = await kit.hold(run_id, **fields)
    await kit.apply(turn(run, Status.BLOCKED, error=b'"why"', fingerprint=fingerprint))
    return await kit.run(run_id)


async def test_a_blocked_run_is_not_due(kit: Kit) -> None:
    await block(kit, "r")
    kit.clock.advance(1_000_000)
    assert await kit.claim() == []
    assert await kit.store.next_wake(request()) is None


async def test_other_code_makes_it_due(kit: Kit) -> None:
    run = await block(kit, "r")
    kit.clock.advance(1)
    assert await kit.store.unblock([FIXED]) == 1
    await kit.expect(run, wake_at=kit.now)
    [claimed] = await kit.claim("bob", serves=(FIXED,))
    assert (claimed.was, claimed.orphaned, claimed.run.fingerprint) == (Status.BLOCKED, False, "print-a")
    taken = await kit.expect(
        run, status=Status.RUNNING, owner="bob", epoch=2, wake_at=kit.now + LEASE, fingerprint=None
    )
    assert replace(claimed.run, fingerprint=None) == taken


async def test_the_same_code_does_not(kit: Kit) -> None:
    run = await block(kit, "r")
    assert await kit.store.unblock([WORKFLOW]) == 0
    assert await kit.store.unblock([]) == 0
    await kit.unchanged(run)


async def test_only_the_definitions_named(kit: Kit) -> None:
    run = await block(kit, "r")
    assert await kit.store.unblock([Serves("work", "2", "print-b"), Serves("other", "1", "print-b")]) == 0
    await kit.unchanged(run)


async def test_only_runs_that_failed_for_their_code(kit: Kit) -> None:
    waiting = await block(kit, "waits for a worker", fingerprint=None)
    running = await kit.hold("running")
    parked = await kit.hold("parked")
    await kit.apply(park(parked, wake_at=kit.now + 60 * SECOND))
    parked = await kit.run("parked")
    assert await kit.store.unblock([FIXED]) == 0
    await kit.unchanged(waiting, running, parked)


async def test_all_of_them_at_once(kit: Kit) -> None:
    for index in range(5):
        await block(kit, f"old{index}", "print-a")
        await block(kit, f"new{index}", "print-b")
    await block(kit, "second", "print-a", version="1")
    assert await kit.store.unblock([FIXED, Serves("other", "1", "x")]) == 6
    claimed = await kit.claim(serves=(FIXED,))
    assert sorted(each.run.id for each in claimed) == ["old0", "old1", "old2", "old3", "old4", "second"]


async def test_who_is_due_keeps_the_place_in_the_line(kit: Kit) -> None:
    run = await block(kit, "r")
    await kit.store.unblock([FIXED])
    due = await kit.run("r")
    kit.clock.advance(1)
    await kit.store.unblock([FIXED])
    assert (await kit.run("r")).wake_at == due.wake_at
    assert run.wake_at is None


async def test_it_may_block_again(kit: Kit) -> None:
    await block(kit, "r")
    await kit.store.unblock([FIXED])
    [claimed] = await kit.claim("bob", serves=(FIXED,))
    await kit.apply(turn(claimed.run, Status.BLOCKED, error=b'"still"', fingerprint="print-b"))
    assert await kit.store.unblock([FIXED]) == 0
    assert await kit.store.unblock([WORKFLOW]) == 1


async def test_the_deadline_of_a_blocked_run_counts(kit: Kit) -> None:
    run = await kit.hold("r")
    await kit.apply(turn(run, Status.BLOCKED, fingerprint="print-a", wake_at=kit.now + 5 * SECOND))
    kit.clock.advance(5)
    [claimed] = await kit.claim()
    assert (claimed.was, claimed.run.fingerprint) == (Status.BLOCKED, "print-a")


async def test_a_message_does_not_unblock(kit: Kit) -> None:
    run = await block(kit, "r")
    await kit.apply(to_run("r"))
    await kit.expect(run, inbox=1)
    assert await kit.claim() == []
