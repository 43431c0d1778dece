"""Pausing, unpausing and redispatching runs."""

from __future__ import annotations

from perdure.model.commit import Cancel, Changed, Ended, Fenced, Missing, Requeue, Steer, Way
from perdure.model.run import Run, Status
from perdure.testing.conformance.kit import SECOND, Kit, complete, fail, new, of, park, request, to_run, turn


async def steer(kit: Kit, run_id: str, way: Way) -> Run | None:
    """The run, if it changed."""
    changed = of(Changed, await kit.one(Steer(run_id, way)))
    return changed.runs[0] if changed.runs else None


async def claimed(kit: Kit) -> list[str]:
    return [each.run.id for each in await kit.claim("bob")]


async def test_a_paused_run_is_not_claimed_in_whatever_status(kit: Kit) -> None:
    later = kit.now + 50 * SECOND
    await kit.apply(park(await kit.hold("parked"), wake_at=later))
    await kit.apply(turn(await kit.hold("blocked"), Status.BLOCKED, wake_at=later, error=b"1", fingerprint="x"))
    await kit.hold("orphan")
    await kit.create("pending")
    ids = ["pending", "parked", "blocked", "orphan"]
    for run_id in ids:
        before = await kit.run(run_id)
        paused = await steer(kit, run_id, Way.PAUSE)
        assert paused is not None
        assert paused == await kit.run(run_id)
        assert (paused.status, paused.wake_at, paused.owner, paused.epoch) == (
            before.status,
            before.wake_at,
            before.owner,
            before.epoch,
        )
        assert paused.paused_at == paused.updated_at == kit.now
        assert await steer(kit, run_id, Way.PAUSE) is None
    kit.clock.advance(100)
    assert await claimed(kit) == []
    assert await kit.store.next_wake(request("bob")) is None
    assert await kit.store.block_unserved(0) == []
    for run_id in ids:
        free = await steer(kit, run_id, Way.UNPAUSE)
        assert free is not None
        assert free.paused_at is None
        assert await steer(kit, run_id, Way.UNPAUSE) is None
    assert sorted(await claimed(kit)) == sorted(ids)
    assert (await kit.run("orphan")).recoveries == 1


async def test_messages_come_to_a_paused_run_and_wake_it_later(kit: Kit) -> None:
    await kit.apply(park(await kit.hold("r"), listening=True))
    await steer(kit, "r", Way.PAUSE)
    await kit.apply(to_run("r"))
    assert await claimed(kit) == []
    await steer(kit, "r", Way.UNPAUSE)
    [claim] = await kit.claim("bob")
    assert len(claim.messages) == 1


async def test_whoever_holds_a_paused_run_may_commit(kit: Kit) -> None:
    run = await kit.hold("r")
    await steer(kit, "r", Way.PAUSE)
    await kit.apply(turn(run))
    await kit.apply(park(await kit.run("r"), wake_at=kit.now))
    assert (await kit.run("r")).paused_at is not None
    assert await claimed(kit) == []


async def test_the_successor_of_a_paused_run_is_paused(kit: Kit) -> None:
    run = await kit.hold("r")
    await steer(kit, "r", Way.PAUSE)
    await kit.apply(complete(run, successor=new("r~1")))
    assert (await kit.run("r~1")).paused_at is not None
    assert await claimed(kit) == []
    assert await steer(kit, "r", Way.UNPAUSE) is not None  # of an id that continued, the last link
    assert await claimed(kit) == ["r~1"]


async def test_the_time_that_a_run_is_paused_does_not_count(kit: Kit) -> None:
    await kit.create("r", timeout=60 * SECOND)
    await kit.create("endless")
    deadline = (await kit.run("r")).deadline
    assert deadline is not None
    paused = await steer(kit, "r", Way.PAUSE)
    await steer(kit, "endless", Way.PAUSE)
    kit.clock.advance(100)
    free = await steer(kit, "r", Way.UNPAUSE)
    assert paused is not None and free is not None and paused.paused_at is not None  # noqa: PT018
    assert free.deadline == deadline + kit.now - paused.paused_at
    assert (await steer(kit, "endless", Way.UNPAUSE) or paused).deadline is None


async def test_a_requeue_that_revives_ends_the_pause(kit: Kit) -> None:
    run = await kit.hold("r")
    await steer(kit, "r", Way.PAUSE)
    await kit.apply(fail(run))
    await kit.write(Requeue("r"))
    assert (await kit.run("r")).paused_at is None
    assert await claimed(kit) == ["r"]


async def test_a_paused_run_can_be_cancelled(kit: Kit) -> None:
    await kit.create("r")
    await steer(kit, "r", Way.PAUSE)
    of(Changed, await kit.one(Cancel("r", b'"stop"')))
    assert (await kit.run("r")).status is Status.CANCELLED


async def test_redisp_06_a_run_is_taken_from_its_holder(kit: Kit) -> None:
    run = await kit.hold("r")
    taken = await steer(kit, "r", Way.REDISPATCH)
    assert taken is not None
    assert (taken.status, taken.owner, taken.epoch, taken.wake_at) == (Status.PENDING, None, run.epoch + 1, kit.now)
    of(Fenced, await kit.one(turn(run)))
    assert await steer(kit, "r", Way.REDISPATCH) is None
    [claim] = await kit.claim("bob")
    assert (claim.run.recoveries, claim.orphaned, claim.was) == (0, False, Status.PENDING)


async def test_no_way_touches_a_run_that_has_ended_or_is_not_there(kit: Kit) -> None:
    await kit.apply(complete(await kit.hold("r")))
    before = await kit.run("r")
    for way in Way:
        assert of(Ended, await kit.one(Steer("r", way))).run == before
        of(Missing, await kit.one(Steer("none", way)))
        of(Missing, await kit.one(Steer("r", way, before.incarnation + 1)))
    assert await kit.run("r") == before


async def test_paused_runs_do_not_hide_others(kit: Kit) -> None:
    for number in range(5):
        await kit.create(f"p{number}", priority=5)
        await steer(kit, f"p{number}", Way.PAUSE)
    await kit.create("r")
    assert [each.run.id for each in await kit.claim("bob", limit=1)] == ["r"]
