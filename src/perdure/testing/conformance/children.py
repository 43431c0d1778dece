"""Children: started once, joined by their own parent only, and their end is never lost."""

from __future__ import annotations

from perdure.model.commit import Applied, Cancel, Create, Delete, Join, Moved, NewChild, Requeue, TurnCommit
from perdure.model.endings import start_failure
from perdure.model.failure import encode_failure
from perdure.model.messages import Message
from perdure.model.run import Parent, Run, Status
from perdure.testing.conformance.kit import (
    SECOND,
    Kit,
    complete,
    ended_child,
    fail,
    new,
    of,
    park,
    scheduled,
    turn,
)


def awaited(child_id: str, seq: int = 0, **fields: object) -> NewChild:
    return NewChild(seq, new(child_id, awaited_as=child_id, depth=1, **fields))


def not_started(number: int, child_id: str, at: int, *, taken: bool) -> Message:
    return ended_child(number, child_id, encode_failure(start_failure(child_id, taken=taken)), at, failed=True)


async def parked_over(kit: Kit, *children: NewChild) -> Run:
    """A parent `p` that parked on its children."""
    parent = await kit.hold("p")
    await kit.apply(park(parent, children=children))
    return await kit.run("p")


async def test_child_01_a_turn_starts_a_child(kit: Kit) -> None:
    parent = await kit.hold("p", namespace="t1")
    child = new("p.child.0", namespace="t1", priority=3, awaited_as="p.child.0", depth=1, timeout=SECOND)
    await kit.apply(park(parent, children=(NewChild(0, child),)))
    run = await kit.run("p.child.0")
    assert (run.status, run.wake_at, run.created_at, run.deadline) == (
        Status.PENDING,
        kit.now,
        kit.now,
        kit.now + SECOND,
    )
    assert (run.namespace, run.priority, run.depth, run.awaited_as) == ("t1", 3, 1, "p.child.0")
    assert run.parent == Parent("p", parent.incarnation, 0)
    await kit.expect(parent, status=Status.SUSPENDED, owner=None, wake_at=None, listening=True)


async def test_the_store_knows_better_who_the_parent_is(kit: Kit) -> None:
    parent = await kit.hold("p")
    await kit.apply(turn(parent, children=(NewChild(4, new("c", parent=Parent("q", 99, 4))),)))
    assert (await kit.run("c")).parent == Parent("p", parent.incarnation, 4)


async def test_a_delayed_child(kit: Kit) -> None:
    later = kit.now + 60 * SECOND
    await parked_over(kit, awaited("c", start_at=later))
    child = await kit.run("c")
    assert (child.status, child.wake_at, child.listening) == (Status.SUSPENDED, later, False)


async def test_the_end_of_an_awaited_child_wakes_its_parent(kit: Kit) -> None:
    parent = await parked_over(kit, awaited("c"))
    await kit.apply(complete(await kit.take("c", "bob"), b"7"))
    await kit.expect(parent, inbox=1, wake_at=kit.now)
    assert await kit.inbox(parent) == [ended_child(1, "c", b"7", kit.now)]


async def test_child_02_every_bad_end_of_an_awaited_child_is_told(kit: Kit) -> None:
    names = [status.value for status in (Status.FAILED, Status.CANCELLED, Status.DEAD)]
    parent = await parked_over(kit, *(awaited(name, seq) for seq, name in enumerate(names)))
    claimed = await kit.claim("bob")
    for each in claimed:
        await kit.apply(turn(each.run, Status(each.run.id), error=each.run.id.encode()))
    assert await kit.inbox(parent) == [
        ended_child(number, name, name.encode(), kit.now - 1_000 * (3 - number), failed=True)
        for number, name in enumerate(names, start=1)
    ]


async def test_a_cancelled_child_is_told(kit: Kit) -> None:
    parent = await parked_over(kit, awaited("c"))
    await kit.write(Cancel("c", b'"stop"'))
    await kit.expect(parent, inbox=1, wake_at=kit.now)
    assert await kit.inbox(parent) == [ended_child(1, "c", b'"stop"', kit.now, failed=True)]


