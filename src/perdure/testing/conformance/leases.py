"""Leases: who holds a run keeps it as long as it renews; who is gone loses it, and that is counted."""

from __future__ import annotations

import threading

from perdure.model.commit import Applied, Cancel, Delete, Fenced
from perdure.model.run import Status
from perdure.ports.store import Held, Renewal
from perdure.testing.conformance.kit import (
    LEASE,
    SECOND,
    Kit,
    complete,
    held,
    ids,
    park,
    payloads,
    scheduled,
    to_run,
    turn,
)


async def test_lease_01_a_lease_ends_and_not_before(kit: Kit) -> None:
    run = await kit.hold("r")
    kit.clock.set((run.wake_at or 0) - 1_001)
    assert await kit.claim("bob") == []
    [claimed] = await kit.claim("bob")
    assert claimed.run == await kit.expect(run, owner="bob", epoch=2, wake_at=kit.now + LEASE, recoveries=1)
    assert (claimed.orphaned, claimed.was) == (True, Status.RUNNING)


async def test_lease_13_each_recovery_without_progress_is_counted(kit: Kit) -> None:
    run = await kit.hold("r")
    for count in range(1, 5):
        kit.clock.advance(31)
        run = await kit.take("r", f"owner{count}")
        assert run.recoveries == count
    await kit.apply(turn(run, entries=(scheduled(0),)))
    assert (await kit.run("r")).recoveries == 0
    kit.clock.advance(31)
    assert (await kit.take("r")).recoveries == 1


async def test_f05_recovery_finds_the_run_by_its_own_id(kit: Kit) -> None:
    run = await kit.hold("r")
    kit.clock.advance(31)
    again = await kit.take("r")
    assert again.key == run.key


async def test_f08_a_parked_run_is_no_orphan(kit: Kit) -> None:
    run = await kit.hold("r")
    await kit.apply(park(run, wake_at=kit.now + SECOND))
    kit.clock.advance(60)
    assert (await kit.take("r", "bob")).recoveries == 0


async def test_lease_02_renewing_holds_the_run(kit: Kit) -> None:
    run = await kit.hold("r")
    kit.clock.advance(20)
    renewer = kit.store.renewer()
    assert list(renewer.renew("ada", LEASE, held(run))) == [Renewal(run.incarnation, lost=False)]
    renewer.close()
    renewed = await kit.expect(run, wake_at=kit.now + LEASE, updated_at=run.updated_at)
    kit.clock.advance(20)
    assert await kit.claim("bob") == []
    assert await kit.one(complete(renewed)) == Applied(run.key)


async def test_renewing_late_is_in_time_if_nobody_came(kit: Kit) -> None:
    run = await kit.hold("r")
    kit.clock.advance(1_000)
    renewer = kit.store.renewer()
    assert [renewal.lost for renewal in renewer.renew("ada", LEASE, held(run))] == [False]
    renewer.close()
    assert await kit.claim("bob") == []


async def test_renewing_answers_for_each_in_order(kit: Kit) -> None:
    mine, lost, parked, ended, cancelled, gone = [
        await kit.hold(name) for name in ("mine", "lost", "parked", "ended", "cancelled", "gone")
    ]
    await kit.apply(park(parked), complete(ended))
    await kit.write(Cancel("cancelled", b"1"), Delete("gone", b"1"))
    await kit.store.release("ada", held(lost))
    taken = await kit.take("lost", "bob")
    stale = Held(mine.incarnation, mine.epoch - 1, 0)
    before = [await kit.run(name) for name in ("lost", "parked", "ended", "cancelled")]
    renewer = kit.store.renewer()
    asked = [*held(ended, lost, mine, parked), stale, *held(gone, cancelled)]
    answers = renewer.renew("ada", LEASE, asked)
    assert [answer.incarnation for answer in answers] == [each.incarnation for each in asked]
    assert [answer.lost for answer in answers] == [True, True, False, True, True, True, True]
    assert all(answer.messages == () for answer in answers)
    assert [answer.lost for answer in renewer.renew("bob", LEASE, held(taken, mine))] == [False, True]
    renewer.close()
    await kit.unchanged(*before[1:])


async def test_renewing_brings_the_messages_not_known_yet(kit: Kit) -> None:
    run = await kit.hold("r")
    await kit.apply(to_run("r", b"1"), to_run("r", b"2"), to_run("r", b"3"))
    renewer = kit.store.renewer()
    [renewal] = renewer.renew("ada", LEASE, held(run, inbox=1))
    assert payloads(renewal.messages) == [b"2", b"3"]
    assert list(renewal.messages) == (await kit.inbox(run))[1:]
    await kit.apply(turn(run, seen=2, consumed=(2,)))
    [renewal] = renewer.renew("ada", LEASE, held(run))
    assert payloads(renewal.messages) == [b"1", b"3"]
    [renewal] = renewer.renew("ada", LEASE, held(run, inbox=3))
    assert renewal.messages == ()
    renewer.close()


async def test_renewing_nothing(kit: Kit) -> None:
    renewer = kit.store.renewer()
    assert list(renewer.renew("ada", LEASE, [])) == []
    renewer.close()


async def test_a_renewer_works_from_a_thread_of_its_own(kit: Kit) -> None:
    run = await kit.hold("r")
    kit.clock.advance(20)
    renewer = kit.store.renewer()
    answers: list[Renewal] = []

    def work() -> None:
        answers.extend(renewer.renew("ada", LEASE, held(run)))
        renewer.release("ada", held(run))
        renewer.close()

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert answers == [Renewal(run.incarnation, lost=False)]
    await kit.expect(run, status=Status.PENDING, owner=None, epoch=2, wake_at=kit.now)


async def test_releasing_gives_the_run_to_the_next(kit: Kit) -> None:
    run = await kit.hold("r")
    kit.clock.advance(1)
    await kit.store.release("ada", held(run))
    released = await kit.expect(run, status=Status.PENDING, owner=None, epoch=2, wake_at=kit.now)
    assert await kit.one(complete(run)) == Fenced(released)
    [claimed] = await kit.claim("bob")
    assert (claimed.orphaned, claimed.was, claimed.run.recoveries, claimed.run.epoch) == (False, Status.PENDING, 0, 3)


async def test_releasing_keeps_the_count_of_recoveries(kit: Kit) -> None:
    await kit.hold("r")
    kit.clock.advance(31)
    run = await kit.take("r", "bob")
    await kit.store.release("bob", held(run))
    assert (await kit.take("r")).recoveries == 1


async def test_releasing_passes_over_what_was_lost(kit: Kit) -> None:
    run, other = await kit.hold("r"), await kit.hold("other")
    await kit.store.release("bob", held(run))
    await kit.store.release("ada", [Held(run.incarnation, run.epoch + 1, 0), Held(other.incarnation + 99, 1, 0)])
    await kit.unchanged(run, other)
    await kit.apply(complete(run))
    ended = await kit.run("r")
    await kit.store.release("ada", held(run, other))
    await kit.unchanged(ended)
    await kit.expect(other, status=Status.PENDING, owner=None, epoch=2, wake_at=kit.now)


async def test_f10_a_claim_is_given_back_one_by_one(kit: Kit) -> None:
    for index in range(4):
        await kit.create(f"r{index}")
    claimed = await kit.claim()
    await kit.store.release("ada", held(claimed[2].run))
    assert ids(await kit.claim("bob")) == ["r2"]
    for each in (claimed[0], claimed[1], claimed[3]):
        await kit.apply(complete(each.run))
