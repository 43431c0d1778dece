"""Cancelling: whatever is live under a run ends with it, in one transaction, and nobody executes it any more."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from perdure.model.commit import Answer, Applied, Cancel, Changed, Create, Ended, Fenced, Missing, NewChild
from perdure.model.endings import cancelled_failure
from perdure.model.failure import encode_failure
from perdure.model.run import Parent, Run, Status
from perdure.testing.conformance.kit import (
    SECOND,
    Kit,
    complete,
    ended_child,
    fail,
    held,
    new,
    of,
    park,
    payloads,
    scheduled,
    to_run,
    turn,
)

STOP = b'"stop"'


async def ended_by_cancel(kit: Kit, before: Run, error: bytes = STOP) -> Run:
    """The run's row, which must be as a cancel leaves it."""
    return await kit.expect(
        before,
        status=Status.CANCELLED,
        owner=None,
        epoch=before.epoch + 1,
        wake_at=None,
        listening=False,
        error=error,
        fingerprint=None,
        ended_at=kit.now,
    )


async def tree(kit: Kit, *links: str) -> dict[str, Run]:
    """Runs that park, made from links like `root/a/b`: each the child of the one before it. All listening."""
    runs: dict[str, Run] = {}
    for link in links:
        path = link.split("/")
        if path[-1] not in runs:
            above = runs[path[-2]] if len(path) > 1 else None
            parent = Parent(above.id, above.incarnation, 0) if above else None
            await kit.apply(Create(run=new(path[-1], parent=parent, depth=len(path) - 1)))
            await kit.apply(park(await kit.take(path[-1])))
            runs[path[-1]] = await kit.run(path[-1])
    return runs


async def test_cancel_01_a_parked_run(kit: Kit) -> None:
    run = await kit.hold("r")
    await kit.apply(park(run, wake_at=kit.now + 60 * SECOND))
    before = await kit.run("r")
    answer = await kit.one(Cancel("r", STOP))
    assert answer == Changed((await ended_by_cancel(kit, before),))
    assert await kit.history(run) == []


async def test_cancel_in_every_live_status(kit: Kit) -> None:
    delayed = await kit.create("delayed", start_at=kit.now + SECOND)
    running = await kit.hold("running")
    blocked = await kit.hold("blocked")
    await kit.apply(turn(blocked, Status.BLOCKED, error=b'"why"', fingerprint="print-a"))
    blocked = await kit.run("blocked")
    pending = await kit.create("pending")
    for run in (delayed, running, blocked, pending):
        assert await kit.one(Cancel(run.id, STOP)) == Changed((await ended_by_cancel(kit, run),))
    kit.clock.advance(1_000)
    assert await kit.claim() == []


async def test_cancel_02_an_ended_run_stays_as_it_ended(kit: Kit) -> None:
    for status in (Status.COMPLETED, Status.FAILED, Status.CANCELLED, Status.DEAD):
        await kit.apply(turn(await kit.hold(status.value), status, error=b'"own"', output=b"1"))
        run = await kit.run(status.value)
        assert await kit.one(Cancel(run.id, STOP)) == Ended(run)
        await kit.unchanged(run)


async def test_cancel_02_no_run(kit: Kit) -> None:
    assert await kit.one(Cancel("nobody", STOP)) == Missing("nobody")


async def test_a_cancel_for_an_incarnation_spares_every_other(kit: Kit) -> None:
    run = await kit.hold("r")
    assert await kit.one(Cancel("r", STOP, incarnation=run.incarnation + 1)) == Missing("r")
    await kit.unchanged(run)
    of(Changed, await kit.one(Cancel("r", STOP, incarnation=run.incarnation)))


async def test_cancel_06_the_cancel_comes_before_the_last_turn(kit: Kit) -> None:
    run = await kit.hold("r")
    [cancelled] = of(Changed, await kit.one(Cancel("r", STOP))).runs
    assert await kit.one(complete(run, entries=(scheduled(0),))) == Fenced(cancelled)
    await kit.unchanged(cancelled)
    assert await kit.history(run) == []


async def test_cancel_06_the_last_turn_comes_before_the_cancel(kit: Kit) -> None:
    run = await kit.hold("r")
    assert await kit.one(complete(run)) == Applied(run.key)
    ended = await kit.run("r")
    assert await kit.one(Cancel("r", STOP)) == Ended(ended)
    await kit.unchanged(ended)


