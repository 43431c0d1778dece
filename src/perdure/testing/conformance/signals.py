"""Messages to runs: counted, kept until consumed, delivered once for each id of their own, and to the last link of a chain."""

from __future__ import annotations

from perdure.model.commit import Applied, Delete, Ended, Missing, TokenWait
from perdure.model.messages import Message, MessageKind, Outgoing
from perdure.model.run import Status
from perdure.testing.conformance.kit import (
    LEASE,
    SECOND,
    Kit,
    complete,
    control,
    fail,
    held,
    new,
    park,
    payloads,
    request,
    scheduled,
    to_run,
    to_token,
    turn,
)


async def test_a_message_carries_all_that_was_sent(kit: Kit) -> None:
    run = await kit.create("r")
    out = Outgoing(kind=MessageKind.SIGNAL, run_id="r", name="go", payload=b'{"a":1}', failed=True)
    empty = Outgoing(kind=MessageKind.CANCEL, run_id="r")
    await kit.apply(to_run("r", b""), *map(type(to_run("r")), (out, empty)))
    assert await kit.inbox(run) == [
        Message(1, MessageKind.SIGNAL, "go", None, b"", False, kit.now),
        Message(2, MessageKind.SIGNAL, "go", None, b'{"a":1}', True, kit.now),
        Message(3, MessageKind.CANCEL, "", None, None, False, kit.now),
    ]


async def test_a_message_is_counted_whatever_the_run_does(kit: Kit) -> None:
    pending = await kit.create("pending", start_at=kit.now)
    await kit.apply(to_run("pending"))
    await kit.expect(pending, inbox=1)
    running = await kit.take("pending")
    await kit.apply(to_run("pending"))
    await kit.expect(running, inbox=2)


async def test_sig_01_a_message_wakes_who_listens(kit: Kit) -> None:
    run = await kit.hold("r")
    await kit.apply(park(run, wake_at=kit.now + 60 * SECOND))
    parked = await kit.run("r")
    await kit.apply(to_run("r"))
    await kit.expect(parked, inbox=1, wake_at=kit.now)


async def test_a_message_leaves_who_does_not_listen_asleep(kit: Kit) -> None:
    sleeping, blocked = await kit.hold("sleeping"), await kit.hold("blocked")
    later = kit.now + 60 * SECOND
    await kit.apply(
        park(sleeping, wake_at=later, listening=False),
        turn(blocked, Status.BLOCKED, wake_at=later, listening=True, fingerprint="print-a"),
    )
    for run_id in ("sleeping", "blocked"):
        before = await kit.run(run_id)
        await kit.apply(to_run(run_id))
        await kit.expect(before, inbox=1)
    assert await kit.claim() == []


async def test_cancel_03_control_wakes_whoever_is_parked(kit: Kit) -> None:
    later = kit.now + 60 * SECOND
    sleeping, blocked = await kit.hold("sleeping"), await kit.hold("blocked")
    await kit.apply(
        park(sleeping, wake_at=later, listening=False),
        turn(blocked, Status.BLOCKED, wake_at=later, fingerprint="print-a"),
    )
    delayed = await kit.create("delayed", start_at=later)
    for run_id in ("sleeping", "delayed", "blocked"):
        before = await kit.run(run_id)
        await kit.apply(control(run_id))
        await kit.expect(before, inbox=1, wake_at=later if run_id == "blocked" else kit.now)
    assert {claimed.run.id for claimed in await kit.claim()} == {"sleeping", "delayed"}
    assert delayed.started_at is None


async def test_messages_stay_until_they_are_consumed(kit: Kit) -> None:
    run = await kit.hold("r")
    await kit.apply(*(to_run("r", payload) for payload in (b"1", b"2", b"3")))
    await kit.apply(turn(run, seen=3, consumed=(2,)))
    assert payloads(await kit.inbox(run)) == [b"1", b"3"]
    await kit.apply(turn(run, seen=3, consumed=(1, 3)), to_run("r", b"4"))
    assert [(message.number, message.payload) for message in await kit.inbox(run)] == [(4, b"4")]


async def test_f26_a_consumed_message_never_comes_again(kit: Kit) -> None:
    run = await kit.hold("r")
    await kit.apply(to_run("r", b"1"))
    await kit.apply(turn(run, entries=(scheduled(0),), seen=1, consumed=(1,)))
    renewer = kit.store.renewer()
    [renewal] = renewer.renew("ada", LEASE, held(run))
    renewer.close()
    assert renewal.messages == ()
    kit.clock.advance(31)
    [claimed] = await kit.claim("bob")
    assert claimed.messages == ()
    assert (claimed.run.inbox, claimed.run.seen) == (1, 1)


