"""Tokens: a message finds whoever waits for it, whichever came first, and goes to the next if that one waits no more."""

from __future__ import annotations

from hashlib import sha512

from perdure.model.commit import Applied, Cancel, Create, Delete, Moved, TokenWait
from perdure.model.messages import Message, MessageKind
from perdure.model.run import Parent, Run, Status
from perdure.testing.conformance.kit import (
    Kit,
    complete,
    control,
    fail,
    new,
    of,
    park,
    payloads,
    to_run,
    to_token,
    turn,
)


def by_token(number: int, payload: bytes, at: int, token: str = "t") -> Message:
    return Message(number, MessageKind.SIGNAL, "", token, payload, False, at)


async def waiting(kit: Kit, run_id: str, *seqs: int, token: str = "t") -> Run:
    """A run that is parked, waiting for a token."""
    run = await kit.hold(run_id)
    await kit.apply(park(run, waits=tuple(TokenWait(seq, token) for seq in seqs or (0,))))
    return await kit.run(run_id)


async def kept(kit: Kit, token: str = "t", namespace: str = "default") -> list[bytes | None]:
    """What is kept at a token: taken out by a run of its own, which looks once for more than any case sends."""
    probe = await kit.create(f"probe {token} {namespace} {kit.now}", namespace=namespace, priority=2**31)
    [claimed] = await kit.claim("probe", limit=1, namespaces=(namespace,))
    assert claimed.run.id == probe.id
    await kit.apply(turn(claimed.run, waits=tuple(TokenWait(seq, token) for seq in range(10))))
    found = payloads(await kit.inbox(probe))
    await kit.write(Delete(probe.id, b"1"))
    return found


async def test_f16_the_message_comes_first(kit: Kit) -> None:
    await kit.apply(to_token("t", b"1"))
    at = kit.now
    run = await kit.hold("r")
    answer = await kit.one(park(run, waits=(TokenWait(0, "t"),)))
    assert answer == Moved(run.key, (by_token(1, b"1", at),))
    assert await kit.one(park(await kit.run("r"), seen=1, consumed=(1,), unwaits=(0,))) == Applied(run.key)
    assert await kept(kit) == []


async def test_f16_the_wait_comes_first(kit: Kit) -> None:
    run = await waiting(kit, "r")
    assert await kit.one(to_token("t", b"1")) == Applied(run.key)
    await kit.expect(run, inbox=1, wake_at=kit.now)
    assert await kit.inbox(run) == [by_token(1, b"1", kit.now)]
    assert await kept(kit) == []


async def test_sig_05_neither_order_loses_the_message_between_two_connections(kit: Kit) -> None:
    other = await kit.second()
    run = await kit.hold("r")
    await kit.apply(turn(run))
    assert await kit.one(to_token("t", b"1"), other) == Applied()
    moved = of(Moved, await kit.one(park(run, waits=(TokenWait(0, "t"),))))
    assert payloads(moved.messages) == [b"1"]
    assert await kept(kit) == []


async def test_sig_03_messages_are_kept_first_in_first_out(kit: Kit) -> None:
    answers = await kit.write(to_token("t", b"1"), to_token("t", b"2"), to_token("u", b"x"), to_token("t", b"3"))
    assert list(answers) == [Applied()] * 4
    run = await kit.hold("r")
    await kit.apply(turn(run, waits=(TokenWait(0, "t"),)))
    assert payloads(await kit.inbox(run)) == [b"1"]
    await kit.apply(turn(run, waits=(TokenWait(1, "t"), TokenWait(2, "t"))))
    assert payloads(await kit.inbox(run)) == [b"1", b"2", b"3"]
    assert await kept(kit, "u") == [b"x"]


async def test_a_wait_takes_one_message(kit: Kit) -> None:
    run = await waiting(kit, "r")
    await kit.apply(to_token("t", b"1"), to_token("t", b"2"))
    assert payloads(await kit.inbox(run)) == [b"1"]
    await kit.expect(run, inbox=1, wake_at=kit.now)
    assert await kept(kit) == [b"2"]


