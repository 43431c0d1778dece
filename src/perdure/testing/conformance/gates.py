"""Gates: who holds a slot, who waits in line, and that nobody is forgotten whoever gives a slot back."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from perdure.model.commit import (
    Applied,
    Cancel,
    Configure,
    Create,
    Delete,
    Exists,
    Full,
    Moved,
    NewChild,
    Requeue,
    TokenWait,
    TurnCommit,
    Unstorable,
)
from perdure.model.gates import FAIR_MEMORY, MOST_ADMITTED, WHOLE_RUN, Ask, Rules
from perdure.model.messages import Message, MessageKind
from perdure.model.run import Parent, Run, Status
from perdure.ports.store import Gate
from perdure.testing.conformance.kit import (
    SECOND,
    Kit,
    complete,
    fail,
    ids,
    new,
    of,
    park,
    request,
    to_run,
    to_token,
    turn,
)
from perdure.testing.conformance.kit import (
    held as leases,
)

ONE = Rules(limit=1)


def ask(seq: int = 0, rules: Rules = ONE, **fields: Any) -> Ask:
    usual: dict[str, Any] = {"seq": seq, "name": "g", "rules": rules}
    return Ask(**usual | fields)


def whole(rules: Rules = ONE, **fields: Any) -> Ask:
    return ask(WHOLE_RUN, rules, **fields)


def grant(number: int, seq: int, at: int) -> Message:
    return Message(number, MessageKind.GRANT, str(seq), None, None, False, at)


async def held(kit: Kit, **which: Any) -> list[str]:
    """The ids of the runs that hold the one gate, oldest first."""
    return [ticket.run.id for ticket in (await gate(kit, **which)).tickets if ticket.held]


async def waiting(kit: Kit, **which: Any) -> list[str]:
    return [ticket.run.id for ticket in (await gate(kit, **which)).tickets if not ticket.held]


async def gate(kit: Kit, **which: Any) -> Gate:
    [found] = await kit.store.gates(**which)
    assert found.held == sum(ticket.held for ticket in found.tickets)
    assert found.held + found.waiting == len(found.tickets)
    return found


async def parked(kit: Kit, run_id: str, *asks: Ask, **fields: Any) -> Run:
    """A run that asked, and is parked, or goes on with what it was granted."""
    run = await kit.hold(run_id, **fields)
    answer = await kit.one(park(run, asks=asks or (ask(),)))
    if isinstance(answer, Moved):
        await kit.apply(park(run, seen=len(answer.messages)))
    return await kit.run(run_id)


async def take(kit: Kit, run: Run) -> Run:
    """The run, held again for a turn: it is sent something, so that it is due."""
    await kit.apply(to_run(run.id))
    return await kit.take(run.id)


async def over(kit: Kit, run: Run, *seqs: int) -> None:
    """Another turn, which gives back what the run has."""
    run = await take(kit, run)
    await kit.apply(park(run, seen=run.inbox, releases=seqs or (0,)))


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


# ---------------------------------------------------------------- whole runs


async def test_single_01_a_run_with_a_free_gate_is_due(kit: Kit) -> None:
    asked = whole()
    assert await kit.one(Create(run=new("r", gate=asked, timeout=SECOND))) == Applied((await kit.run("r")).key)
    run = await kit.run("r")
    assert (run.status, run.wake_at, run.listening) == (Status.PENDING, kit.now, False)
    assert (run.deadline, run.gate) == (kit.now + SECOND, asked)
    at = kit.now
    [claimed] = await kit.claim()
    assert claimed.messages == (grant(1, WHOLE_RUN, at),)
    assert claimed.run.gate == asked


async def test_single_02_the_second_run_waits_for_the_end_of_the_first(kit: Kit) -> None:
    one = await kit.hold("one", gate=whole())
    two = await kit.create("two", gate=whole(), timeout=SECOND)
    assert (two.status, two.wake_at, two.listening, two.deadline) == (Status.SUSPENDED, None, True, None)
    assert await kit.claim() == []
    await kit.apply(complete(one))
    await kit.expect(two, inbox=1, wake_at=kit.now, deadline=kit.now + SECOND)
    assert (await kit.take("two")).deadline == kit.now + SECOND - 1000


async def test_single_04_first_in_first_out_over_five_runs(kit: Kit) -> None:
    runs = [await kit.create(str(number), gate=whole()) for number in range(5)]
    for run in runs:
        await kit.apply(complete(await kit.take(run.id)))
    assert await waiting(kit) == []


async def test_single_05_a_limit_of_two_admits_the_two_oldest(kit: Kit) -> None:
    for number in range(4):
        await kit.create(str(number), gate=whole(Rules(limit=2)))
    assert ids(await kit.claim()) == ["0", "1"]


async def test_single_09_a_full_line_takes_no_more(kit: Kit) -> None:
    asked = whole(Rules(limit=1, depth=2))
    for name in ("one", "two", "three"):
        await kit.create(name, gate=asked)
    answer = await kit.one(Create(run=new("four", gate=asked), messages=(to_token("t").message,)))
    assert answer == Full(2)
    assert await kit.store.get("four") is None
    assert len((await gate(kit)).tickets) == 3
    assert isinstance(await kit.one(Create(run=new("two", gate=asked))), Exists)


async def test_single_09_a_depth_of_none_waiting(kit: Kit) -> None:
    asked = whole(Rules(limit=1, depth=0))
    one = await kit.hold("one", gate=asked)
    assert await kit.one(Create(run=new("two", gate=asked))) == Full(0)
    await kit.apply(complete(one))
    await kit.create("two", gate=asked)


async def test_single_10_after_an_end_there_is_room_again(kit: Kit) -> None:
    asked = whole(Rules(limit=1, depth=1))
    one = await kit.hold("one", gate=asked)
    await kit.create("two", gate=asked)
    assert await kit.one(Create(run=new("three", gate=asked))) == Full(1)
    await kit.apply(complete(one))
    await kit.create("three", gate=asked)


async def test_a_full_line_is_met_in_the_same_batch(kit: Kit) -> None:
    asked = whole(Rules(limit=1, depth=1))
    answers = await kit.write(*(Create(run=new(name, gate=asked)) for name in "abcd"))
    assert [type(answer) for answer in answers] == [Applied, Applied, Full, Full]


async def test_a_gated_run_cannot_have_had_a_turn(kit: Kit) -> None:
    first = turn(await kit.hold("other"), started_at=kit.now)
    run = new("r", gate=whole())
    of(Unstorable, await kit.one(Create(run=run, turn=first)))
    assert await kit.store.get("r") is None


async def test_a_signal_does_not_let_a_waiting_run_pass(kit: Kit) -> None:
    await kit.hold("one", gate=whole())
    two = await kit.create("two", gate=whole())
    await kit.apply(to_run("two"))
    await kit.expect(two, inbox=1, wake_at=kit.now)
    claimed = await kit.take("two")
    await kit.apply(park(claimed, seen=1, asks=(whole(),)))
    assert (await held(kit), await waiting(kit)) == (["one"], ["two"])


async def test_a_delayed_run_has_no_slot_before_it_asks(kit: Kit) -> None:
    delayed = await kit.create("r", gate=whole(), start_at=kit.now + SECOND, timeout=SECOND)
    assert (delayed.status, delayed.wake_at, delayed.listening) == (Status.SUSPENDED, delayed.wake_at, False)
    assert await kit.store.gates() == []
    kit.clock.advance(1)
    run = await kit.take("r")
    assert await kit.one(park(run, asks=(whole(),))) == Moved(run.key, (grant(1, WHOLE_RUN, kit.now),))
    await kit.expect(run, inbox=1, deadline=kit.now + SECOND)


async def test_a_delayed_run_that_waits_has_no_deadline(kit: Kit) -> None:
    one = await kit.hold("one", gate=whole())
    await kit.create("two", gate=whole(), start_at=kit.now + SECOND, timeout=SECOND)
    kit.clock.advance(1)
    two = await kit.take("two")
    await kit.apply(park(two, asks=(whole(),)))
    assert (await kit.run("two")).deadline is None
    await kit.apply(complete(one))
    assert (await kit.run("two")).deadline == kit.now + SECOND


async def test_a_child_waits_at_its_gate(kit: Kit) -> None:
    one = await kit.hold("one", gate=whole(Rules(limit=1, depth=0)))
    parent = await kit.hold("p")
    await kit.apply(park(parent, children=(NewChild(0, new("c", awaited_as="c", gate=whole())),)))
    assert (await kit.run("c")).status is Status.SUSPENDED
    await kit.apply(complete(one))
    assert ids(await kit.claim()) == ["c"]


async def test_single_a_chain_keeps_its_slot(kit: Kit) -> None:
    one = await kit.hold("one", gate=whole())
    two = await kit.create("two", gate=whole())
    await kit.apply(turn(one, asks=(ask(0, name="h"),)), to_run("one"))
    successor = complete(one, seen=2, successor=new("one~1"))
    await kit.apply(successor)
    await kit.unchanged(two)
    link = await kit.take("one~1")
    assert link.gate == whole()
    assert [(each.kind, each.name) for each in await kit.inbox(link)] == [
        (MessageKind.GRANT, str(WHOLE_RUN)),
        (MessageKind.SIGNAL, "go"),
    ]
    assert [(each.key.name, each.held, each.waiting) for each in await kit.store.gates()] == [("g", 1, 1), ("h", 0, 0)]
    await kit.apply(complete(link))
    assert await held(kit, name="g") == ["two"]
    assert (await kit.run("two")).wake_at == kit.now


async def test_f80_a_requeued_run_asks_again(kit: Kit) -> None:
    one = await kit.hold("one", gate=whole())
    two = await kit.create("two", gate=whole())
    await kit.apply(fail(one))
    await kit.write(Requeue("one"))
    assert await held(kit) == ["two"]
    claimed = await kit.claim(limit=10)
    one = next(each.run for each in claimed if each.run.id == "one")
    assert [each.messages for each in claimed if each.run.id == "one"] == [()]
    await kit.apply(park(one, seen=1, asks=(whole(),)))
    assert (await held(kit), await waiting(kit)) == (["two"], ["one"])
    two = next(each.run for each in claimed if each.run.id == "two")
    await kit.apply(complete(two, seen=1))
    assert (await kit.run("one")).wake_at == kit.now


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


# ---------------------------------------------------------------- order


async def line(kit: Kit, *asks: Ask, rules: Rules) -> list[str]:
    """The order in which runs that ask so are served, one at a time; named 0, 1 and so on."""
    first = await parked(kit, "first", ask(rules=rules, fairness="first"))
    for number, asked in enumerate(asks):
        await parked(kit, str(number), asked)
    await over(kit, first)
    order: list[str] = []
    while served := await held(kit):
        order += served
        run = await kit.take(served[0])
        await kit.apply(park(run, seen=run.inbox, releases=(0,)))
    return order


async def test_queue_04_the_greatest_priority_goes_first(kit: Kit) -> None:
    asks = [ask(priority=priority) for priority in (0, -3, 7, 0, 7)]
    assert await line(kit, *asks, rules=ONE) == ["2", "4", "0", "3", "1"]


async def test_queue_04_one_of_lower_priority_does_not_get_past(kit: Kit) -> None:
    one, _ = await parked(kit, "one"), await parked(kit, "two", ask(priority=1))
    await over(kit, one)
    await kit.take("two")
    await parked(kit, "three", ask(priority=9))
    assert (await held(kit), await waiting(kit)) == (["two"], ["three"])


async def test_queue_05_the_key_served_longest_ago_goes_first(kit: Kit) -> None:
    rules = Rules(limit=1, fair=True)
    asks = [ask(fairness=key, rules=rules) for key in ("a", "a", "a", "b", "b", "first")]
    assert await line(kit, *asks, rules=rules) == ["0", "3", "5", "1", "4", "2"]


async def test_queue_05_priority_beats_fairness(kit: Kit) -> None:
    rules = Rules(limit=1, fair=True)
    asks = [ask(fairness=key, priority=priority, rules=rules) for key, priority in (("b", 0), ("a", 1), ("a", 1))]
    assert await line(kit, *asks, rules=rules) == ["1", "2", "0"]


async def test_queue_05_a_key_is_one_key_at_all_priorities(kit: Kit) -> None:
    rules = Rules(limit=1, fair=True)
    asks = [ask(fairness=key, priority=priority, rules=rules) for key, priority in (("a", 0), ("b", 0), ("a", 1))]
    assert await line(kit, *asks, rules=rules) == ["2", "1", "0"]


async def test_queue_06_lifo_admits_the_most_recent(kit: Kit) -> None:
    rules = Rules(limit=1, lifo=True)
    assert await line(kit, *[ask(rules=rules)] * 3, rules=rules) == ["2", "1", "0"]


async def test_queue_06_lifo_among_keys_that_are_equal(kit: Kit) -> None:
    rules = Rules(limit=1, lifo=True, fair=True)
    asks = [ask(rules=rules, fairness=key) for key in "abab"]
    assert await line(kit, *asks, rules=rules) == ["3", "2", "1", "0"]


async def test_who_leaves_a_lane_first_or_last_leaves_the_others_in_order(kit: Kit) -> None:
    one = await parked(kit, "one")
    runs = [await parked(kit, str(number)) for number in range(5)]
    for gone in (0, 4, 2):
        await over(kit, runs[gone])
    await over(kit, one)
    assert (await held(kit), await waiting(kit)) == (["1"], ["3"])


async def test_fairness_remembers_so_many_services(kit: Kit) -> None:
    run = await kit.hold("r")
    rules = Rules(fair=True)
    await kit.apply(turn(run, asks=(ask(0, rules, fairness="old"),), releases=()))
    for start in range(1, FAIR_MEMORY + 1, 100):
        asks = tuple(ask(seq, rules, fairness="new") for seq in range(start, start + 100))
        await kit.apply(turn(run, asks=asks), turn(run, releases=tuple(each.seq for each in asks)))
    one = Rules(limit=1, fair=True, stamp=1)
    await kit.apply(Configure("g", one))
    blocked = await parked(kit, "young", ask(rules=one, fairness="young"))
    await parked(kit, "old", ask(rules=one, fairness="old"))
    await kit.apply(turn(run, seen=1, releases=(0,)))
    assert await held(kit) == ["young"]  # Both count as never served.
    assert (await kit.run(blocked.id)).wake_at == kit.now


# ---------------------------------------------------------------- rates


async def test_queue_03_a_rate_refuses_until_its_window_is_over(kit: Kit) -> None:
    rules = Rules(rate=2, window=SECOND)
    await parked(kit, "one", ask(rules=rules))
    opened = (await gate(kit)).tickets[0].since
    await parked(kit, "two", ask(rules=rules))
    three = await parked(kit, "three", ask(rules=rules))
    urgent = await parked(kit, "urgent", ask(rules=rules, priority=9))
    assert (await held(kit), await waiting(kit)) == (["one", "two"], ["urgent", "three"])
    assert (await gate(kit)).wake_at == opened + SECOND
    assert await kit.store.next_wake(request()) == opened + SECOND
    kit.clock.advance(0.5)
    assert await kit.claim() == []
    kit.clock.advance(0.6)
    assert ids(await kit.claim()) == ["three", "urgent"]
    assert (await kit.run("three")).inbox == three.inbox + 1
    assert (await kit.run("urgent")).inbox == urgent.inbox + 1
    assert (await gate(kit)).wake_at is None


async def test_queue_03_priority_goes_first_in_the_next_window(kit: Kit) -> None:
    rules = Rules(rate=1, window=SECOND)
    for name, priority in (("one", 0), ("two", 0), ("three", 4)):
        await parked(kit, name, ask(rules=rules, priority=priority))
    kit.clock.advance(1)
    assert ids(await kit.claim()) == ["three"]
    kit.clock.advance(1)
    assert ids(await kit.claim(limit=1)) == ["two"]


async def test_a_rate_and_a_limit_hold_together(kit: Kit) -> None:
    rules = Rules(limit=1, rate=1, window=SECOND)
    one = await parked(kit, "one", ask(rules=rules))
    await parked(kit, "two", ask(rules=rules))
    assert (await gate(kit)).wake_at is None
    await over(kit, one)
    assert (await gate(kit)).wake_at is not None
    assert await waiting(kit) == ["two"]
    kit.clock.advance(1)
    assert ids(await kit.claim()) == ["two"]


async def test_a_window_begins_with_who_is_admitted_in_it(kit: Kit) -> None:
    rules = Rules(rate=1, window=SECOND)
    await parked(kit, "one", ask(rules=rules))
    kit.clock.advance(5)
    await parked(kit, "two", ask(rules=rules))
    opened = kit.now
    await parked(kit, "three", ask(rules=rules))
    assert await waiting(kit) == ["three"]
    assert opened <= ((await gate(kit)).wake_at or 0) <= kit.now + SECOND


async def test_a_due_gate_is_looked_at_by_any_claim(kit: Kit) -> None:
    rules = Rules(rate=1, window=SECOND)
    await parked(kit, "one", ask(rules=rules), namespace="red")
    two = await parked(kit, "two", ask(rules=rules), namespace="red")
    kit.clock.advance(1)
    other = await kit.second()
    assert await kit.claim("bob", store=other, namespaces=("blue",)) == []
    await kit.expect(two, inbox=1, wake_at=kit.now)


async def test_a_gate_admits_in_parts(kit: Kit) -> None:
    run = await kit.hold("r")
    count = MOST_ADMITTED + 3
    await kit.apply(turn(run, asks=tuple(ask(seq, Rules(limit=0)) for seq in range(count))))
    await kit.apply(Configure("g", Rules(stamp=1)))
    at = kit.now
    [found] = await kit.store.gates()
    assert (found.held, found.waiting, found.wake_at) == (MOST_ADMITTED, 3, at)
    assert await kit.claim() == []
    [found] = await kit.store.gates()
    assert (found.held, found.waiting, found.wake_at) == (count, 0, None)


# ---------------------------------------------------------------- rules


async def test_more_room_admits_those_that_wait(kit: Kit) -> None:
    await parked(kit, "one")
    runs = [await parked(kit, name) for name in ("two", "three", "four")]
    await kit.apply(Configure("g", Rules(limit=3, stamp=1)))
    assert await held(kit) == ["one", "two", "three"]
    await kit.expect(runs[1], inbox=1, wake_at=kit.now)
    await kit.unchanged(runs[2])


async def test_less_room_takes_nothing_from_those_that_hold(kit: Kit) -> None:
    one, _ = [await parked(kit, name, ask(rules=Rules(limit=2))) for name in ("one", "two")]
    await kit.apply(Configure("g", Rules(limit=1, stamp=1)))
    await parked(kit, "three")
    await over(kit, one)
    assert (await held(kit), await waiting(kit)) == (["two"], ["three"])


async def test_the_newest_declaration_counts(kit: Kit) -> None:
    await kit.apply(Configure("g", Rules(limit=2, stamp=5)), Configure("g", Rules(limit=9, stamp=5)))
    await parked(kit, "one", ask(rules=Rules(limit=7, stamp=4)))
    assert (await gate(kit)).rules.limit == 2
    await parked(kit, "two", ask(rules=Rules(limit=7, stamp=6)))
    assert (await gate(kit)).rules.limit == 7


async def test_a_declaration_is_for_its_namespace_or_for_all(kit: Kit) -> None:
    await parked(kit, "one", namespace="red")
    await kit.apply(Configure("g", Rules(limit=2, stamp=1), "blue"))
    await kit.apply(Configure("g", Rules(limit=3, stamp=2)))
    found = await kit.store.gates()
    assert [(each.key.namespace, each.rules.limit) for each in found] == [("blue", 3), ("default", 3), ("red", 3)]


async def test_a_new_order_is_for_those_that_wait_already(kit: Kit) -> None:
    one = await parked(kit, "one")
    for name, key in (("two", "a"), ("three", "a"), ("four", "b")):
        await parked(kit, name, ask(fairness=key))
    await kit.apply(Configure("g", Rules(limit=1, lifo=True, stamp=1)))
    await over(kit, one)
    assert await held(kit) == ["four"]
    await kit.apply(Configure("g", Rules(limit=2, fair=True, stamp=2)))
    assert await held(kit) == ["four", "two"]


async def test_a_gate_that_need_not_last_is_forgotten(kit: Kit) -> None:
    rules = Rules(limit=1, lasting=False)
    one = await kit.hold("one", gate=whole(rules))
    two = await kit.create("two", gate=whole(rules))
    await kit.apply(complete(one))
    assert await held(kit) == ["two"]
    await kit.apply(complete(await kit.take("two"), seen=1))
    assert await kit.store.gates() == []
    assert (await kit.run(two.id)).status is Status.COMPLETED


async def test_a_gate_with_an_open_window_is_forgotten_later(kit: Kit) -> None:
    rules = Rules(rate=1, window=SECOND, lasting=False)
    one = await kit.hold("one", gate=whole(rules))
    await kit.apply(complete(one))
    assert (await gate(kit)).wake_at is not None
    kit.clock.advance(1)
    assert await kit.claim() == []
    assert await kit.store.gates() == []


async def test_two_connections_never_admit_more_than_the_limit(kit: Kit) -> None:
    other = await kit.second()
    asked = whole(Rules(limit=2))
    for number in range(3):
        await kit.one(Create(run=new(f"a{number}", gate=asked)))
        await kit.one(Create(run=new(f"b{number}", gate=asked)), other)
    assert len(await held(kit)) == 2
    for _ in range(6):
        mine, theirs = await kit.claim(limit=1), await kit.claim("bob", store=other, limit=1)
        assert len(await held(kit)) <= 2
        turns: Sequence[TurnCommit] = [complete(each.run, seen=each.run.inbox) for each in (*mine, *theirs)]
        for each in turns:
            await kit.one(each, other if each.owner == "ada" else None)
    assert (await gate(kit)).tickets == ()
