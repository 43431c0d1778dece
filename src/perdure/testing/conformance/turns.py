"""A turn is one transaction: all of it is written, or none; and how it ends depends on what came in the meantime."""

from __future__ import annotations

from msgspec.structs import replace

from perdure.model.commit import Applied, Join, Moved, NewChild, Refused, TokenWait
from perdure.model.messages import Message, MessageKind
from perdure.model.run import Parent, Status
from perdure.testing.conformance.kit import (
    LEASE,
    SECOND,
    Kit,
    complete,
    control,
    ended_child,
    fail,
    new,
    of,
    park,
    payloads,
    resolved,
    scheduled,
    to_run,
    to_token,
    turn,
    update,
)


async def test_one_turn_writes_everything_at_once(kit: Kit) -> None:
    other = await kit.hold("other")
    run = await kit.hold("r")
    await kit.apply(turn(run, children=(NewChild(0, new("doomed")),)), to_run("r", b"1"), to_run("r", b"2"))
    doomed = await kit.run("doomed")
    run = await kit.run("r")
    entries = (scheduled(0), resolved(0, b"5"), scheduled(1))
    commit = park(
        run,
        entries=entries,
        wake_at=kit.now + 9 * SECOND,
        seen=2,
        consumed=(1,),
        waits=(TokenWait(3, "t"),),
        children=(NewChild(1, new("c", awaited_as="c")),),
        cancels=("doomed",),
        sends=(to_run("other", b"hello").message,),
        values=(("k", b"v"),),
        started_at=4,
    )
    assert await kit.one(commit) == Applied(run.key)
    await kit.expect(
        run, status=Status.SUSPENDED, owner=None, n=3, seen=2, wake_at=commit.wake_at, listening=True, started_at=4
    )
    assert await kit.history(run) == list(entries)
    assert payloads(await kit.inbox(run)) == [b"2"]
    child = await kit.run("c")
    assert (child.parent, child.awaited_as) == (Parent("r", run.incarnation, 1), "c")
    assert (await kit.run(doomed.id)).status is Status.CANCELLED
    await kit.expect(other, inbox=1)
    assert await kit.value(run.incarnation, "k") == b"v"
    await kit.apply(to_token("t", b"3"))
    assert payloads(await kit.inbox(run)) == [b"2", b"3"]


async def test_a_turn_that_goes_on_keeps_its_lease(kit: Kit) -> None:
    run = await kit.hold("r")
    commit = turn(run, entries=(scheduled(0),), wake_at=5, listening=True, started_at=3)
    assert await kit.one(commit) == Applied(run.key)
    await kit.expect(run, n=1, started_at=3)


async def test_an_empty_turn_changes_nothing_else(kit: Kit) -> None:
    run = await kit.hold("r")
    assert await kit.one(turn(run)) == Applied(run.key)
    await kit.expect(run)
    assert await kit.history(run) == []


async def test_a_turn_that_parks_gives_up_its_run(kit: Kit) -> None:
    run = await kit.hold("r")
    await kit.apply(turn(run, Status.SUSPENDED, wake_at=kit.now + SECOND))
    await kit.expect(run, status=Status.SUSPENDED, owner=None, wake_at=kit.now + SECOND - 1_000)


async def test_a_blocked_turn_says_why(kit: Kit) -> None:
    run = await kit.hold("r")
    await kit.apply(turn(run, Status.BLOCKED, error=b'"why"', fingerprint="print-a", wake_at=kit.now + SECOND))
    blocked = await kit.expect(
        run,
        status=Status.BLOCKED,
        owner=None,
        wake_at=kit.now + SECOND - 1_000,
        error=b'"why"',
        fingerprint="print-a",
    )
    kit.clock.advance(2)
    again = await kit.take("r")
    await kit.apply(turn(again))
    await kit.expect(
        replace(blocked, error=None),
        status=Status.RUNNING,
        owner="ada",
        epoch=2,
        wake_at=again.wake_at,
        fingerprint=None,
    )


async def test_a_turn_that_completes(kit: Kit) -> None:
    run = await kit.hold("r")
    await kit.apply(complete(run, b"42", entries=(scheduled(0), resolved(0))))
    await kit.expect(run, status=Status.COMPLETED, owner=None, n=2, wake_at=None, output=b"42", ended_at=kit.now)


async def test_a_turn_that_does_not_complete(kit: Kit) -> None:
    for status in (Status.FAILED, Status.CANCELLED, Status.DEAD):
        run = await kit.hold(status.value)
        await kit.apply(turn(run, status, error=b'"bad"', fingerprint="ignored"))
        await kit.expect(run, status=status, owner=None, wake_at=None, error=b'"bad"', ended_at=kit.now)