async def test_consuming_what_is_not_there_changes_nothing(kit: Kit) -> None:
    run = await kit.hold("r")
    await kit.apply(to_run("r", b"1"))
    run = await kit.run("r")
    await kit.apply(turn(run, consumed=(7, 99)))
    await kit.expect(run)
    assert payloads(await kit.inbox(run)) == [b"1"]


# ---------------------------------------------------------------- once


async def test_f28_the_same_message_twice_arrives_once(kit: Kit) -> None:
    run = await kit.create("r")
    assert await kit.one(to_run("r", b"1", dedup="a")) == Applied(run.key)
    before = await kit.expect(run, inbox=1)
    assert await kit.one(to_run("r", b"other", dedup="a")) == Applied()
    await kit.unchanged(before)
    await kit.apply(to_run("r", b"2", dedup="b"), to_run("r", b"3"), to_run("r", b"3"))
    assert payloads(await kit.inbox(run)) == [b"1", b"2", b"3", b"3"]


async def test_the_same_message_twice_in_a_batch(kit: Kit) -> None:
    run = await kit.create("r")
    await kit.apply(to_run("r", b"1", dedup="a"), to_run("r", b"2", dedup="a"))
    await kit.expect(run, inbox=1)
    assert payloads(await kit.inbox(run)) == [b"1"]


async def test_f28_the_same_message_is_known_after_it_was_consumed(kit: Kit) -> None:
    run = await kit.hold("r")
    await kit.apply(to_run("r", b"1", dedup="a"))
    await kit.apply(turn(run, seen=1, consumed=(1,)))
    before = await kit.run("r")
    assert await kit.one(to_run("r", b"1", dedup="a")) == Applied()
    await kit.unchanged(before)
    assert await kit.inbox(run) == []


async def test_the_same_message_is_known_after_the_run_ended(kit: Kit) -> None:
    run = await kit.hold("r")
    await kit.apply(to_run("r", b"1", dedup="a"), complete(run))
    ended = await kit.run("r")
    assert await kit.one(to_run("r", b"1", dedup="a")) == Applied()
    assert await kit.one(to_run("r", b"2", dedup="b")) == Ended(ended)
    assert await kit.one(to_run("r", b"2", dedup="b")) == Ended(ended)
    await kit.unchanged(ended)


async def test_the_same_message_is_known_after_a_restart(kit: Kit) -> None:
    run = await kit.create("r")
    await kit.apply(to_run("r", b"1", dedup="a"), to_token("t", b"1", dedup="a"))
    await kit.reopen()
    await kit.apply(to_run("r", b"1", dedup="a"), to_token("t", b"2", dedup="a"))
    assert payloads(await kit.inbox(run)) == [b"1"]
    taken = await kit.take("r")
    await kit.apply(turn(taken, waits=(TokenWait(0, "t"), TokenWait(1, "t"))))
    assert payloads(await kit.inbox(run)) == [b"1", b"1"]


async def test_an_id_of_a_message_counts_for_its_address(kit: Kit) -> None:
    one, two = await kit.create("one"), await kit.create("two")
    await kit.apply(to_run("one", b"1", dedup="a"), to_run("two", b"2", dedup="a"))
    assert payloads(await kit.inbox(one)) == [b"1"]
    assert payloads(await kit.inbox(two)) == [b"2"]


async def test_f28_a_token_message_twice_arrives_once(kit: Kit) -> None:
    run = await kit.hold("r")
    await kit.apply(
        to_token("t", b"1", dedup="a"),
        to_token("t", b"2", dedup="a"),
        to_token("u", b"3", dedup="a"),
        to_token("t", b"4", dedup="a", namespace="red"),
    )
    waits = (TokenWait(0, "t"), TokenWait(1, "t"), TokenWait(2, "u"))
    await kit.apply(turn(run, waits=waits))
    assert payloads(await kit.inbox(run)) == [b"1", b"3"]
    await kit.apply(turn(run, seen=2, consumed=(1, 2)), to_token("t", b"5", dedup="a"))
    assert await kit.inbox(run) == []
    await kit.apply(to_token("t", b"6", dedup="b"))
    assert payloads(await kit.inbox(run)) == [b"6"]


