"""XTO: execution timeouts: how long a run may take as a whole."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

from perdure import ChildFailed, Context, RunTimedOut, Status, step, workflow
from tests.behaviours.world import Barrier, World, ends, events_of

HOUR = 3600


@workflow(timeout=timedelta(hours=1))
async def waits(ctx: Context) -> str:
    return await ctx.wait_for_signal("go", type=str)


async def test_xto_01_a_run_that_takes_too_long_is_ended_and_a_younger_one_is_not(world: World) -> None:
    async with world.app(waits) as app:
        events = events_of(app)
        old = await app.start(waits, id="old")
        await app.tick(1800)
        young = await app.start(waits, id="young")
        await app.tick(1799)
        assert await old.status() is Status.SUSPENDED
        events.clear()
        await app.tick(1)
        assert await old.status() is Status.CANCELLED
        with pytest.raises(RunTimedOut, match="execution timeout: the run took longer than its 3600 seconds") as caught:
            await old.result()
        assert caught.value.code == "execution_timeout"
        assert [(event.run_id, event.kind, event.status) for event in events] == [("old", "run.failed", "cancelled")]
        assert await young.status() is Status.SUSPENDED
        await young.signal("go", "in time")
        assert await young.result() == "in time"


async def test_xto_01_whoever_is_there_when_it_is_over_ends_it(world: World) -> None:
    async with world.app(waits) as app:
        await app.start(waits, id="r1")
        await app.settle()
    world.clock.advance(2 * HOUR)
    async with world.app(waits) as app:
        await app.settle()
        with pytest.raises(RunTimedOut):
            await app.get_run("r1").result()


async def test_xto_01_the_start_may_give_another_limit(world: World) -> None:
    async with world.app(waits) as app:
        run = await app.start(waits, timeout=60)
        await app.tick(60)
        with pytest.raises(RunTimedOut, match="its 60 seconds"):
            await run.result()


@pytest.mark.parametrize("busy", ["step", "sleep", "retry", "blocked", "child"])
async def test_xto_02_it_counts_whatever_the_run_is_doing(world: World, busy: str) -> None:
    stopped: list[str] = []

    @step(max_attempts=100, base=20, backoff="fixed")
    async def fails() -> None:
        raise ValueError("no")

    @step
    async def hangs() -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            stopped.append("stopped")
            raise

    @workflow(timeout=60)
    async def body(ctx: Context) -> None:
        if busy == "step":
            await hangs()
        elif busy == "sleep":
            await asyncio.sleep(HOUR)
        elif busy == "retry":
            await fails()
        elif busy == "blocked":
            await asyncio.Event().wait()
        else:
            await ctx.child(waits, id="c")

    async with world.app(body, waits) as app:
        run = await app.start(body)
        await app.tick(59, steps=False)
        assert await run.status() not in (Status.CANCELLED, Status.FAILED)
        await app.tick(1, steps=False)
        with pytest.raises(RunTimedOut):
            await run.result()
        assert stopped == (["stopped"] if busy == "step" else [])
        if busy == "child":
            assert await app.get_run("c").status() is Status.CANCELLED


async def test_xto_02_one_that_is_just_ending_is_left_alone(world: World) -> None:
    gate = world.gate()

    @workflow(timeout=20)
    async def works(ctx: Context) -> str:
        await ctx.side_effect(lambda: None)
        return "done"

    async with world.app(works, store=gate, lease=HOUR) as ada, world.app(works, lease=HOUR) as bob:
        stop = gate.stop("before", "write", ends)
        run = await ada.start(works, id="r1")
        await stop.reached.wait()
        world.clock.advance(19)
        stop.release()
        await ada.settle()
        world.clock.advance(10)
        await bob.settle()
        await ada.settle()
        assert await run.result() == "done"


async def test_xto_02_it_counts_from_the_due_start(world: World) -> None:
    async with world.app(waits) as app:
        run = await app.start(waits, delay=HOUR, timeout=60)
        await app.tick(HOUR + 59)
        assert await run.status() is Status.SUSPENDED
        await app.tick(1)
        with pytest.raises(RunTimedOut):
            await run.result()


async def test_xto_07_a_run_is_judged_by_the_version_it_began_with(world: World) -> None:
    def version(number: str, minutes: int):  # type: ignore[no-untyped-def]
        @workflow(name="flow", version=number, timeout=60 * minutes)
        async def flow(ctx: Context) -> None:
            await ctx.wait_for_signal("go")

        return flow

    one, two = version("1", 30), version("2", 60)
    async with world.app(one) as app:
        await app.start("flow", id="r1")
        await app.settle()
    async with world.app(one, two) as app:
        await app.start("flow", id="r2")
        await app.tick(45 * 60)
        assert await app.get_run("r1").status() is Status.CANCELLED
        assert await app.get_run("r2").status() is Status.SUSPENDED
        await app.tick(15 * 60)
        assert await app.get_run("r2").status() is Status.CANCELLED


async def test_xto_08_two_processes_see_it_and_it_is_told_once(world: World) -> None:
    async with world.app(waits) as app:
        await app.start(waits, id="r1")
        await app.settle()
    world.clock.advance(2 * HOUR)
    gates = [world.gate(), world.gate()]
    stops = [gate.stop("before", "claim") for gate in gates]
    async with world.app(waits, store=gates[0]) as ada, world.app(waits, store=gates[1]) as bob:
        events = [*map(events_of, (ada, bob))]
        for stop in stops:
            await stop.reached.wait()
        for stop in stops:
            stop.release()
        await ada.settle()
        await bob.settle()
        assert [event.kind for each in events for event in each] == ["run.failed"]


async def test_a_parent_that_waits_is_told(world: World) -> None:
    @workflow
    async def parent(ctx: Context) -> str:
        try:
            return await ctx.child(waits, id="c")
        except ChildFailed as error:
            return error.status

    async with world.app(parent, waits) as app:
        run = await app.start(parent)
        await app.tick(HOUR)
        assert await run.result() == "execution_timeout"


async def test_no_undo_and_no_finally_that_waits(world: World) -> None:
    """The body is not asked any more: what its `finally` would await does not happen."""
    barrier, cleaned = Barrier(), []

    @step
    async def clean() -> None:
        cleaned.append("cleaned")

    @workflow(timeout=60)
    async def body(ctx: Context) -> None:
        try:
            await ctx.local_step("hold", barrier.wait)
        finally:
            await clean()

    async with world.app(body) as app:
        run = await app.start(body)
        await app.tick(60, steps=False)
        with pytest.raises(RunTimedOut):
            await run.result()
    assert cleaned == []
