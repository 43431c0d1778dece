"""Events: a publish reaches every wait that fits, starts and feeds runs, and is kept if it concerned nobody."""

from __future__ import annotations

import asyncio
from typing import Any

from perdure.model.commit import Applied, Cancel, Moved, Published, TokenWait, Unstorable
from perdure.model.events import EventWait, Feed, Publish, facet
from perdure.model.messages import Message, MessageKind, Outgoing
from perdure.model.run import Run, Status
from perdure.testing.conformance.kit import (
    SECOND,
    Kit,
    complete,
    control,
    fail,
    new,
    of,
    park,
    payloads,
    to_token,
    turn,
)

KEEP = 3_600 * SECOND


def publish(id: str, payload: bytes = b"0", **fields: Any) -> Publish:
    """An event `e` that is kept for an hour."""
    usual: dict[str, Any] = {"name": "e", "id": id, "payload": payload, "keep": KEEP}
    return Publish(**usual | fields)


def having(**fields: Any) -> tuple[str, ...]:
    return tuple(facet(name, value) for name, value in fields.items())


def listen(seq: int = 0, event: str = "e", **match: Any) -> EventWait:
    return EventWait(seq, event, having(**match))


def feed(run_id: str, payload: bytes = b"0", **fields: Any) -> Feed:
    message = Outgoing(kind=MessageKind.SIGNAL, run_id=run_id, name="event", payload=payload, dedup=payload.decode())
    return Feed(new(run_id, **fields), message)


def by_event(number: int, payload: bytes, at: int, seq: int = 0) -> Message:
    return Message(number, MessageKind.EVENT, "e", str(seq), payload, False, at)


async def listening(kit: Kit, run_id: str, *waits: EventWait, **fields: Any) -> Run:
    """A run that is parked, waiting for events."""
    run = await kit.hold(run_id, **fields)
    assert await kit.one(park(run, listens=waits or (listen(),))) == Applied(run.key)
    return await kit.run(run_id)


async def kept(kit: Kit, event: str = "e", namespace: str = "default") -> list[bytes | None]:
    """What is kept of an event: taken out by a run of its own, which waits more often than any case publishes."""
    probe = await kit.create(f"probe {event} {namespace} {kit.now}", namespace=namespace, priority=2**31)
    [claimed] = await kit.claim("probe", limit=1, namespaces=(namespace,))
    assert claimed.run.id == probe.id
    await kit.apply(turn(claimed.run, listens=tuple(EventWait(seq, event) for seq in range(10))))
    found = payloads(await kit.inbox(probe))
    # What it read is consumed: of that nothing is given back.
    everything = tuple(range(1, len(found) + 1))
    await kit.apply(complete(await kit.run(probe.id), seen=len(found), consumed=everything, unwaits=tuple(range(10))))
    return found


# ---------------------------------------------------------------- waits


async def test_evt_01_only_the_wait_whose_match_fits_is_served(kit: Kit) -> None:
    one = await listening(kit, "one", listen(orderId=1))
    two = await listening(kit, "two", listen(orderId=2))
    answer = await kit.one(publish("x", b"p", facets=having(orderId=1, more=5)))
    assert answer == Published(1, (one.key,))
    await kit.expect(one, inbox=1, wake_at=kit.now)
    assert await kit.inbox(one) == [by_event(1, b"p", kit.now)]
    await kit.unchanged(two)
    assert await kept(kit) == []


async def test_evt_02_all_that_fit_are_served(kit: Kit) -> None:
    runs = [await listening(kit, name) for name in "abc"]
    answer = of(Published, await kit.one(publish("x", b"p", facets=having(a=1))))
    assert (answer.reached, set(answer.runs)) == (3, {run.key for run in runs})
    for run in runs:
        assert await kit.inbox(run) == [by_event(1, b"p", kit.now)]
    assert await kept(kit) == []


async def test_evt_01_every_field_of_a_match_must_fit(kit: Kit) -> None:
    await listening(kit, "r", listen(a=1, b=2))
    assert await kit.one(publish("x", facets=having(a=1), keep=None)) == Published(0)
    assert await kit.one(publish("y", facets=having(b=2, c=3), keep=None)) == Published(0)
    assert of(Published, await kit.one(publish("z", facets=having(c=3, b=2, a=1)))).reached == 1