async def test_a_deleted_child_is_told(kit: Kit) -> None:
    parent = await parked_over(kit, awaited("c"))
    await kit.write(Delete("c", b'"gone"'))
    assert await kit.inbox(parent) == [ended_child(1, "c", b'"gone"', kit.now, failed=True)]


async def test_the_end_of_a_detached_child_is_not_told(kit: Kit) -> None:
    parent = await parked_over(kit, NewChild(0, new("c")))
    await kit.apply(fail(await kit.take("c", "bob")))
    await kit.unchanged(parent)


async def test_an_ended_parent_is_not_told(kit: Kit) -> None:
    parent = await kit.hold("p")
    await kit.apply(fail(parent, children=(awaited("c"),)))
    ended = await kit.run("p")
    await kit.apply(complete(await kit.take("c", "bob")))
    await kit.unchanged(ended)
    assert await kit.inbox(parent) == []


async def test_a_run_that_nobody_could_have_started_ends_quietly(kit: Kit) -> None:
    run = await kit.hold("r", awaited_as="r")
    await kit.apply(complete(run))
    await kit.expect(run, status=Status.COMPLETED, owner=None, wake_at=None, output=b'"done"', ended_at=kit.now)


async def test_f11_a_stranger_under_the_parents_id_is_not_told(kit: Kit) -> None:
    await kit.apply(Create(run=new("c", parent=Parent("p", 10_000, 0), awaited_as="c")))
    child = await kit.take("c")
    stranger = await kit.create("p")
    await kit.apply(complete(child))
    await kit.unchanged(stranger)


async def test_a_parent_that_ends_by_itself_leaves_its_children(kit: Kit) -> None:
    for end in (complete, fail):
        name = end.__name__
        parent = await kit.hold(name)
        await kit.apply(end(parent, children=(awaited(f"{name}.0"), NewChild(1, new(f"{name}.1")))))
        assert len(await kit.claim()) == 2


# ---------------------------------------------------------------- the id is taken


async def test_child_05_the_same_child_again_is_joined(kit: Kit) -> None:
    parent = await kit.hold("p")
    await kit.apply(turn(parent, children=(NewChild(0, new("c", input=b"1")),)))
    child = await kit.run("c")
    assert await kit.one(park(parent, children=(awaited("c", 1, input=b"2"),))) == Applied(parent.key)
    await kit.expect(child, awaited_as="c")
    await kit.apply(complete(await kit.take("c", "bob"), b"7"))
    assert await kit.inbox(parent) == [ended_child(1, "c", b"7", kit.now)]


async def test_the_same_child_again_after_its_end(kit: Kit) -> None:
    parent = await kit.hold("p")
    await kit.apply(turn(parent, children=(NewChild(0, new("c")),)))
    await kit.apply(fail(await kit.take("c", "bob"), b'"bad"'))
    ended = await kit.run("c")
    answer = await kit.one(park(parent, children=(awaited("c", 1),)))
    assert answer == Moved(parent.key, (ended_child(1, "c", b'"bad"', kit.now, failed=True),))
    await kit.unchanged(ended)


async def test_the_same_detached_child_again_is_left_alone(kit: Kit) -> None:
    parent = await kit.hold("p")
    detached = NewChild(0, new("c"))
    await kit.apply(turn(parent, children=(detached,)))
    child = await kit.run("c")
    await kit.apply(park(parent, children=(detached,)))
    await kit.unchanged(child)
    await kit.expect(parent, status=Status.SUSPENDED, owner=None, wake_at=None, listening=True)


async def test_the_id_of_a_run_without_parent_is_taken(kit: Kit) -> None:
    stranger = await kit.hold("c", "bob")
    parent = await kit.hold("p")
    answer = await kit.one(park(parent, children=(awaited("c"),)))
    assert answer == Moved(parent.key, (not_started(1, "c", kit.now, taken=True),))
    await kit.unchanged(stranger)


