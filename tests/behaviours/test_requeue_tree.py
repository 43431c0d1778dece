"""RETRY-05 and -06 and their kin: requeues of families, in both orders, and of runs that wait for tokens."""

from __future__ import annotations

import asyncio

import pytest

from perdure import Context, FatalError, RunFailed, Status, step, workflow
from tests.behaviours.world import World

world_is = {"broken": True}


@step
async def fragile(n: int) -> int:
    if world_is["broken"]:
        raise FatalError("broken")
    return n


@workflow
async def child(ctx: Context, n: int) -> int:
    return await fragile(n)


@workflow
async def parent(ctx: Context, n: int) -> int:
    return 10 * await ctx.child(child, n)


@workflow
async def fan_parent(ctx: Context) -> list[int]:
    return await ctx.all(child, [1, 2, 3])


@pytest.fixture(autouse=True)
def _broken() -> None:
    world_is["broken"] = True


def mend() -> None:
    world_is["broken"] = False


async def test_retry_05_requeue_the_parent_then_the_child(world: World) -> None:
    async with world.app(parent, child, fragile) as app:
        run = await app.start(parent, 4, id="p")
        with pytest.raises(RunFailed):
            await run.result()
        mend()
        assert await run.requeue() is Status.PENDING
        await app.settle()
        assert await run.status() is Status.SUSPENDED  # it waits for its child's next end
        await app.get_run("p.child.0").requeue()
        assert await run.result() == 40


async def test_retry_06_requeue_the_child_then_the_parent(world: World) -> None:
    async with world.app(parent, child, fragile) as app:
        run = await app.start(parent, 4, id="p")
        with pytest.raises(RunFailed):
            await run.result()
        mend()
        inner = app.get_run("p.child.0", child)
        await inner.requeue()
        assert await inner.result() == 4
        await run.requeue()
        assert await run.result() == 40


async def test_a_fan_whose_children_all_failed_is_requeued_child_by_child(world: World) -> None:
    async with world.app(fan_parent, child, fragile) as app:
        run = await app.start(fan_parent, id="p")
        with pytest.raises(RunFailed):
            await run.result()
        mend()
        for index in (2, 0):
            await app.get_run(f"p.all.0.{index}").requeue()
        await run.requeue()
        await app.settle()
        assert await run.status() is Status.SUSPENDED
        await app.get_run("p.all.0.1").requeue()
        assert await run.result() == [1, 2, 3]


async def test_a_requeued_run_hears_its_token_again(world: World) -> None:
    @workflow
    async def waits(ctx: Context) -> str:
        waiting = asyncio.create_task(ctx.wait_for_signal("go", token="T", type=str))
        await fragile(1)
        return await waiting

    async with world.app(waits, fragile) as app:
        run = await app.start(waits, id="w")
        with pytest.raises(RunFailed):
            await run.result()
        mend()
        await run.requeue()
        await app.settle()
        await app.signal(payload="hello", token="T")
        assert await run.result() == "hello"


async def test_retry_04_a_requeue_of_a_run_that_did_not_fail_says_how_it_stands(world: World) -> None:
    mend()
    async with world.app(child, fragile) as app:
        run = await app.start(child, 1)
        assert await run.result() == 1
        before = await run.info()
        assert await run.requeue() is Status.COMPLETED
        assert await run.info() == before


async def test_a_requeue_uses_up_no_attempt_of_its_own(world: World) -> None:
    async with world.app(child, fragile) as app:
        run = await app.start(child, 1)
        with pytest.raises(RunFailed):
            await run.result()
        mend()
        await run.requeue()
        assert await run.result() == 1
        assert [(one.attempts, one.cut) for one in await run.steps()] == [(2, 0)]


async def test_a_blocked_run_is_tried_again_by_hand(world: World) -> None:
    @workflow
    async def stuck(ctx: Context) -> int:
        if world_is["broken"]:
            await asyncio.Event().wait()
        return 7

    async with world.app(stuck) as app:
        run = await app.start(stuck)
        await app.settle()
        assert await run.status() is Status.BLOCKED
        assert await run.requeue() is Status.BLOCKED
        await app.settle()
        assert await run.status() is Status.BLOCKED
        mend()
        await run.requeue()
        assert await run.result() == 7


async def test_a_requeued_parent_hears_that_its_child_was_cancelled(world: World) -> None:
    @workflow
    async def waits(ctx: Context) -> None:
        await ctx.wait_for_signal("never")

    @workflow
    async def both(ctx: Context) -> None:
        await asyncio.gather(ctx.child(waits), fragile(1))

    async with world.app(both, waits, fragile) as app:
        run = await app.start(both, id="p")
        with pytest.raises(RunFailed, match="broken"):
            await run.result()
        assert await app.get_run("p.child.0").status() is Status.CANCELLED
        mend()
        await run.requeue()
        with pytest.raises(RunFailed, match=r"p\.child\.0"):
            await run.result()  # it does not wait for ever for what cannot come


async def test_a_child_that_could_not_start_is_born_after_a_requeue(world: World) -> None:
    @workflow(name="late")
    async def late(ctx: Context) -> int:
        return 7

    @workflow(name="by_name")
    async def by_name(ctx: Context) -> int:
        return int(await ctx.child("late"))

    async with world.app(by_name) as app:
        run = await app.start(by_name)
        with pytest.raises(RunFailed, match="failed to start"):
            await run.result()
    async with world.app(by_name, late) as app:
        run = app.get_run(run.id, by_name)
        await run.requeue()
        assert await run.result() == 7