async def test_two_runs_wait_and_the_older_is_served_first(kit: Kit) -> None:
    one = await waiting(kit, "one")
    two = await waiting(kit, "two")
    await kit.apply(to_token("t", b"1"))
    assert payloads(await kit.inbox(one)) == [b"1"]
    await kit.unchanged(two)
    await kit.apply(to_token("t", b"2"), to_token("t", b"3"))
    assert payloads(await kit.inbox(one)) == [b"1"]
    assert payloads(await kit.inbox(two)) == [b"2"]
    assert await kept(kit) == [b"3"]


async def test_one_run_waits_twice(kit: Kit) -> None:
    run = await waiting(kit, "r", 0, 1)
    await kit.apply(to_token("t", b"1"), to_token("t", b"2"), to_token("t", b"3"))
    assert payloads(await kit.inbox(run)) == [b"1", b"2"]
    assert await kept(kit) == [b"3"]


async def test_ns_tokens_live_in_their_namespace(kit: Kit) -> None:
    run = await waiting(kit, "r")
    await kit.apply(to_token("t", b"red", namespace="red"))
    await kit.unchanged(run)
    assert await kept(kit, namespace="red") == [b"red"]
    await kit.apply(to_token("t", b"default"))
    assert payloads(await kit.inbox(run)) == [b"default"]


async def test_a_run_waits_in_its_own_namespace(kit: Kit) -> None:
    run = await kit.hold("r", namespace="red")
    await kit.apply(turn(run, waits=(TokenWait(0, "t"),)), to_token("t", b"default"))
    assert await kit.inbox(run) == []
    await kit.apply(to_token("t", b"red", namespace="red"))
    assert payloads(await kit.inbox(run)) == [b"red"]


async def test_a_message_to_a_run_serves_no_token(kit: Kit) -> None:
    run = await waiting(kit, "r")
    await kit.apply(to_run("r", b"direct", name="t"), to_token("t", b"token"))
    assert payloads(await kit.inbox(run)) == [b"direct", b"token"]


async def test_a_token_message_does_not_hurry_who_does_not_listen(kit: Kit) -> None:
    run = await kit.hold("r")
    await kit.apply(park(run, listening=False, wake_at=kit.now + 60_000_000, waits=(TokenWait(0, "t"),)))
    parked = await kit.run("r")
    await kit.apply(to_token("t"))
    await kit.expect(parked, inbox=1)


# ---------------------------------------------------------------- waits that end


async def test_a_wait_that_ends_takes_no_more_messages(kit: Kit) -> None:
    run = await kit.hold("r")
    await kit.apply(turn(run, waits=(TokenWait(0, "t"), TokenWait(1, "u"))))
    await kit.apply(turn(run, unwaits=(0,)))
    await kit.apply(to_token("t", b"1"), to_token("u", b"2"))
    assert payloads(await kit.inbox(run)) == [b"2"]
    assert await kept(kit) == [b"1"]


async def test_a_wait_that_came_after_its_message_gives_it_back_too(kit: Kit) -> None:
    run = await kit.hold("r")
    await kit.apply(to_token("t", b"1"), turn(run, waits=(TokenWait(0, "t"),)))
    assert payloads(await kit.inbox(run)) == [b"1"]
    await kit.apply(turn(run, unwaits=(0,)))
    assert await kit.inbox(run) == []
    assert await kept(kit) == [b"1"]


async def test_a_wait_ends_once(kit: Kit) -> None:
    run = await kit.hold("r")
    await kit.apply(turn(run, waits=(TokenWait(0, "t"), TokenWait(1, "t"))))
    await kit.apply(turn(run, unwaits=(0, 0, 7)), turn(run, unwaits=(0,)))
    await kit.apply(to_token("t", b"1"), complete(run))
    assert await kept(kit) == [b"1"]


