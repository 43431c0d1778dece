"""REPLAY: what was done is not done again, and code that does not fit the history is found out."""

from __future__ import annotations

import asyncio

import pytest

from perdure import Context, NonDeterminismError, RunFailed, Status, step, workflow
from perdure.model.history import Op
from perdure.model.steps import State
from perdure.testing import TestApp
from tests.behaviours.world import Barrier, World, events_of, kinds

calls: list[str] = []


@pytest.fixture(autouse=True)
def no_calls() -> None:
    calls.clear()


@step
async def a(n: int) -> int:
    calls.append("a")
    return n + 1


@step(name="A")
async def capital_a(n: int) -> int:
    calls.append("A")
    return n + 1


@step
async def b(n: int) -> int:
    calls.append("b")
    return n * 10


@workflow(name="flow")
async def flow(ctx: Context, n: int) -> int:
    calls.append("body")
    n = await a(n)
    await ctx.wait_for_signal("go")
    return await b(n)


@workflow(name="flow")
async def renamed(ctx: Context, n: int) -> int:
    n = await capital_a(n)
    await ctx.wait_for_signal("go")
    return await b(n)


@workflow(name="flow")
async def fitting(ctx: Context, n: int) -> int:
    n = await a(n)
    await ctx.wait_for_signal("go")
    return 2 * await b(n)


async def test_replay_01_a_resumed_body_runs_from_the_top_but_its_steps_do_not(world: World) -> None:
    async with world.app(flow) as first:
        await first.start(flow, 1, id="run1")
        await first.settle()
        assert calls == ["body", "a"]
    async with world.app(flow) as second:
        await second.get_run("run1").signal("go")
        await second.settle()
        assert await second.get_run("run1", flow).result() == 20
    assert calls == ["body", "a", "body", "b"]


async def parked(world: World) -> None:
    async with world.app(flow) as app:
        await app.start(flow, 1, id="run1")
        await app.settle()
    calls.clear()


async def resumed(app: TestApp) -> Status:
    await app.get_run("run1").signal("go")
    await app.settle()
    return await app.get_run("run1").status()


async def test_replay_02_changed_code_blocks_the_run_with_the_reason(world: World) -> None:
    await parked(world)
    async with world.app(renamed, b) as app:
        events = events_of(app)
        assert await resumed(app) is Status.BLOCKED
        assert calls == []
        reason = [event.error or "" for event in events if event.kind == "run.blocked"]
        assert len(reason) == 1
        assert "non-determinism at run1#0" in reason[0]
        assert "recorded step 'a', issued step 'A'" in reason[0]
        assert "test_replay.py:" in reason[0]  # the line that issued it
        before = await app.get_run("run1").info()
        await app.tick(86400)  # blocked for its code: time does not help, so nothing tries
        assert await app.get_run("run1").info() == before


async def test_replay_02_and_fitting_code_unblocks_it(world: World) -> None:
    await parked(world)
    async with world.app(renamed) as app:
        assert await resumed(app) is Status.BLOCKED
    async with world.app(renamed) as same:
        await same.settle()
        assert await same.get_run("run1").status() is Status.BLOCKED
    async with world.app(fitting) as app:
        await app.settle()
        assert await app.get_run("run1", fitting).result() == 40
    assert calls == ["b"]


async def test_replay_02_also_where_it_is_registered_in_a_running_process(world: World) -> None:
    await parked(world)
    async with world.app(renamed) as app:
        assert await resumed(app) is Status.BLOCKED
    async with world.app() as app:
        await app.settle()
        app.register(flow)
        await app.engine.serve()
        await app.settle()
        assert await app.get_run("run1", flow).result() == 20


async def test_replay_02_a_setting_makes_it_fail_instead(world: World) -> None:
    await parked(world)
    async with world.app(renamed, on_nondeterminism="fail") as app:
        assert await resumed(app) is Status.FAILED
        with pytest.raises(RunFailed, match="non-determinism at run1#0"):
            await app.get_run("run1").result()


