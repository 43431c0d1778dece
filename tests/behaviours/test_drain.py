"""DRAIN: leaving without losing anything. F2, F85: leases are kept until the last turn is in."""

from __future__ import annotations

import asyncio

import pytest

from perdure import Context, Status, step, workflow
from perdure.model.steps import State
from tests.behaviours.world import Barrier, World, ends, events_of, kinds

calls: list[str] = []


@pytest.fixture(autouse=True)
def no_calls() -> None:
    calls.clear()


@workflow
async def quick(ctx: Context) -> str:
    await ctx.side_effect(lambda: calls.append(ctx.run_id))
    return "done"


class Slow:
    """A workflow with a step at a barrier, and another step after it."""

    def __init__(self) -> None:
        barrier = self.barrier = Barrier()

        @step
        async def hold() -> None:
            await barrier.wait()

        @workflow(name="slow")
        async def body(ctx: Context) -> str:
            await hold()
            await ctx.side_effect(lambda: calls.append("after"))
            return "done"

        self.body = body


async def test_drain_01_a_draining_process_takes_nothing_up(world: World) -> None:
    slow = Slow()
    app = world.app(slow.body, quick)
    await app.__aenter__()
    run = await app.start(slow.body, id="slow")
    await slow.barrier.reached.wait()
    engine = app.engine
    leaving = asyncio.create_task(app.__aexit__(None, None, None))
    async with world.client(quick) as client:
        pending = await client.start(quick, id="quick")
        delayed = await client.start(quick, id="delayed", delay=5)
        world.clock.advance(60)
        await engine.rest(steps=False)
        assert await pending.status() is Status.PENDING
        assert await delayed.status() is Status.SUSPENDED
        assert calls == []
        slow.barrier.open()
        await leaving
        assert await client.get_run("slow").status() is Status.COMPLETED
        assert await pending.status() is Status.PENDING
    assert run.id == "slow"


async def test_drain_02_it_waits_for_what_runs(world: World) -> None:
    slow = Slow()
    app = world.app(slow.body)
    await app.__aenter__()
    await app.start(slow.body, id="slow")
    await slow.barrier.reached.wait()
    leaving = asyncio.create_task(app.__aexit__(None, None, None))
    slow.barrier.open()
    await leaving
    async with world.client() as client:
        assert await client.get_run("slow").result() == "done"
        assert calls == ["after"]  # what runs is finished, not only its step


async def test_drain_02_but_not_beyond_its_time(world: World) -> None:
    slow = Slow()
    async with world.app(slow.body, drain=0.001) as app:
        await app.start(slow.body, id="slow")
        await slow.barrier.reached.wait()
    async with world.client() as client:
        stored = await client.get_run("slow").info()
        assert (stored.status, stored.owner) == (Status.PENDING, None)
        [only] = await client.get_run("slow").steps()
        assert (only.state, only.attempts) == (State.PENDING, 0)
        slow.barrier.open()
        async with world.app(slow.body) as app:
            await app.settle()
            assert await app.get_run("slow").result() == "done"
            assert (await app.get_run("slow").info()).recoveries == 0


async def test_drain_03_a_parent_is_told_and_a_chain_goes_on_though_the_process_leaves(world: World) -> None:
    slow = Slow()

    @workflow
    async def parent(ctx: Context) -> str:
        return (await ctx.child(slow.body, id="c")).upper()

    @workflow
    async def chain(ctx: Context, n: int) -> int:
        await ctx.child(slow.body, id=f"c{n}")
        if n == 0:
            ctx.continue_as_new(1)
        return n

    async with world.app(parent, chain, slow.body) as app:
        await app.start(parent, id="p")
        await app.start(chain, 0, id="chain")
        await slow.barrier.reached.wait()
        await app.settle(steps=False)
        slow.barrier.open()
    async with world.app(parent, chain, slow.body) as app:
        await app.settle()
        assert await app.get_run("p").result() == "DONE"
        assert await app.get_run("chain").result() == 1


async def test_drain_03_everything_that_was_told_is_told_before_it_has_left(world: World) -> None:
    slow = Slow()
    app = world.app(slow.body)
    await app.__aenter__()
    events = events_of(app)
    run = await app.start(slow.body, id="slow")
    waiting = asyncio.create_task(run.result())
    await slow.barrier.reached.wait()
    slow.barrier.open()
    await app.__aexit__(None, None, None)
    assert kinds(events)[-1] == "run.completed"
    assert await waiting == "done"


async def test_drain_04_a_hot_chain_does_not_keep_it_for_ever(world: World) -> None:
    going = asyncio.Event()

    @workflow
    async def hot(ctx: Context, n: int) -> None:
        calls.append(f"{n}")
        if n == 5:
            going.set()
        ctx.continue_as_new(n + 1)

    async with world.app(hot, drain=0.05) as app:
        await app.start(hot, 0, id="hot")
        await going.wait()
    async with world.client() as client:
        [last] = [run for run in await client.runs(limit=10_000) if run.continued_to is None]
        assert last.status in (Status.PENDING, Status.RUNNING)


async def test_f02_leases_are_renewed_until_the_last_run_has_drained(world: World) -> None:
    slow = Slow()
    app = world.app(slow.body)
    await app.__aenter__()
    await app.start(slow.body, id="slow")
    await slow.barrier.reached.wait()
    engine = app.engine
    leaving = asyncio.create_task(app.__aexit__(None, None, None))
    async with world.app(slow.body) as other:
        for _ in range(5):
            world.clock.advance(16)
            assert await engine.renewal.fresh()
            await other.settle()
            stored = await other.get_run("slow").info()
            assert (stored.owner, stored.recoveries) == (engine.means.owner, 0)
        assert slow.barrier.count == 1
        slow.barrier.open()
        await leaving
        assert await other.get_run("slow").result() == "done"
    assert slow.barrier.count == 1


@pytest.mark.parametrize("when", ["before", "after"])
async def test_f85_the_last_commit_is_waited_for(world: World, when: str) -> None:
    gate = world.gate()
    app = world.app(quick, store=gate)
    await app.__aenter__()
    stop = gate.stop(when, "write", ends)
    await app.start(quick, id="r1")
    await stop.reached.wait()
    leaving = asyncio.create_task(app.__aexit__(None, None, None))
    await asyncio.sleep(0)
    assert not leaving.done()
    stop.release()
    await leaving
    async with world.client() as client:
        assert await client.get_run("r1").result() == "done"


async def test_closing_twice_or_before_opening_is_told(world: World) -> None:
    app = world.app(quick)
    with pytest.raises(Exception, match="not open"):
        await app.start(quick)
    async with app:
        pass
    with pytest.raises(Exception, match="not open"):
        await app.start(quick)
    async with app:  # and it can be opened again
        assert await (await app.start(quick)).result() == "done"