async def test_the_id_of_another_parents_child_is_taken(kit: Kit) -> None:
    other = await kit.hold("other")
    await kit.apply(turn(other, children=(awaited("c"),)))
    stranger = await kit.take("c", "bob")
    parent = await kit.hold("p")
    answer = await kit.one(park(parent, children=(awaited("c"),)))
    assert answer == Moved(parent.key, (not_started(1, "c", kit.now, taken=True),))
    await kit.unchanged(stranger)
    await kit.apply(complete(stranger))
    assert len(await kit.inbox(other)) == 1
    assert len(await kit.inbox(parent)) == 1


async def test_a_detached_child_whose_id_is_taken_is_told_too(kit: Kit) -> None:
    await kit.hold("c", "bob")
    parent = await kit.hold("p")
    answer = await kit.one(park(parent, children=(NewChild(0, new("c")),)))
    assert answer == Moved(parent.key, (not_started(1, "c", kit.now, taken=True),))


async def test_f11_the_child_of_an_earlier_parent_of_that_id_is_a_stranger(kit: Kit) -> None:
    first = await kit.hold("p")
    orphan = new("c", parent=Parent("p", first.incarnation, 0))
    await kit.write(Delete("p", b'"gone"'))
    await kit.apply(Create(run=orphan))
    await kit.take("c", "bob")
    parent = await kit.hold("p")
    answer = await kit.one(park(parent, children=(awaited("c"),), joins=(Join(1, "c"),)))
    at = kit.now
    assert answer == Moved(parent.key, (not_started(1, "c", at, taken=True), not_started(2, "c", at, taken=True)))


async def test_one_child_twice_in_a_turn(kit: Kit) -> None:
    parent = await kit.hold("p")
    await kit.apply(park(parent, children=(awaited("c"), awaited("c", 1))))
    assert (await kit.run("c")).parent == Parent("p", parent.incarnation, 0)
    await kit.apply(complete(await kit.take("c", "bob")))
    assert len(await kit.inbox(parent)) == 1


async def test_child_16_many_children_in_one_turn(kit: Kit) -> None:
    ids = [f"p.all.0.{index}" for index in range(100)]
    parent = await parked_over(kit, *(awaited(child_id, seq) for seq, child_id in enumerate(ids)))
    claimed = await kit.claim("bob")
    assert [each.run.id for each in claimed] == ids
    await kit.apply(*(complete(each.run, each.run.id.encode()) for each in reversed(claimed)))
    assert [message.name for message in await kit.inbox(parent)] == ids[::-1]
    await kit.expect(parent, inbox=100, wake_at=kit.now)


# ---------------------------------------------------------------- joins


async def test_a_join_with_a_live_child(kit: Kit) -> None:
    parent = await kit.hold("p")
    await kit.apply(turn(parent, children=(NewChild(0, new("c")),)))
    child = await kit.run("c")
    assert await kit.one(park(parent, joins=(Join(1, "c"),))) == Applied(parent.key)
    await kit.expect(child, awaited_as="c")
    await kit.apply(complete(await kit.take("c", "bob"), b"7"))
    assert await kit.inbox(parent) == [ended_child(1, "c", b"7", kit.now)]


async def test_a_join_in_the_turn_that_starts_the_child(kit: Kit) -> None:
    parent = await kit.hold("p")
    await kit.apply(park(parent, children=(NewChild(0, new("c")),), joins=(Join(1, "c"),)))
    assert (await kit.run("c")).awaited_as == "c"


async def test_a_join_does_not_touch_the_lease_of_who_runs_the_child(kit: Kit) -> None:
    parent = await kit.hold("p")
    await kit.apply(turn(parent, children=(NewChild(0, new("c")),)))
    child = await kit.take("c", "bob")
    await kit.apply(park(parent, joins=(Join(1, "c"),)))
    await kit.expect(child, awaited_as="c")
    assert await kit.one(complete(child)) == Applied(child.key)
    assert len(await kit.inbox(parent)) == 1


