"""The lines at gates: who is next, how many in a time, and what a new declaration changes."""

from __future__ import annotations

from collections.abc import Sequence

from perdure.model.commit import (
    Configure,
    Create,
    TurnCommit,
)
from perdure.model.gates import FAIR_MEMORY, MOST_ADMITTED, Rules
from perdure.model.run import Status
from perdure.testing.conformance.gating import ONE, ask, gate, held, line, over, parked, waiting, whole
from perdure.testing.conformance.kit import (
    SECOND,
    Kit,
    complete,
    ids,
    new,
    request,
    turn,
)


# ---------------------------------------------------------------- order
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
