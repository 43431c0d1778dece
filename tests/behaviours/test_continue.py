"""CAN: a run that goes on as another with a fresh history. Nothing is lost, forked or stranded on the way."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from perdure import Context, RunCancelled, RunFailed, Status, StoreError, workflow
from perdure.model.commit import TurnCommit
from tests.behaviours.world import World, events_of, kinds

calls: list[Any] = []


@pytest.fixture(autouse=True)
def no_calls() -> None:
    calls.clear()


@workflow
async def counts(ctx: Context, n: int, end: int) -> int:
    await ctx.side_effect(lambda: calls.append((ctx.run_id, n)))
    if n < end:
        ctx.continue_as_new(n + 1, end)
        calls.append("never")
    return n


@workflow
async def collects(ctx: Context, items: list[str]) -> list[str]:
    item = await ctx.wait_for_signal("item", type=str)
    items = [*items, item]
    if len(items) < 4:
        ctx.continue_as_new(items)
    return items


async def test_can_01_a_run_completes_and_the_next_begins_afresh(world: World) -> None:
    async with world.app(counts) as app:
        events = events_of(app)
        await app.start(counts, 0, 1, id="p")
        await app.settle()
        first, second = await app.get_run("p").info(), await app.get_run("p~1").info()
        assert (first.status, first.output, first.continued_to) == (Status.COMPLETED, None, "p~1")
        assert (second.status, second.output, second.input) == (Status.COMPLETED, b"1", b'{"n":1,"end":1}')
        assert [s.seq for s in await app.get_run("p~1").steps()] == [0]
        assert calls == [("p", 0), ("p~1", 1)]
        assert kinds(events, "p~1") == ["run.started", "step.started", "step.completed", "run.completed"]


async def test_can_02_the_links_are_numbered_and_result_follows_them(world: World) -> None:
    async with world.app(counts) as app:
        run = await app.start(counts, 0, 3, id="p")
        assert await run.result() == 3
        assert await (await app.start(counts, 9, 9, id="p")).result() == 3  # the id stands for the whole chain
        assert calls == [("p", 0), ("p~1", 1), ("p~2", 2), ("p~3", 3)]


async def test_can_02_and_so_does_a_parent_that_waits(world: World) -> None:
    @workflow
    async def parent(ctx: Context) -> list[Any]:
        detached = await ctx.start_child(counts, 0, 2, id="d")
        return [await ctx.child(counts, 0, 2, id="c"), await detached.result()]

    async with world.app(parent, counts) as app:
        assert await (await app.start(parent, id="p")).result() == [2, 2]
        assert {run.id for run in await app.runs()} == {"p", "c", "c~1", "c~2", "d", "d~1", "d~2"}


async def test_can_05_the_next_link_keeps_what_the_run_was_given(world: World) -> None:
    @workflow(tags=["declared"])
    async def goes_on(ctx: Context, n: int) -> int:
        if n == 0:
            ctx.continue_as_new(1)
        return n

    async with world.app(goes_on) as operator:
        run = await operator.start(
            goes_on, 0, id="p", namespace="t1", priority=5, tags=["vip"], attributes={"a": 1}, origin="cron", timeout=60
        )
        assert await run.result() == 1
        first, second = await operator.get_run("p").info(), await operator.get_run("p~1").info()
        for field in ("namespace", "priority", "tags", "attributes", "origin", "timeout", "version", "workflow"):
            assert getattr(first, field) == getattr(second, field), field
        assert (second.namespace, second.priority, second.tags) == ("t1", 5, ("declared", "vip"))
        assert first.seed != second.seed


async def test_can_05_the_time_limit_counts_anew_for_each_link(world: World) -> None:
    @workflow(timeout=60)
    async def goes_on(ctx: Context, n: int) -> int:
        await asyncio.sleep(50)
        if n < 3:
            ctx.continue_as_new(n + 1)
        return n

    async with world.app(goes_on) as app:
        run = await app.start(goes_on, 0)
        await app.tick(200)
        assert await run.result() == 3


async def test_can_07_the_link_is_settled_while_the_next_still_runs(world: World) -> None:
    @workflow
    async def goes_on(ctx: Context, n: int) -> str:
        if n == 0:
            ctx.continue_as_new(1)
        return await ctx.wait_for_signal("go", type=str)

    async with world.app(goes_on) as app:
        run = await app.start(goes_on, 0, id="p")
        assert await run.wait() is Status.COMPLETED
        await app.settle()
        assert await app.get_run("p~1").status() is Status.SUSPENDED
        await run.signal("go", "to the chain")  # a signal follows it too
        assert await run.result() == "to the chain"


async def test_can_08_the_next_link_is_anybodys(world: World) -> None:
    async with world.client(counts) as client:
        await client.start(counts, 0, 5, id="p")
    gates = [world.gate(), world.gate()]
    async with world.app(counts, store=gates[0]) as ada, world.app(counts, store=gates[1]) as bob:
        for _ in range(6):
            await ada.settle()
            await bob.settle()
        assert await ada.get_run("p").result() == 5
    assert [n for _, n in calls] == [0, 1, 2, 3, 4, 5]


async def test_unread_signals_go_over_to_the_next_link_in_order(world: World) -> None:
    async with world.app(collects) as app:
        run = await app.start(collects, [], id="p")
        await asyncio.gather(*(run.signal("item", item) for item in "abcd"))
        assert await run.result() == ["a", "b", "c", "d"]


@pytest.mark.parametrize("when", ["before", "after"])
async def test_a_signal_that_meets_the_continuing_turn_is_not_stranded(world: World, when: str) -> None:
    gate = world.gate()

    def continues(batch: Any) -> bool:
        return any(isinstance(write, TurnCommit) and write.successor is not None for write in batch)

    async with world.app(collects, store=gate) as app, world.client() as client:
        run = await app.start(collects, [], id="p")
        await app.settle()
        stop = gate.stop(when, "write", continues)
        await run.signal("item", "a")
        await stop.reached.wait()
        for item in "bcd":
            await client.get_run("p").signal("item", item)
        stop.release()
        assert await run.result() == ["a", "b", "c", "d"]


@pytest.mark.parametrize("when", ["before", "after"])
async def test_a_crash_while_it_continues_neither_loses_nor_forks_the_chain(world: World, when: str) -> None:
    def continues(batch: Any) -> bool:
        return any(isinstance(write, TurnCommit) and write.successor is not None for write in batch)

    gate = world.gate()
    gate.mute("release")
    async with world.app(counts, store=gate, drain=0.001) as app:
        gate.fail(when, "write", StoreError("cut off"), continues)
        await app.start(counts, 0, 2, id="p")
        await app.settle()
    world.clock.advance(31)
    async with world.app(counts) as app:
        await app.settle()
        assert await app.get_run("p").result() == 2
        assert sorted(run.id for run in await app.runs()) == ["p", "p~1", "p~2"]


async def test_cancelling_the_first_id_cancels_the_newest_link(world: World) -> None:
    async with world.app(collects) as app:
        run = await app.start(collects, [], id="p")
        await run.signal("item", "a")
        await app.settle()
        assert await app.get_run("p~1").status() is Status.SUSPENDED
        await app.get_run("p").cancel()
        with pytest.raises(RunCancelled):
            await run.result()
        assert await app.get_run("p~1").status() is Status.CANCELLED
        assert await app.get_run("p").status() is Status.COMPLETED


async def test_a_next_link_whose_id_is_taken_blocks_the_run_and_does_not_overwrite(world: World) -> None:
    async with world.app(counts) as app:
        await (await app.start(counts, 7, 7, id="p~1")).result()
        run = await app.start(counts, 0, 3, id="p")
        await app.settle()
        assert await run.status() is Status.BLOCKED
        assert b"cannot continue as 'p~1': another run has that id" in ((await run.info()).error or b"")
        assert await app.get_run("p~1").result() == 7


async def test_continuing_in_a_task_of_the_body_is_an_error(world: World) -> None:
    @workflow
    async def body(ctx: Context) -> None:
        async def inner() -> None:
            ctx.continue_as_new()

        await asyncio.create_task(inner())

    async with world.app(body) as app:
        with pytest.raises(RunFailed, match="call it in the workflow function itself"):
            await (await app.start(body)).result()


async def test_a_hot_chain_does_not_keep_others_from_running(world: World) -> None:
    @workflow
    async def hot(ctx: Context, n: int) -> int:
        if n < 200:
            ctx.continue_as_new(n + 1)
        return n

    async with world.app(hot, counts) as app:
        run = await app.start(hot, 0, id="hot")
        assert await (await app.start(counts, 1, 1)).result() == 1
        assert await run.result() == 200


async def test_can_awaited_children_of_the_old_link_are_cancelled_and_detached_ones_go_on(world: World) -> None:
    @workflow
    async def waits(ctx: Context) -> str:
        return await ctx.wait_for_signal("go", type=str)

    @workflow
    async def goes_on(ctx: Context, n: int) -> int:
        if n == 0:
            task = asyncio.ensure_future(ctx.child(waits, id="awaited"))
            await ctx.start_child(waits, id="detached")
            await asyncio.sleep(10)
            assert not task.done()
            ctx.continue_as_new(1)
        return n

    async with world.app(goes_on, waits) as app:
        run = await app.start(goes_on, 0)
        await app.tick(10)
        assert await run.result() == 1
        assert await app.get_run("awaited").status() is Status.CANCELLED
        assert await app.get_run("detached").status() is Status.SUSPENDED