async def test_a_wait_that_ends_gives_its_message_back(kit: Kit) -> None:
    run = await waiting(kit, "r")
    await kit.apply(to_token("t", b"1"))
    at = kit.now
    await kit.apply(to_token("t", b"2"))
    run = await kit.take("r")
    await kit.apply(turn(run, unwaits=(0,)))
    assert await kit.inbox(run) == []
    next_run = await kit.hold("next")
    await kit.apply(turn(next_run, waits=(TokenWait(0, "t"),)))
    assert await kit.inbox(next_run) == [by_token(1, b"1", at)]
    assert await kept(kit) == [b"2"]


async def test_a_wait_that_ends_gives_its_message_to_the_next_wait(kit: Kit) -> None:
    await waiting(kit, "one")
    two = await waiting(kit, "two")
    await kit.apply(to_token("t", b"1"))
    at = kit.now
    one = await kit.take("one")
    await kit.apply(park(one, unwaits=(0,), seen=1))
    await kit.expect(two, inbox=1, wake_at=kit.now)
    assert await kit.inbox(two) == [by_token(1, b"1", at)]
    assert await kept(kit) == []


async def test_a_wait_that_ends_gives_its_message_to_the_same_runs_next_wait(kit: Kit) -> None:
    run = await kit.hold("r")
    await kit.apply(turn(run, waits=(TokenWait(0, "t"), TokenWait(1, "t"))), to_token("t", b"1"))
    await kit.apply(turn(run, unwaits=(0,)))
    assert payloads(await kit.inbox(run)) == [b"1"]
    assert [message.number for message in await kit.inbox(run)] == [2]
    await kit.apply(to_token("t", b"2"))
    assert payloads(await kit.inbox(run)) == [b"1"]
    assert await kept(kit) == [b"2"]


async def test_a_wait_of_the_same_turn_takes_what_was_given_back(kit: Kit) -> None:
    run = await kit.hold("r")
    await kit.apply(turn(run, waits=(TokenWait(0, "t"),)), to_token("t", b"1"))
    moved = of(Moved, await kit.one(park(run, seen=1, unwaits=(0,), waits=(TokenWait(1, "t"),))))
    assert [(message.number, message.payload) for message in moved.messages] == [(2, b"1")]
    await kit.expect(run, inbox=2, seen=1)


async def test_a_consumed_message_is_not_given_back(kit: Kit) -> None:
    run = await kit.hold("r")
    await kit.apply(turn(run, waits=(TokenWait(0, "t"),)), to_token("t", b"1"))
    await kit.apply(turn(run, seen=1, consumed=(1,), unwaits=(0,)))
    assert await kit.inbox(run) == []
    assert await kept(kit) == []


async def test_a_message_consumed_before_its_wait_ends_is_not_given_back(kit: Kit) -> None:
    run = await kit.hold("r")
    await kit.apply(turn(run, waits=(TokenWait(0, "t"),)), to_token("t", b"1"))
    await kit.apply(turn(run, seen=1, consumed=(1,)))
    await kit.apply(complete(run, unwaits=(0,)))
    assert await kept(kit) == []


async def test_messages_given_back_keep_their_order(kit: Kit) -> None:
    run = await kit.hold("r")
    await kit.apply(turn(run, waits=(TokenWait(5, "t"), TokenWait(3, "t"), TokenWait(4, "u"))))
    await kit.apply(
        *(to_token(token, payload) for token, payload in [("t", b"1"), ("u", b"x"), ("t", b"2"), ("t", b"3")])
    )
    await kit.apply(complete(run))
    assert await kept(kit) == [b"1", b"2", b"3"]
    assert await kept(kit, "u") == [b"x"]


async def test_messages_given_back_one_by_one_stand_where_they_stood(kit: Kit) -> None:
    run = await kit.hold("r")
    await kit.apply(turn(run, waits=(TokenWait(0, "t"), TokenWait(1, "t"), TokenWait(2, "t"))))
    await kit.apply(*(to_token("t", payload) for payload in (b"1", b"2", b"3", b"4")))
    for seq, left in ((1, [b"1", b"3"]), (0, [b"3"]), (2, [])):
        await kit.apply(turn(run, unwaits=(seq,)))
        assert payloads(await kit.inbox(run)) == left
    assert await kept(kit) == [b"1", b"2", b"3", b"4"]


