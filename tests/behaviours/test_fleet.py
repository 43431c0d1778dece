"""Processes that know of each other: who is there, who serves what, and what becomes of runs that nobody serves."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import threading

import pytest

from perdure import Context, Status, StoreUnavailable, UsageError, current_step, step, workflow
from perdure.model.history import Event
from perdure.ports.fleet import Process
from perdure.ports.store import Store
from tests.behaviours.world import Barrier, World

#: Seconds. Blocked are runs that have been due for two leases, when next it is looked for them.
LEASE = 30
AUDIT = 60
LONG_AFTER = 2 * LEASE + AUDIT + 1


@workflow
async def bystander() -> None:
    """What processes serve that lack the workflow in question."""


def threads() -> list[str]:
    """Ours."""
    return sorted(thread.name for thread in threading.enumerate() if thread.name.startswith("perdure"))


async def members(store: Store) -> list[Process]:
    return [member.process for member in await store.fleet()]


# ---------------------------------------------------------------- who is there


async def test_a_process_is_a_member_from_its_start_to_its_end(world: World) -> None:
    async with world.client() as client:
        assert await members(client.store) == []  # a client is none
        async with world.app(bystander, namespace="blue", max_runs=7) as app:
            [process] = await members(client.store)
            assert process.owner == app.engine.means.owner
            assert (process.host, process.pid) == (socket.gethostname(), os.getpid())
            assert (process.namespaces, process.serves) == (("blue",), app.registry.serves())
            assert (process.held, process.limit, process.draining) == (0, 7, False)
            assert process.started_at == world.clock.now()
            assert process.perdure
            async with world.app(bystander) as second:
                operator = (await members(client.store))[-1]
                owners = {process.owner for process in await members(client.store)}
                assert owners == {app.engine.means.owner, second.engine.means.owner}
                assert operator.limit in (7, 1000)
        assert await members(client.store) == []


async def test_it_is_known_before_it_claims(world: World) -> None:
    gate = world.gate()
    stop = gate.stop("before", "claim")
    async with world.app(bystander, store=gate) as app, world.client() as client:
        await stop.reached.wait()
        assert [process.owner for process in await members(client.store)] == [app.engine.means.owner]
        gate.release_all()


async def test_what_is_registered_later_is_told(world: World) -> None:
    @workflow
    async def later() -> None: ...

    async with world.app(bystander) as app, world.client() as client:
        await app.start(later)
        [process] = await members(client.store)
        assert sorted(served.workflow for served in process.serves) == ["bystander", "later"]


async def test_f2_f85_it_stays_a_member_that_drains_until_its_last_turn_is_in(world: World) -> None:
    barrier = Barrier()

    @workflow
    async def works(ctx: Context) -> int:
        await ctx.local_step("hold", barrier.wait)
        return 1

    async with world.client(works) as client:
        app = world.app(works)
        await app.__aenter__()
        run = await app.start(works, id="r")
        await barrier.reached.wait()
        epoch = (await run.info()).epoch
        engine = app.engine
        closing = asyncio.create_task(app.__aexit__(None, None, None))
        await asyncio.sleep(0)
        await engine.renewal.idle()
        [process] = await members(client.store)
        assert (process.draining, process.held) == (True, 1)
        world.clock.advance(LEASE + 1)
        await engine.renewal.beat()  # the clock does not wait for the thread
        async with world.app(works) as other:
            await other.settle()
            assert [process.draining for process in await members(client.store)] == [True, False]
            info = await client.get_run("r").info()
            assert (info.status, info.epoch, info.recoveries) == (Status.RUNNING, epoch, 0)
        barrier.open()
        await closing
        assert await client.get_run("r").result() == 1
        assert await members(client.store) == []


async def test_f2_it_departs_after_the_last_commit(world: World) -> None:
    barrier = Barrier()
    gate = world.gate()

    @workflow
    async def works(ctx: Context) -> int:
        await ctx.local_step("hold", barrier.wait)
        return 1

    async with world.client(works) as client:
        app = world.app(works, store=gate)
        await app.__aenter__()
        await app.start(works, id="r")
        await barrier.reached.wait()
        last = gate.stop("before", "write")
        closing = asyncio.create_task(app.__aexit__(None, None, None))
        barrier.open()
        await last.reached.wait()
        assert len(await members(client.store)) == 1
        last.release()
        await closing
        assert await members(client.store) == []
        assert await client.get_run("r").result() == 1


async def test_f6_who_is_killed_is_gone_when_it_has_not_beaten_for_long(world: World) -> None:
    async with world.client() as client:
        async with world.doomed(bystander):
            pass
        assert len(await members(client.store)) == 1
        world.clock.advance(LEASE - 0.001)
        assert len(await members(client.store)) == 1
        world.clock.advance(0.001)
        assert await members(client.store) == []


# ---------------------------------------------------------------- what nobody serves


async def test_a_run_that_nobody_serves_is_blocked_says_so_and_begins_when_somebody_does(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    @workflow(version="3")
    async def works(n: int) -> int:
        return n

    async with world.client(works) as client, world.app(bystander, audit=AUDIT) as other:
        run = await client.start(works, 5, id="r")
        await other.tick(2 * LEASE - 1)
        assert await run.status() is Status.PENDING
        await other.tick(LONG_AFTER)
        assert await run.wait() is Status.BLOCKED
        reason = (await run.info()).reason or ""
        assert "'works'" in reason
        assert "'3'" in reason
        assert "perdure worker" in reason
        assert f"run 'r' is blocked: {reason.partition(': ')[2] or reason}" in caplog.text
        await other.tick(LONG_AFTER)
        assert caplog.text.count("is blocked") == 1
        async with world.app(works) as app:
            await app.settle()
            assert await run.result() == 5
            assert (await run.info()).reason is None


async def test_a_parked_run_replays_when_somebody_serves_it_again(world: World) -> None:
    made: list[str] = []

    @step
    async def make(what: str) -> str:
        made.append(what)
        return what

    @workflow
    async def works(ctx: Context) -> str:
        first = await make("first")
        await asyncio.sleep(10)
        return first + await ctx.wait_for_signal("go", type=str) + await make("last")

    async with world.client(works) as client, world.app(bystander, audit=AUDIT) as other:
        async with world.app(works) as app:
            run = await app.start(works, id="r")
            await app.settle()
        run = client.get_run("r", works)
        await other.tick(LONG_AFTER + 10)
        assert await run.status() is Status.BLOCKED
        await run.signal("go", "-")  # is kept, and wakes nobody
        await other.settle()
        assert await run.status() is Status.BLOCKED
        async with world.app(works) as app:
            await app.settle()
            assert await run.result() == "first-last"
    assert made == ["first", "last"]


async def test_an_orphan_goes_on_where_it_was_cut_off(world: World) -> None:
    barrier = Barrier()
    attempts: list[int] = []

    @step
    async def held() -> int:
        attempts.append(current_step().attempt)
        await barrier.wait()
        return 1

    @workflow
    async def works(ctx: Context) -> int:
        return await held()

    async with world.client(works) as client, world.app(bystander, audit=AUDIT) as other:
        async with world.doomed(works) as dead:
            await dead.start(works, id="r")
            await dead.settle(steps=False)
            before = await client.get_run("r").info()
        await other.tick(LONG_AFTER + LEASE)
        blocked = await client.get_run("r").info()
        assert (blocked.status, blocked.owner, blocked.epoch) == (Status.BLOCKED, None, before.epoch + 1)
        barrier.open()
        async with world.app(works) as app:
            await app.settle()
            run = app.get_run("r")
            assert await run.result() == 1
            assert [entry.event for entry in await run.history()].count(Event.ATTEMPT_CUT) == 1
    assert attempts == [1, 2]


async def test_its_deadline_counts_when_somebody_serves_it(world: World) -> None:
    @workflow
    async def works() -> None: ...

    async with world.client(works) as client, world.app(bystander, audit=AUDIT) as other:
        run = await client.start(works, id="r", timeout=5)
        await other.tick(LONG_AFTER)
        assert await run.status() is Status.BLOCKED
        async with world.app(works) as app:
            await app.settle()
        assert await run.status() is Status.CANCELLED


async def test_it_can_be_cancelled_requeued_and_deleted_as_other_blocked_runs(world: World) -> None:
    @workflow
    async def works() -> int:
        return 1

    async with world.client(works) as client, world.app(bystander, audit=AUDIT) as other:
        runs = [await client.start(works, id=name) for name in ("cancel", "requeue", "delete")]
        await other.tick(LONG_AFTER)
        assert [await run.status() for run in runs] == [Status.BLOCKED] * 3
        cancelled, requeued, deleted = runs
        await cancelled.cancel()
        assert await cancelled.status() is Status.CANCELLED
        assert await deleted.delete()
        await requeued.requeue()
        assert await requeued.status() is Status.BLOCKED  # due, for whoever serves it
        async with world.app(works) as app:
            await app.settle()
            assert await requeued.result() == 1
        assert [run.id for run in await client.runs()] == ["requeue", "cancel"]


async def test_who_was_taken_for_gone_gets_its_runs_back(world: World, caplog: pytest.LogCaptureFixture) -> None:
    """It was cut off from the store: others blocked what only it serves. Back again, it goes on with it by itself."""

    @workflow
    async def works(ctx: Context) -> str:
        await asyncio.sleep(10)
        return "woken"

    gate = world.gate()
    async with world.app(works, store=gate) as cut_off, world.app(bystander, audit=AUDIT) as other:
        run = await cut_off.start(works, id="r")
        await cut_off.settle()
        gate.frozen = True
        gate.fail("before", "claim", StoreUnavailable("cut off"), times=1_000)
        await cut_off.engine.renewal.beat()
        await other.tick(LONG_AFTER + 10)
        assert await other.get_run("r").status() is Status.BLOCKED
        gate.release_all()
        gate.frozen = False
        await cut_off.engine.renewal.beat()
        await cut_off.settle()
        assert await run.result() == "woken"
    assert "cannot tell the fleet" in caplog.text


async def test_who_was_stopped_does_not_block_what_it_serves_itself(world: World) -> None:
    """The whole machine slept: every member has expired when the first of them looks, before it claims."""

    @workflow
    async def works(ctx: Context) -> str:
        await asyncio.sleep(10)
        return "woken"

    gate = world.gate()
    async with world.app(works, store=gate, audit=AUDIT) as app:
        run = await app.start(works, id="r")
        await app.settle()
        claims, looked = gate.stop("before", "claim"), gate.stop("after", "block_unserved")
        world.clock.advance(3600)
        await claims.reached.wait()
        await looked.reached.wait()
        assert await run.status() is Status.SUSPENDED
        gate.release_all()
        await app.settle()
        assert await run.result() == "woken"


async def test_f19_due_runs_that_others_serve_are_left_to_them_and_it_is_said_once(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    barrier = Barrier()

    @workflow(version="2")
    async def works(ctx: Context) -> int:
        await ctx.local_step("hold", barrier.wait)
        return 1

    caplog.set_level(logging.INFO, "perdure.engine")
    async with world.app(works, max_runs=1) as busy, world.app(bystander, audit=AUDIT) as other:
        runs = [await busy.start(works, id=f"r{number}") for number in range(3)]
        await barrier.reached.wait()
        for _ in range(3):
            await busy.engine.renewal.beat()  # the clock does not wait for the thread
            await other.tick(AUDIT - 35)
        said = [record.message for record in caplog.records if "leaves" in record.message]
        assert len(said) == 1
        assert "'works' version '2'" in said[0]
        assert [await run.status() for run in runs] == [Status.RUNNING, Status.PENDING, Status.PENDING]
        barrier.open()
        await busy.settle()
        assert [await run.result() for run in runs] == [1, 1, 1]


async def test_the_look_goes_on_after_the_store_was_away(world: World, caplog: pytest.LogCaptureFixture) -> None:
    @workflow
    async def works() -> None: ...

    gate = world.gate()
    gate.fail("before", "block_unserved", StoreUnavailable("away"))
    gate.fail("before", "block_unserved", ValueError("odd"))
    async with world.client(works) as client, world.app(bystander, store=gate, audit=AUDIT) as other:
        run = await client.start(works, id="r")
        await other.tick(2 * AUDIT + 1)
        assert await run.status() is Status.PENDING
        assert "away" in caplog.text
        assert "fault in Perdure" in caplog.text
        await other.tick(AUDIT)
        assert await run.status() is Status.BLOCKED


# ---------------------------------------------------------------- a stop during start


@pytest.mark.parametrize("place", ["before open", "before unblock", "after unblock", "before claim"])
async def test_a_stop_during_start_leaves_nothing_behind(world: World, place: str) -> None:
    """`async with app` is cancelled while it is being entered."""
    before = threads()
    gate = world.gate()
    when, verb = place.split()
    stop = gate.stop(when, verb)
    app = world.app(bystander, store=gate)

    async def enter() -> None:
        async with app:
            await asyncio.Event().wait()

    task = asyncio.create_task(enter())
    await stop.reached.wait()
    task.cancel()
    gate.release_all()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert threads() == before
    with pytest.raises(UsageError, match="not open"):
        await app.runs()
    with pytest.raises(UsageError, match="no app is open"):
        await bystander.start()
    async with world.client() as client:
        assert await members(client.store) == []
    async with app:  # it can be opened yet
        await (await app.start(bystander)).result()


async def test_a_start_that_fails_leaves_nothing_behind(world: World) -> None:
    before = threads()
    gate = world.gate()
    gate.fail("before", "unblock", StoreUnavailable("away"))
    app = world.app(bystander, store=gate)
    with pytest.raises(StoreUnavailable, match="away"):
        await app.__aenter__()
    assert threads() == before
    async with world.client() as client:
        assert await members(client.store) == []