async def test_what_a_turn_sends_is_deduplicated_too(kit: Kit) -> None:
    await kit.hold("other")
    run = await kit.hold("r")
    message = to_run("other", b"1", dedup="a").message
    await kit.apply(turn(run, sends=(message,)), to_run("other", b"2", dedup="a"), turn(run, sends=(message,)))
    assert payloads(await kit.inbox(await kit.run("other"))) == [b"1"]


async def test_per_sender_order_is_kept(kit: Kit) -> None:
    other = await kit.second()
    run = await kit.create("r")
    for index in range(10):
        await kit.one(to_run("r", f"a{index}".encode()))
        await kit.one(to_run("r", f"b{index}".encode()), other)
    inbox = await kit.inbox(run)
    assert [message.number for message in inbox] == list(range(1, 21))
    assert [message.payload for message in inbox] == [f"{who}{index}".encode() for index in range(10) for who in "ab"]


# ---------------------------------------------------------------- where there is nobody


async def test_a_message_to_no_run(kit: Kit) -> None:
    assert await kit.one(to_run("nobody", dedup="a")) == Missing("nobody")
    run = await kit.create("nobody")
    assert await kit.one(to_run("nobody", dedup="a")) == Applied(run.key)
    assert payloads(await kit.inbox(run)) == [b"0"]


async def test_a_late_message_to_an_ended_run(kit: Kit) -> None:
    for status in (Status.COMPLETED, Status.FAILED, Status.CANCELLED, Status.DEAD):
        run = await kit.hold(status.value)
        await kit.apply(turn(run, status))
        ended = await kit.run(run.id)
        assert await kit.one(to_run(run.id)) == Ended(ended)
        await kit.unchanged(ended)
        assert await kit.inbox(run) == []


async def test_what_a_turn_sends_nowhere_is_dropped(kit: Kit) -> None:
    await kit.apply(fail(await kit.hold("ended")))
    ended = await kit.run("ended")
    run = await kit.hold("r")
    assert await kit.one(park(run, sends=(to_run("ended").message, to_run("nobody").message))) == Applied(run.key)
    await kit.unchanged(ended)


async def test_f11_a_reused_id_has_an_inbox_of_its_own(kit: Kit) -> None:
    await kit.hold("r")
    await kit.apply(to_run("r", b"old", dedup="a"))
    await kit.write(Delete("r", b'"gone"'))
    assert await kit.one(to_run("r", b"late")) == Missing("r")
    run = await kit.create("r")
    assert (run.inbox, await kit.inbox(run)) == (0, [])
    await kit.apply(to_run("r", b"new", dedup="a"))
    [message] = await kit.inbox(run)
    assert (message.number, message.payload) == (1, b"new")


# ---------------------------------------------------------------- along a chain


async def test_a_message_follows_the_chain(kit: Kit) -> None:
    run = await kit.hold("p")
    await kit.apply(to_run("p", b"0", dedup="zero"))
    await kit.apply(complete(run, seen=1, consumed=(1,), successor=new("p~1")))
    await kit.apply(complete(await kit.take("p~1"), successor=new("p~2")))
    last = await kit.run("p~2")
    answers = await kit.write(
        to_run("p", b"1", dedup="a"), to_run("p~1", b"2"), to_run("p~2", b"3"), to_run("p", b"x", dedup="a")
    )
    assert list(answers) == [Applied(last.key), Applied(last.key), Applied(last.key), Applied()]
    assert await kit.one(to_run("p", b"x", dedup="zero")) == Applied()
    await kit.expect(last, inbox=3, updated_at=kit.now - 1_000)
    assert payloads(await kit.inbox(last)) == [b"1", b"2", b"3"]
    await kit.apply(complete(await kit.take("p~2")))
    assert await kit.one(to_run("p")) == Ended(await kit.run("p~2"))


async def test_f11_a_message_does_not_follow_the_chain_to_a_stranger(kit: Kit) -> None:
    await kit.apply(complete(await kit.hold("p"), successor=new("p~1")))
    await kit.write(Delete("p~1", b'"gone"'))
    first = await kit.run("p")
    assert await kit.one(to_run("p")) == Ended(first)
    stranger = await kit.create("p~1")
    assert await kit.one(to_run("p")) == Ended(first)
    await kit.unchanged(first, stranger)
    assert await kit.store.next_wake(request()) == stranger.wake_at