async def test_one_run_waits_several_times(kit: Kit) -> None:
    run = await listening(kit, "r", listen(3), listen(4, x=1), listen(5, x=2))
    answer = await kit.one(publish("a", b"p", facets=having(x=1)))
    assert answer == Published(2, (run.key,))
    assert await kit.inbox(run) == [by_event(1, b"p", kit.now, 3), by_event(2, b"p", kit.now, 4)]
    assert await kit.one(publish("b", b"q", facets=having(x=1))) == Published(0)
    assert await kept(kit) == [b"q"]


async def test_a_wait_takes_one_event(kit: Kit) -> None:
    run = await listening(kit, "r")
    await kit.write(publish("a", b"1"), publish("b", b"2"))
    assert payloads(await kit.inbox(run)) == [b"1"]
    assert await kept(kit) == [b"2"]


async def test_events_and_tokens_are_apart(kit: Kit) -> None:
    run = await kit.hold("r")
    await kit.apply(park(run, listens=(listen(0),), waits=(TokenWait(1, "e"),)))
    await kit.apply(to_token("e", b"token"))
    [message] = await kit.inbox(run)
    assert (message.kind, message.token) == (MessageKind.SIGNAL, "e")
    assert await kit.one(publish("x", b"event")) == Published(1, (run.key,))
    assert payloads(await kit.inbox(run)) == [b"token", b"event"]


async def test_ns_events_live_in_their_namespace(kit: Kit) -> None:
    run = await listening(kit, "r", namespace="red")
    assert await kit.one(publish("x", b"default")) == Published(0)
    await kit.unchanged(run)
    assert of(Published, await kit.one(publish("x", b"red", namespace="red"))).reached == 1
    assert payloads(await kit.inbox(run)) == [b"red"]
    assert await kept(kit) == [b"default"]


async def test_an_event_does_not_hurry_who_does_not_listen(kit: Kit) -> None:
    run = await kit.hold("r")
    await kit.apply(park(run, listening=False, wake_at=kit.now + 60 * SECOND, listens=(listen(),)))
    parked = await kit.run("r")
    await kit.one(publish("x"))
    await kit.expect(parked, inbox=1)


async def test_an_event_reaches_a_run_that_is_held(kit: Kit) -> None:
    run = await kit.hold("r")
    await kit.apply(turn(run, listens=(listen(),)))
    assert await kit.one(publish("x", b"p")) == Published(1, (run.key,))
    moved = of(Moved, await kit.one(park(await kit.run("r"), seen=0)))
    assert payloads(moved.messages) == [b"p"]


# ---------------------------------------------------------------- what is kept


async def test_evt_03_an_event_without_a_listener_is_kept_once(kit: Kit) -> None:
    assert await kit.one(publish("x", b"p")) == Published(0)
    at = kit.now
    run = await kit.hold("r")
    assert await kit.one(park(run, listens=(listen(),))) == Moved(run.key, (by_event(1, b"p", at),))
    assert await kit.one(park(await kit.run("r"), seen=1, consumed=(1,), unwaits=(0,))) == Applied(run.key)
    assert await kept(kit) == []


async def test_evt_04_a_kept_event_that_does_not_fit_stays(kit: Kit) -> None:
    await kit.one(publish("x", b"p", facets=having(orderId=1)))
    run = await listening(kit, "r", listen(orderId=2))
    assert await kit.inbox(run) == []
    assert await kept(kit) == [b"p"]


async def test_evt_06_an_event_need_not_be_kept(kit: Kit) -> None:
    assert await kit.one(publish("x", keep=None)) == Published(0)
    assert await kept(kit) == []


async def test_evt_07_what_started_a_run_is_not_kept(kit: Kit) -> None:
    assert of(Published, await kit.one(publish("x", starts=(new("s"),)))).reached == 1
    assert of(Published, await kit.one(publish("y", feeds=(feed("f"),)))).reached == 1
    await kit.claim()
    assert await kept(kit) == []


async def test_evt_10_the_oldest_kept_event_that_fits_comes_first(kit: Kit) -> None:
    for id, x in (("a", 1), ("b", 2), ("c", 1), ("d", 2)):
        await kit.one(publish(id, id.encode(), facets=having(x=x)))
    run = await kit.hold("r")
    await kit.apply(turn(run, listens=(listen(0, x=2), listen(1), listen(2, x=2), listen(3, x=2))))
    assert payloads(await kit.inbox(run)) == [b"b", b"a", b"d"]
    assert [message.token for message in await kit.inbox(run)] == ["0", "1", "2"]
    assert await kept(kit) == [b"c"]


