"""Requeueing: an operator revives what failed or died, and nothing else."""

from __future__ import annotations

from perdure.model.commit import Changed, Fenced, Missing, NewChild, Requeue
from perdure.model.history import Entry, Event
from perdure.model.run import Run, Status
from perdure.testing.conformance.kit import (
    SECOND,
    Kit,
    complete,
    ended_child,
    fail,
    ids,
    new,
    of,
    park,
    payloads,
    resolved,
    scheduled,
    to_run,
    turn,
)


async def dead(kit: Kit) -> Run:
    """A run `r` that died of two recoveries, with two rows of history."""
    await kit.hold("r", timeout=3600 * SECOND)
    kit.clock.advance(31)
    await kit.take("r")
    kit.clock.advance(31)
    run = await kit.take("r")
    await kit.apply(
        turn(run, Status.DEAD, entries=(scheduled(0), resolved(0)), error=b'"dead"', started_at=5, progress=False)
    )
    return await kit.run("r")


async def test_retry_01_a_failed_run_is_pending_and_due_now(kit: Kit) -> None:
    run = await kit.hold("r")
    await kit.apply(fail(run, entries=(scheduled(0),), started_at=3))
    failed = await kit.run("r")
    answer = await kit.one(Requeue("r"))
    revived = await kit.expect(failed, status=Status.PENDING, n=2, wake_at=kit.now, error=None, ended_at=None)
    assert answer == Changed((revived,))
    assert ids(await kit.claim("bob")) == ["r"]


async def test_retry_12_a_dead_run_starts_its_count_afresh(kit: Kit) -> None:
    run = await dead(kit)
    assert run.recoveries == 2
    await kit.write(Requeue("r"))
    await kit.expect(
        run,
        status=Status.PENDING,
        n=3,
        wake_at=kit.now,
        error=None,
        recoveries=0,
        deadline=kit.now + 3600 * SECOND,
        ended_at=None,
    )
    await kit.take("r")
    kit.clock.advance(31)
    assert (await kit.take("r")).recoveries == 1


async def test_a_requeue_is_written_in_the_history(kit: Kit) -> None:
    run = await dead(kit)
    await kit.write(Requeue("r"))
    history = await kit.history(run)
    assert history == [scheduled(0), resolved(0), Entry(Event.REQUEUED, -1, None, "", None, kit.now, commit=2)]


async def test_retry_04_any_other_status_is_left_as_it_is(kit: Kit) -> None:
    await kit.create("delayed", start_at=kit.now + SECOND)
    running, suspended, blocked, completed, cancelled = [
        await kit.hold(name) for name in ("running", "suspended", "blocked", "completed", "cancelled")
    ]
    await kit.apply(
        turn(running, entries=(scheduled(0),)),
        park(suspended, entries=(scheduled(0),)),
        turn(blocked, Status.BLOCKED, error=b'"why"', fingerprint="print-a"),
        complete(completed, entries=(scheduled(0),)),
        turn(cancelled, Status.CANCELLED, error=b'"stop"'),
    )
    await kit.create("pending")
    for name in ("delayed", "pending", "running", "suspended", "completed", "cancelled"):
        run = await kit.run(name)
        history = await kit.history(run)
        assert await kit.one(Requeue(name)) == Changed(())
        await kit.unchanged(run)
        assert await kit.history(run) == history


async def test_a_blocked_run_is_tried_again_as_it_is(kit: Kit) -> None:
    run = await kit.hold("r")
    await kit.apply(turn(run, Status.BLOCKED, error=b'"why"', fingerprint="print-a"))
    history = await kit.history(run)
    [due] = of(Changed, await kit.one(Requeue("r"))).runs
    assert due == await kit.expect(await kit.run("r"), status=Status.BLOCKED, wake_at=kit.now, error=b'"why"')
    assert await kit.history(run) == history
    [claimed] = await kit.claim("bob")
    assert claimed.was is Status.BLOCKED


async def test_a_requeue_twice_counts_once(kit: Kit) -> None:
    await kit.apply(fail(await kit.hold("r")))
    answers = await kit.write(Requeue("r"), Requeue("r"))
    assert len(of(Changed, answers[0]).runs) == 1
    assert answers[1] == Changed(())
    assert len(await kit.history(await kit.run("r"))) == 1


async def test_requeueing_no_run(kit: Kit) -> None:
    assert await kit.one(Requeue("nobody")) == Missing("nobody")


async def test_the_last_holder_is_fenced(kit: Kit) -> None:
    run = await kit.hold("r")
    await kit.apply(fail(run, entries=(scheduled(0),)))
    await kit.write(Requeue("r"))
    pending = await kit.run("r")
    assert await kit.one(turn(run)) == Fenced(pending)
    assert await kit.one(turn(run, n=2)) == Fenced(pending)
    again = await kit.take("r", "bob")
    assert again.epoch == run.epoch + 1


async def test_what_was_unread_comes_with_the_next_claim(kit: Kit) -> None:
    run = await kit.hold("r")
    await kit.apply(to_run("r", b"1"), to_run("r", b"2"), to_run("r", b"3"))
    await kit.apply(fail(run, seen=2, consumed=(1,)))
    await kit.write(Requeue("r"))
    [claimed] = await kit.claim()
    assert payloads(claimed.messages) == [b"2", b"3"]
    assert (claimed.run.seen, claimed.run.inbox, claimed.was) == (2, 3, Status.PENDING)


async def test_a_revived_run_takes_messages_again(kit: Kit) -> None:
    run = await kit.hold("r")
    await kit.apply(fail(run))
    await kit.write(Requeue("r"))
    await kit.apply(to_run("r", b"1"))
    assert payloads(await kit.inbox(run)) == [b"1"]


async def test_a_revived_child_tells_its_parent_again(kit: Kit) -> None:
    parent = await kit.hold("p")
    await kit.apply(park(parent, children=(NewChild(0, new("c", awaited_as="c")),)))
    await kit.apply(fail(await kit.take("c", "bob"), b'"bad"'))
    at = kit.now
    await kit.write(Requeue("c"))
    child = next(each.run for each in await kit.claim() if each.run.id == "c")
    await kit.apply(complete(child, b"7"))
    assert await kit.inbox(parent) == [
        ended_child(1, "c", b'"bad"', at, failed=True),
        ended_child(2, "c", b"7", kit.now),
    ]