async def test_the_start_is_recorded_once(kit: Kit) -> None:
    run = await kit.hold("r")
    await kit.apply(turn(run, started_at=3))
    await kit.apply(turn(run, started_at=9))
    await kit.expect(run, started_at=3)


async def test_progress_resets_the_count_of_recoveries(kit: Kit) -> None:
    await kit.hold("r")
    kit.clock.advance(31)
    run = await kit.take("r", "bob")
    assert run.recoveries == 1
    await kit.apply(turn(run, entries=(scheduled(0),), progress=False))
    run = await kit.expect(run, n=1)
    await kit.apply(turn(run, entries=(resolved(0),)))
    await kit.expect(run, n=2, recoveries=0)


# ---------------------------------------------------------------- moved


async def test_a_message_during_the_turn_keeps_it_running(kit: Kit) -> None:
    run = await kit.hold("r")
    await kit.apply(to_run("r", b"1"))
    first = kit.now
    await kit.apply(to_run("r", b"2", name="stop"))
    messages = (
        Message(1, MessageKind.SIGNAL, "go", None, b"1", False, first),
        Message(2, MessageKind.SIGNAL, "stop", None, b"2", False, kit.now),
    )
    commit = park(run, entries=(scheduled(0),), wake_at=kit.now + SECOND, waits=(TokenWait(0, "t"),), started_at=1)
    assert await kit.one(commit) == Moved(run.key, messages)
    moved = await kit.expect(run, n=1, inbox=2, started_at=1)
    assert await kit.history(run) == [scheduled(0)]
    assert await kit.one(park(moved, seen=1)) == Moved(run.key, messages[1:])
    moved = await kit.expect(moved, seen=1)
    assert await kit.one(park(moved, seen=2)) == Applied(run.key)
    await kit.expect(moved, status=Status.SUSPENDED, owner=None, seen=2, wake_at=None, listening=True)


async def test_a_turn_that_blocks_does_not_go_on_over_messages_which_stay_unread(kit: Kit) -> None:
    run = await kit.hold("r")
    await kit.apply(to_run("r"))
    blocked = turn(run, Status.BLOCKED, error=b'"why"', fingerprint="print-a")
    of(Applied, await kit.one(blocked))
    assert payloads(await kit.inbox(run)) == [b"0"]
    await kit.expect(
        run,
        status=Status.BLOCKED,
        owner=None,
        inbox=1,
        seen=0,
        wake_at=None,
        error=b'"why"',
        fingerprint="print-a",
    )


async def test_a_turn_that_goes_on_or_ends_is_not_moved(kit: Kit) -> None:
    run = await kit.hold("r")
    await kit.apply(to_run("r"))
    assert await kit.one(turn(run)) == Applied(run.key)
    assert await kit.one(complete(run)) == Applied(run.key)
    await kit.expect(
        run, status=Status.COMPLETED, owner=None, inbox=1, wake_at=None, output=b'"done"', ended_at=kit.now
    )


async def test_a_join_with_an_ended_child_keeps_the_turn_running(kit: Kit) -> None:
    run = await kit.hold("r")
    await kit.apply(turn(run, children=(NewChild(0, new("c")),)))
    await kit.apply(complete(await kit.take("c"), b"7"))
    answer = await kit.one(park(run, joins=(Join(1, "c"),)))
    assert answer == Moved(run.key, (ended_child(1, "c", b"7", kit.now),))
    await kit.expect(run, inbox=1)


async def test_a_message_kept_at_a_token_keeps_the_turn_running(kit: Kit) -> None:
    await kit.apply(to_token("t", b"early"))
    at = kit.now
    run = await kit.hold("r")
    answer = await kit.one(park(run, waits=(TokenWait(0, "t"),)))
    assert answer == Moved(run.key, (Message(1, MessageKind.SIGNAL, "", "t", b"early", False, at),))
    await kit.expect(run, inbox=1)


async def test_a_child_that_cannot_start_keeps_the_turn_running(kit: Kit) -> None:
    run = await kit.hold("r")
    await kit.hold("taken", "bob")
    [message] = of(Moved, await kit.one(park(run, children=(NewChild(0, new("taken", awaited_as="taken")),)))).messages
    assert (message.number, message.kind, message.name, message.failed) == (1, MessageKind.CHILD, "taken", True)
    await kit.expect(run, inbox=1)


