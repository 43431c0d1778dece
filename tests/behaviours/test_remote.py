"""REMOTE, as far as steps run here: steps by name, options by the call, and what a failed one tells."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from perdure import Context, FatalError, NotRegistered, RunFailed, StepFailed, step, step_ref, workflow
from perdure.model.steps import State
from tests.behaviours.world import World

calls: list[str] = []


@pytest.fixture(autouse=True)
def no_calls() -> None:
    calls.clear()


async def test_remote_04_a_step_that_nobody_here_serves_says_that_it_needs_a_transport(world: World) -> None:
    @workflow
    async def body(ctx: Context) -> Any:
        return await ctx.step("payments.charge", {"amount": 7})

    async with world.app(body) as app:
        run = await app.start(body, id="r1")
        with pytest.raises(RunFailed, match="remote steps require a transport") as caught:
            await run.result()
        assert "'payments.charge' of run 'r1'" in str(caught.value)
        assert isinstance(caught.value.__cause__, NotRegistered)


async def test_remote_04_unless_it_was_done_before(world: World) -> None:
    @step(name="payments.charge")
    async def charge(amount: int) -> int:
        calls.append("charge")
        return amount

    charge_by_name = step_ref("payments.charge", type=int)

    @workflow
    async def body(ctx: Context) -> int:
        charged = await charge_by_name(7)
        await ctx.wait_for_signal("go")
        return charged

    async with world.app(body, charge) as app:
        await app.start(body, id="r1")
        await app.settle()
    async with world.app(body) as app:
        await app.get_run("r1").signal("go")
        assert await app.get_run("r1").result() == 7
    assert calls == ["charge"]


async def test_remote_08_an_error_that_is_not_retryable_is_final_at_once(world: World) -> None:
    class Declined(Exception):
        retryable = False

    @step(max_attempts=5)
    async def charge() -> None:
        calls.append("charge")
        raise Declined("no money")

    @workflow
    async def body(ctx: Context) -> None:
        await charge()

    async with world.app(body) as app:
        run = await app.start(body)
        await app.tick(3600)
        with pytest.raises(RunFailed, match="no money"):
            await run.result()
    assert calls == ["charge"]


async def test_remote_09_the_last_error_is_raised_word_for_word_with_all_that_it_carried(world: World) -> None:
    @step(max_attempts=3, base=1)
    async def charge() -> None:
        calls.append("charge")
        raise (
            FatalError("card declined: insufficient funds", "card_declined", {"left": 3})
            if len(calls) == 3
            else ValueError(f"attempt {len(calls)}")
        )

    @workflow
    async def catches(ctx: Context) -> list[Any]:
        try:
            await charge()
        except FatalError as error:
            return [str(error), error.code, error.details]
        return []

    @workflow
    async def fails(ctx: Context) -> None:
        await charge()

    async with world.app(catches, fails) as app:
        run = await app.start(catches)
        await app.tick(60)
        assert await run.result() == ["card declined: insufficient funds", "card_declined", {"left": 3}]
        calls.clear()
        failing = await app.start(fails)
        await app.tick(60)
        with pytest.raises(RunFailed, match="card declined: insufficient funds") as caught:
            await failing.result()
        error = caught.value.__cause__
        assert isinstance(error, FatalError)
        assert (error.code, error.details) == ("card_declined", {"left": 3})
        [only] = await failing.steps()
        assert (only.state, only.attempts) == (State.FAILED, 3)


@pytest.mark.parametrize("how", ["direct", "ctx.step", "reference", "string"])
async def test_remote_10_the_calls_options_override_the_declared_ones_one_by_one(world: World, how: str) -> None:
    times: list[int] = []

    @step(name="fragile", max_attempts=3, backoff="fixed", base=5)
    async def fragile() -> None:
        times.append(world.clock.now())
        raise ValueError("no")

    by_name = step_ref("fragile", max_attempts=3, backoff="fixed", base=5)

    @workflow
    async def body(ctx: Context) -> None:
        if how == "direct":
            await fragile.using(max_attempts=2)()
        elif how == "ctx.step":
            await ctx.step(fragile.using(max_attempts=2))
        elif how == "reference":
            await by_name.using(max_attempts=2)()
        else:
            await ctx.step("fragile")

    async with world.app(body, fragile) as app:
        run = await app.start(body)
        await app.tick(60)
        with pytest.raises(RunFailed):
            await run.result()
    waits = [after - before for before, after in itertools.pairwise(times)]
    assert waits == ([] if how == "string" else [5_000_000])  # a name alone has no declared policy


async def test_an_error_whose_class_is_elsewhere_is_a_step_failed(world: World) -> None:
    class Local(Exception):
        code = "local"
        details = (1, 2)

    @step
    async def fails() -> None:
        raise Local("of a class that cannot be imported")

    @workflow
    async def body(ctx: Context) -> list[Any]:
        try:
            await fails()
        except StepFailed as error:
            return [str(error), error.code, error.details, "Local" in error.type]
        return []

    async with world.app(body) as app:
        assert await (await app.start(body)).result() == [
            "of a class that cannot be imported",
            "local",
            [1, 2],
            True,
        ]
