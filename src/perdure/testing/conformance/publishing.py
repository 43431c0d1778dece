"""Publishing: the runs that an event starts, those that it feeds, and who is subscribed."""

from __future__ import annotations

import asyncio

from perdure.model.commit import Published, Unstorable
from perdure.model.events import Subscription, Trigger
from perdure.model.run import Status
from perdure.testing.conformance.events import feed, listening, publish
from perdure.testing.conformance.kit import Kit, complete, fail, new, of, payloads

# ---------------------------------------------------------------- runs that begin


async def test_evt_12_a_publish_starts_runs(kit: Kit) -> None:
    starts = (new("one", input=b"1", priority=3), new("two", version="2", tags=("t",)))
    answer = of(Published, await kit.one(publish("x", starts=starts)))
    one, two = await kit.run("one"), await kit.run("two")
    assert (answer.reached, set(answer.runs)) == (2, {one.key, two.key})
    assert (one.status, one.input, one.wake_at, one.created_at) == (Status.PENDING, b"1", kit.now, kit.now)
    assert (two.version, two.tags) == ("2", ("t",))


async def test_evt_13_a_start_whose_id_is_taken_is_passed_over(kit: Kit) -> None:
    there = await kit.create("one")
    answer = of(Published, await kit.one(publish("x", starts=(new("one"), new("two"), new("two")))))
    assert answer == Published(1, ((await kit.run("two")).key,))
    await kit.unchanged(there)


async def test_evt_14_waits_and_starts_add_up(kit: Kit) -> None:
    await listening(kit, "r")
    await listening(kit, "q")
    answer = of(Published, await kit.one(publish("x", starts=(new("s"),), feeds=(feed("f"),))))
    assert answer.reached == 4
    assert len(answer.runs) == 4


async def test_a_publish_that_cannot_be_stored_changes_nothing(kit: Kit) -> None:
    run = await listening(kit, "r")
    for bad in (publish("x", starts=(new("ok"), new(" "))), publish("x\ud800"), publish("x", starts=(new("a\ud800"),))):
        [first, answer, last] = await kit.write(publish("1", keep=None, name="no"), bad, publish("2", name="no"))
        of(Unstorable, answer)
        assert (of(Published, first).reached, of(Published, last).reached) == (0, 0)
        await kit.write(publish("1", name="no"))
        kit.clock.advance(1)
    await kit.unchanged(run)
    assert await kit.store.get("ok") is None
    assert of(Published, await kit.one(publish("x"))).reached == 1


# ---------------------------------------------------------------- feeds


async def test_evt_17_a_feed_starts_its_run_or_reaches_it(kit: Kit) -> None:
    answer = of(Published, await kit.one(publish("x", feeds=(feed("f", b"1", input=b"first"),))))
    run = await kit.run("f")
    assert answer == Published(1, (run.key,))
    assert payloads(await kit.inbox(run)) == [b"1"]
    assert await kit.one(publish("y", feeds=(feed("f", b"2", input=b"second"),))) == Published(1, (run.key,))
    assert payloads(await kit.inbox(run)) == [b"1", b"2"]
    assert (await kit.run("f")).input == b"first"


async def test_a_feed_follows_the_chain(kit: Kit) -> None:
    run = await kit.hold("f")
    await kit.apply(complete(run, successor=new("f~1")))
    following = await kit.run("f~1")
    assert await kit.one(publish("x", feeds=(feed("f", b"1"),))) == Published(1, (following.key,))
    assert payloads(await kit.inbox(following)) == [b"1"]


async def test_a_feed_goes_on_where_its_run_has_ended(kit: Kit) -> None:
    first = await kit.hold("f")
    await kit.apply(fail(first))
    answer = of(Published, await kit.one(publish("x", feeds=(feed("f", b"1"),))))
    following = await kit.run("f~1")
    assert answer == Published(1, (following.key,))
    assert payloads(await kit.inbox(following)) == [b"1"]
    assert (await kit.run("f")).continued_to == "f~1"
    await kit.apply(complete(await kit.take("f~1"), seen=1, consumed=(1,)))
    await kit.one(publish("y", feeds=(feed("f", b"2"),)))
    assert payloads(await kit.inbox(await kit.run("f~2"))) == [b"2"]


async def test_a_feed_does_not_take_a_strangers_run(kit: Kit) -> None:
    stranger = await kit.create("f", workflow="other")
    of(Unstorable, await kit.one(publish("x", feeds=(feed("f"),))))
    await kit.unchanged(stranger)
    ended = await kit.hold("g")
    await kit.apply(fail(ended))
    await kit.create("g~1")
    of(Unstorable, await kit.one(publish("x", feeds=(feed("g"),))))


async def test_two_connections_feed_one_run(kit: Kit) -> None:
    other = await kit.second()
    feeding = [publish(f"x{i}", feeds=(feed("f", str(i).encode()),)) for i in range(10)]
    await asyncio.gather(*(kit.one(each, other if i % 2 else None) for i, each in enumerate(feeding)))
    assert len(await kit.inbox(await kit.run("f"))) == 10


# ---------------------------------------------------------------- subscriptions


async def test_evt_12_subscriptions_are_kept(kit: Kit) -> None:
    one = Subscription(workflow="w", version="1", triggers=(Trigger("e"),), tags=("t",), timeout=5, origin="o")
    two = Subscription(
        workflow="w", version="2", namespace="red", triggers=(Trigger("e", 5, 3, "a.b"), Trigger("f", 7))
    )
    gone = Subscription(workflow="v", version="1", triggers=(Trigger("e"),))
    await kit.store.subscribe([one, two, gone])
    await kit.store.subscribe([Subscription(workflow="w", version="1")])
    await kit.store.subscribe([])
    await kit.reopen()
    found = await kit.store.subscriptions()
    assert {(each.namespace, each.workflow, each.version): each for each in found} == {
        (None, "w", "1"): Subscription(workflow="w", version="1"),
        ("red", "w", "2"): two,
        (None, "v", "1"): gone,
    }
    ended = Subscription(workflow="w", version="2", namespace="red")
    await kit.store.subscribe([ended])
    assert ended in await kit.store.subscriptions()
