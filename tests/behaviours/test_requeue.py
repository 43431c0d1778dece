"""RETRY: failed and dead runs that an operator revives."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from perdure import Context, RunFailed, RunNotFound, Status, current_step, step, step_ref, workflow
from perdure.model.steps import State
from tests.behaviours.world import Barrier, World, events_of, kinds

#: What is broken now.
broken: set[str] = set()
attempts: list[tuple[str, int]] = []


@pytest.fixture(autouse=True)
def break_it() -> None:
    broken.add("it")
    attempts.clear()


def mend() -> None:
    broken.clear()


@step
async def before() -> str:
    attempts.append(("before", current_step().attempt))
    return "before"


@step(max_attempts=2, base=10)
async def fragile() -> str:
    attempts.append(("fragile", current_step().attempt))
    if broken:
        raise ValueError("broken")
    return "mended"


@workflow
async def flow(ctx: Context) -> list[str]:
    return [await before(), await fragile()]


async def test_retry_01_a_failed_run_is_pending_at_once_and_its_error_is_gone(world: World) -> None:
    async with world.app(flow) as app:
        run = await app.start(flow, id="r1")
        await app.tick(10)
        with pytest.raises(RunFailed, match="broken"):
            await run.result()
    async with world.client() as client:
        run = client.get_run("r1")
        assert await run.requeue() is Status.PENDING
        stored = await run.info()
        assert (stored.status, stored.owner, stored.error, stored.ended_at) == (Status.PENDING, None, None, None)
        await client.settle()
        assert await run.status() is Status.PENDING  # a client runs nothing
        assert len(attempts) == 3


async def test_retry_02_what_failed_is_tried_afresh_and_what_was_done_is_not(world: World) -> None:
    async with world.app(flow) as app:
        events = events_of(app)
        run = await app.start(flow, id="r1")
        await app.tick(10)
        assert await run.status() is Status.FAILED
        await run.requeue()
        await app.settle()
        assert (await run.steps())[1].state is State.RETRYING  # a fresh first attempt, then a wait like before
        await app.tick(10)
        assert await run.status() is Status.FAILED
        mend()
        await run.requeue()
        assert await run.result() == ["before", "mended"]
        assert attempts == [("before", 1), *(("fragile", n) for n in (1, 2, 3, 4, 5))]
        assert kinds(events).count("run.started") == 1
        assert kinds(events)[-1] == "run.completed"
        last = (await run.steps())[1]
        assert (last.state, last.attempts, last.cut) == (State.COMPLETED, 5, 0)


async def test_retry_02_also_in_another_process_and_after_the_body_went_on(world: World) -> None:
    @workflow(name="goes_on")
    async def goes_on(ctx: Context) -> str:
        try:
            await fragile()
        except ValueError:
            pass  # the body caught this one and went on: it stays
        await ctx.wait_for_signal("go")
        return await fragile()

    async with world.app(goes_on) as app:
        run = await app.start(goes_on, id="r1")
        await app.tick(10)
        await run.signal("go")
        await app.tick(10)
        assert await run.status() is Status.FAILED
    mend()
    async with world.app(goes_on) as app:
        await app.get_run("r1").requeue()
        assert await app.get_run("r1").result() == "mended"
        assert [(s.name, s.state) for s in await app.get_run("r1").steps()] == [
            ("fragile", State.FAILED),
            ("go", State.COMPLETED),
            ("fragile", State.COMPLETED),
        ]


async def test_retry_02_a_step_that_nobody_serves_is_tried_when_somebody_does(world: World) -> None:
    remote = step_ref("elsewhere", type=str)

    @workflow
    async def calls(ctx: Context) -> str:
        return await remote()

    @step(name="elsewhere")
    async def here() -> str:
        return "here"

    async with world.app(calls) as app:
        run = await app.start(calls, id="r1")
        with pytest.raises(RunFailed, match="'elsewhere'"):
            await run.result()
    async with world.app(calls, here) as app:
        await app.get_run("r1").requeue()
        assert await app.get_run("r1").result() == "here"


async def test_retry_02_a_body_that_raised_by_itself_runs_again_from_its_history(world: World) -> None:
    @workflow
    async def raises(ctx: Context) -> str:
        said = await before()
        if broken:
            raise RuntimeError("a fault of the body")
        return said

    async with world.app(raises) as app:
        run = await app.start(raises, id="r1")
        with pytest.raises(RunFailed, match="a fault of the body"):
            await run.result()
        mend()
        await run.requeue()
        assert await run.result() == "before"
        assert attempts == [("before", 1)]


@pytest.mark.parametrize("status", ["completed", "suspended", "pending", "cancelled", "running"])
async def test_retry_04_any_other_run_is_left_exactly_as_it_is(world: World, status: str) -> None:
    barrier = Barrier()

    @workflow
    async def body(ctx: Context) -> None:
        if status == "suspended" or status == "cancelled":
            await ctx.wait_for_signal("go")
        elif status == "running":
            await ctx.local_step("hold", barrier.wait)

    async with world.client(body) as client:
        run = await client.start(body, id="r1")
        if status == "running":
            async with world.app(body) as app:
                await barrier.reached.wait()
                await unchanged_by_requeue(run, Status.RUNNING)
                barrier.open()
                await app.settle()
            return
        if status != "pending":
            async with world.app(body) as app:
                await app.settle()
        if status == "cancelled":
            await run.cancel()
        await unchanged_by_requeue(run, Status(status))


async def unchanged_by_requeue(run: Any, status: Status) -> None:
    stored, history = await run.info(), await run.history()
    assert stored.status is status
    assert await run.requeue() is status
    assert (await run.info(), await run.history()) == (stored, history)


async def test_retry_04_but_a_blocked_one_is_tried_again(world: World) -> None:
    """What it needs may have been mended without its code being changed: a function that it calls, say."""

    @workflow
    async def mendable(ctx: Context) -> str:
        if broken:
            await asyncio.Event().wait()  # for ever: a deadlock
        return await before()

    async with world.app(mendable) as app:
        run = await app.start(mendable, id="r1")
        assert await run.wait() is Status.BLOCKED
        history = await run.history()
        await run.requeue()
        await app.settle()
        assert await run.status() is Status.BLOCKED
        assert await run.history() == history
        mend()
        await run.requeue()
        assert await run.result() == "before"


async def test_retry_04_and_an_unknown_one_is_an_error(world: World) -> None:
    async with world.client() as client:
        with pytest.raises(RunNotFound, match="'nobody'"):
            await client.get_run("nobody").requeue()


@workflow
async def parent(ctx: Context) -> list[str]:
    return await ctx.child(flow, id="c")


@pytest.mark.parametrize("first", ["parent", "child"])
async def test_retry_05_a_parent_that_its_child_failed_goes_on_with_the_childs_next_result(
    world: World, first: str
) -> None:
    """RETRY-06 too: in either order."""
    async with world.app(parent, flow) as app:
        run = await app.start(parent, id="p")
        await app.tick(10)
        with pytest.raises(RunFailed, match="child 'c' failed: broken"):
            await run.result()
        mend()
        if first == "parent":
            await run.requeue()
            await app.settle()
            assert await run.status() is Status.SUSPENDED
            await app.get_run("c").requeue()
        else:
            await app.get_run("c").requeue()
            await app.settle()
            await run.requeue()
        assert await run.result() == ["before", "mended"]


async def test_retry_12_a_dead_run_begins_to_count_anew(world: World) -> None:
    barrier = Barrier()

    @workflow
    async def deadly(ctx: Context) -> str:
        await ctx.local_step("hold", barrier.wait)
        return "alive"

    async with world.doomed(deadly) as app:
        await app.start(deadly, id="r1")
        await barrier.reached.wait()
    for _ in range(2):
        world.clock.advance(31)
        async with world.doomed(deadly, max_recoveries=1) as app:
            await app.settle(steps=False)
    async with world.client() as client:
        run = client.get_run("r1")
        assert (await run.info()).recoveries == 2
        assert await run.status() is Status.DEAD
        assert await run.requeue() is Status.PENDING
        assert (await run.info()).recoveries == 0
        async with world.doomed(deadly, max_recoveries=1) as app:
            await app.settle(steps=False)
        world.clock.advance(31)
        async with world.doomed(deadly, max_recoveries=1) as app:
            await app.settle(steps=False)
            assert (await run.info()).recoveries == 1
            assert await run.status() is Status.RUNNING
    barrier.open()
    async with world.app(deadly) as app:
        await app.tick(31)
        assert await app.get_run("r1").result() == "alive"


async def test_retry_12_a_live_runs_count_is_not_touched(world: World) -> None:
    barrier = Barrier()

    @workflow
    async def held(ctx: Context) -> None:
        await ctx.local_step("hold", barrier.wait)

    async with world.doomed(held) as app:
        await app.start(held, id="r1")
        await barrier.reached.wait()
    world.clock.advance(31)
    async with world.app(held) as app:
        await app.settle(steps=False)
        run = app.get_run("r1")
        await unchanged_by_requeue(run, Status.RUNNING)
        assert (await run.info()).recoveries == 1
        barrier.open()


async def test_a_requeue_gives_a_run_its_whole_time_again(world: World) -> None:
    @workflow(timeout=60)
    async def bounded(ctx: Context) -> list[str]:
        return [await fragile()]

    async with world.app(bounded) as app:
        run = await app.start(bounded)
        await app.tick(50)
        assert await run.status() is Status.FAILED
        mend()
        world.clock.advance(3600)
        await run.requeue()
        assert (await run.info()).deadline == world.after(60)
        assert await run.result() == ["mended"]