async def test_store_03_of_cancel_and_last_turn_one_wins_on_two_connections(kit: Kit) -> None:
    other = await kit.second()
    for index in range(20):
        run = await kit.hold(f"r{index}")
        both: Sequence[Sequence[Answer]] = await asyncio.gather(
            kit.store.write([Cancel(run.id, STOP)]), other.write([complete(run)])
        )
        [cancel], [last] = both
        now = await kit.run(run.id)
        if isinstance(cancel, Changed):
            assert (now.status, last) == (Status.CANCELLED, Fenced(now))
        else:
            assert (now.status, last) == (Status.COMPLETED, Applied(run.key))
            assert cancel == Ended(now)


async def test_a_cancelled_run_is_lost_to_its_holder(kit: Kit) -> None:
    run = await kit.hold("r")
    await kit.write(Cancel("r", STOP))
    renewer = kit.store.renewer()
    [renewal] = renewer.renew("ada", 30 * SECOND, held(run))
    renewer.close()
    assert renewal.lost
    await kit.store.release("ada", held(run))
    assert (await kit.run("r")).status is Status.CANCELLED


async def test_a_cancelled_run_keeps_its_inbox(kit: Kit) -> None:
    run = await kit.hold("r")
    await kit.apply(to_run("r", b"1"))
    await kit.write(Cancel("r", STOP))
    assert payloads(await kit.inbox(run)) == [b"1"]


# ---------------------------------------------------------------- cascade


async def test_cancel_04_everything_live_below_ends_too(kit: Kit) -> None:
    runs = await tree(kit, "root", "root/a", "root/b", "root/a/c", "root/a/c/d", "other", "other/x")
    changed = of(Changed, await kit.one(Cancel("root", STOP))).runs
    assert changed[0].id == "root"
    assert sorted(run.id for run in changed) == ["a", "b", "c", "d", "root"]
    for run in changed:
        assert run == await ended_by_cancel(kit, runs[run.id])
    await kit.unchanged(runs["other"], runs["x"])


async def test_f31_what_is_below_is_reached_through_what_ended(kit: Kit) -> None:
    runs = await tree(kit, "root", "root/a", "root/a/b", "root/c")
    await kit.apply(to_run("a"))
    await kit.apply(complete(await kit.take("a"), seen=1))
    ended = await kit.run("a")
    changed = of(Changed, await kit.one(Cancel("root", STOP))).runs
    assert sorted(run.id for run in changed) == ["b", "c", "root"]
    await kit.unchanged(ended)
    await ended_by_cancel(kit, runs["b"])


async def test_cancelling_in_the_middle_spares_what_is_above(kit: Kit) -> None:
    runs = await tree(kit, "root", "root/a", "root/a/b", "root/c")
    changed = of(Changed, await kit.one(Cancel("a", STOP))).runs
    assert [run.id for run in changed] == ["a", "b"]
    await kit.unchanged(runs["root"], runs["c"])


async def test_xto_08_a_cycle_of_parents_ends(kit: Kit) -> None:
    base = (await kit.create("base", start_at=kit.now + SECOND)).incarnation
    loop = [("a", "c", base + 3), ("b", "a", base + 1), ("c", "b", base + 2)]
    for run_id, parent_id, incarnation in loop:
        await kit.create(run_id, parent=Parent(parent_id, incarnation, 0))
    assert [(await kit.run(run_id)).incarnation for run_id in "abc"] == [base + 1, base + 2, base + 3]
    changed = of(Changed, await kit.one(Cancel("b", STOP))).runs
    assert changed[0].id == "b"
    assert sorted(run.id for run in changed) == ["a", "b", "c"]
    assert of(Ended, await kit.one(Cancel("a", STOP))).run.status is Status.CANCELLED


async def test_f11_children_of_an_earlier_incarnation_are_strangers(kit: Kit) -> None:
    await kit.create("far", parent=Parent("root", 10_000, 0))
    far = await kit.run("far")
    await kit.create("root")
    assert [run.id for run in of(Changed, await kit.one(Cancel("root", STOP))).runs] == ["root"]
    await kit.unchanged(far)


