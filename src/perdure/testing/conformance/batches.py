"""A batch is applied in order, each write for itself: parents and children meet in one, and bad data hurts nobody else."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from perdure.model.commit import (
    Applied,
    Cancel,
    Changed,
    Create,
    Exists,
    Fenced,
    Join,
    Moved,
    NewChild,
    Requeue,
    TokenWait,
    TurnCommit,
    Unstorable,
    Write,
)
from perdure.model.history import Event
from perdure.model.run import NewRun, Parent, Run, RunKey, Status
from perdure.testing.conformance.kit import (
    SECOND,
    Kit,
    complete,
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

#: What no store takes: half of a surrogate pair in text, an integer of more than 64 bits.
SURROGATE = "bad \ud800 text"
HUGE = 2**63


def born_done(child: NewRun, output: bytes) -> Create:
    """A run that is created and completed by one write."""
    key = RunKey(child.id, 0)
    first = TurnCommit(run=key, owner="bob", epoch=1, n=0, entries=(), status=Status.COMPLETED, output=output)
    return Create(run=child, turn=first)


def child_of(run: Run, child_id: str, seq: int = 0) -> NewRun:
    return new(child_id, parent=Parent(run.id, run.incarnation, seq), awaited_as=child_id)


async def test_an_empty_batch(kit: Kit) -> None:
    assert list(await kit.store.write([])) == []


async def test_answers_stand_where_their_writes_stood(kit: Kit) -> None:
    run = await kit.hold("a")
    answers = await kit.write(
        turn(run), Create(run=new("b")), complete(replace(run, owner="bob")), Create(run=new("a")), to_run("a")
    )
    standing = replace(await kit.run("a"), inbox=0)
    assert list(answers) == [
        Applied(run.key),
        Applied((await kit.run("b")).key),
        Fenced(standing),
        Exists(standing),
        Applied(run.key),
    ]


async def test_two_turns_of_one_run(kit: Kit) -> None:
    run = await kit.hold("r")
    await kit.apply(
        turn(run, entries=(scheduled(0),)), complete(replace(run, n=1), b"1", entries=(resolved(0), scheduled(1)))
    )
    await kit.expect(run, status=Status.COMPLETED, owner=None, n=3, wake_at=None, output=b"1", ended_at=kit.now)
    assert [entry.commit for entry in await kit.history(run)] == [0, 1, 1]


async def test_a_message_before_and_after_the_turn_that_parks(kit: Kit) -> None:
    run = await kit.hold("r")
    before = await kit.write(to_run("r", b"1"), park(run))
    assert payloads(of(Moved, before[1]).messages) == [b"1"]
    run = await kit.expect(run, inbox=1)
    await kit.apply(park(run, seen=1), to_run("r", b"2"))
    await kit.expect(run, status=Status.SUSPENDED, owner=None, inbox=2, seen=1, wake_at=kit.now, listening=True)


async def test_a_child_that_ends_before_its_parent_parks(kit: Kit) -> None:
    parent = await kit.hold("p")
    await kit.apply(turn(parent, children=(NewChild(0, child_of(parent, "c")),)))
    child = await kit.take("c")
    answers = await kit.write(complete(child, b"7"), park(parent))
    assert list(answers) == [Applied(child.key), Moved(parent.key, (ended_child(1, "c", b"7", kit.now),))]
    await kit.expect(parent, inbox=1)


async def test_a_child_that_ends_after_its_parent_parked(kit: Kit) -> None:
    parent = await kit.hold("p")
    await kit.apply(turn(parent, children=(NewChild(0, child_of(parent, "c")),)))
    child = await kit.take("c")
    await kit.apply(park(parent), fail(child, b'"bad"'))
    await kit.expect(parent, status=Status.SUSPENDED, owner=None, inbox=1, wake_at=kit.now, listening=True)
    assert await kit.inbox(parent) == [ended_child(1, "c", b'"bad"', kit.now, failed=True)]


async def test_a_child_that_is_created_and_ends_before_its_parent_parks(kit: Kit) -> None:
    parent = await kit.hold("p")
    answers = await kit.write(born_done(child_of(parent, "c"), b"7"), park(parent))
    child = await kit.run("c")
    assert list(answers) == [Applied(child.key), Moved(parent.key, (ended_child(1, "c", b"7", kit.now),))]
    assert child.status is Status.COMPLETED
    await kit.expect(parent, inbox=1)


async def test_a_child_that_is_created_and_ends_after_its_parent_parked(kit: Kit) -> None:
    parent = await kit.hold("p")
    await kit.apply(park(parent), born_done(child_of(parent, "c"), b"7"))
    await kit.expect(parent, status=Status.SUSPENDED, owner=None, inbox=1, wake_at=kit.now, listening=True)
    assert await kit.inbox(parent) == [ended_child(1, "c", b"7", kit.now)]


async def test_a_child_started_by_one_turn_and_cancelled_by_the_next(kit: Kit) -> None:
    parent = await kit.hold("p")
    await kit.apply(
        turn(parent, entries=(scheduled(0),), children=(NewChild(0, child_of(parent, "c")),)),
        fail(replace(parent, n=1), cancels=("c",)),
    )
    child = await kit.run("c")
    assert (child.status, child.epoch, child.ended_at) == (Status.CANCELLED, 1, kit.now)
    assert (await kit.run("p")).status is Status.FAILED


async def test_many_children_end_with_their_parent_in_the_batch(kit: Kit) -> None:
    parent = await kit.hold("p")
    count = 200
    await kit.apply(
        turn(parent, children=tuple(NewChild(seq, child_of(parent, f"c{seq}", seq)) for seq in range(count)))
    )
    claimed = await kit.claim("bob")
    answers = await kit.write(
        *(complete(each.run, str(index).encode()) for index, each in enumerate(claimed)), park(parent)
    )
    messages = of(Moved, answers[-1]).messages
    assert [message.number for message in messages] == list(range(1, count + 1))
    assert payloads(messages) == [str(index).encode() for index in range(count)]
    await kit.expect(parent, inbox=count)


async def test_cancel_and_last_turn_in_one_batch(kit: Kit) -> None:
    one, two = await kit.hold("one"), await kit.hold("two")
    answers = await kit.write(Cancel("one", b'"stop"'), complete(one), complete(two), Cancel("two", b'"stop"'))
    assert [type(answer).__name__ for answer in answers] == ["Changed", "Fenced", "Applied", "Ended"]
    assert (await kit.run("one")).status is Status.CANCELLED
    assert (await kit.run("two")).status is Status.COMPLETED


async def test_a_failed_run_is_requeued_in_the_batch_that_fails_it(kit: Kit) -> None:
    run = await kit.hold("r")
    answers = await kit.write(fail(run, entries=(scheduled(0),)), Requeue("r"))
    again = await kit.expect(run, status=Status.PENDING, owner=None, n=2, wake_at=kit.now)
    assert answers[1] == Changed((again,))
    assert [entry.event for entry in await kit.history(run)] == [Event.SCHEDULED, Event.REQUEUED]


# ---------------------------------------------------------------- bad data


async def test_f10_one_bad_turn_among_good_ones(kit: Kit) -> None:
    one, bad, two = await kit.hold("one"), await kit.hold("bad"), await kit.hold("two")
    for entry in (scheduled(0, due=HUGE), scheduled(0, SURROGATE), scheduled(0, at=-HUGE - 1)):
        answers = await kit.write(
            turn(one, entries=(scheduled(0),)),
            turn(bad, entries=(scheduled(0), entry)),
            turn(two, entries=(scheduled(0),)),
        )
        assert answers[0] == Applied(one.key)
        assert of(Unstorable, answers[1]).reason
        assert answers[2] == Applied(two.key)
        one, two = await kit.expect(one, n=one.n + 1), await kit.expect(two, n=two.n + 1)
        await kit.unchanged(bad)
        assert await kit.history(bad) == []
    assert await kit.one(complete(bad)) == Applied(bad.key)


async def leaves_no_run(kit: Kit, *run_ids: str) -> None:
    for run_id in run_ids:
        assert await kit.store.get(run_id) is None


async def leaves_nothing_behind(kit: Kit, **bad: Any) -> None:
    """A turn that touches everything, and then what cannot be stored, changes nothing at all."""
    await kit.apply(to_token("kept", b"kept"))
    other = await kit.hold("other", "bob")
    waiting = await kit.hold("waiting", "bob")
    run = await kit.hold("r")
    await kit.apply(turn(run, waits=(TokenWait(0, "t"),)), to_token("t", b"1"), to_run("r", b"2"))
    await kit.apply(turn(waiting, waits=(TokenWait(0, "t"), TokenWait(1, "u"))))
    await kit.apply(turn(run, children=(NewChild(1, new("live")),)))
    rows = [await kit.run(run_id) for run_id in ("r", "live", "other", "waiting")]
    inbox = await kit.inbox(run)
    commit = turn(
        rows[0],
        entries=(scheduled(0),),
        consumed=(2,),
        unwaits=(0,),
        waits=(TokenWait(2, "kept"), TokenWait(3, "w")),
        children=(NewChild(3, new("c")),),
        joins=(Join(1, "live"),),
        cancels=("live",),
        sends=(to_run("other", dedup="x").message, to_token("u").message, to_token("v", dedup="y").message),
        values=(("k", b"v"),),
    )
    assert isinstance(await kit.one(replace(commit, **bad)), Unstorable)
    await kit.unchanged(*rows)
    assert await kit.history(run) == []
    assert await kit.inbox(run) == inbox
    assert await kit.inbox(waiting) == await kit.inbox(other) == []
    assert await kit.store.get("c") is None
    assert await kit.value(run.incarnation, "k") is None
    # Tokens and ids of messages are as they were, too.
    await kit.apply(turn(other, waits=(TokenWait(0, "kept"), TokenWait(1, "v"))))
    assert payloads(await kit.inbox(other)) == [b"kept"]
    await kit.apply(
        to_token("u", b"5"), to_token("v", b"6", dedup="y"), to_run("other", b"7", dedup="x"), to_token("w", b"8")
    )
    assert payloads(await kit.inbox(waiting)) == [b"5"]
    assert payloads(await kit.inbox(other)) == [b"kept", b"6", b"7"]
    await kit.apply(turn(rows[0], unwaits=(0,)))
    assert payloads(await kit.inbox(waiting)) == [b"5", b"1"]


async def test_a_turn_whose_last_value_cannot_be_stored_leaves_nothing_behind(kit: Kit) -> None:
    await leaves_nothing_behind(kit, status=Status.SUSPENDED, values=(("k", b"v"), (SURROGATE, b"v")))


async def test_a_turn_that_cannot_continue_leaves_nothing_behind(kit: Kit) -> None:
    taken = await kit.hold("taken", "bob")
    await leaves_nothing_behind(kit, status=Status.COMPLETED, seen=2, successor=new("taken"))
    await kit.unchanged(taken)


async def test_a_turn_whose_last_child_cannot_be_stored_leaves_nothing_behind(kit: Kit) -> None:
    await leaves_nothing_behind(kit, children=(NewChild(3, new("c")), NewChild(4, new(" "))))
    await leaves_no_run(kit, "c", " ")


async def test_a_start_that_cannot_be_stored_leaves_nothing_behind(kit: Kit) -> None:
    await kit.apply(to_token("kept", b"kept"))
    other = await kit.hold("other", "bob")
    first = TurnCommit(
        run=RunKey("r", 0),
        owner="ada",
        epoch=1,
        n=0,
        entries=(scheduled(0),),
        status=Status.COMPLETED,
        waits=(TokenWait(0, "kept"),),
        children=(NewChild(1, new("c")),),
        sends=(to_run("other").message,),
        successor=new("other"),
    )
    assert isinstance(await kit.one(Create(run=new("r"), turn=first)), Unstorable)
    await leaves_no_run(kit, "r", "c")
    await kit.unchanged(other)
    await kit.apply(turn(other, waits=(TokenWait(0, "kept"),)))
    assert payloads(await kit.inbox(other)) == [b"kept"]
    assert (await kit.create("r")).n == 0


async def test_bad_data_in_every_kind_of_write(kit: Kit) -> None:
    run = await kit.hold("r")
    await kit.apply(to_run("r"))
    run = await kit.run("r")
    bad: list[Write] = [
        Create(run=new(SURROGATE)),
        Create(run=new("x", workflow=SURROGATE)),
        Create(run=new("x", tags=("fine", SURROGATE))),
        Create(run=new("x", seed=HUGE)),
        Create(run=new("x", start_at=HUGE - 1, timeout=SECOND)),
        Create(run=new("x"), messages=(to_run("x", name=SURROGATE).message,)),
        to_run("r", name=SURROGATE),
        to_token(SURROGATE),
        to_token("t", dedup=SURROGATE),
        Cancel(SURROGATE, b""),
        Requeue(SURROGATE),
        turn(run, started_at=HUGE),
        park(run, wake_at=HUGE),
        complete(run, successor=new("r~1", namespace=SURROGATE)),
        turn(run, children=(NewChild(0, new("c", origin=SURROGATE)),)),
        turn(run, Status.BLOCKED, fingerprint=SURROGATE, seen=1),
    ]
    for write, answer in zip(bad, await kit.write(*bad), strict=True):
        assert isinstance(answer, Unstorable), write
    await kit.unchanged(run)
    for run_id in ("x", "r~1", "c"):
        assert await kit.store.get(run_id) is None


async def test_bad_data_does_not_hurt_what_depends_on_its_neighbours(kit: Kit) -> None:
    parent = await kit.hold("p")
    await kit.apply(turn(parent, children=(NewChild(0, child_of(parent, "c")),)))
    child = await kit.take("c")
    answers = await kit.write(
        Create(run=new(SURROGATE)),
        complete(child, b"7"),
        to_token(SURROGATE),
        park(parent),
        to_run("p", name=SURROGATE),
    )
    assert [type(answer).__name__ for answer in answers] == [
        "Unstorable",
        "Applied",
        "Unstorable",
        "Moved",
        "Unstorable",
    ]
    await kit.expect(parent, inbox=1)


async def test_the_limits_of_64_bits_can_be_stored(kit: Kit) -> None:
    fields: dict[str, Any] = {"seed": HUGE - 1, "priority": -HUGE}
    run = await kit.hold("r", **fields)
    assert (run.seed, run.priority) == (HUGE - 1, -HUGE)
    entry = scheduled(0, at=-HUGE, due=HUGE - 1)
    await kit.apply(park(run, entries=(entry,), wake_at=HUGE - 1))
    await kit.expect(run, status=Status.SUSPENDED, owner=None, n=1, wake_at=HUGE - 1, listening=True)
    assert await kit.history(run) == [entry]
