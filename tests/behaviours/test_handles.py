"""Handles: what is asked through one happens once, to the run it was made of, and only where it may be asked."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from perdure import Context, RunNotFound, Status, StoreUnavailable, workflow
from perdure.model.commit import Create, Send
from tests.behaviours.world import World

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
