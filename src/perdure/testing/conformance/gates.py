"""Gates: who holds a slot and who waits, and that nobody is forgotten whoever gives a slot back."""

from __future__ import annotations

from perdure.model.commit import (
    Applied,
    Cancel,
    Create,
    Delete,
    Moved,
    TokenWait,
)
from perdure.model.gates import WHOLE_RUN
from perdure.model.messages import MessageKind
from perdure.model.run import Parent, Status
from perdure.testing.conformance.gating import ONE, ask, gate, grant, held, over, parked, take, waiting, whole
from perdure.testing.conformance.kit import (
    SECOND,
    Kit,
    complete,
    fail,
    new,
    of,
    park,
    to_token,
    turn,
)
from perdure.testing.conformance.kit import (
    held as leases,
)

# ---------------------------------------------------------------- slots of steps


async def test_a_free_slot_is_granted_at_once(kit: Kit) -> None:
    run = await kit.hold("r")
    answer = await kit.one(park(run, asks=(ask(3),)))
    assert answer == Moved(run.key, (grant(1, 3, kit.now),))
    await kit.expect(run, inbox=1)
    assert await held(kit) == ["r"]


async def test_a_turn_that_goes_on_finds_its_grant_in_the_inbox(kit: Kit) -> None:
    run = await kit.hold("r")
    assert await kit.one(turn(run, asks=(ask(3),))) == Applied(run.key)
    assert await kit.inbox(run) == [grant(1, 3, kit.now)]


async def test_queue_01_without_a_slot_the_run_is_parked(kit: Kit) -> None:
    await parked(kit, "one")
    run = await kit.hold("two")
    assert await kit.one(park(run, asks=(ask(),))) == Applied(run.key)
    await kit.expect(run, status=Status.SUSPENDED, owner=None, wake_at=None, listening=True)
    assert (await held(kit), await waiting(kit)) == (["one"], ["two"])
    assert await kit.inbox(run) == []
    assert await kit.claim() == []


async def test_queue_02_a_slot_that_is_given_back_wakes_the_next(kit: Kit) -> None:
    one, two = await parked(kit, "one"), await parked(kit, "two")
    three = await parked(kit, "three")
    await over(kit, one)
    await kit.expect(two, inbox=1, wake_at=kit.now)
    assert await kit.inbox(two) == [grant(1, 0, kit.now)]
    await kit.unchanged(three)
    assert (await held(kit), await waiting(kit)) == (["two"], ["three"])


async def test_queue_11_a_grant_hurries_a_run_that_would_look_much_later(kit: Kit) -> None:
    one = await parked(kit, "one")
    run = await kit.hold("two")
    await kit.apply(park(run, asks=(ask(),), wake_at=kit.now + 3600 * SECOND))
    await over(kit, one)
    assert (await kit.run("two")).wake_at == kit.now


async def test_queue_07_an_operation_asks_once(kit: Kit) -> None:
    await parked(kit, "one")
    two = await parked(kit, "two")
    two = await take(kit, two)
    await kit.apply(park(two, seen=1, asks=(ask(), ask())))
    assert await waiting(kit) == ["two"]


async def test_a_turn_gives_back_before_it_asks(kit: Kit) -> None:
    one, two = await parked(kit, "one"), await parked(kit, "two")
    one = await take(kit, one)
    await kit.apply(park(one, seen=2, releases=(0,), asks=(ask(1),)))
    assert (await held(kit), await waiting(kit)) == (["two"], ["one"])
    await over(kit, two)
    assert (await kit.inbox(one))[-1] == grant(3, 1, kit.now)


async def test_what_is_given_back_and_was_never_asked_for_is_passed_over(kit: Kit) -> None:
    run = await kit.hold("r")
    await kit.apply(turn(run, releases=(4, 5)), turn(run, asks=(ask(4),), releases=(4,)))
    assert await held(kit) == ["r"]
    await kit.apply(turn(run, releases=(4, 4)))
    assert (await gate(kit)).held == 0