async def test_evt_10_of_those_with_the_first_field_fifty_are_looked_at(kit: Kit) -> None:
    misses = [publish(f"miss {i}", facets=having(kind="order", n=i)) for i in range(50)]
    others = [publish(f"other {i}", facets=having(kind="parcel", n=i)) for i in range(60)]
    await kit.write(*others, *misses, publish("hit", b"hit", facets=having(kind="order", n="hit")))
    run = await kit.hold("r")
    await kit.apply(turn(run, listens=(listen(0, kind="order", n="hit"),)))
    assert payloads(await kit.inbox(run)) == []  # the fifty-first of its kind
    await kit.apply(turn(run, listens=(listen(1, n="hit", kind="order"), listen(2, n=7))))
    assert payloads(await kit.inbox(run)) == [b"hit", b"0"]


async def test_f17_a_kept_event_is_gone_when_its_time_is_over(kit: Kit) -> None:
    await kit.one(publish("x", b"short", keep=10 * SECOND))
    await kit.one(publish("y", b"long", keep=100 * SECOND))
    kit.clock.advance(10)
    assert await kept(kit) == [b"long"]
    await kit.one(publish("z", b"late", keep=10 * SECOND))
    kit.clock.advance(20)
    await kit.one(publish("other", name="other"))
    assert await kept(kit) == []


# ---------------------------------------------------------------- ids


async def test_f26_an_id_is_published_once(kit: Kit) -> None:
    run = await listening(kit, "r", listen(0), listen(1))
    assert of(Published, await kit.one(publish("x", b"1"))).reached == 2
    assert await kit.one(publish("x", b"2")) == Published(2)
    assert payloads(await kit.inbox(run)) == [b"1", b"1"]
    await kit.reopen()
    assert await kit.one(publish("x", b"3", starts=(new("s"),))) == Published(2)
    assert await kit.store.get("s") is None
    assert await kept(kit) == []


async def test_f26_twice_in_one_batch(kit: Kit) -> None:
    assert list(await kit.write(publish("x", b"1"), publish("x", b"2"))) == [Published(0), Published(0)]
    assert await kept(kit) == [b"1"]


async def test_an_id_names_one_event(kit: Kit) -> None:
    await kit.one(publish("x"))
    of(Unstorable, await kit.one(publish("x", name="other")))
    assert await kit.one(publish("x", name="other", namespace="red")) == Published(0)
    assert await kept(kit, "other") == []


async def test_an_id_may_be_forgotten(kit: Kit) -> None:
    await kit.one(publish("x", b"1", remember=10 * SECOND))
    kit.clock.advance(5)
    assert await kit.one(publish("x", b"2")) == Published(0)
    kit.clock.advance(5)
    assert await kit.one(publish("x", b"3", name="other")) == Published(0)
    assert await kept(kit, "other") == [b"3"]
    assert await kept(kit) == [b"1"]


# ---------------------------------------------------------------- waits that end


async def test_f17_an_unread_event_is_given_back(kit: Kit) -> None:
    run = await listening(kit, "r")
    await kit.one(publish("x", b"p"))
    at = kit.now
    await kit.write(Cancel("r", b'"stop"'))
    assert (await kit.run("r")).status is Status.CANCELLED
    assert await kit.inbox(run) == []
    probe = await kit.hold("p")
    await kit.apply(turn(probe, listens=(listen(),)))
    assert await kit.inbox(probe) == [by_event(1, b"p", at)]


async def test_an_unread_event_goes_to_the_oldest_wait_that_fits(kit: Kit) -> None:
    run = await kit.hold("r")
    await kit.apply(turn(run, listens=(listen(x=1),)))
    await kit.one(publish("a", b"p", facets=having(x=1, y=2)))
    no = await listening(kit, "no", listen(x=2))
    one = await listening(kit, "one", listen(7, y=2))
    two = await listening(kit, "two")
    await kit.apply(turn(await kit.run("r"), unwaits=(0,)))  # given up, unread
    assert await kit.inbox(run) == []
    [message] = await kit.inbox(one)
    assert (message.payload, message.token) == (b"p", "7")
    await kit.unchanged(no, two)
    await kit.write(Cancel("one", b'"stop"'))
    assert payloads(await kit.inbox(two)) == [b"p"]


async def test_an_event_that_others_took_is_not_given_back(kit: Kit) -> None:
    await listening(kit, "r")
    await listening(kit, "q")
    await kit.one(publish("x"))
    await kit.write(Cancel("r", b'"stop"'), Cancel("q", b'"stop"'))
    assert await kept(kit) == []
    await listening(kit, "s")
    await kit.one(publish("y", starts=(new("started"),)))
    await kit.write(Cancel("s", b'"stop"'))
    await kit.claim()
    assert await kept(kit) == []


