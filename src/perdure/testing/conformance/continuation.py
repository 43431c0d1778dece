"""Continue-as-new: the next link begins in the transaction that ends the one before, with its inbox and its parent."""

from __future__ import annotations

from msgspec.structs import replace

from perdure.model.commit import Applied, Cancel, Changed, Delete, Join, NewChild, TokenWait, Unstorable
from perdure.model.messages import Message, MessageKind
from perdure.model.run import Parent, Run, Status
from perdure.testing.conformance.kit import (
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
)


async def awaited_child(kit: Kit) -> tuple[Run, Run]:
    """A parent `p` that parked on its child `c`, and the child, held."""
    parent = await kit.hold("p")
    await kit.apply(park(parent, children=(NewChild(0, new("c", awaited_as="c")),)))
    return await kit.run("p"), await kit.take("c", "bob")


async def test_can_01_the_run_completes_and_the_next_begins(kit: Kit) -> None:
    run = await kit.hold("p", namespace="red")
    successor = new(
        "p~1",
        input=b'{"n":1}',
        seed=9,
        namespace="red",
        tags=("t",),
        priority=2,
        attributes=b"{}",
        origin="shop",
        carrier=b'{"t":"1"}',
        timeout=SECOND,
    )
    assert await kit.one(turn(run, Status.COMPLETED, entries=(scheduled(0),), successor=successor)) == Applied(run.key)
    await kit.expect(
        run,
        status=Status.COMPLETED,
        owner=None,
        n=1,
        wake_at=None,
        ended_at=kit.now,
        continued_to="p~1",
    )
    following = await kit.run("p~1")
    assert following.incarnation > run.incarnation
    expected = replace(
        run,
        id="p~1",
        incarnation=following.incarnation,
        status=Status.PENDING,
        input=b'{"n":1}',
        seed=9,
        owner=None,
        epoch=0,
        wake_at=kit.now,
        deadline=kit.now + SECOND,
        timeout=SECOND,
        priority=2,
        tags=("t",),
        attributes=b"{}",
        origin="shop",
        carrier=b'{"t":"1"}',
        created_at=kit.now,
        updated_at=kit.now,
    )
    assert following == expected
    assert await kit.history(following) == []


async def test_the_chain_goes_on(kit: Kit) -> None:
    await kit.apply(complete(await kit.hold("p"), successor=new("p~1")))
    for link in range(1, 4):
        run = await kit.take(f"p~{link}")
        await kit.apply(complete(run, successor=new(f"p~{link + 1}")))
    assert [(await kit.run(run_id)).continued_to for run_id in ("p", "p~1", "p~2", "p~3", "p~4")] == [
        "p~1",
        "p~2",
        "p~3",
        "p~4",
        None,
    ]


async def test_unread_messages_move_with_it_in_order(kit: Kit) -> None:
    run = await kit.hold("p")
    await kit.apply(to_run("p", b"1"), to_run("p", b"2", name="stop"))
    at = kit.now
    await kit.apply(to_run("p", b"3"), to_run("p", b"4"))
    late = kit.now
    await kit.apply(complete(run, seen=3, consumed=(1, 3), successor=new("p~1")))
    assert await kit.inbox(run) == []
    following = await kit.run("p~1")
    assert (following.inbox, following.seen, following.status) == (2, 0, Status.PENDING)
    messages = [
        Message(1, MessageKind.SIGNAL, "stop", None, b"2", False, at),
        Message(2, MessageKind.SIGNAL, "go", None, b"4", False, late),
    ]
    assert await kit.inbox(following) == messages
    [claimed] = await kit.claim()
    assert list(claimed.messages) == messages


async def test_what_its_last_turn_sends_to_itself_moves_too(kit: Kit) -> None:
    run = await kit.hold("p")
    await kit.apply(complete(run, sends=(to_run("p", b"me").message,), successor=new("p~1")))
    assert payloads(await kit.inbox(await kit.run("p~1"))) == [b"me"]