async def test_a_grant_that_was_not_read_goes_with_its_slot(kit: Kit) -> None:
    run = await kit.hold("r")
    await kit.apply(turn(run, asks=(ask(3), ask(4, name="h"))))
    await kit.apply(turn(run, releases=(3,)))
    assert await kit.inbox(run) == [grant(2, 4, kit.now - 1000)]


async def test_who_waits_may_leave_the_line(kit: Kit) -> None:
    one, two, three = [await parked(kit, name) for name in ("one", "two", "three")]
    await over(kit, two)
    assert await waiting(kit) == ["three"]
    await over(kit, one)
    assert await held(kit) == ["three"]
    assert await kit.inbox(three) == [grant(1, 0, kit.now)]


async def test_a_refused_or_fenced_turn_changes_no_gate(kit: Kit) -> None:
    run = await kit.hold("r")
    await kit.write(turn(run, asks=(ask(),), n=7), park(run, asks=(ask(1, priority=2**63),)))
    assert await kit.store.gates() == []


async def test_a_gate_is_of_its_namespace(kit: Kit) -> None:
    for space in ("red", "blue"):
        run = await kit.hold(space, namespace=space)
        of(Moved, await kit.one(park(run, asks=(ask(),))))
        await kit.apply(park(run, seen=1))
    assert await held(kit, namespace="red") == ["red"]
    assert [each.key.namespace for each in await kit.store.gates()] == ["blue", "red"]


async def test_single_02_a_gate_is_of_its_key(kit: Kit) -> None:
    await parked(kit, "one", ask(key="a"))
    run = await kit.hold("two")
    of(Moved, await kit.one(park(run, asks=(ask(key="b"),))))


async def test_gates_are_listed_by_name(kit: Kit) -> None:
    await parked(kit, "one", ask(name="h"), ask(1, name="g", key="b"), ask(2, name="g", key="a"))
    found = await kit.store.gates()
    assert [(each.key.name, each.key.key) for each in found] == [("g", "a"), ("g", "b"), ("h", "")]
    assert [each.key.key for each in await kit.store.gates(name="g")] == ["a", "b"]
    assert await kit.store.gates(namespace="red") == []


async def test_a_listed_gate_says_who_and_since_when(kit: Kit) -> None:
    runs = [await parked(kit, str(number), ask(priority=number, fairness="f")) for number in range(4)]
    [found] = await kit.store.gates(limit=2)
    assert (found.held, found.waiting, found.rules) == (1, 3, ONE)
    assert [(each.run, each.held, each.priority) for each in found.tickets] == [
        (runs[0].key, True, 0),
        (runs[3].key, False, 3),
        (runs[2].key, False, 2),
    ]
    first = found.tickets[0]
    assert (first.workflow, first.seq, first.fairness) == ("work", 0, "f")
    assert runs[0].created_at < first.since < runs[1].created_at


# ---------------------------------------------------------------- ends


async def test_f20_every_end_wakes_the_next(kit: Kit) -> None:
    for name, end in (("complete", complete), ("fail", fail)):
        one = await kit.hold(name, gate=whole(name=name))
        two = await kit.create(f"{name} next", gate=whole(name=name))
        await kit.apply(end(one))
        assert (await kit.run(two.id)).wake_at == kit.now
        await kit.take(two.id)


async def test_cancel_14_cancelling_a_holder_wakes_the_next(kit: Kit) -> None:
    await kit.hold("one", gate=whole())
    two = await kit.create("two", gate=whole())
    await kit.write(Cancel("one", b'"stop"'))
    await kit.expect(two, inbox=1, wake_at=kit.now)


async def test_xto_05_a_run_that_is_out_of_time_or_dead_wakes_the_next(kit: Kit) -> None:
    for status in (Status.CANCELLED, Status.DEAD):
        one = await kit.hold(status, gate=whole(name=status))
        two = await kit.create(f"{status} next", gate=whole(name=status))
        await kit.apply(turn(one, status, error=b'"late"'))
        assert (await kit.run(two.id)).wake_at == kit.now
        await kit.take(two.id)