async def test_an_event_that_is_not_kept_is_not_given_back(kit: Kit) -> None:
    await listening(kit, "r")
    await kit.one(publish("x", keep=None))
    await kit.write(Cancel("r", b'"stop"'))
    assert await kept(kit) == []


async def test_what_is_given_back_keeps_its_place_and_its_time(kit: Kit) -> None:
    await listening(kit, "r")
    await kit.write(publish("a", b"1", keep=20 * SECOND), publish("b", b"2", keep=40 * SECOND))
    await kit.write(Cancel("r", b'"stop"'))
    run = await kit.hold("q")
    await kit.apply(turn(run, listens=(listen(),)))
    assert payloads(await kit.inbox(run)) == [b"1"]
    kit.clock.advance(20)
    await kit.write(Cancel("q", b'"stop"'))
    assert await kept(kit) == [b"2"]


async def test_f26_a_consumed_event_is_not_given_back(kit: Kit) -> None:
    run = await listening(kit, "r")
    await kit.one(publish("x"))
    claimed = await kit.take("r")
    await kit.apply(turn(claimed, seen=1, consumed=(1,), unwaits=(0,)))
    await kit.write(Cancel("r", b'"stop"'))
    assert await kit.inbox(run) == []
    assert await kept(kit) == []


async def test_a_wait_that_was_given_up_gets_nothing(kit: Kit) -> None:
    run = await kit.hold("r")
    await kit.apply(turn(run, listens=(listen(0), listen(1, x=1))))
    await kit.apply(turn(run, unwaits=(0, 1)))
    assert await kit.one(publish("a", facets=having(x=1), keep=None)) == Published(0)


async def test_a_wait_ends_with_its_run(kit: Kit) -> None:
    for end in (complete, fail):
        run = await kit.hold(end.__name__)
        await kit.apply(turn(run, listens=(listen(),)))
        await kit.apply(end(await kit.run(run.id)))
        assert await kit.one(publish(end.__name__, keep=None)) == Published(0)


async def test_continuing_gives_back_what_is_unread(kit: Kit) -> None:
    run = await kit.hold("r")
    await kit.apply(turn(run, listens=(listen(),)))
    await kit.one(publish("x", b"p"))
    await kit.apply(complete(await kit.run("r"), successor=new("r~1")))
    following = await kit.take("r~1")
    assert await kit.inbox(following) == []
    await kit.apply(turn(following, listens=(listen(),)))
    assert payloads(await kit.inbox(following)) == [b"p"]


async def test_an_end_over_a_cancel_is_refused_before_events_are_given_back(kit: Kit) -> None:
    run = await kit.hold("r")
    await kit.apply(turn(run, listens=(listen(),)), control("r"))
    await kit.one(publish("x", b"p"))
    await kit.one(complete(await kit.run("r")))
    assert len(await kit.inbox(run)) == 2


# ---------------------------------------------------------------- many, and at once


async def test_evt_02_a_thousand_waits(kit: Kit) -> None:
    run = await kit.hold("r")
    await kit.apply(turn(run, listens=tuple(listen(seq, x=seq % 2) for seq in range(1_000))))
    answer = await kit.one(publish("x", b"p", facets=having(x=1)))
    assert answer == Published(500, (run.key,))
    inbox = await kit.inbox(run)
    assert [message.number for message in inbox] == list(range(1, 501))
    assert [message.token for message in inbox] == [str(seq) for seq in range(1, 1_000, 2)]
    assert (await kit.run("r")).inbox == 500


async def test_sig_05_neither_order_loses_the_event_between_two_connections(kit: Kit) -> None:
    other = await kit.second()
    for round in range(10):
        name = f"e{round}"
        run = await kit.hold(f"r{round}")
        waiting = park(run, listens=(listen(event=name),))
        answers = await asyncio.gather(kit.one(publish(name, name=name), other), kit.one(waiting))
        inbox = await kit.inbox(run)
        assert len(inbox) == 1, answers
        await kit.write(Cancel(run.id, b'"stop"'))


async def test_f26_one_id_from_two_connections(kit: Kit) -> None:
    other = await kit.second()
    run = await listening(kit, "r", *map(listen, range(5)))
    event = publish("x", starts=(new("s"),))
    answers = await asyncio.gather(kit.one(event, other), kit.one(event))
    assert sorted(of(Published, answer).reached for answer in answers) == [6, 6]
    assert len(await kit.inbox(run)) == 5