async def test_a_cancel_that_was_seen_moves_too(kit: Kit) -> None:
    run = await kit.hold("p")
    await kit.apply(control("p"))
    await kit.apply(complete(run, seen=1, successor=new("p~1")))
    [message] = await kit.inbox(await kit.run("p~1"))
    assert (message.number, message.kind) == (1, MessageKind.CANCEL)


async def test_answers_to_operations_of_the_old_link_stay_behind(kit: Kit) -> None:
    run = await kit.hold("p")
    await kit.apply(turn(run, joins=(Join(0, "nobody"),)), to_run("p", b"1"))
    await kit.apply(complete(run, successor=new("p~1")))
    assert payloads(await kit.inbox(await kit.run("p~1"))) == [b"1"]


async def test_token_messages_go_back_to_their_token(kit: Kit) -> None:
    run = await kit.hold("p")
    await kit.apply(turn(run, waits=(TokenWait(0, "t"), TokenWait(1, "t"))), to_token("t", b"1"), to_run("p", b"2"))
    await kit.apply(complete(run, successor=new("p~1")), to_token("t", b"3"))
    following = await kit.take("p~1")
    assert payloads(await kit.inbox(following)) == [b"2"]
    await kit.apply(turn(following, waits=(TokenWait(0, "t"), TokenWait(1, "t"))))
    assert payloads(await kit.inbox(following)) == [b"2", b"1", b"3"]


async def test_children_of_the_old_link_are_not_told_of(kit: Kit) -> None:
    run = await kit.hold("p")
    await kit.apply(turn(run, children=(NewChild(0, new("c", awaited_as="c")),)))
    child = await kit.take("c", "bob")
    await kit.apply(complete(run, successor=new("p~1")))
    following = await kit.run("p~1")
    await kit.apply(complete(child))
    await kit.unchanged(following)


async def test_a_delayed_next_link(kit: Kit) -> None:
    later = kit.now + 60 * SECOND
    run = await kit.hold("p")
    await kit.apply(to_run("p"), complete(run, successor=new("p~1", start_at=later, timeout=SECOND)))
    following = await kit.run("p~1")
    assert (following.status, following.wake_at, following.deadline) == (Status.SUSPENDED, later, later + SECOND)
    assert following.inbox == 1


# ---------------------------------------------------------------- parents


async def test_the_next_link_belongs_to_the_same_parent(kit: Kit) -> None:
    parent, child = await awaited_child(kit)
    lie = new("c~1", parent=Parent("x", 1, 1), awaited_as="other")
    await kit.apply(complete(child, successor=lie))
    await kit.unchanged(parent)
    following = await kit.run("c~1")
    assert (following.parent, following.awaited_as) == (Parent("p", parent.incarnation, 0), "c")


async def test_the_parent_hears_the_end_of_the_last_link(kit: Kit) -> None:
    parent, child = await awaited_child(kit)
    await kit.apply(complete(child, successor=new("c~1")))
    await kit.apply(complete(await kit.take("c~1"), successor=new("c~2")))
    await kit.unchanged(parent)
    await kit.apply(complete(await kit.take("c~2"), b"7"))
    await kit.expect(parent, inbox=1, wake_at=kit.now)
    assert await kit.inbox(parent) == [ended_child(1, "c", b"7", kit.now)]


async def test_the_parent_hears_the_failure_of_the_last_link(kit: Kit) -> None:
    parent, child = await awaited_child(kit)
    await kit.apply(complete(child, successor=new("c~1")))
    await kit.apply(fail(await kit.take("c~1"), b'"bad"'))
    assert await kit.inbox(parent) == [ended_child(1, "c", b'"bad"', kit.now, failed=True)]


async def test_a_join_finds_the_last_live_link(kit: Kit) -> None:
    parent = await kit.hold("p")
    await kit.apply(turn(parent, children=(NewChild(0, new("c")),)))
    await kit.apply(complete(await kit.take("c", "bob"), successor=new("c~1")))
    first, last = await kit.run("c"), await kit.run("c~1")
    await kit.apply(park(parent, joins=(Join(1, "c"),)))
    await kit.unchanged(first)
    await kit.expect(last, awaited_as="c")
    await kit.apply(complete(await kit.take("c~1"), b"7"))
    assert await kit.inbox(parent) == [ended_child(1, "c", b"7", kit.now)]