async def test_a_message_to_itself_keeps_the_turn_running(kit: Kit) -> None:
    run = await kit.hold("r")
    answer = of(Moved, await kit.one(park(run, sends=(to_run("r", b"me").message,))))
    assert payloads(answer.messages) == [b"me"]
    await kit.expect(run, inbox=1)


async def test_a_message_that_was_given_back_does_not_keep_the_turn_running(kit: Kit) -> None:
    run = await kit.hold("r")
    await kit.apply(turn(run, waits=(TokenWait(0, "t"),)), to_token("t", b"1"))
    assert payloads(await kit.inbox(run)) == [b"1"]
    assert await kit.one(park(run, unwaits=(0,))) == Applied(run.key)
    await kit.expect(run, status=Status.SUSPENDED, owner=None, inbox=1, wake_at=None, listening=True)
    assert await kit.inbox(run) == []


# ---------------------------------------------------------------- refused


async def test_a_run_cannot_end_over_an_unread_cancel(kit: Kit) -> None:
    run = await kit.hold("r")
    await kit.apply(to_run("r", b"1"), control("r"))
    at = kit.now
    messages = (
        Message(1, MessageKind.SIGNAL, "go", None, b"1", False, at),
        Message(2, MessageKind.CANCEL, "", None, None, False, at),
    )
    before = await kit.run("r")
    everything = {
        "entries": (scheduled(0),),
        "children": (NewChild(0, new("c")),),
        "sends": (to_run("r").message,),
        "values": (("k", b"v"),),
        "consumed": (1,),
    }
    for commit in (complete(run), fail(run), turn(run, Status.CANCELLED), turn(run, Status.DEAD)):
        assert await kit.one(commit) == Refused(messages)
        assert await kit.one(replace(commit, **everything)) == Refused(messages[1:])
    await kit.unchanged(before)
    assert await kit.history(run) == []
    assert tuple(await kit.inbox(run)) == messages
    assert await kit.store.get("c") is None
    assert await kit.value(run.incarnation, "k") is None


async def test_a_run_cannot_continue_over_an_unread_cancel(kit: Kit) -> None:
    run = await kit.hold("r")
    await kit.apply(control("r"))
    before = await kit.run("r")
    answer = of(Refused, await kit.one(complete(run, successor=new("r~1"))))
    assert [message.kind for message in answer.messages] == [MessageKind.CANCEL]
    await kit.unchanged(before)
    assert await kit.store.get("r~1") is None


async def test_qry_a_run_cannot_end_over_an_unread_update(kit: Kit) -> None:
    run = await kit.hold("r")
    await kit.apply(update("r", b"1"))
    before = await kit.run("r")
    message = Message(1, MessageKind.UPDATE, "go", None, b"1", False, kit.now)
    for commit in (complete(run), fail(run), turn(run, Status.CANCELLED), turn(run, Status.DEAD)):
        assert await kit.one(commit) == Refused((message,))
    await kit.unchanged(before)
    assert await kit.one(complete(run, seen=1)) == Applied(run.key)


async def test_qry_a_run_leaves_an_unread_update_to_the_link_that_continues_it(kit: Kit) -> None:
    run = await kit.hold("r")
    await kit.apply(update("r", b"1"))
    assert await kit.one(complete(run, successor=new("r~1"))) == Applied(run.key)
    at = kit.now
    [message] = await kit.inbox(await kit.run("r~1"))
    assert (message.kind, message.payload, message.number) == (MessageKind.UPDATE, b"1", 1)
    assert message.at < at
    assert list(await kit.inbox(run)) == []


async def test_a_cancel_that_was_delivered_lets_the_run_end(kit: Kit) -> None:
    run = await kit.hold("r")
    await kit.apply(control("r"))
    assert await kit.one(turn(run, Status.CANCELLED, seen=1, consumed=(1,))) == Applied(run.key)
    await kit.expect(run, status=Status.CANCELLED, owner=None, inbox=1, seen=1, wake_at=None, ended_at=kit.now)


async def test_an_unread_signal_does_not_keep_a_run_from_its_end(kit: Kit) -> None:
    run = await kit.hold("r")
    await kit.apply(to_run("r"))
    assert await kit.one(fail(run)) == Applied(run.key)


async def test_a_parking_turn_hears_of_a_cancel_as_of_any_message(kit: Kit) -> None:
    run = await kit.hold("r")
    await kit.apply(control("r"))
    [message] = of(Moved, await kit.one(park(run))).messages
    assert message == Message(1, MessageKind.CANCEL, "", None, None, False, kit.now - 1_000)
    await kit.expect(run, inbox=1)
    assert run.wake_at == kit.now - 2_000 + LEASE
