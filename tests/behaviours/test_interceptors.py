"""OBS-01 to 03: what an app puts around the attempts of its steps. F49."""

from __future__ import annotations

import asyncio
from contextvars import ContextVar
from typing import Any

import pytest

from perdure import Context, CurrentStep, RunFailed, StepTimeout, UsageError, current_step, step, workflow
from perdure.engine.around import Interceptor, Proceed
from perdure.model.steps import State
from tests.behaviours.world import Barrier, World

tenant: ContextVar[str] = ContextVar("tenant", default="nobody")


@step
async def on_loop(x: int) -> int:
    return x + 1


@step
def in_thread(x: int) -> int:
    return x + 1


@workflow(version="3")
async def three(ctx: Context, x: int) -> int:
    x = await on_loop(x)
    x = await ctx.step(in_thread, x)
    return int(await ctx.local_step("closure", lambda: x + 1))


def noting(notes: list[Any], name: str) -> Interceptor:
    async def around(step: CurrentStep, proceed: Proceed) -> Any:
        notes.append((name, "before", step.name))
        result = await proceed()
        notes.append((name, "after", step.name))
        return result

    return around


async def test_obs_01_each_attempt_is_wrapped_and_says_what_it_is(world: World) -> None:
    seen: list[CurrentStep] = []

    async def around(step: CurrentStep, proceed: Proceed) -> Any:
        assert current_step() is step
        seen.append(step)
        return await proceed()

    async with world.app(three) as app:
        app.use(around)
        run = await app.start(three, 1, id="r1", namespace="blue")
        assert await run.result() == 4
        incarnation = (await run.info()).incarnation
    assert [(s.run_id, s.workflow, s.version, s.namespace, s.name, s.seq, s.attempt, s.local, s.key) for s in seen] == [
        ("r1", "three", "3", "blue", name, seq, 1, local, f"r1:{incarnation}:{seq}")
        for seq, (name, local) in enumerate([("on_loop", False), ("in_thread", False), ("closure", True)])
    ]


async def test_obs_02_they_nest_like_an_onion_the_first_registered_outermost(world: World) -> None:
    notes: list[Any] = []
    async with world.app(three) as app:
        app.use(noting(notes, "outer"))
        app.use(noting(notes, "inner"))
        await (await app.start(three, 1)).result()
    assert notes[:4] == [
        ("outer", "before", "on_loop"),
        ("inner", "before", "on_loop"),
        ("inner", "after", "on_loop"),
        ("outer", "after", "on_loop"),
    ]
    assert len(notes) == 12


async def test_obs_03_it_does_not_hear_of_a_replay_and_can_be_taken_away(world: World) -> None:
    notes: list[Any] = []

    @workflow
    async def waits(ctx: Context) -> int:
        x = await on_loop(1)
        await ctx.wait_for_signal("go")
        return await ctx.step(in_thread, x)

    async with world.app(waits) as app:
        app.use(noting(notes, "first"))
        await app.start(waits, id="r1")
        await app.settle()
    assert notes == [("first", "before", "on_loop"), ("first", "after", "on_loop")]
    async with world.app(waits) as app:
        app.use(noting(notes, "kept"))
        gone = app.use(noting(notes, "gone"))
        gone()
        gone()
        await app.get_run("r1").signal("go")
        assert await app.get_run("r1").result() == 3
    assert notes[2:] == [("kept", "before", "in_thread"), ("kept", "after", "in_thread")]


async def test_obs_03_the_same_one_twice_is_taken_away_one_by_one(world: World) -> None:
    notes: list[Any] = []
    around = noting(notes, "it")
    async with world.app(three) as app:
        app.use(around)
        app.use(around)()
        await (await app.start(three, 1)).result()
    assert len(notes) == 6


@pytest.mark.parametrize("name", ["on_loop", "in_thread", "closure"])
async def test_what_it_returns_is_the_result_and_is_recorded(world: World, name: str) -> None:
    async def around(step: CurrentStep, proceed: Proceed) -> Any:
        result = await proceed()
        return result * 100 if step.name == name else result

    async with world.app(three) as app:
        app.use(around)
        run = await app.start(three, 1)
        await run.result()
        recorded = [int(step.output or b"0") for step in await run.steps()]
    expected, x = [], 1
    for each in ("on_loop", "in_thread", "closure"):
        x = (x + 1) * 100 if each == name else x + 1
        expected.append(x)
    assert recorded == expected


async def test_what_it_returns_instead_must_be_storable_too(world: World) -> None:
    async def around(step: CurrentStep, proceed: Proceed) -> Any:
        return object()

    async with world.app(three) as app:
        app.use(around)
        with pytest.raises(RunFailed, match="object"):
            await (await app.start(three, 1)).result()