async def test_a_join_with_an_ended_child_brings_its_end_at_once(kit: Kit) -> None:
    parent = await kit.hold("p")
    await kit.apply(turn(parent, children=(NewChild(0, new("good")), NewChild(1, new("bad")))))
    good, bad = await kit.claim("bob")
    await kit.apply(complete(good.run, b"7"), fail(bad.run, b'"bad"'))
    answer = of(Moved, await kit.one(park(parent, joins=(Join(2, "bad"), Join(3, "good")))))
    assert list(answer.messages) == [
        ended_child(1, "bad", b'"bad"', kit.now, failed=True),
        ended_child(2, "good", b"7", kit.now),
    ]


async def test_retry_06_a_join_again_brings_only_a_good_end(kit: Kit) -> None:
    parent = await kit.hold("p")
    await kit.apply(turn(parent, children=(NewChild(0, new("good")), NewChild(1, new("bad")))))
    good, bad = await kit.claim("bob")
    await kit.apply(complete(good.run, b"7"), fail(bad.run, b'"bad"'))
    joins = (Join(2, "bad", again=True), Join(3, "good", again=True))
    answer = of(Moved, await kit.one(park(parent, joins=joins)))
    assert list(answer.messages) == [ended_child(1, "good", b"7", kit.now)]


async def test_a_join_with_no_run(kit: Kit) -> None:
    parent = await kit.hold("p")
    answer = await kit.one(park(parent, joins=(Join(0, "nobody"),)))
    assert answer == Moved(parent.key, (not_started(1, "nobody", kit.now, taken=False),))


async def test_a_join_with_a_deleted_child(kit: Kit) -> None:
    parent = await kit.hold("p")
    await kit.apply(turn(parent, children=(NewChild(0, new("c")),)))
    await kit.write(Delete("c", b'"gone"'))
    answer = await kit.one(park(parent, joins=(Join(1, "c"),)))
    assert answer == Moved(parent.key, (not_started(1, "c", kit.now, taken=False),))


async def test_a_join_with_a_stranger(kit: Kit) -> None:
    stranger = await kit.hold("c", "bob")
    parent = await kit.hold("p")
    answer = await kit.one(park(parent, joins=(Join(0, "c"),)))
    assert answer == Moved(parent.key, (not_started(1, "c", kit.now, taken=True),))
    await kit.unchanged(stranger)


async def test_a_join_keeps_a_turn_that_goes_on_informed(kit: Kit) -> None:
    parent = await kit.hold("p")
    assert await kit.one(turn(parent, joins=(Join(0, "nobody"),))) == Applied(parent.key)
    await kit.expect(parent, inbox=1)
    assert await kit.inbox(parent) == [not_started(1, "nobody", kit.now, taken=False)]


# ---------------------------------------------------------------- requeued


async def failed_over_its_child(kit: Kit) -> tuple[Run, Run]:
    """A parent that failed because its child did."""
    await parked_over(kit, awaited("c"))
    await kit.apply(fail(await kit.take("c", "bob"), b'"bad"'))
    await kit.apply(fail(await kit.take("p"), b'"child"', seen=1, consumed=(1,)))
    return await kit.run("p"), await kit.run("c")


def again(run: Run) -> TurnCommit:
    """The parent's turn after a requeue: the child is asked for once more."""
    return park(run, entries=(scheduled(0),), children=(awaited("c"),))


async def test_retry_05_the_parent_first_then_the_child(kit: Kit) -> None:
    await failed_over_its_child(kit)
    await kit.write(Requeue("p"), Requeue("c"))
    parent, child = [each.run for each in await kit.claim()]
    await kit.apply(again(parent))
    await kit.apply(complete(child, b"7"))
    assert await kit.inbox(parent) == [ended_child(2, "c", b"7", kit.now)]
    assert (await kit.run("p")).wake_at == kit.now


async def test_retry_06_the_child_first_then_the_parent(kit: Kit) -> None:
    failed, _ = await failed_over_its_child(kit)
    await kit.write(Requeue("c"))
    await kit.apply(complete(await kit.take("c", "bob"), b"7"))
    await kit.unchanged(failed)
    await kit.write(Requeue("p"))
    parent = await kit.take("p")
    answer = await kit.one(again(parent))
    assert answer == Moved(parent.key, (ended_child(2, "c", b"7", kit.now),))