async def test_replay_03_the_error_names_the_run_and_the_position(world: World) -> None:
    @workflow(name="deep")
    async def deep(ctx: Context) -> int:
        for n in range(3):
            await a(n)
        await ctx.wait_for_signal("go")
        return await b(1)

    @workflow(name="deep")
    async def other(ctx: Context) -> int:
        for n in range(3):
            await a(n)
        await ctx.wait_for_signal("stop")
        return await b(1)

    async with world.app(deep) as app:
        await app.start(deep, id="run1")
        await app.settle()
    async with world.app(other, on_nondeterminism="fail") as app:
        await app.get_run("run1").signal("go")
        with pytest.raises(RunFailed) as caught:
            await app.get_run("run1").result()
    error = caught.value.__cause__
    assert isinstance(error, NonDeterminismError)
    assert (error.run_id, error.seq, error.code) == ("run1", 3, "non_determinism")


async def test_replay_05_concurrent_steps_take_their_positions_in_call_order(world: World) -> None:
    barriers = {name: Barrier() for name in "xyz"}

    @step
    async def wait_at(name: str) -> str:
        await barriers[name].wait()
        return name

    @workflow
    async def three(ctx: Context) -> list[str]:
        return list(await asyncio.gather(wait_at("x"), wait_at("y"), wait_at("z")))

    async with world.app(three) as app:
        events = events_of(app)
        run = await app.start(three)
        for name in "zxy":
            await barriers[name].reached.wait()
            barriers[name].open()
            await app.settle(steps=False)
        assert await run.result() == ["x", "y", "z"]
        assert [(s.seq, s.name, s.input) for s in await run.steps()] == [
            (0, "wait_at", b'"x"'),
            (1, "wait_at", b'"y"'),
            (2, "wait_at", b'"z"'),
        ]
        assert [event.seq for event in events if event.kind == "step.completed"] == [2, 0, 1]


async def test_f46_their_order_is_the_same_wherever_they_are_recovered(world: World) -> None:
    barriers = {name: Barrier() for name in "xyz"}

    @step
    async def wait_at(name: str) -> str:
        await barriers[name].wait()
        return name

    @workflow
    async def three(ctx: Context) -> list[str]:
        order: list[str] = []

        async def one(name: str) -> None:
            order.append(await wait_at(name))

        await asyncio.gather(one("x"), one("y"), one("z"))
        await ctx.wait_for_signal("go")
        return order

    async with world.app(three) as app:
        await app.start(three, id="run1")
        for name in "zxy":
            await barriers[name].reached.wait()
            barriers[name].open()
            await app.settle(steps=False)
    for _ in range(2):
        async with world.app(three) as app:
            await app.settle()
            assert await app.get_run("run1").status() is Status.SUSPENDED
    async with world.app(three) as app:
        await app.get_run("run1").signal("go")
        assert await app.get_run("run1").result() == ["z", "x", "y"]


async def test_f46_a_true_mismatch_ends_blocked_and_not_in_a_loop(world: World) -> None:
    @workflow(name="both")
    async def both(ctx: Context) -> None:
        await asyncio.gather(a(1), b(1))
        await ctx.wait_for_signal("go")

    @workflow(name="both")
    async def swapped(ctx: Context) -> None:
        await asyncio.gather(b(1), a(1))
        await ctx.wait_for_signal("go")

    async with world.app(both) as app:
        await app.start(both, id="run1")
        await app.settle()
    async with world.app(swapped) as app:
        events = events_of(app)
        await app.get_run("run1").signal("go")
        await app.tick(3600)
        assert kinds(events) == ["run.blocked"]
        assert (await app.get_run("run1").info()).recoveries == 0


async def test_the_history_shows_what_happened_and_not_what_is_not_recorded(world: World) -> None:
    async with world.app(flow) as app:
        run = await app.start(flow, 1)
        await app.settle()
        assert [(s.seq, s.op, s.name, s.state, s.output) for s in await run.steps()] == [
            (0, Op.STEP, "a", State.COMPLETED, b"2"),
            (1, Op.SIGNAL, "go", State.PENDING, None),
        ]
