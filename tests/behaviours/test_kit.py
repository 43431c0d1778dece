"""KIT: the testing kit that users get. REPLAY-09 too: recordings held against code."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta

import pytest

from perdure import Context, NonDeterminismError, Status, UsageError, step, workflow
from perdure.stores.memory import MemoryStore
from perdure.testing import ManualClock, Recording, TestApp, record, replay
from tests.behaviours.world import Barrier, World


@step
async def add(a: int, b: int) -> int:
    return a + b


@step
def double(n: int) -> int:
    return 2 * n


@workflow
async def sums(ctx: Context, n: int) -> int:
    total = await add(n, 1)
    await asyncio.sleep(3600)
    return await ctx.step(double, total)


async def test_kit_01_a_test_app_runs_a_workflow_in_memory_and_shows_its_store_and_its_clock() -> None:
    async with TestApp(sums) as app:
        run = await app.start(sums, 4, id="r1")
        await app.settle()
        assert await run.status() is Status.SUSPENDED
        assert isinstance(app.store, MemoryStore)
        assert isinstance(app.clock, ManualClock)
        stored = await app.store.get("r1")
        assert stored is not None
        assert stored.wake_at == app.clock.now() + 3_600_000_000
        app.clock.advance(3600)
        await app.settle()
        assert await run.result() == 10


async def test_kit_01_its_clock_begins_where_it_is_told(world: World) -> None:
    async with TestApp(now=datetime(2031, 5, 1, tzinfo=UTC)) as app:
        assert app.clock.now() == int(datetime(2031, 5, 1, tzinfo=UTC).timestamp()) * 1_000_000


async def test_kit_01_several_apps_on_one_store_are_several_processes(world: World) -> None:
    async with world.client(sums) as client, world.app(sums) as worker:
        run = await client.start(sums, 1, id="r1")
        await worker.settle()
        assert await run.status() is Status.SUSPENDED
        await worker.tick(3600)
        assert await run.result() == 4


async def test_kit_02_tick_advances_the_clock_and_resumes_due_sleeps(world: World) -> None:
    async with world.app(sums) as app:
        before = world.clock.now()
        run = await app.start(sums, 4, id="r1")
        await app.tick(3599)
        assert await run.status() is Status.SUSPENDED
        await app.tick(timedelta(seconds=1))
        assert await run.status() is Status.COMPLETED
        assert world.clock.now() == before + 3_600_000_000


async def test_kit_02_tick_stops_wherever_something_is_due(world: World) -> None:
    @workflow
    async def beats(ctx: Context) -> list[str]:
        times = []
        for _ in range(4):
            await asyncio.sleep(10)
            times.append(f"{ctx.now():%H:%M:%S}")
        return times

    async with world.app(beats) as app:
        run = await app.start(beats)
        await app.tick(3600)
        assert await run.result() == ["00:00:10", "00:00:20", "00:00:30", "00:00:40"]


async def test_kit_settle_waits_for_steps_in_threads_and_says_which_one_does_not_end(world: World) -> None:
    barrier = Barrier()

    @step
    async def stuck() -> None:
        await barrier.wait()

    @workflow
    async def sticky() -> None:
        await stuck()

    async with world.app(sums, sticky, settle_within=0.01) as app:
        run = await app.start(sticky, id="r1")
        with pytest.raises(TimeoutError, match="step 'stuck' of run 'r1'"):
            await app.settle()
        app.settle_within = 30
        await app.settle(steps=False)
        assert await run.status() is Status.RUNNING
        barrier.open()
        await app.settle()
        assert await run.status() is Status.COMPLETED


# ---------------------------------------------------------------- recordings


async def recorded(world: World) -> Recording:
    async with world.app(sums) as app:
        run = await app.start(sums, 4, id="r1")
        await app.tick(3600)
        assert await run.result() == 10
        return await record(run)


async def test_replay_09_unchanged_code_fits_its_recording(world: World) -> None:
    recording = await recorded(world)
    replay(sums, recording)
    assert Recording.load(recording.dump()) == recording
    history = recording.history
    ends = [i for i in range(1, len(history)) if history[i].commit != history[i - 1].commit]
    assert len(ends) == 3
    for end in ends:  # where the run might have stood at any commit
        replay(sums, Recording(recording.run, recording.started_at, history[:end]))


async def test_replay_09_a_renamed_step_does_not(world: World) -> None:
    @workflow(name="sums")
    async def renamed(ctx: Context, n: int) -> int:
        total = await ctx.step("plus", n)
        await asyncio.sleep(3600)
        return await ctx.step(double, total)

    with pytest.raises(NonDeterminismError, match="non-determinism at r1#0: recorded step 'add', issued step 'plus'"):
        replay(renamed, await recorded(world))


async def test_replay_09_nor_a_re_ordered_one(world: World) -> None:
    @workflow(name="sums")
    async def turned(ctx: Context, n: int) -> int:
        total = await add(n, 1)
        result = await ctx.step(double, total)
        await asyncio.sleep(3600)
        return result

    with pytest.raises(NonDeterminismError) as caught:
        replay(turned, await recorded(world))
    assert (caught.value.run_id, caught.value.seq) == ("r1", 1)


@workflow(name="sums")
async def shorter(ctx: Context, n: int) -> int:
    return await add(n, 1)


@workflow(name="sums")
async def longer(ctx: Context, n: int) -> int:
    total = await add(n, 1)
    await asyncio.sleep(3600)
    total = await ctx.step(double, total)
    return await add(total, 1)


@workflow(name="sums")
async def failing(ctx: Context, n: int) -> int:
    total = await add(n, 1)
    await asyncio.sleep(3600)
    await ctx.step(double, total)
    raise ValueError("no")


@pytest.mark.parametrize("changed", [shorter, longer, failing], ids=lambda changed: changed.function.call.__name__)
async def test_replay_09_nor_code_that_ends_otherwise(world: World, changed: object) -> None:
    with pytest.raises(NonDeterminismError, match="r1#"):
        replay(changed, await recorded(world))  # type: ignore[arg-type]


async def test_replay_09_a_recording_keeps_the_token_of_a_wait(world: World) -> None:
    @workflow
    async def waits(ctx: Context) -> str:
        return str(await ctx.wait_for_signal("paid", token='order:"7"'))

    async with world.app(waits) as app:
        run = await app.start(waits, id="r1")
        await app.signal("paid", "yes", token='order:"7"')
        assert await run.result() == "yes"
        recording = await record(run)
    assert Recording.load(recording.dump()) == recording
    replay(waits, Recording.load(recording.dump()))


async def test_replay_09_the_end_that_counts_is_the_one_after_the_last_requeue(world: World) -> None:
    healthy = False

    @step
    async def check() -> str:
        if not healthy:
            raise ValueError("ill")
        return "well"

    @workflow
    async def checks(ctx: Context) -> str:
        return await check()

    async with world.app(checks) as app:
        run = await app.start(checks, id="r1")
        await app.settle()
        healthy = True
        await run.requeue()
        assert await run.result() == "well"
        recording = await record(run)
    replay(checks, recording)
    for end in range(1, len(recording.history) + 1):
        if end == len(recording.history) or recording.history[end].commit != recording.history[end - 1].commit:
            replay(checks, Recording(recording.run, recording.started_at, recording.history[:end]))


async def test_replay_09_what_is_no_recording_is_refused(world: World) -> None:
    @workflow
    async def other() -> None: ...

    recording = await recorded(world)
    with pytest.raises(UsageError, match="of workflow 'sums', not of workflow 'other'"):
        replay(other, recording)
    with pytest.raises(UsageError, match="no recording"):
        Recording.load(b"{}")
    async with world.client(sums) as client:
        pending = await client.start(sums, 1, id="r2")
        with pytest.raises(UsageError, match="'r2' has not begun"):
            await record(pending)
