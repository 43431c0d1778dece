"""Two processes at once: whatever the order, the outcome is that of some order, everybody is answered, nothing is lost."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Sequence

from perdure.model.commit import (
    Answer,
    Applied,
    Cancel,
    Changed,
    Create,
    Delete,
    Ended,
    Exists,
    Fenced,
    Moved,
    NewChild,
    Requeue,
    TokenWait,
    Write,
)
from perdure.model.run import TERMINAL, Run, Status
from perdure.ports.store import Store
from perdure.testing.conformance.kit import (
    LEASE,
    Kit,
    complete,
    fail,
    held,
    new,
    of,
    park,
    payloads,
    request,
    to_run,
    to_token,
    turn,
)

ROUNDS = 15


async def at_once(*work: tuple[Store, Sequence[Write]]) -> list[Sequence[Answer]]:
    """The answers to batches that are written at the same time."""
    return list(await asyncio.gather(*(store.write(batch) for store, batch in work)))


async def test_one_id_is_created_once(kit: Kit) -> None:
    other = await kit.second()
    for index in range(ROUNDS):
        create = Create(run=new(f"r{index}"))
        answers = [answer for [answer] in await at_once((kit.store, [create]), (other, [create]))]
        run = await kit.run(f"r{index}")
        assert sorted(type(answer).__name__ for answer in answers) == ["Applied", "Exists"]
        assert Applied(run.key) in answers
        assert Exists(run) in answers


async def test_whoever_listens_hears_that_another_process_wrote(kit: Kit) -> None:
    other = await kit.second()
    loop, heard = asyncio.get_running_loop(), asyncio.Event()

    def hint() -> None:
        loop.call_soon_threadsafe(heard.set)

    stop = kit.store.on_change(hint)
    async with asyncio.timeout(30):
        while not heard.is_set():
            # A hint may be late for what was written before it was asked for.
            await kit.write(Create(run=new(f"r{kit.now}")), store=other)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(heard.wait(), 0.1)
    stop()
    stop()


async def test_messages_from_two_sides_all_arrive_and_each_side_in_order(kit: Kit) -> None:
    other = await kit.second()
    run = await kit.create("r")
    batches: list[tuple[Store, Sequence[Write]]] = []
    for index in range(30):
        batches += [(kit.store, [to_run("r", b"a%d" % index)]), (other, [to_run("r", b"b%d" % index)])]
    await at_once(*batches)
    inbox = await kit.inbox(run)
    assert [message.number for message in inbox] == list(range(1, 61))
    assert sorted(payloads(inbox), key=str) == sorted(
        (b"%s%d" % (who, i) for who in (b"a", b"b") for i in range(30)), key=str
    )
    assert (await kit.run("r")).inbox == 60


async def test_f28_the_same_message_from_two_sides_arrives_once(kit: Kit) -> None:
    other = await kit.second()
    run = await kit.create("r")
    for index in range(ROUNDS):
        batch = [to_run("r", b"%d" % index, dedup=f"d{index}"), to_token("t", b"%d" % index, dedup=f"d{index}")]
        await at_once((kit.store, batch), (other, batch))
    expected = [b"%d" % index for index in range(ROUNDS)]
    assert payloads(await kit.inbox(run)) == expected
    held_run = await kit.take("r")
    await kit.apply(turn(held_run, seen=ROUNDS, consumed=tuple(range(1, ROUNDS + 1))))
    await kit.apply(turn(held_run, waits=tuple(TokenWait(seq, "t") for seq in range(ROUNDS + 5))))
    assert payloads(await kit.inbox(run)) == expected


async def test_f16_a_message_to_a_token_meets_a_parking_turn(kit: Kit) -> None:
    other = await kit.second()
    for index in range(ROUNDS):
        run = await kit.hold(f"r{index}")
        token = f"t{index}"
        [[parked], [sent]] = await at_once(
            (kit.store, [park(run, waits=(TokenWait(0, token),))]), (other, [to_token(token, b"m")])
        )
        assert payloads(await kit.inbox(run)) == [b"m"]
        row = await kit.run(run.id)
        if row.status is Status.RUNNING:
            assert payloads(of(Moved, parked).messages) == [b"m"]
            await kit.apply(complete(row))
        else:
            assert (row.status, row.wake_at, sent) == (Status.SUSPENDED, kit.now, Applied(run.key))
            await kit.apply(complete(await kit.take(run.id)))


async def test_a_message_meets_a_parking_turn(kit: Kit) -> None:
    other = await kit.second()
    for index in range(ROUNDS):
        run = await kit.hold(f"r{index}")
        await at_once((kit.store, [park(run)]), (other, [to_run(run.id, b"m")]))
        row = await kit.run(run.id)
        assert row.status is Status.RUNNING or row.wake_at == kit.now
        if row.status is not Status.RUNNING:
            row = await kit.take(run.id)
        await kit.apply(complete(row, seen=1))
    assert await kit.store.audit() == []


async def test_a_child_ends_while_its_parent_parks(kit: Kit) -> None:
    other = await kit.second()
    for index in range(ROUNDS):
        parent = await kit.hold(f"p{index}")
        name = f"c{index}"
        await kit.apply(turn(parent, children=(NewChild(0, new(name, awaited_as=name)),)))
        child = await kit.take(name, "bob")
        await at_once((kit.store, [park(parent)]), (other, [complete(child, b"7")]))
        assert payloads(await kit.inbox(parent)) == [b"7"]
        row = await kit.run(parent.id)
        assert row.status is Status.RUNNING or row.wake_at == kit.now
        await kit.write(Delete(parent.id, b'"gone"'))


async def family(kit: Kit, name: str) -> tuple[Run, list[Run]]:
    """A parent, and three children that it awaits and that others hold."""
    parent = await kit.hold(name)
    children = tuple(NewChild(seq, new(f"{name}.{seq}", awaited_as=f"{name}.{seq}")) for seq in range(3))
    await kit.apply(turn(parent, children=children))
    return parent, [each.run for each in await kit.claim("bob")]


async def test_f83_whatever_happens_at_once_ends(kit: Kit) -> None:
    other = await kit.second()
    for index in range(ROUNDS):
        parent, (one, two, three) = await family(kit, f"p{index}")
        answers = await at_once(
            (kit.store, [Cancel(parent.id, b'"stop"'), to_run(parent.id)]),
            (other, [complete(one), to_run(parent.id)]),
            (kit.store, [fail(two), to_token("t"), Requeue(two.id)]),
            (other, [Cancel(three.id, b'"stop"'), complete(parent)]),
            (kit.store, [park(three, waits=(TokenWait(0, "t"),)), Cancel(one.id, b'"stop"')]),
            (other, [Cancel(parent.id, b'"stop"'), Requeue(two.id), to_token("t")]),
        )
        assert [len(batch) for batch in answers] == [2, 2, 3, 2, 2, 3]
        for run in (parent, one, three):
            row = await kit.run(run.id)
            assert row.status in TERMINAL
            assert row.wake_at is None
        assert await kit.store.audit() == []
        await kit.write(Delete(parent.id, b'"gone"'))
    assert await kit.claim() == []


async def test_f83_one_of_cancel_complete_and_fail_wins(kit: Kit) -> None:
    other = await kit.second()
    for index in range(ROUNDS):
        run = await kit.hold(f"r{index}")
        [[completed], [cancel], [failed]] = await at_once(
            (kit.store, [complete(run)]), (other, [Cancel(run.id, b'"stop"')]), (kit.store, [fail(run)])
        )
        row = await kit.run(run.id)
        won = {
            Status.COMPLETED: isinstance(completed, Applied),
            Status.CANCELLED: isinstance(cancel, Changed),
            Status.FAILED: isinstance(failed, Applied),
        }
        assert [status for status, yes in won.items() if yes] == [row.status]
        assert isinstance(completed, Applied | Fenced)
        assert isinstance(failed, Applied | Fenced)
        assert isinstance(cancel, Changed | Ended)


async def test_lease_02_a_renewer_and_a_claim_at_once_leave_one_holder(kit: Kit) -> None:
    other = await kit.second()
    renewer = kit.store.renewer()
    for index in range(ROUNDS):
        run = await kit.hold(f"r{index}")
        kit.clock.set(run.wake_at or 0)
        lost: list[bool] = []

        def renew(run: Run = run, lost: list[bool] = lost) -> None:
            lost.extend(renewal.lost for renewal in renewer.renew("ada", LEASE, held(run)))

        thread = threading.Thread(target=renew)
        thread.start()
        claimed = await other.claim(request("bob"))
        thread.join()
        row = await kit.run(run.id)
        if claimed:
            assert (lost, row) == ([True], claimed[0].run)
            assert of(Fenced, await kit.one(complete(run))).run == row
        else:
            assert (lost, row.owner, row.epoch) == ([False], "ada", run.epoch)
        await kit.apply(complete(row))
    renewer.close()
