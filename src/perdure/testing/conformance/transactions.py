"""Users' own transactions on the store's database: steps that commit with them, and runs and messages that exist if they do.

A store that has no database for that says so, and what it has in place of one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, TypeVar

from msgspec.structs import replace

from perdure.drivers import Drivers
from perdure.model.commit import Cancel, Create, Delete, Send
from perdure.model.errors import StoreUnavailable, UsageError
from perdure.model.messages import MessageKind, Outgoing
from perdure.model.run import Run, Status
from perdure.ports.databases import Begin, Call, Commit, Joined, Partner, Script, Ticket
from perdure.testing.conformance.kit import SECOND, Kit, complete, new

T = TypeVar("T")


async def _partner(kit: Kit) -> Partner | None:
    try:
        return await kit.store.partner()
    except UsageError as refusal:
        told = str(refusal)
    assert "use a plain step" in told
    return None


async def _perform(partner: Partner, script: Script[T]) -> T:
    result: T = await Drivers().transact(partner.source(), script, _in_thread, lambda: None)
    return result


async def _in_thread(call: Callable[[], Any]) -> Any:
    return await asyncio.to_thread(call)


def _ticket(run: Run, seq: int = 0, name: str = "pay") -> Ticket:
    assert run.owner is not None
    return Ticket(run.key, run.seed, seq, name, run.owner, run.epoch)


def _step(partner: Partner, ticket: Ticket, output: bytes, *, commit: bool = True) -> Script[bytes | None]:
    """What was there; if nothing, `output` is put there."""
    yield Begin()
    there = yield from partner.enter(ticket)
    if there is None:
        yield Call(lambda connection: None)
        yield from partner.leave(ticket, output)
        if commit:
            yield Commit()
    return there


def _write(partner: Partner, *writes: Create | Send, commit: bool = True) -> Script[list[Joined]]:
    yield Begin()
    joined: list[Joined] = []
    for write in writes:
        answer = yield from partner.write(write)
        joined += [answer]
    if commit:
        yield Commit()
    return joined


def _signal(run_id: str, payload: bytes = b"1", dedup: str | None = None) -> Send:
    return Send(Outgoing(kind=MessageKind.SIGNAL, run_id=run_id, name="go", payload=payload, dedup=dedup))


async def test_what_was_committed_is_adopted(kit: Kit) -> None:
    run = await kit.hold("r")
    partner = await _partner(kit)
    if partner is None:
        return
    assert await _perform(partner, _step(partner, _ticket(run), b"one")) is None
    assert await _perform(partner, _step(partner, _ticket(run), b"two")) == b"one"
    assert await _perform(partner, _step(partner, _ticket(run, seq=1), b"two")) is None


async def test_what_was_rolled_back_is_not_there(kit: Kit) -> None:
    run = await kit.hold("r")
    partner = await _partner(kit)
    if partner is None:
        return
    assert await _perform(partner, _step(partner, _ticket(run), b"one", commit=False)) is None
    assert await _perform(partner, _step(partner, _ticket(run), b"two")) is None
    assert await _perform(partner, _step(partner, _ticket(run), b"three")) == b"two"


async def test_another_step_in_its_place_does_not_adopt_it(kit: Kit) -> None:
    """A requeue may have taken back the one that was there."""
    run = await kit.hold("r")
    partner = await _partner(kit)
    if partner is None:
        return
    assert await _perform(partner, _step(partner, _ticket(run), b"one")) is None
    assert await _perform(partner, _step(partner, _ticket(run, name="other"), b"two")) is None
    assert await _perform(partner, _step(partner, _ticket(run, name="other"), b"three")) == b"two"


async def test_the_next_holder_adopts_and_the_last_one_is_refused(kit: Kit) -> None:
    old = await kit.hold("r")
    partner = await _partner(kit)
    if partner is None:
        return
    assert await _perform(partner, _step(partner, _ticket(old), b"one")) is None
    kit.clock.advance(31)
    held = await kit.take("r", "bob")
    assert await _refused(partner, _ticket(old, seq=1))
    assert await _perform(partner, _step(partner, _ticket(held), b"two")) == b"one"
    assert await _perform(partner, _step(partner, _ticket(held, seq=1), b"two")) is None


async def test_who_does_not_hold_the_run_is_refused(kit: Kit) -> None:
    run = await kit.hold("r")
    partner = await _partner(kit)
    if partner is None:
        return
    right = _ticket(run)
    for wrong in (
        replace(right, owner="bob"),
        replace(right, epoch=right.epoch + 1),
        replace(right, seed=right.seed + 1),
        replace(right, run=replace(right.run, id="other")),
        replace(right, run=replace(right.run, incarnation=right.run.incarnation + 1)),
    ):
        assert await _refused(partner, wrong)
    await kit.apply(complete(run))
    assert await _refused(partner, right)


async def _refused(partner: Partner, ticket: Ticket) -> bool:
    try:
        await _perform(partner, _step(partner, ticket, b"refused"))
    except StoreUnavailable:
        return True
    return False


async def test_who_was_cancelled_in_the_middle_is_refused(kit: Kit) -> None:
    """Where the transaction has the store to itself, the cancel comes later."""
    run = await kit.hold("r")
    partner = await _partner(kit)
    if partner is None or partner.exclusive:
        return
    loop = asyncio.get_running_loop()

    def cancel() -> None:
        asyncio.run_coroutine_threadsafe(kit.write(Cancel("r", b"cancelled")), loop).result()

    def script() -> Script[None]:
        yield Begin()
        assert (yield from partner.enter(_ticket(run))) is None
        yield Call(lambda connection: asyncio.to_thread(cancel))
        yield from partner.leave(_ticket(run), b"one")

    try:
        await _perform(partner, script())
    except StoreUnavailable:
        return
    raise AssertionError("a run that was cancelled took a result")


async def test_ret_07_the_rows_go_with_their_run(kit: Kit) -> None:
    run = await kit.hold("r")
    partner = await _partner(kit)
    if partner is None:
        return
    await _perform(partner, _step(partner, _ticket(run), b"one"))
    await kit.write(Delete("r", b"gone"))
    assert await _refused(partner, _ticket(run))


async def test_a_run_begins_with_the_commit(kit: Kit) -> None:
    partner = await _partner(kit)
    if partner is None:
        return
    made = Create(run=new("r", tags=("t",), priority=3))
    [never] = await _perform(partner, _write(partner, made, commit=False))
    assert never.answer == "applied"
    assert await kit.store.get("r") is None
    [joined] = await _perform(partner, _write(partner, made))
    run = await kit.run("r")
    assert (joined.answer, joined.key) == ("applied", run.key)
    assert (run.status, run.wake_at, run.epoch, run.tags, run.priority) == (Status.PENDING, kit.now, 0, ("t",), 3)
    [again] = await _perform(partner, _write(partner, made))
    assert (again.answer, again.key, again.workflow, again.status) == ("exists", run.key, run.workflow, run.status)
    later = Create(run=new("later", start_at=kit.now + SECOND))
    await _perform(partner, _write(partner, later))
    assert (await kit.run("later")).status is Status.SUSPENDED


async def test_messages_arrive_with_the_commit(kit: Kit) -> None:
    run = await kit.hold("r")
    partner = await _partner(kit)
    if partner is None:
        return
    await _perform(partner, _write(partner, _signal("r", b"never", "a"), commit=False))
    assert await kit.inbox(run) == []
    answers = await _perform(
        partner, _write(partner, _signal("r", b"1", "a"), _signal("r", b"2", "a"), _signal("nobody"))
    )
    assert [each.answer for each in answers] == ["applied", "applied", "missing"]
    assert [message.payload for message in await kit.inbox(run)] == [b"1"]
    await kit.apply(complete(await kit.run("r"), seen=1, consumed=(1,)))
    [late] = await _perform(partner, _write(partner, _signal("r", b"3", "b")))
    assert (late.answer, late.key, late.status) == ("ended", run.key, Status.COMPLETED)


async def test_what_cannot_be_stored_leaves_the_transaction_as_it_was(kit: Kit) -> None:
    partner = await _partner(kit)
    if partner is None:
        return

    def script() -> Script[None]:
        yield Begin()
        yield from partner.write(Create(run=new("one")))
        for bad in (new("a\0b"), new(" "), new("big", priority=2**70)):
            try:
                yield from partner.write(Create(run=bad))
            except UsageError:
                continue
            raise AssertionError(f"{bad} was taken")
        yield from partner.write(Create(run=new("two")))
        yield Commit()

    await _perform(partner, script())
    assert {(await kit.run(each)).id for each in ("one", "two")} == {"one", "two"}
