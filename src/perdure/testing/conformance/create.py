"""Creating runs: once for an id, with or without a first turn, now or later."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from perdure.model.commit import Applied, Create, Ended, Exists, Moved, NewChild, TokenWait, TurnCommit, Unstorable
from perdure.model.messages import Message, MessageKind
from perdure.model.run import Parent, Run, RunKey, Status
from perdure.testing.conformance.kit import (
    LEASE,
    SECOND,
    Kit,
    complete,
    ids,
    new,
    of,
    payloads,
    resolved,
    scheduled,
    to_run,
    to_token,
)


def first(status: Status = Status.RUNNING, **fields: Any) -> TurnCommit:
    """A first turn, made before its run exists."""
    usual: dict[str, Any] = {"run": RunKey("r", 0), "owner": "ada", "epoch": 1, "n": 0, "status": status, "entries": ()}
    return TurnCommit(**usual | fields)


def fresh(now: int, incarnation: int) -> Run:
    """The row of a run `r` that was created with nothing said."""
    return Run(
        id="r",
        incarnation=incarnation,
        workflow="work",
        version="1",
        namespace="default",
        status=Status.PENDING,
        input=b"{}",
        seed=7,
        output=None,
        error=None,
        owner=None,
        epoch=0,
        n=0,
        inbox=0,
        seen=0,
        wake_at=now,
        listening=False,
        deadline=None,
        timeout=None,
        priority=None,
        tags=(),
        attributes=None,
        origin=None,
        carrier=None,
        parent=None,
        awaited_as=None,
        depth=0,
        format=1,
        recoveries=0,
        fingerprint=None,
        created_at=now,
        started_at=None,
        updated_at=now,
        ended_at=None,
        continued_to=None,
    )


async def test_a_new_run_is_pending_and_due_now(kit: Kit) -> None:
    run = await kit.create("r")
    assert run == fresh(kit.now, run.incarnation)
    assert run.incarnation > 0


async def test_every_field_a_caller_decides_is_kept(kit: Kit) -> None:
    parent = Parent("up", 77, 3)
    run = await kit.create(
        "r",
        workflow="other",
        version="2.0",
        input=b'{"a":1}',
        seed=2**63 - 1,
        namespace="blue",
        priority=-3,
        tags=("a", "b"),
        attributes=b'{"k":"v"}',
        origin="shop",
        carrier=b'{"t":"1"}',
        parent=parent,
        awaited_as="r",
        depth=4,
        timeout=90 * SECOND,
    )
    assert run == replace(
        fresh(kit.now, run.incarnation),
        workflow="other",
        version="2.0",
        input=b'{"a":1}',
        seed=2**63 - 1,
        namespace="blue",
        priority=-3,
        tags=("a", "b"),
        attributes=b'{"k":"v"}',
        origin="shop",
        carrier=b'{"t":"1"}',
        parent=parent,
        awaited_as="r",
        depth=4,
        timeout=90 * SECOND,
        deadline=kit.now + 90 * SECOND,
    )


async def test_start_07_absent_priority_stays_absent(kit: Kit) -> None:
    assert (await kit.create("seven", priority=7)).priority == 7
    assert (await kit.create("none")).priority is None
    assert (await kit.create("zero", priority=0)).priority == 0


async def test_store_04_an_id_is_taken_once(kit: Kit) -> None:
    run = await kit.create("r")
    answer = await kit.one(Create(run=new("r", input=b"other", tags=("x",))))
    assert answer == Exists(run)
    await kit.unchanged(run)


async def test_start_04_an_ended_run_keeps_its_id(kit: Kit) -> None:
    run = await kit.hold("r")
    await kit.apply(complete(run, b"1"))
    ended = await kit.run("r")
    assert of(Exists, await kit.one(Create(run=new("r", input=b"other")))).run == ended
    assert ended.output == b"1"


async def test_ids_conflict_within_a_batch(kit: Kit) -> None:
    answers = await kit.write(Create(run=new("r", input=b"1")), Create(run=new("r", input=b"2")))
    run = await kit.run("r")
    assert list(answers) == [Applied(run.key), Exists(run)]
    assert run.input == b"1"


async def test_start_11_a_delayed_run_sleeps_until_its_start(kit: Kit) -> None:
    start_at = kit.now + 5 * SECOND
    run = await kit.create("r", start_at=start_at, timeout=SECOND)
    assert run == replace(
        fresh(kit.now, run.incarnation),
        status=Status.SUSPENDED,
        wake_at=start_at,
        timeout=SECOND,
        deadline=start_at + SECOND,
    )
    assert await kit.claim() == []
    kit.clock.set(start_at - 2_000)
    assert await kit.claim() == []
    kit.clock.set(start_at)
    [claimed] = await kit.claim()
    assert (claimed.was, claimed.orphaned) == (Status.SUSPENDED, False)


async def test_a_start_in_the_past_is_now(kit: Kit) -> None:
    run = await kit.create("r", start_at=kit.now - 60 * SECOND, timeout=SECOND)
    expected = replace(fresh(kit.now, run.incarnation), timeout=SECOND, deadline=kit.now + SECOND)
    assert run == expected


async def test_a_message_leaves_a_delayed_run_asleep(kit: Kit) -> None:
    run = await kit.create("r", start_at=kit.now + 5 * SECOND)
    await kit.apply(to_run("r"))
    await kit.expect(run, inbox=1)


async def test_a_first_turn_that_goes_on_holds_the_run(kit: Kit) -> None:
    lease_end = kit.now + LEASE
    entries = (scheduled(0, at=5),)
    answer = await kit.one(Create(run=new("r"), turn=first(entries=entries, wake_at=lease_end, started_at=5)))
    run = await kit.run("r")
    assert answer == Applied(run.key)
    assert run == replace(
        fresh(kit.now, run.incarnation),
        status=Status.RUNNING,
        owner="ada",
        epoch=1,
        n=1,
        wake_at=lease_end,
        started_at=5,
    )
    assert await kit.history(run) == [replace(entries[0], commit=0)]
    assert await kit.claim("bob") == []


async def test_a_first_turn_that_parks(kit: Kit) -> None:
    turn = first(Status.SUSPENDED, entries=(scheduled(0),), listening=True, wake_at=kit.now + 9 * SECOND, started_at=5)
    answer = await kit.one(Create(run=new("r"), turn=turn))
    run = await kit.run("r")
    assert answer == Applied(run.key)
    assert run == replace(
        fresh(kit.now, run.incarnation),
        status=Status.SUSPENDED,
        epoch=1,
        n=1,
        wake_at=turn.wake_at,
        listening=True,
        started_at=5,
    )


async def test_a_first_turn_that_ends(kit: Kit) -> None:
    turn = first(Status.COMPLETED, entries=(scheduled(0), resolved(0)), output=b"3", started_at=5)
    answer = await kit.one(Create(run=new("r"), turn=turn))
    run = await kit.run("r")
    assert answer == Applied(run.key)
    assert run == replace(
        fresh(kit.now, run.incarnation),
        status=Status.COMPLETED,
        epoch=1,
        n=2,
        wake_at=None,
        output=b"3",
        started_at=5,
        ended_at=kit.now,
    )


async def test_a_first_turn_meets_what_waits_at_its_token(kit: Kit) -> None:
    await kit.apply(to_token("t", b"early"))
    at = kit.now
    turn = first(Status.SUSPENDED, listening=True, waits=(TokenWait(0, "t"),))
    answer = of(Moved, await kit.one(Create(run=new("r"), turn=turn, lease=LEASE)))
    run = await kit.run("r")
    assert answer == Moved(run.key, (Message(1, MessageKind.SIGNAL, "", "t", b"early", False, at),))
    expected = replace(
        fresh(kit.now, run.incarnation),
        status=Status.RUNNING,
        owner="ada",
        epoch=1,
        inbox=1,
        wake_at=kit.now + LEASE,
    )
    assert run == expected


async def test_a_first_turn_is_discarded_with_its_conflict(kit: Kit) -> None:
    run = await kit.create("r")
    turn = first(
        Status.SUSPENDED,
        entries=(scheduled(0),),
        waits=(TokenWait(0, "t"),),
        children=(NewChild(1, new("c")),),
        values=(("k", b"v"),),
    )
    assert await kit.one(Create(run=new("r"), turn=turn)) == Exists(run)
    await kit.unchanged(run)
    assert await kit.history(run) == []
    assert await kit.store.get("c") is None
    assert await kit.value(run.incarnation, "k") is None


async def test_children_of_a_first_turn_get_its_incarnation(kit: Kit) -> None:
    child = new("c", parent=Parent("r", 0, 1), awaited_as="c", depth=1)
    turn = first(Status.SUSPENDED, listening=True, children=(NewChild(1, child),))
    await kit.apply(Create(run=new("r"), turn=turn))
    run = await kit.run("r")
    assert (await kit.run("c")).parent == Parent("r", run.incarnation, 1)


async def test_sig_04_signal_with_start_delivers_in_both_cases(kit: Kit) -> None:
    with_start = Create(run=new("r"), messages=(to_run("r", b"1").message, to_run("r", b"2").message))
    of(Applied, await kit.one(with_start))
    run = await kit.run("r")
    assert run == replace(fresh(kit.now, run.incarnation), inbox=2)
    again = Create(run=new("r"), messages=(to_run("r", b"3").message,))
    exists = of(Exists, await kit.one(again))
    assert exists.run == await kit.expect(run, inbox=3)
    assert payloads(await kit.inbox(run)) == [b"1", b"2", b"3"]


async def test_sig_04_signal_with_start_says_that_the_run_has_ended(kit: Kit) -> None:
    run = await kit.hold("r")
    await kit.apply(complete(run))
    ended = await kit.run("r")
    assert await kit.one(Create(run=new("r"), messages=(to_run("r", b"1").message,))) == Ended(ended)
    assert await kit.run("r") == ended


async def test_start_16_two_signal_with_starts_lose_nothing(kit: Kit) -> None:
    other = await kit.second()
    one = await kit.one(Create(run=new("r"), messages=(to_run("r", b"1").message,)))
    two = await kit.one(Create(run=new("r"), messages=(to_run("r", b"2").message,)), other)
    of(Applied, one)
    run = await kit.run("r")
    assert two == Exists(run)
    assert payloads(await kit.inbox(run)) == [b"1", b"2"]


async def test_a_message_wakes_the_run_that_its_first_turn_parked(kit: Kit) -> None:
    turn = first(Status.SUSPENDED, listening=True)
    await kit.apply(Create(run=new("r"), turn=turn, messages=(to_run("r", b"1").message,)))
    run = await kit.run("r")
    expected = replace(
        fresh(kit.now, run.incarnation), status=Status.SUSPENDED, epoch=1, inbox=1, wake_at=kit.now, listening=True
    )
    assert run == expected
    assert ids(await kit.claim()) == ["r"]


async def test_f05_a_blank_id_is_refused(kit: Kit) -> None:
    for blank in ("", " ", "\t\n"):
        of(Unstorable, await kit.one(Create(run=new(blank))))
        assert await kit.store.get(blank) is None
    assert await kit.claim() == []