async def test_a_run_that_ends_gives_back_what_it_did_not_read(kit: Kit) -> None:
    for end in (complete, fail):
        token = end.__name__
        run = await kit.hold(token)
        await kit.apply(turn(run, waits=(TokenWait(0, token),)), to_token(token, b"1"), to_run(token, b"direct"))
        await kit.apply(end(run))
        assert payloads(await kit.inbox(run)) == [b"direct"]
        assert await kept(kit, token) == [b"1"]


async def test_a_run_that_ends_waits_no_more(kit: Kit) -> None:
    for end in (complete, fail):
        token = end.__name__
        run = await kit.hold(token)
        await kit.apply(turn(run, waits=(TokenWait(0, token),)))
        await kit.apply(end(run), to_token(token, b"1"))
        assert await kit.inbox(run) == []
        assert await kept(kit, token) == [b"1"]


async def test_a_run_that_ends_hands_over_to_the_next_wait(kit: Kit) -> None:
    one = await kit.hold("one")
    await kit.apply(turn(one, waits=(TokenWait(0, "t"),)), to_token("t", b"1"))
    two = await waiting(kit, "two")
    await kit.apply(complete(one))
    await kit.expect(two, inbox=1, wake_at=kit.now)
    assert payloads(await kit.inbox(two)) == [b"1"]


async def test_a_cancelled_run_gives_back_what_it_did_not_read(kit: Kit) -> None:
    run = await waiting(kit, "r", 0, 1)
    await kit.apply(to_token("t", b"1"))
    await kit.write(Cancel("r", b'"stop"'))
    assert (await kit.run("r")).status is Status.CANCELLED
    assert await kit.inbox(run) == []
    await kit.apply(to_token("t", b"2"))
    assert await kept(kit) == [b"1", b"2"]


async def test_a_cancelled_tree_hands_nothing_to_its_own(kit: Kit) -> None:
    parent = await kit.hold("p")
    await kit.apply(Create(run=new("c", parent=Parent("p", parent.incarnation, 0))))
    child = await kit.take("c")
    await kit.apply(turn(parent, waits=(TokenWait(0, "t"),)), to_token("t", b"1"))
    await kit.apply(turn(child, waits=(TokenWait(0, "t"),)))
    await kit.write(Cancel("p", b'"stop"'))
    assert (await kit.run("c")).inbox == 0
    assert await kept(kit) == [b"1"]


async def test_a_deleted_run_gives_back_what_it_did_not_read(kit: Kit) -> None:
    await waiting(kit, "r", 0, 1)
    await kit.apply(to_token("t", b"1"))
    await kit.write(Delete("r", b'"gone"'))
    await kit.apply(to_token("t", b"2"))
    assert await kept(kit) == [b"1", b"2"]


async def test_a_refused_turn_leaves_its_waits(kit: Kit) -> None:
    run = await kit.hold("r")
    await kit.apply(turn(run, waits=(TokenWait(0, "t"), TokenWait(1, "u"))), to_token("t", b"1"), control("r"))
    await kit.write(complete(run, unwaits=(0, 1)))
    assert payloads(await kit.inbox(run)) == [b"1", None]
    await kit.apply(to_token("u", b"2"))
    assert payloads(await kit.inbox(run)) == [b"1", None, b"2"]


async def test_names_of_the_greatest_size_are_kept(kit: Kit) -> None:
    """Three of 800 bytes, which nothing makes shorter: what `perdure.model.ids` lets through."""
    namespace, token, dedup = (
        "".join(sha512(f"{name}{part}".encode()).hexdigest() for part in range(7))[:800] for name in "abc"
    )
    assert len(token) == 800
    for _ in range(2):
        await kit.apply(to_token(token, b"1", dedup=dedup, namespace=namespace))
    run = await kit.hold("r", namespace=namespace)
    moved = of(Moved, await kit.one(park(run, waits=(TokenWait(0, token),))))
    assert payloads(moved.messages) == [b"1"]
