"""CANCEL, the plain kind: a run and all below it end for good, at once, whatever they were doing. F14, F31, F37, F41."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from perdure import ChildFailed, Context, Lifecycle, RunCancelled, RunNotFound, Status, step, workflow
from perdure.model.commit import TurnCommit
from perdure.testing import TestApp
from tests.behaviours.world import Barrier, World, ends, events_of, kinds, parks

calls: list[str] = []


@pytest.fixture(autouse=True)
def no_calls() -> None:
    calls.clear()


@workflow
async def waits(ctx: Context) -> str:
    calls.append("began")
    try:
        said = await ctx.wait_for_signal("go", type=str)
    except Exception as error:
        calls.append(f"saw {error!r}")
        raise
    calls.append("went on")
    return said


async def cancelled(app: TestApp, run_id: str) -> Status:
    """As somebody who was handed nothing but the id."""
    return await app.get_run(run_id).cancel()


async def test_cancel_01_a_suspended_run_ends_as_cancelled(world: World) -> None:
    async with world.app(waits) as app:
        events = events_of(app)
        run = await app.start(waits, id="r1")
        await app.settle()
        assert await run.cancel() is Status.CANCELLED
        stored = await run.info()
        assert (stored.status, stored.wake_at, stored.ended_at) == (Status.CANCELLED, None, world.clock.now())
        with pytest.raises(RunCancelled, match="'r1': cancelled") as caught:
            await run.result()
        assert not isinstance(caught.value, asyncio.CancelledError)
        ended = [event for event in events if event.kind == "run.failed"]
        assert [(event.run_id, event.status, event.error) for event in ended] == [("r1", "cancelled", "cancelled")]
        await app.tick(3600)
        assert calls == ["began"]


async def test_cancel_01_with_the_reason_that_was_given(world: World) -> None:
    async with world.app(waits) as app:
        run = await app.start(waits)
        await run.cancel("the customer changed her mind")
        with pytest.raises(RunCancelled, match="the customer changed her mind"):
            await run.result()


@pytest.mark.parametrize("status", ["pending", "delayed", "sleeping", "blocked", "retrying"])
async def test_cancel_01_whatever_it_was_waiting_for(world: World, status: str) -> None:
    @step(max_attempts=9, base=60)
    async def fails() -> None:
        calls.append("tried")
        raise ValueError("no")

    @workflow(name="body")
    async def body(ctx: Context) -> None:
        if status == "sleeping":
            await asyncio.sleep(60)
        elif status == "retrying":
            await fails()
        elif status == "blocked":
            await asyncio.Event().wait()
        calls.append("went on")

    async with world.client(body) as client:
        run = await client.start(body, id="r1", delay=60 if status == "delayed" else None)
        if status != "pending":
            async with world.app(body) as app:
                await app.settle()
        before = await run.status()
        assert before is {"pending": Status.PENDING, "blocked": Status.BLOCKED}.get(status, Status.SUSPENDED)
        assert await cancelled(client, "r1") is Status.CANCELLED
    async with world.app(body) as app:
        await app.tick(3600)
        assert await app.get_run("r1").status() is Status.CANCELLED
    assert "went on" not in calls
    assert calls.count("tried") <= 1


async def test_cancel_02_an_ended_run_stays_as_it_is_and_an_unknown_one_is_an_error(world: World) -> None:
    @workflow
    async def done(fail: bool) -> None:
        if fail:
            raise ValueError("no")

    async with world.app(done, waits) as app:
        for run_id, fail, status in (("completed", False, Status.COMPLETED), ("failed", True, Status.FAILED)):
            run = await app.start(done, fail, id=run_id)
            await run.wait()
            before = await run.info()
            assert await run.cancel() is status
            assert await run.info() == before
        other = await app.start(waits, id="cancelled")
        await other.cancel()
        before = await other.info()
        assert await other.cancel("again") is Status.CANCELLED
        assert await other.info() == before
        with pytest.raises(RunNotFound, match="'nobody'"):
            await cancelled(app, "nobody")


async def test_cancel_04_everything_below_ends_too_and_what_has_ended_stays(world: World) -> None:
    @workflow
    async def quick() -> str:
        return "done"

    @workflow
    async def parent(ctx: Context, depth: int) -> None:
        await ctx.start_child(quick, id=f"{ctx.run_id}.quick")
        await ctx.start_child(waits, id=f"{ctx.run_id}.detached")
        if depth:
            await ctx.child(parent, depth - 1, id=f"{ctx.run_id}.p")
        await ctx.child(waits, id=f"{ctx.run_id}.awaited")

    async with world.app(parent, waits, quick) as app:
        events = events_of(app)
        run = await app.start(parent, 2, id="p")
        await app.settle()
        events.clear()
        await run.cancel()
        await app.settle()
        status = {one.id: one.status for one in await app.runs(limit=100)}
        assert len(status) == 10
        for run_id, stands in status.items():
            assert stands is (Status.COMPLETED if run_id.endswith("quick") else Status.CANCELLED), run_id
        assert sorted(event.run_id for event in events) == sorted(i for i in status if not i.endswith("quick"))


async def test_cancel_04_a_parent_that_waits_is_told(world: World) -> None:
    @workflow
    async def parent(ctx: Context) -> str:
        try:
            return await ctx.child(waits, id="c")
        except ChildFailed as error:
            return f"{error.status}: {error}"

    async with world.app(parent, waits) as app, world.client() as client:
        run = await app.start(parent, id="p")
        await app.settle()
        await cancelled(client, "c")
        assert await run.result() == "cancelled: child 'c' failed: cancelled"


async def test_cancel_05_a_cancelled_run_is_never_driven_again(world: World) -> None:
    async with world.app(waits) as app:
        run = await app.start(waits, id="r1")
        await app.settle()
        await run.cancel()
        before = await run.info()
        for _ in range(2):
            await app.tick(3600)
    async with world.app(waits) as app:
        await app.tick(3600)
        assert await app.get_run("r1").info() == before
    assert calls == ["began"]


@pytest.mark.parametrize("turn", [ends, parks])
async def test_cancel_06_a_cancel_that_comes_while_a_turn_is_on_its_way_wins(world: World, turn: Any) -> None:
    @workflow
    async def works(ctx: Context) -> str:
        await ctx.side_effect(lambda: calls.append("worked"))
        if turn is parks:
            await ctx.wait_for_signal("go")
        return "done"

    @workflow
    async def parent(ctx: Context) -> str:
        try:
            return await ctx.child(works, id="r1")
        except ChildFailed as error:
            return error.status

    gate = world.gate()
    async with world.app(works, parent, store=gate) as worker, world.client() as client:

        def of_the_child(batch: Any) -> bool:
            return any(isinstance(w, TurnCommit) and w.run.id == "r1" and turn([w]) for w in batch)

        stop = gate.stop("before", "write", of_the_child)
        run = await worker.start(parent, id="p")
        await stop.reached.wait()
        assert await cancelled(client, "r1") is Status.CANCELLED
        stop.release()
        assert await run.result() == "cancelled"
        await worker.settle()
        assert await client.get_run("r1").status() is Status.CANCELLED
        assert calls == ["worked"]


@pytest.mark.parametrize("how", ["here", "elsewhere"])
async def test_cancel_06_a_step_in_flight_is_stopped_and_its_result_is_void(world: World, how: str) -> None:
    barrier, stopped = Barrier(), asyncio.Event()

    @step
    async def hold() -> str:
        try:
            await barrier.wait()
        except asyncio.CancelledError:
            stopped.set()
            raise
        return "done"

    @workflow
    async def works(ctx: Context) -> str:
        said = await hold()
        calls.append("went on")
        return said

    async with world.app(works) as worker, world.client() as client:
        run = await worker.start(works, id="r1")
        await barrier.reached.wait()
        await cancelled(worker if how == "here" else client, "r1")
        world.clock.advance(1)  # so soon the store's hint is followed also where the run is busy elsewhere
        await stopped.wait()
        barrier.open()
        await worker.tick(60)
        assert calls == []
        assert await run.status() is Status.CANCELLED


async def test_cancel_11_listeners_hear_of_it_here_and_where_the_run_was_executed(world: World) -> None:
    barrier = Barrier()

    @workflow
    async def works(ctx: Context) -> None:
        await ctx.local_step("hold", barrier.wait)

    def raises(event: Lifecycle) -> None:
        raise ValueError(event.kind)

    async with world.app(works) as worker, world.client() as client:
        worker.subscribe(raises)
        client.subscribe(raises)
        there, here = events_of(worker), events_of(client)
        await worker.start(works, id="r1")
        await barrier.reached.wait()
        there.clear()
        await cancelled(client, "r1")
        assert [(event.kind, event.status) for event in here] == [("run.failed", "cancelled")]
        world.clock.advance(16)  # or at the latest when it renews its lease
        await worker.settle()
        assert [(event.kind, event.status) for event in there] == [("run.failed", "cancelled")]


async def test_cancel_11_one_who_unsubscribed_does_not(world: World) -> None:
    async with world.app(waits) as app:
        heard: list[Lifecycle] = []
        forget = app.subscribe(heard.append)
        run = await app.start(waits)
        await app.settle()
        forget()
        forget()  # once is enough, twice no harm
        heard.clear()
        await run.cancel()
        await app.settle()
        assert heard == []


# ---------------------------------------------------------------- F37: together with whatever else happens


@pytest.mark.parametrize("first", ["cancel", "result"])
async def test_f37_a_cancel_and_the_result_that_is_waited_for(world: World, first: str) -> None:
    barrier = Barrier()

    @workflow
    async def works(ctx: Context) -> str:
        await ctx.local_step("hold", barrier.wait)
        await ctx.side_effect(lambda: calls.append("went on"))
        return "done"

    async with world.app(works) as app:
        run = await app.start(works, id="r1")
        await barrier.reached.wait()
        if first == "result":
            barrier.open()  # it is on its way, but the run has not gone on yet
            await run.cancel()
        else:
            cancelling = asyncio.create_task(run.cancel())
            barrier.open()
            await cancelling
        await app.settle()
        assert await run.status() in (Status.CANCELLED, Status.COMPLETED)
        with pytest.raises(RunCancelled):
            await run.result()


async def test_f37_a_cancel_while_a_child_is_being_started_cancels_the_child_or_starts_none(world: World) -> None:
    for order in ("cancel first", "child first"):

        @workflow
        async def parent(ctx: Context) -> None:
            await ctx.side_effect(lambda: None)
            await ctx.child(waits, id=f"{ctx.run_id}.c")

        gate = world.gate()
        async with world.app(parent, waits, store=gate) as worker, world.client() as client:
            starting = gate.stop(
                "before" if order == "cancel first" else "after",
                "write",
                lambda batch: any(getattr(write, "children", ()) for write in batch),
            )
            await worker.start(parent, id=order)
            await starting.reached.wait()
            await cancelled(client, order)
            starting.release()
            await worker.settle()
            assert await client.get_run(order).status() is Status.CANCELLED
            child = await client.store.get(f"{order}.c")
            assert (child is None) == (order == "cancel first")
            assert child is None or child.status is Status.CANCELLED


@pytest.mark.parametrize("first", ["cancel", "signal"])
async def test_f37_a_cancel_and_a_signal_together(world: World, first: str) -> None:
    async with world.client(waits) as client:
        await client.start(waits, id="r1")
        async with world.app(waits) as worker:
            await worker.settle()
        acts = [client.get_run("r1").cancel(), client.get_run("r1").signal("go", "x")]
        if first == "signal":
            acts.reverse()
        await asyncio.gather(*acts, return_exceptions=True)
    async with world.app(waits) as worker:
        await worker.settle()
        assert await worker.get_run("r1").status() is Status.CANCELLED
    assert "went on" not in calls
    assert not [call for call in calls if call.startswith("saw")]


async def test_f14_nothing_revives_a_run_that_has_ended(world: World) -> None:
    """A late result, a signal, a timer, a cancel: terminal is terminal."""
    barrier = Barrier()

    @workflow
    async def races(ctx: Context) -> str:
        task = asyncio.ensure_future(ctx.local_step("slow", barrier.wait))
        nap = asyncio.ensure_future(asyncio.sleep(60))
        await ctx.wait_for_signal("fail")
        assert not task.done()
        assert not nap.done()
        raise ValueError("failed")

    async with world.app(races) as app:
        run = await app.start(races, id="r1")
        await barrier.reached.wait()
        await run.signal("fail")
        assert await run.wait() is Status.FAILED
        before, history = await run.info(), await run.history()
        barrier.open()
        with pytest.raises(Exception, match="has ended"):
            await run.signal("fail")
        await run.cancel()
        await app.tick(3600)
        assert (await run.info(), await run.history()) == (before, history)


async def test_f41_giving_up_a_wait_never_touches_the_run(world: World) -> None:
    async with world.app(waits) as app:
        run = await app.start(waits, id="r1")
        await app.settle()
        for wait in (run.result, run.wait):
            waiting = asyncio.create_task(wait())
            await app.settle()
            waiting.cancel()
            await asyncio.gather(waiting, return_exceptions=True)
        with pytest.raises(TimeoutError):
            await run.result(timeout=0.001)
        assert await run.status() is Status.SUSPENDED
        await run.signal("go", "all the same")
        assert await run.result() == "all the same"


async def test_f41_nor_does_giving_up_a_start_or_a_signal_take_it_back(world: World) -> None:
    gate = world.gate()
    async with world.app(waits, store=gate) as app:
        stop = gate.stop("before", "write")
        starting = asyncio.create_task(app.start(waits, id="r1"))
        await stop.reached.wait()
        starting.cancel()
        await asyncio.gather(starting, return_exceptions=True)
        stop.release()
        await app.settle()
        run = app.get_run("r1")
        assert await run.status() is Status.SUSPENDED
        stop = gate.stop("before", "write")
        sending = asyncio.create_task(run.signal("go", "sent"))
        await stop.reached.wait()
        sending.cancel()
        await asyncio.gather(sending, return_exceptions=True)
        stop.release()
        assert await run.result() == "sent"


async def test_events_of_another_run_are_not_mixed_up(world: World) -> None:
    async with world.app(waits) as app:
        events = events_of(app)
        runs = [await app.start(waits, id=f"r{n}") for n in range(3)]
        await app.settle()
        events.clear()
        await runs[1].cancel()
        assert kinds(events, "r1") == ["run.failed"]
        assert len(events) == 1
