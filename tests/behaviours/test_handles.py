"""Handles: what is asked through one happens once, to the run it was made of, and only where it may be asked."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import pytest

from perdure import (
    Context,
    ForbiddenInWorkflow,
    RunNotFound,
    Status,
    StoreUnavailable,
    UsageError,
    step,
    workflow,
)
from perdure.model.commit import Create, Send
from perdure.testing import TestApp
from tests.behaviours.world import World, events_of, kinds, settled_status

by_both = pytest.mark.parametrize("how", ["name", "token"])


@workflow
async def two(ctx: Context, how: str) -> list[Any]:
    """What came first, and whether anything came after it."""
    token = "order:42" if how == "token" else None
    first = await ctx.wait_for_signal("go", token=token)
    try:
        return [first, await ctx.wait_for_signal("go", token=token, timeout=60)]
    except TimeoutError:
        return [first]


def sends(batch: Sequence[Any]) -> bool:
    return any(isinstance(write, Send) or (isinstance(write, Create) and bool(write.messages)) for write in batch)


@by_both
async def test_f16_a_signal_whose_answer_was_lost_is_delivered_once(world: World, how: str) -> None:
    gate = world.gate()
    async with world.app(two, store=gate) as app:
        run = await app.start(two, how)
        await app.settle()
        gate.fail("after", "write", StoreUnavailable("the answer was lost"), sends)
        sending = app.signal("go", "pay", token="order:42") if how == "token" else run.signal("go", "pay")
        await world.pass_time(sending)
        await app.tick(60)
        assert await run.result() == ["pay"]


async def test_f16_and_so_is_one_that_starts_its_run(world: World) -> None:
    gate = world.gate()
    async with world.app(two, store=gate) as app:
        gate.fail("after", "write", StoreUnavailable("the answer was lost"), sends)
        run = await world.pass_time(app.signal_with_start(two, "name", id="r1", signal="go", payload="pay"))
        await app.tick(60)
        assert await run.result() == ["pay"]


async def test_f11_the_handle_of_a_deleted_run_leaves_whoever_has_its_id_now_alone(world: World) -> None:
    async with world.app(two) as app:
        old = await app.start(two, "name", id="order:42")
        await app.settle()
        assert await old.delete() == 1
        run = await app.start(two, "name", id="order:42")
        await app.settle()
        before = await run.info()
        for verb in (old.status, old.cancel, old.requeue, lambda: old.signal("go")):
            with pytest.raises(RunNotFound):
                await verb()
        assert await old.delete() == 0
        await app.settle()
        assert await run.info() == before
        assert await app.get_run("order:42").cancel() is Status.CANCELLED


@workflow
async def waits(ctx: Context) -> Any:
    return await ctx.wait_for_signal("go")


Use = Callable[[TestApp], Awaitable[Any]]

uses = pytest.mark.parametrize(
    "use",
    [
        lambda app: app.start(waits, id="r2"),
        lambda app: app.signal_with_start(waits, id="r2", signal="go"),
        lambda app: app.signal(token="t"),
        lambda app: app.runs(),
        lambda app: KEPT[0].signal("go"),
        lambda app: KEPT[0].cancel(),
        lambda app: KEPT[0].result(),
        lambda app: KEPT[0].status(),
    ],
    ids=["start", "signal_with_start", "token", "runs", "signal", "cancel", "result", "status"],
)

#: A handle that somebody else made.
KEPT: list[Any] = []


@uses
async def test_f29_a_body_that_uses_its_app_or_a_handle_fails_before_anything_is_done(world: World, use: Use) -> None:
    @workflow
    async def meddles() -> None:
        await use(app)

    async with world.app(meddles, waits) as app:
        KEPT[:] = [await app.start(waits, id="r1")]
        await app.settle()
        before = await KEPT[0].info()
        meddling = await app.start(meddles, id="meddling")
        assert await settled_status(app, "meddling") is Status.FAILED
        error = (await meddling.info()).error or b""
        assert ForbiddenInWorkflow.code.encode() in error
        assert b"put anything else in a step" in error
        assert await KEPT[0].info() == before
        assert {run.id for run in await app.runs()} == {"r1", "meddling"}


async def test_f29_a_step_may(world: World) -> None:
    @step
    async def starts() -> str:
        return (await app.start(waits, id="r2")).id

    @workflow
    async def asks() -> str:
        return await starts()

    async with world.app(asks, starts, waits) as app:
        assert await (await app.start(asks)).result() == "r2"
        assert await settled_status(app, "r2") is Status.SUSPENDED


@uses
async def test_another_event_loop_is_told_so_before_anything_is_done(world: World, use: Use) -> None:
    async with world.app(waits) as app:
        KEPT[:] = [await app.start(waits, id="r1")]
        await app.settle()
        before = await KEPT[0].info()

        async def ask() -> None:
            with pytest.raises(UsageError, match="event loop"):
                await use(app)

        await asyncio.to_thread(asyncio.run, ask())
        await app.settle()
        assert await KEPT[0].info() == before
        assert [run.id for run in await app.runs()] == ["r1"]


async def test_a_client_that_is_left_leaves_the_store_that_it_shares_open(world: World) -> None:
    async with world.app(waits, store=world.store()) as app:
        async with app.client() as client:
            await client.start(waits, id="r1")
        await app.get_run("r1").signal("go", 1)
        assert await app.get_run("r1").result() == 1
        assert await (await app.start(waits, id="r2")).wait() is Status.SUSPENDED


async def test_a_subscriber_may_come_before_the_app_is_opened_and_stays_for_its_next_opening(world: World) -> None:
    app = world.app(waits)
    events = events_of(app)
    for run_id in ("r1", "r2"):
        async with app:
            await (await app.start(waits, id=run_id)).wait()
    assert kinds(events) == ["run.started", "run.suspended"] * 2
