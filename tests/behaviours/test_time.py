"""TIME: durable timers. F40: what nobody waits for any more leaves nothing behind. F73, F77: whose time counts."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from perdure import Context, RunFailed, Status, UsageError, step, workflow
from perdure.model.steps import State
from tests.behaviours.world import World

calls: list[str] = []


@pytest.fixture(autouse=True)
def no_calls() -> None:
    calls.clear()


@step
async def note(what: str) -> str:
    calls.append(what)
    return what


@workflow
async def naps(ctx: Context) -> str:
    await note("before")
    await asyncio.sleep(5)
    return await note("after")


async def test_time_01_a_sleeping_run_goes_on_at_its_time_and_does_nothing_twice(world: World) -> None:
    async with world.app(naps) as app:
        run = await app.start(naps, id="r1")
        await app.settle()
        assert await run.status() is Status.SUSPENDED
        assert (await run.info()).wake_at == world.after(5)
        await app.tick(4.999)
        assert (await run.status(), calls) == (Status.SUSPENDED, ["before"])
    async with world.app(naps) as app:
        await app.tick(0.001)
        assert await app.get_run("r1").result() == "after"
    assert calls == ["before", "after"]


async def test_time_01_one_that_is_overdue_goes_on_at_once(world: World) -> None:
    async with world.app(naps) as app:
        await app.start(naps, id="r1")
        await app.settle()
    world.clock.advance(timedelta(days=400))
    async with world.app(naps) as app:
        await app.settle()
        assert await app.get_run("r1").result() == "after"


async def test_time_01_an_hours_outage_does_not_make_a_loop_catch_up(world: World) -> None:
    @workflow
    async def beats(ctx: Context) -> None:
        while True:
            await asyncio.sleep(60)
            await note(f"{ctx.now():%H:%M}")

    async with world.app(beats) as app:
        await app.start(beats, id="r1")
        await app.tick(60)
    world.clock.advance(3600)
    async with world.app(beats) as app:
        await app.settle()
        await app.tick(60)
    assert calls == ["00:01", "01:01", "01:02"]


@pytest.mark.parametrize("kind", ["datetime", "seconds"])
async def test_time_02_sleep_until_a_datetime_or_seconds_since_the_epoch(world: World, kind: str) -> None:
    due = world.after(3600.5)

    @workflow
    async def until(ctx: Context) -> int:
        await ctx.sleep_until(datetime.fromtimestamp(due / 1e6, UTC) if kind == "datetime" else due / 1e6)
        return round(ctx.now().timestamp() * 1e6)

    async with world.app(until) as app:
        run = await app.start(until)
        await app.settle()
        assert (await run.info()).wake_at == due
        await app.tick(7200)
        assert await run.result() == due


async def test_time_02_a_time_that_has_passed_is_no_wait_and_a_naive_one_is_refused(world: World) -> None:
    @workflow
    async def until(ctx: Context, naive: bool) -> str:
        await ctx.sleep_until(datetime(2020, 1, 1, tzinfo=None if naive else UTC))
        return "done"

    async with world.app(until) as app:
        assert await (await app.start(until, False)).result() == "done"
        with pytest.raises(RunFailed, match="time zone") as caught:
            await (await app.start(until, True)).result()
        assert isinstance(caught.value.__cause__, UsageError)


async def test_time_05_however_many_are_due_all_go_on(world: World) -> None:
    async with world.app(naps) as app:
        await asyncio.gather(*(app.start(naps) for _ in range(450)))
        await app.settle()
        await app.tick(5)
        assert len(await app.runs(status="completed", limit=1000)) == 450
    assert calls == ["before"] * 450 + ["after"] * 450


async def test_time_05_no_more_at_once_than_the_process_may_hold(world: World) -> None:
    async with world.app(naps, max_runs=7) as app:
        await asyncio.gather(*(app.start(naps) for _ in range(60)))
        await app.settle()
        await app.tick(5)
        assert len(await app.runs(status="completed", limit=1000)) == 60


async def test_time_07_two_processes_look_at_the_same_due_timer_and_one_goes_on(world: World) -> None:
    async with world.app(naps) as first:
        await first.start(naps, id="r1")
        await first.settle()
    world.clock.advance(5)
    gates = [world.gate(), world.gate()]
    stops = [gate.stop("before", "claim") for gate in gates]
    async with world.app(naps, store=gates[0]) as ada, world.app(naps, store=gates[1]) as bob:
        for stop in stops:
            await stop.reached.wait()
        for stop in stops:
            stop.release()
        await ada.settle()
        await bob.settle()
        assert await ada.get_run("r1").result() == "after"
    assert calls == ["before", "after"]


# ---------------------------------------------------------------- asyncio's own


async def test_a_durable_deadline_over_a_wait(world: World) -> None:
    @workflow
    async def waits(ctx: Context) -> str:
        try:
            async with asyncio.timeout(7 * 86400):
                return await ctx.wait_for_signal("go", type=str)
        except TimeoutError:
            return f"gave up at {ctx.now():%d %H:%M}"

    async with world.app(waits) as app:
        first, second = await app.start(waits, id="first"), await app.start(waits, id="second")
        await app.tick(timedelta(days=6))
        await second.signal("go", "in time")
        await app.settle()
    async with world.app(waits) as app:
        await app.tick(timedelta(days=2))
        assert await app.get_run("first").result() == "gave up at 08 00:00"
        assert await app.get_run("second").result() == "in time"
        assert first.id == "first"


async def test_first_completed_and_wait_for(world: World) -> None:
    @workflow
    async def races(ctx: Context) -> list[str]:
        said: list[str] = []
        tasks = {asyncio.create_task(asyncio.sleep(n, f"slept {n}")) for n in (30, 10, 20)}
        while tasks:
            done, tasks = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            said += [task.result() for task in done]
        try:
            await asyncio.wait_for(asyncio.sleep(100), 5)
        except TimeoutError:
            said.append(f"{ctx.now():%M:%S}")
        return said

    async with world.app(races) as app:
        run = await app.start(races)
        await app.tick(60)
        assert await run.result() == ["slept 10", "slept 20", "slept 30", "00:35"]


async def test_f40_a_cancelled_sleep_leaves_nothing_that_wakes(world: World) -> None:
    @workflow
    async def impatient(ctx: Context) -> str:
        nap = asyncio.create_task(asyncio.sleep(100))
        await asyncio.sleep(1)
        nap.cancel()
        try:
            await asyncio.wait_for(asyncio.sleep(100), 2)
        except TimeoutError:
            pass
        return await ctx.wait_for_signal("go", type=str)

    async with world.app(impatient) as app:
        run = await app.start(impatient, id="r1")
        await app.tick(3)
        stored = await run.info()
        assert (stored.status, stored.wake_at) == (Status.SUSPENDED, None)
        await app.tick(1000)
        assert await run.info() == stored
        states = [(s.name, s.state) for s in await run.steps()]
        assert states.count(("timer", State.ABANDONED)) == 2
        assert states.count(("timer", State.COMPLETED)) == 2
    async with world.app(impatient) as app:
        await app.get_run("r1").signal("go", "now")
        assert await app.get_run("r1").result() == "now"


async def test_f40_a_step_that_nobody_awaits_any_more_is_stopped_and_not_tried_again(world: World) -> None:
    stopped: list[str] = []

    @step(max_attempts=5, base=1)
    async def hangs() -> None:
        calls.append("hangs")
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            stopped.append("stopped")
            raise

    @step(max_attempts=5, base=60)
    async def fails() -> None:
        calls.append("fails")
        raise ValueError("again")

    @workflow
    async def impatient(ctx: Context) -> str:
        for attempt in (hangs, fails):
            try:
                async with asyncio.timeout(5):
                    await attempt()
            except TimeoutError:
                pass
        return await ctx.wait_for_signal("go", type=str)

    async with world.app(impatient) as app:
        run = await app.start(impatient, id="r1")
        await app.tick(5, steps=False)
        await app.tick(5)
        assert (stopped, calls) == (["stopped"], ["hangs", "fails"])
        await app.tick(1000)
        assert calls == ["hangs", "fails"]
        assert (await run.info()).wake_at is None
    async with world.app(impatient) as app:
        await app.get_run("r1").signal("go", "now")
        assert await app.get_run("r1").result() == "now"


async def test_f40_a_late_result_of_an_abandoned_step_changes_nothing(world: World) -> None:
    import threading

    go = threading.Event()

    @step
    def slow() -> str:
        assert go.wait(10)
        return "late"

    @workflow
    async def impatient(ctx: Context) -> str:
        try:
            async with asyncio.timeout(5):
                return await ctx.step(slow)
        except TimeoutError:
            return await ctx.wait_for_signal("go", type=str)

    async with world.app(impatient) as app:
        run = await app.start(impatient)
        await app.tick(5, steps=False)
        go.set()
        await app.settle()
        await run.signal("go", "now")
        assert await run.result() == "now"


async def test_a_result_that_came_in_time_beats_a_deadline_that_passed_meanwhile(world: World) -> None:
    """Both lie ready when the run goes on: what happened first is delivered first."""

    @workflow
    async def child(ctx: Context) -> str:
        return await ctx.wait_for_signal("go", type=str)

    @workflow
    async def parent(ctx: Context) -> str:
        try:
            async with asyncio.timeout(10):
                return await ctx.child(child, id="c")
        except TimeoutError:
            return "too late"

    async with world.app(parent, child) as app:
        await app.start(parent, id="p")
        await app.settle()
    world.clock.advance(9)
    async with world.app(child) as app:  # serves the child alone
        await app.get_run("c").signal("go", "in time")
        await app.settle()
        assert await app.get_run("c").status() is Status.COMPLETED
    world.clock.advance(9)
    async with world.app(parent, child) as app:
        await app.settle()
        assert await app.get_run("p").result() == "in time"


async def test_f73_workflow_time_comes_from_the_history(world: World) -> None:
    seen: list[Any] = []

    @workflow
    async def looks(ctx: Context) -> list[str]:
        times = [f"{ctx.now():%H:%M:%S}"]
        for _ in range(3):
            await asyncio.sleep(10)
            times.append(f"{ctx.now():%H:%M:%S}")
            await ctx.wait_for_signal("go")
            times.append(f"{ctx.now():%H:%M:%S}")
        seen.append(times)
        return times

    async with world.app(looks) as app:
        await app.start(looks, id="r1")
        await app.settle()
    for _ in range(3):
        world.clock.advance(17)
        async with world.app(looks) as app:
            await app.settle()
        world.clock.advance(4)
        async with world.app(looks) as app:
            await app.get_run("r1").signal("go")
            await app.settle()
    async with world.app(looks) as app:
        assert await app.get_run("r1").result() == [
            "00:00:00",
            "00:00:17",
            "00:00:21",
            "00:00:38",
            "00:00:42",
            "00:00:59",
            "00:01:03",
        ]


async def test_a_clock_that_jumps_back_does_not_take_a_run_back(world: World) -> None:
    @workflow
    async def looks(ctx: Context) -> list[str]:
        times = []
        for _ in range(3):
            await ctx.wait_for_signal("go")
            times.append(f"{ctx.now():%H:%M:%S}")
        return times

    async with world.app(looks) as app:
        run = await app.start(looks)
        for by in (60, -50, 100):
            world.clock.set(world.after(by))
            await run.signal("go")
            await app.settle()
        assert await run.result() == ["00:01:00", "00:01:00", "00:01:50"]