async def test_what_it_raises_is_the_attempts_failure_and_is_tried_again(world: World) -> None:
    seen: list[int] = []

    @step(max_attempts=3, base=1)
    async def fine() -> str:
        return "fine"

    @workflow
    async def body() -> str:
        return await fine()

    async def around(step: CurrentStep, proceed: Proceed) -> Any:
        seen.append(step.attempt)
        result = await proceed()
        if step.attempt < 3:
            raise ConnectionError("no metrics")
        return result

    async with world.app(body) as app:
        app.use(around)
        run = await app.start(body)
        await app.tick(60)
        assert await run.result() == "fine"
        [only] = await run.steps()
        assert (only.state, only.attempts, seen) == (State.COMPLETED, 3, [1, 2, 3])


async def test_it_may_try_by_itself_and_each_time_gets_the_input_afresh(world: World) -> None:
    calls: list[list[int]] = []

    @step
    async def grows(items: list[int]) -> int:
        items.append(0)
        calls.append(items)
        if len(calls) == 1:
            raise ValueError("once")
        return len(items)

    @workflow
    async def body() -> int:
        return await grows([1])

    async def around(step: CurrentStep, proceed: Proceed) -> Any:
        try:
            return await proceed()
        except ValueError:
            return await proceed()

    async with world.app(body) as app:
        app.use(around)
        assert await (await app.start(body)).result() == 2


@pytest.mark.parametrize("name", ["on_loop", "in_thread", "closure"])
async def test_f49_what_it_sets_in_its_context_the_step_sees_and_the_next_does_not(world: World, name: str) -> None:
    seen: list[str] = []

    @step(name="on_loop")
    async def looks() -> None:
        seen.append(tenant.get())

    @step(name="in_thread")
    def looks_in_thread() -> None:
        seen.append(tenant.get())

    @workflow
    async def body(ctx: Context) -> None:
        await looks()
        await ctx.step(looks_in_thread)
        await ctx.local_step("closure", lambda: seen.append(tenant.get()))

    async def around(step: CurrentStep, proceed: Proceed) -> Any:
        if step.name == name:
            tenant.set("blue")
        return await proceed()

    async with world.app(body, max_threads=1) as app:
        app.use(around)
        await (await app.start(body)).result()
    assert seen == ["blue" if each == name else "nobody" for each in ("on_loop", "in_thread", "closure")]


async def test_a_steps_timeout_ends_what_is_around_it_too(world: World) -> None:
    barrier = Barrier()
    left: list[str] = []

    @step(timeout=5)
    async def hangs() -> None:
        await barrier.wait()

    @workflow
    async def body() -> None:
        await hangs()

    async def around(step: CurrentStep, proceed: Proceed) -> Any:
        try:
            return await proceed()
        finally:
            left.append(step.name)

    async with world.app(body) as app:
        app.use(around)
        run = await app.start(body)
        await barrier.reached.wait()
        await app.tick(5, steps=False)
        with pytest.raises(RunFailed) as caught:
            await run.result()
        assert isinstance(caught.value.__cause__, StepTimeout)
    assert left == ["hangs"]


async def test_an_abandoned_step_is_cancelled_through_it(world: World) -> None:
    barrier = Barrier()
    left: list[str] = []

    @step
    async def hangs() -> None:
        await barrier.wait()

    @workflow
    async def body() -> str:
        try:
            async with asyncio.timeout(5):
                await hangs()
        except TimeoutError:
            return "gave up"
        return "?"

    async def around(step: CurrentStep, proceed: Proceed) -> Any:
        try:
            return await proceed()
        except asyncio.CancelledError:
            left.append(step.name)
            raise

    async with world.app(body) as app:
        app.use(around)
        run = await app.start(body)
        await barrier.reached.wait()
        await app.tick(5, steps=False)
        assert await run.result() == "gave up"
        await app.settle()
    assert left == ["hangs"]


async def test_what_is_no_interceptor_is_refused(world: World) -> None:
    def plain(step: CurrentStep, proceed: Proceed) -> None: ...

    class Callable:
        async def __call__(self, step: CurrentStep, proceed: Proceed) -> Any:
            return await proceed()

    app = world.app(three)
    wrong: list[Any] = [plain, None, 1, "x", print]
    for each in wrong:
        with pytest.raises(UsageError, match="async function"):
            app.use(each)
    app.use(Callable())
    async with app:
        assert await (await app.start(three, 1)).result() == 4