async def test_a_join_finds_the_end_of_the_last_link(kit: Kit) -> None:
    parent = await kit.hold("p")
    await kit.apply(turn(parent, children=(NewChild(0, new("c")),)))
    await kit.apply(complete(await kit.take("c", "bob"), successor=new("c~1")))
    await kit.apply(complete(await kit.take("c~1"), b"7"))
    await kit.apply(turn(parent, joins=(Join(1, "c"),)))
    assert await kit.inbox(parent) == [ended_child(1, "c", b"7", kit.now)]


async def test_a_join_while_the_child_continues_in_the_same_batch(kit: Kit) -> None:
    parent = await kit.hold("p")
    await kit.apply(turn(parent, children=(NewChild(0, new("c")),)))
    child = await kit.take("c", "bob")
    await kit.apply(park(parent, joins=(Join(1, "c"),)), complete(child, successor=new("c~1")))
    assert (await kit.run("c~1")).awaited_as == "c"


# ---------------------------------------------------------------- cancels and conflicts


async def test_cancelling_an_id_that_continued_ends_the_last_link(kit: Kit) -> None:
    run = await kit.hold("p")
    await kit.apply(complete(run, successor=new("p~1")))
    first, last = await kit.run("p"), await kit.run("p~1")
    changed = of(Changed, await kit.one(Cancel("p", b'"stop"', incarnation=run.incarnation)))
    ended = await kit.expect(last, status=Status.CANCELLED, epoch=1, wake_at=None, error=b'"stop"', ended_at=kit.now)
    assert changed == Changed((ended,))
    await kit.unchanged(first)


async def test_a_turn_that_cancels_its_child_ends_the_childs_last_link(kit: Kit) -> None:
    parent = await kit.hold("p")
    await kit.apply(turn(parent, children=(NewChild(0, new("c")),)))
    await kit.apply(complete(await kit.take("c", "bob"), successor=new("c~1")))
    await kit.apply(turn(parent, cancels=("c",)))
    assert (await kit.run("c")).status is Status.COMPLETED
    assert (await kit.run("c~1")).status is Status.CANCELLED


async def test_cancelling_the_parent_ends_the_childs_last_link_and_all_below_each(kit: Kit) -> None:
    _, child = await awaited_child(kit)
    await kit.apply(
        complete(
            child,
            entries=(scheduled(0), resolved(0)),
            children=(NewChild(1, new("c.child.1")),),
            successor=new("c~1"),
        )
    )
    last = next(each.run for each in await kit.claim() if each.run.id == "c~1")
    await kit.apply(park(last, children=(NewChild(0, new("c~1.child.0")),)))
    changed = of(Changed, await kit.one(Cancel("p", b'"stop"'))).runs
    assert changed[0].id == "p"
    assert {run.id for run in changed} == {"p", "c~1", "c.child.1", "c~1.child.0"}
    assert (await kit.run("c")).status is Status.COMPLETED


async def test_a_next_link_whose_id_is_taken_cannot_be_stored(kit: Kit) -> None:
    stranger = await kit.hold("p~1", "bob")
    await kit.hold("p")
    await kit.apply(to_run("p", b"1"))
    run = await kit.run("p")
    answer = of(Unstorable, await kit.one(complete(run, entries=(scheduled(0),), seen=1, successor=new("p~1"))))
    assert "p~1" in answer.reason
    await kit.unchanged(run, stranger)
    assert await kit.history(run) == []
    assert payloads(await kit.inbox(run)) == [b"1"]


async def test_f11_a_chain_whose_rest_was_deleted_does_not_go_on_in_another_run(kit: Kit) -> None:
    await kit.apply(complete(await kit.hold("p"), successor=new("p~1")))
    await kit.write(Delete("p~1", b'"gone"'))
    stranger = await kit.hold("p~1", "bob")
    assert (await kit.run("p")).continued_to == "p~1"
    answer = await kit.one(Cancel("p", b'"stop"'))
    assert type(answer).__name__ == "Ended"
    await kit.unchanged(stranger)
