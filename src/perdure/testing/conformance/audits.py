"""The audit: finds what must not exist, wakes it, and finds nothing in what the verbs have written."""

from __future__ import annotations

from perdure.model.run import Run, Status
from perdure.testing.conformance.kit import (
    LEASE,
    SECOND,
    Kit,
    complete,
    ids,
    park,
    to_run,
    turn,
)


async def finds(kit: Kit, run: Run) -> None:
    """The audit finds this run alone, leaves it where it is only asked to look, and heals it once."""
    [finding] = await kit.store.audit(heal=False)
    assert finding.run == run.key
    assert finding.what
    await kit.unchanged(run)
    kit.clock.advance(1)
    [again] = await kit.store.audit()
    assert again == finding
    await kit.expect(run, wake_at=kit.now)
    assert await kit.store.audit() == []


async def test_a_pending_run_without_a_wake_time(kit: Kit) -> None:
    run = await kit.create("r")
    await kit.factory.lose_wake(kit.store, run.incarnation)
    assert await kit.claim() == []
    await finds(kit, await kit.run("r"))
    assert ids(await kit.claim()) == ["r"]


async def test_a_running_run_without_a_wake_time(kit: Kit) -> None:
    run = await kit.hold("r")
    await kit.factory.lose_wake(kit.store, run.incarnation)
    await finds(kit, await kit.run("r"))
    [claimed] = await kit.claim("bob")
    assert claimed.orphaned


async def test_a_listening_run_with_an_unseen_message_and_no_wake_time(kit: Kit) -> None:
    run = await kit.hold("r")
    await kit.apply(park(run))
    await kit.apply(to_run("r"))
    await kit.factory.lose_wake(kit.store, run.incarnation)
    await finds(kit, await kit.run("r"))
    [claimed] = await kit.claim()
    assert len(claimed.messages) == 1


async def test_a_suspended_run_that_nothing_can_wake(kit: Kit) -> None:
    run = await kit.hold("r")
    await kit.apply(turn(run, Status.SUSPENDED))
    await finds(kit, await kit.run("r"))
    assert ids(await kit.claim()) == ["r"]


async def test_all_kinds_at_once(kit: Kit) -> None:
    for name in ("b", "c", "d"):
        await kit.hold(name)
    await kit.create("a")
    b, c, d = await kit.run("b"), await kit.run("c"), await kit.run("d")
    await kit.apply(turn(c, Status.SUSPENDED), park(d))
    await kit.apply(to_run("d"))
    for name in ("a", "b", "d"):
        await kit.factory.lose_wake(kit.store, (await kit.run(name)).incarnation)
    findings = await kit.store.audit()
    assert sorted(finding.run.id for finding in findings) == ["a", "b", "c", "d"]
    assert len({finding.what for finding in findings}) == 4
    assert {(await kit.run(name)).wake_at for name in "abcd"} == {kit.now}
    assert b.wake_at != kit.now


async def test_nothing_is_wrong_with_what_the_verbs_write(kit: Kit) -> None:
    assert await kit.store.audit() == []
    await kit.create("delayed", start_at=kit.now + 60 * SECOND)
    listening, seen, timer, blocked, moved, done = [
        await kit.hold(name) for name in ("listening", "seen", "timer", "blocked", "moved", "done")
    ]
    await kit.apply(to_run("seen"), to_run("blocked"))
    await kit.apply(
        park(listening),
        park(seen, seen=1),
        park(timer, listening=False, wake_at=kit.now + SECOND),
        turn(blocked, Status.BLOCKED, seen=1, fingerprint="print-a"),
        to_run("moved"),
        complete(done),
    )
    await kit.apply(to_run("timer"), to_run("blocked"))
    await kit.create("pending")
    rows = [
        await kit.run(name) for name in ("delayed", "listening", "seen", "timer", "blocked", "moved", "done", "pending")
    ]
    assert await kit.store.audit() == []
    await kit.unchanged(*rows)
    assert moved.wake_at == rows[5].wake_at
    assert rows[5].status is Status.RUNNING
    assert (moved.wake_at or 0) - kit.now < LEASE


async def test_a_message_that_is_not_there_any_more_is_no_finding(kit: Kit) -> None:
    run = await kit.hold("r")
    await kit.apply(to_run("r"))
    await kit.apply(park(run, seen=0, consumed=(1,)))
    row = await kit.run("r")
    assert (row.status, row.inbox, row.seen, row.wake_at) == (Status.SUSPENDED, 1, 0, None)
    assert await kit.store.audit() == []
