"""Gates of whole runs: who begins, who waits in line, who is not taken any more."""

from __future__ import annotations

from msgspec.structs import replace

from perdure.model.commit import (
    Applied,
    Create,
    Exists,
    Full,
    Moved,
    NewChild,
    Requeue,
)
from perdure.model.gates import WHOLE_RUN, Rules
from perdure.model.messages import MessageKind
from perdure.model.run import Status
from perdure.testing.conformance.gating import ask, gate, grant, held, waiting, whole
from perdure.testing.conformance.kit import (
    SECOND,
    Kit,
    complete,
    fail,
    ids,
    new,
    of,
    park,
    to_run,
    to_token,
    turn,
)


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


async def test_a_gated_run_that_goes_on_from_elsewhere_asks_when_it_is_claimed(kit: Kit) -> None:
    asked = whole(Rules(limit=1, depth=0))
    other = await kit.hold("other", gate=asked)
    shell = replace(other, id="r", incarnation=0, epoch=1, n=0, seen=0)
    first = park(shell, started_at=kit.now, wake_at=kit.now)
    assert isinstance(await kit.one(Create(run=new("r", gate=asked), turn=first)), Applied)
    assert (await held(kit), await waiting(kit)) == (["other"], [])
    run = await kit.take("r")
    assert run.gate == asked
    await kit.apply(park(run, asks=(asked,)))
    assert await waiting(kit) == ["r"]


async def test_what_a_run_asks_for_as_a_whole_becomes_its_gate(kit: Kit) -> None:
    run = await kit.hold("r")
    of(Moved, await kit.one(park(run, asks=(whole(),))))
    assert (await kit.run("r")).gate == whole()
    await kit.apply(fail(run, seen=1))
    await kit.write(Requeue("r"))
    assert (await kit.run("r")).gate == whole()


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
