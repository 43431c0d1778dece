"""Pausing, redispatching (REDISP-06, with local steps), and doing the same to many runs."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from perdure import (
    Context,
    FatalError,
    RunEnded,
    RunFailed,
    RunNotFound,
    RunTimedOut,
    Status,
    UsageError,
    attr,
    current_step,
    step,
    workflow,
)
from tests.behaviours.world import World

broken: set[str] = set()


@pytest.fixture(autouse=True)
def _anew() -> None:
    broken.clear()


@step
async def do(name: str) -> str:
    if name in broken:
        raise FatalError(f"{name} is broken")
    return name


@workflow
async def waits(ctx: Context) -> list[Any]:
    first = await ctx.wait_for_signal("go")
    await asyncio.sleep(10)
    return [first, await do("done")]


@workflow
async def works(ctx: Context, name: str) -> str:
    ctx.upsert_attributes({"name": name})
    return await do(name)


async def test_a_paused_run_hears_but_does_not_go_on(world: World) -> None:
    async with world.app(waits, do) as app:
        run = await app.start(waits, id="r1")
        await app.settle()
        assert await run.pause()
        assert not await run.pause()
        info = await run.info()
        assert (info.status, info.paused_at) == (Status.SUSPENDED, world.clock.now())
        await run.signal("go", "hello")
        await app.tick(60)
        assert len([one for one in await run.steps() if one.state == "completed"]) == 0
        assert await run.unpause()
        assert not await run.unpause()
        await app.settle()
        assert await run.status() is Status.SUSPENDED  # its sleep begins now
        await run.pause()
        await app.tick(60)
        assert await run.status() is Status.SUSPENDED
        await run.unpause()
        assert await run.result() == ["hello", "done"]


async def test_a_run_that_nobody_has_taken_yet_can_be_paused_elsewhere(world: World) -> None:
    async with world.client(works) as client:
        run = await client.start(works, "a", id="r1")
        await run.pause()
        async with world.app(works, do) as app:
            await app.settle()
            assert await run.status() is Status.PENDING
            await run.unpause()
            await app.settle()
            assert await run.result() == "a"


async def test_a_run_at_work_is_paused_when_it_next_waits(world: World) -> None:
    entered, leave = asyncio.Event(), asyncio.Event()

    @step
    async def slow() -> str:
        entered.set()
        await leave.wait()
        return "slow"

    @workflow
    async def busy(ctx: Context) -> list[str]:
        got = [await slow(), await do("next")]
        await asyncio.sleep(1)
        return [*got, await do("last")]

    async with world.app(busy, slow, do) as app:
        run = await app.start(busy, id="r1")
        await entered.wait()
        await run.pause()
        leave.set()
        await app.tick(60)
        assert [one.name for one in await run.steps()] == ["slow", "do", "timer"]
        await run.unpause()
        assert await run.result() == ["slow", "next", "last"]


async def test_paused_at_once_it_is_taken_from_its_process(world: World) -> None:
    attempts: list[tuple[int, str]] = []
    entered = asyncio.Event()

    @step
    async def hangs() -> int:
        attempts.append((current_step().attempt, current_step().key))
        if len(attempts) == 1:
            entered.set()
            await asyncio.Event().wait()
        return len(attempts)

    @workflow
    async def busy(ctx: Context) -> int:
        return await hangs()

    async with world.app(busy, hangs) as app:
        run = await app.start(busy, id="r1")
        await entered.wait()
        await run.pause(at_once=True)
        await app.tick(60)
        assert (await run.status(), len(attempts)) == (Status.PENDING, 1)
        await run.unpause()
        assert await run.result() == 2
        assert [number for number, _ in attempts] == [1, 2]
        assert len({key for _, key in attempts}) == 1


async def test_the_time_that_a_run_is_paused_does_not_count(world: World) -> None:
    async with world.app(waits, do) as app:
        run = await app.start(waits, id="r1", timeout=100)
        await app.tick(50)
        await run.pause()
        await app.tick(1000)
        await run.unpause()
        await app.tick(49)
        assert await run.status() is Status.SUSPENDED
        await app.tick(2)
        with pytest.raises(RunTimedOut):
            await run.result()


async def test_paused_runs_can_be_cancelled_and_deleted(world: World) -> None:
    async with world.app(waits, do) as app:
        one, two = [await app.start(waits, id=run_id) for run_id in "ab"]
        await app.settle()
        for run in (one, two):
            await run.pause()
        assert await one.cancel() is Status.CANCELLED
        assert await two.delete() == 1


async def test_the_newest_link_is_paused(world: World) -> None:
    @workflow
    async def links(ctx: Context, n: int) -> int:
        await ctx.wait_for_signal("go")
        if n < 2:
            ctx.continue_as_new(n + 1)
        return n

    async with world.app(links) as app:
        run = await app.start(links, 0, id="r1")
        await run.signal("go")
        await app.settle()
        await app.get_run("r1").pause()
        await app.get_run("r1").signal("go")
        await app.settle()
        latest = await run.latest()
        assert (latest.id, (await latest.info()).paused_at) == ("r1~1", world.clock.now())
        await app.get_run("r1").unpause()
        await app.settle()
        await app.get_run("r1").signal("go")
        assert await run.result() == 2


async def test_what_has_ended_or_is_not_there_cannot_be_steered(world: World) -> None:
    async with world.app(works, do) as app:
        run = await app.start(works, "a", id="r1")
        await run.result()
        for steer in (run.pause, run.unpause, run.redispatch):
            with pytest.raises(RunEnded, match="has ended"):
                await steer()
        nobody = app.get_run("none")
        for steer in (nobody.pause, nobody.unpause, nobody.redispatch):
            with pytest.raises(RunNotFound):
                await steer()


async def test_redisp_06_a_step_that_hangs_is_tried_again(world: World) -> None:
    attempts: list[int] = []
    entered = asyncio.Event()

    @step
    async def hangs() -> int:
        attempts.append(current_step().attempt)
        if len(attempts) == 1:
            entered.set()
            await asyncio.Event().wait()
        return len(attempts)

    @workflow
    async def busy(ctx: Context) -> int:
        return await hangs()

    async with world.app(busy, hangs) as app, world.client() as client:
        run = await app.start(busy, id="r1")
        await entered.wait()
        redispatched = await client.get_run("r1").redispatch()
        assert redispatched == (Status.PENDING, 1)
        await app.engine.renewal.fresh()
        app.engine.renewal.kick()
        assert await run.result() == 2
        assert attempts == [1, 2]
        [one] = await run.steps()
        assert (one.attempts, one.cut) == (2, 1)


async def test_redisp_06_a_run_that_nobody_is_at_work_on_is_left_alone(world: World) -> None:
    async with world.app(waits, do) as app:
        run = await app.start(waits, id="r1")
        await app.settle()
        before = await run.info()
        assert await run.redispatch() == (Status.SUSPENDED, 0)
        assert await run.info() == before


# ---------------------------------------------------------------- many at once


async def several(app: Any) -> None:
    """Ten runs, of which the odd ones failed, and one that waits."""
    broken.update(str(n) for n in range(1, 10, 2))
    for n in range(10):
        await app.start(works, str(n), id=f"r{n}", tags=["odd"] if n % 2 else ["even"])
    await app.start(waits, id="w")
    await app.settle()


async def test_requeue_where_with_a_dry_run_and_true_counts(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("perdure.engine.bulk.PAGE", 3)
    async with world.app(works, waits, do) as app:
        await several(app)
        broken.clear()
        expected = [(f"r{n}", "done") for n in (9, 7, 5, 3, 1)]
        assert await app.requeue_where(status="failed", dry_run=True) == expected
        assert await app.count(status="failed") == 5
        some = await app.requeue_where(where=[attr("name") > "4"], dry_run=True)
        assert [item.outcome for item in some] == ["done", "unchanged", "done", "unchanged", "done"]
        assert await app.requeue_where(status="failed") == expected
        await app.settle()
        assert await app.facets("status") == {"completed": 10, "suspended": 1}
        assert await app.requeue_where(tag="odd") == [(f"r{n}", "unchanged") for n in (9, 7, 5, 3, 1)]


async def test_requeue_where_with_children(world: World) -> None:
    @workflow
    async def parent(ctx: Context, name: str) -> str:
        return await ctx.child(works, name)

    async with world.app(parent, works, do) as app:
        broken.update("ab")
        runs = [await app.start(parent, name, id=name) for name in "ab"]
        for run in runs:
            with pytest.raises(RunFailed):
                await run.result()
        broken.clear()
        assert await app.requeue_where(workflow="parent", children=True) == [("b", "done"), ("a", "done")]
        assert [await run.result() for run in runs] == ["a", "b"]


async def test_delete_where(world: World) -> None:
    @workflow
    async def parent(ctx: Context) -> None:
        await ctx.child(works, "a")

    async with world.app(parent, works, waits, do) as app:
        await several(app)
        await (await app.start(parent, id="p", tags=["odd"])).result()
        assert len(await app.delete_where(tag="odd", dry_run=True)) == 6
        assert await app.count() == 13
        assert await app.delete_where(tag="odd", status=["failed", "completed"]) == [
            ("p", "done"),
            *((f"r{n}", "done") for n in (9, 7, 5, 3, 1)),
        ]
        assert await app.count() == 6
        assert await app.delete_where(tag="odd") == []


async def test_delete_where_a_child_and_its_parent_are_both_meant(world: World) -> None:
    @workflow
    async def parent(ctx: Context) -> None:
        await ctx.child(works, "a")

    async with world.app(parent, works, do) as app:
        await (await app.start(parent, id="p")).result()
        assert await app.delete_where(status="completed") == [("p.child.0", "done"), ("p", "done")]
        assert await app.count() == 0


async def test_pause_where_and_unpause_where(world: World) -> None:
    async with world.app(works, waits, do) as app:
        await several(app)
        await app.start(waits, id="v")
        await app.settle()
        await app.get_run("v").pause()
        assert await app.pause_where(workflow="waits", dry_run=True) == [("v", "unchanged"), ("w", "done")]
        assert (await app.get_run("w").info()).paused_at is None
        assert await app.pause_where(status=["suspended", "failed"], workflow=None) == [
            ("v", "unchanged"),
            ("w", "done"),
            *((f"r{n}", "unchanged") for n in (9, 7, 5, 3, 1)),
        ]
        assert (await app.get_run("w").info()).paused_at is not None
        assert await app.unpause_where(workflow="waits") == [("v", "done"), ("w", "done")]


@pytest.mark.parametrize("verb", ["requeue_where", "delete_where", "pause_where", "unpause_where"])
async def test_bulk_calls_ask_for_a_filter_and_for_one_that_there_is(world: World, verb: str) -> None:
    async with world.app(works, do) as app:
        await (await app.start(works, "a", id="r1")).result()
        call = getattr(app, verb)
        with pytest.raises(UsageError, match=f"app.{verb} needs at least one filter"):
            await call()
        with pytest.raises(UsageError, match="needs at least one filter"):
            await call(status=[], tag=None, where=[], dry_run=True)
        with pytest.raises(UsageError, match="there is no filter 'colour'"):
            await call(colour="red")
        with pytest.raises(UsageError, match="there is no status"):
            await call(status="done")
        assert await app.count() == 1


async def test_bulk_calls_of_an_app_stay_in_its_namespace(world: World) -> None:
    async with world.app(works, do) as app, world.app(works, do, namespace="red") as red:
        await (await app.start(works, "a", id="r1")).result()
        await (await red.start(works, "a", id="r2")).result()
        with pytest.raises(UsageError, match="needs at least one filter"):
            await red.delete_where()
        assert await red.delete_where(status="completed") == [("r2", "done")]
        assert await app.count() == 1