async def test_a_cancelled_run_leaves_the_line(kit: Kit) -> None:
    one = await kit.hold("one", gate=whole())
    await kit.create("two", gate=whole())
    three = await kit.create("three", gate=whole())
    await kit.write(Cancel("two", b'"stop"'))
    await kit.apply(complete(one))
    await kit.expect(three, inbox=1, wake_at=kit.now)


async def test_a_deleted_holder_wakes_the_next(kit: Kit) -> None:
    await kit.hold("one", gate=whole())
    two = await kit.create("two", gate=whole())
    await kit.write(Delete("one", b'"gone"'))
    await kit.expect(two, inbox=1, wake_at=kit.now)
    await kit.write(Delete("two", b'"gone"'))
    assert (await gate(kit)).held == 0


async def test_a_tree_that_is_cancelled_grants_nothing_to_its_own(kit: Kit) -> None:
    parent = await kit.hold("p", gate=whole())
    await kit.apply(Create(run=new("c", parent=Parent("p", parent.incarnation, 0), gate=whole())))
    other = await kit.create("other", gate=whole())
    await kit.write(Cancel("p", b'"stop"'))
    child = await kit.run("c")
    assert (child.status, child.inbox) == (Status.CANCELLED, 0)
    await kit.expect(other, inbox=1, wake_at=kit.now)
    assert await held(kit) == ["other"]


async def test_a_parent_is_told_before_it_is_granted_the_childs_slot(kit: Kit) -> None:
    parent = await kit.hold("p")
    await kit.apply(Create(run=new("c", parent=Parent("p", parent.incarnation, 0), awaited_as="c", gate=whole())))
    child = await kit.take("c")
    await kit.apply(park(parent, asks=(ask(7),)))
    await kit.apply(complete(child))
    assert [each.kind for each in await kit.inbox(parent)] == [MessageKind.CHILD, MessageKind.GRANT]


async def test_a_run_that_ends_gives_back_all_it_has(kit: Kit) -> None:
    run = await kit.hold("r", gate=whole())
    await kit.apply(turn(run, asks=(ask(0, name="h"), ask(1, name="h"), ask(2, name="i"))))
    next_run = await parked(kit, "next", ask(0, name="h"), ask(1, name="i"))
    await kit.apply(complete(run, seen=4))
    assert [(each.key.name, each.held, each.waiting) for each in await kit.store.gates()] == [
        ("g", 0, 0),
        ("h", 1, 0),
        ("i", 1, 0),
    ]
    assert await kit.inbox(next_run) == [grant(1, 0, kit.now), grant(2, 1, kit.now)]
    assert [each.kind for each in await kit.inbox(run)] == []


async def test_a_lost_process_keeps_its_slots_for_whoever_recovers_the_run(kit: Kit) -> None:
    run = await kit.hold("r", gate=whole())
    await kit.apply(turn(run, asks=(ask(0, name="h"),)))
    await kit.create("next", gate=whole())
    kit.clock.advance(31)
    [claimed] = await kit.claim("bob")
    assert (claimed.run.id, claimed.orphaned) == ("r", True)
    assert [each.name for each in claimed.messages] == [str(WHOLE_RUN), "0"]
    assert await held(kit, name="h") == ["r"]


async def test_released_leases_keep_their_slots(kit: Kit) -> None:
    run = await kit.hold("r", gate=whole())
    await kit.store.release("ada", leases(run))
    assert await held(kit) == ["r"]
    assert len((await kit.claim())[0].messages) == 1


async def test_a_token_wait_and_a_gate_end_together(kit: Kit) -> None:
    run = await kit.hold("r")
    await kit.apply(turn(run, waits=(TokenWait(0, "t"),), asks=(ask(1),)), to_token("t", b"1"))
    waiter = await parked(kit, "w")
    await kit.apply(complete(run, seen=1))
    await kit.expect(waiter, inbox=1, wake_at=kit.now)
