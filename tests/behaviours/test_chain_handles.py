"""CAN: what a handle on the first run of a chain reaches."""

from __future__ import annotations

import pytest

from perdure import Context, RunCancelled, RunNotFound, Status, workflow
from tests.behaviours.world import World


@workflow
async def counts(ctx: Context, n: int) -> int:
    ctx.set_value("n", n)
    if await ctx.wait_for_signal("next", type=bool):
        return ctx.continue_as_new(n + 1)
    return n


async def test_can_a_handle_finds_the_newest_link(world: World) -> None:
    async with world.app(counts) as app:
        run = await app.start(counts, 0, id="c")
        assert (await run.latest()).id == "c"
        for _ in range(3):
            await run.signal("next", True)
        await app.settle()
        latest = await run.latest()
        assert (latest.id, await latest.value("n"), await latest.status()) == ("c~3", 3, Status.SUSPENDED)
        assert (await run.value("n"), await run.status()) == (0, Status.COMPLETED)
        assert (await run.wait(), await latest.wait()) == (Status.COMPLETED, Status.SUSPENDED)
        await run.signal("next", False)
        assert await run.result() == await latest.result() == 3


async def test_can_a_cancel_through_the_first_handle_ends_the_newest_link(world: World) -> None:
    async with world.app(counts) as app:
        run = await app.start(counts, 0, id="c")
        await run.signal("next", True)
        await app.settle()
        assert await run.cancel() is Status.CANCELLED
        assert await (await run.latest()).status() is Status.CANCELLED
        with pytest.raises(RunCancelled, match="'c~1'"):
            await run.result()


async def test_can_a_deleted_link_is_named(world: World) -> None:
    async with world.app(counts) as app:
        run = await app.start(counts, 0, id="c")
        await run.signal("next", True)
        await app.settle()
        await app.get_run("c~1").delete()
        for reach in (run.latest, run.result):
            with pytest.raises(RunNotFound, match="run 'c' continued as 'c~1', which was deleted"):
                await reach()
