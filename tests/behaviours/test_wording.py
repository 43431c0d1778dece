"""What errors say: which run, which part of it, and what to do."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from perdure import ChildFailed, Context, NotInWorkflow, RunFailed, UsageError, workflow
from tests.behaviours.world import World


@workflow
async def waits(ctx: Context) -> int:
    return await ctx.wait_for_signal("count", type=int)


@pytest.mark.parametrize("timeout", [0.01, timedelta(milliseconds=10)])
async def test_a_wait_for_a_run_that_is_given_up_says_for_which_one(world: World, timeout: float | timedelta) -> None:
    async with world.app(waits) as app:
        run = await app.start(waits, id="r1")
        with pytest.raises(TimeoutError, match=r"run 'r1' has not ended within the timeout of 0.*01.*; it goes on"):
            await run.result(timeout=timeout)
        delayed = await app.start(waits, id="r2", delay=60)
        await delayed.wait(timeout=60)
        await run.signal("count", 3)
        assert await run.result(timeout=timedelta(seconds=60)) == 3


async def test_so_does_a_wait_for_it_to_settle(world: World) -> None:
    async with world.client(waits) as client:
        run = await client.start(waits, id="r1")  # nobody works on it
        with pytest.raises(TimeoutError, match=r"run 'r1' has not settled within the timeout of 0\.01; it goes on"):
            await run.wait(timeout=0.01)


async def test_a_signal_of_another_type_is_named(world: World) -> None:
    async with world.app(waits) as app:
        run = await app.start(waits, id="r1")
        await run.signal("count", "many")
        with pytest.raises(
            RunFailed,
            match=r"does not fit .* int.* \(in run 'r1' \(waits@1\), what came for signal 'count' at position 0\)",
        ):
            await run.result()


async def test_so_is_a_local_steps_result_of_another_type(world: World) -> None:
    @workflow
    async def odd(ctx: Context) -> int:
        return int(await ctx.local_step("count", lambda: "many", type=int))

    async with world.app(odd) as app:
        run = await app.start(odd, id="r1")
        with pytest.raises(
            RunFailed,
            match=r"does not fit .* int.* \(in run 'r1' \(odd@1\), what came for local 'count' at position 0\)",
        ):
            await run.result()


@pytest.mark.parametrize("how", ["child", "start_child", "all", "run", "continue"])
async def test_an_input_that_does_not_fit_says_where_it_was_given(world: World, how: str) -> None:
    @workflow
    async def doubles(ctx: Context, n: int) -> int:
        return 2 * n

    async def give(ctx: Context, wrong: Any) -> None:
        if how == "child":
            await ctx.child(doubles, wrong)
        elif how == "start_child":
            await ctx.start_child(doubles, wrong)
        elif how == "all":
            await ctx.all(doubles, [1, wrong])
        elif how == "run":
            await doubles.run(wrong)
        else:
            ctx.continue_as_new(wrong)

    @workflow
    async def gives(ctx: Context, n: int) -> None:
        await asyncio.sleep(1)
        await give(ctx, "many")

    async with world.app(gives) as app:
        run = await app.start(gives, 1, id="r1")
        await app.tick(1)
        with pytest.raises(
            RunFailed, match=r"argument 'n' of workflow .* int.* \(in run 'r1' \(gives@1\) at position \d\)"
        ):
            await run.result()


async def test_a_run_says_in_words_why_it_did_not_complete(world: World) -> None:
    @workflow
    async def fails(ctx: Context) -> None:
        raise ValueError("no flour left")

    async with world.app(fails, waits) as app:
        failed = await app.start(fails)
        waiting = await app.start(waits)
        cancelled = await app.start(waits)
        await cancelled.cancel("the bakery is closed")
        await app.settle()
        reasons = [(await run.info()).reason for run in (failed, waiting, cancelled)]
        assert reasons == ["no flour left", None, "the bakery is closed"]


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (ValueError("no flour"), "no flour"),
        (TimeoutError(), "TimeoutError"),
        (KeyError("amount"), "KeyError: 'amount'"),
    ],
)
async def test_an_error_whose_text_says_little_comes_with_its_class(world: World, error: Exception, said: str) -> None:
    @workflow
    async def bakes() -> None:
        raise error

    @workflow
    async def orders(ctx: Context) -> str:
        try:
            await ctx.child(bakes, id="b1")
        except ChildFailed as failure:
            return str(failure)
        return "baked"

    async with world.app(bakes, orders) as app:
        assert await (await app.start(orders)).result() == f"child 'b1' failed: {said}"
        run = app.get_run("b1")
        with pytest.raises(RunFailed, match=f"^run 'b1' failed: {said}$"):
            await run.result()
        assert (await run.info()).reason == said


async def test_a_status_that_does_not_exist_is_named(world: World) -> None:
    async with world.client(waits) as client:
        with pytest.raises(UsageError, match=r"there is no status 'done'; there are pending, running, .*completed"):
            await client.runs(status="done")


USES: dict[str, Callable[[Context], Any]] = {
    "step": lambda ctx: ctx.step("any"),
    "local_step": lambda ctx: ctx.local_step("any", int),
    "side_effect": lambda ctx: ctx.side_effect(int),
    "wait_for_signal": lambda ctx: ctx.wait_for_signal("any"),
    "child": lambda ctx: ctx.child(waits),
    "start_child": lambda ctx: ctx.start_child(waits),
    "all": lambda ctx: ctx.all("any", []),
    "continue_as_new": lambda ctx: ctx.continue_as_new(),
    "set_value": lambda ctx: ctx.set_value("any", 1),
    "upsert_attributes": lambda ctx: ctx.upsert_attributes({"any": 1}),
    "patched": lambda ctx: ctx.patched("any"),
    "uuid4": lambda ctx: ctx.uuid4(),
    "random": lambda ctx: ctx.random,
}


@pytest.mark.parametrize("use", USES)
async def test_a_context_that_is_used_in_a_step_or_after_the_end_says_so(world: World, use: str) -> None:
    kept: list[Context] = []

    @workflow
    async def leaks(ctx: Context) -> int:
        kept.append(ctx)
        await ctx.local_step("misused", lambda: USES[use](ctx))
        return 0

    message = r"the context of run 'r1' \(leaks@1\) was used outside its workflow function"
    async with world.app(leaks) as app:
        run = await app.start(leaks, id="r1")
        with pytest.raises(RunFailed, match=message) as caught:
            await run.result()
        assert isinstance(caught.value.__cause__, NotInWorkflow)
        assert (kept[0].run_id, kept[0].now().year) == ("r1", 2025)  # what harms nothing works
        with pytest.raises(NotInWorkflow, match=message):
            USES[use](kept[0])
        with pytest.raises(NotInWorkflow, match=message):
            await kept[0].sleep_until(0)