async def test_a_parent_outside_is_told_and_one_that_ends_too_is_not(kit: Kit) -> None:
    parent = await kit.hold("p")
    await kit.apply(park(parent, children=(NewChild(0, new("c", awaited_as="c")),)))
    child = await kit.take("c", "bob")
    await kit.apply(park(child, children=(NewChild(0, new("d", awaited_as="d")),)))
    await kit.write(Cancel("c", STOP))
    assert await kit.inbox(parent) == [ended_child(1, "c", STOP, kit.now, failed=True)]
    assert (await kit.run("p")).wake_at == kit.now
    assert (await kit.run("d")).status is Status.CANCELLED
    assert (await kit.run("c")).inbox == 0


async def test_a_turn_that_ends_its_run_with_undo_spares_what_is_below(kit: Kit) -> None:
    run = await kit.hold("r")
    await kit.apply(turn(run, children=(NewChild(0, new("c", awaited_as="c")), NewChild(1, new("d")))))
    below = [await kit.run("c"), await kit.run("d")]
    await kit.apply(turn(run, Status.CANCELLED, error=b'"own"', spares=True, entries=(scheduled(0),)))
    await kit.expect(run, status=Status.CANCELLED, owner=None, n=1, wake_at=None, error=b'"own"', ended_at=kit.now)
    await kit.unchanged(*below)


async def test_xto_a_turn_that_ends_its_run_plainly_takes_what_is_below_along(kit: Kit) -> None:
    for status in (Status.CANCELLED, Status.DEAD):
        name = status.value
        run = await kit.hold(name)
        await kit.apply(turn(run, children=(NewChild(0, new(f"{name}.0")), NewChild(1, new(f"{name}.1")))))
        one, two = [each.run for each in await kit.claim("bob")]
        await kit.apply(park(one, children=(NewChild(0, new(f"{name}.0.0")),)))
        one, deep = await kit.run(one.id), await kit.run(f"{name}.0.0")
        await kit.apply(turn(run, status, error=b'"own"', entries=(scheduled(0),)))
        await kit.expect(run, status=status, owner=None, n=1, wake_at=None, error=b'"own"', ended_at=kit.now)
        for below in (one, two, deep):
            await ended_by_cancel(kit, below, b'"own"')
        assert await kit.one(complete(two)) == Fenced(await kit.run(two.id))


async def test_a_turn_that_ends_by_itself_leaves_what_is_below(kit: Kit) -> None:
    for end in (complete, fail):
        name = end.__name__
        run = await kit.hold(name)
        await kit.apply(
            turn(run, children=(NewChild(0, new(f"{name}.0", awaited_as=f"{name}.0")), NewChild(1, new(f"{name}.1"))))
        )
        below = [each.run for each in await kit.claim("bob")]
        await kit.apply(end(run))
        await kit.unchanged(*below)


# ---------------------------------------------------------------- cancels of a turn


async def test_child_18_a_turn_cancels_its_children_and_what_is_below(kit: Kit) -> None:
    error = encode_failure(cancelled_failure())
    run = await kit.hold("p")
    await kit.apply(turn(run, children=tuple(NewChild(seq, new(f"c{seq}", awaited_as=f"c{seq}")) for seq in range(3))))
    c0, c1, c2 = [each.run for each in await kit.claim("bob")]
    await kit.apply(turn(c0, children=(NewChild(0, new("deep")),)), complete(c2))
    deep, c2 = await kit.run("deep"), await kit.run("c2")
    await kit.apply(turn(run, seen=1, consumed=(1,), cancels=("c0", "c2")))
    await ended_by_cancel(kit, c0, error)
    await ended_by_cancel(kit, deep, error)
    await kit.unchanged(c1, c2)
    assert await kit.inbox(run) == [ended_child(2, "c0", error, kit.now, failed=True)]


async def test_a_turn_cancels_its_own_children_only(kit: Kit) -> None:
    stranger = await kit.hold("stranger", "bob")
    other = await kit.hold("other", "bob")
    await kit.apply(turn(other, children=(NewChild(0, new("nephew")),)))
    nephew = await kit.take("nephew", "bob")
    run = await kit.hold("p")
    assert await kit.one(park(run, cancels=("stranger", "nephew", "nobody"))) == Applied(run.key)
    await kit.unchanged(stranger, nephew)


async def test_a_turn_cancels_as_it_ends(kit: Kit) -> None:
    run = await kit.hold("p")
    await kit.apply(turn(run, children=(NewChild(0, new("c", awaited_as="c")),)))
    child = await kit.take("c", "bob")
    await kit.apply(fail(run, cancels=("c",)))
    await ended_by_cancel(kit, child, encode_failure(cancelled_failure()))
    assert (await kit.run("p")).status is Status.FAILED
