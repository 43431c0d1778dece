"""CAP: what is taken from the world once, and the same in every replay."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from perdure import Context, RunFailed, workflow
from perdure.model.steps import State
from tests.behaviours.world import World

seen: list[Any] = []


@pytest.fixture(autouse=True)
def nothing_seen() -> None:
    seen.clear()


async def replayed(world: World, body: Any, times: int = 2) -> Any:
    """The result of a body that waits for `go`, in processes that each replay it from the start, as time passes."""
    async with world.app(body) as app:
        await app.start(body, id="r1")
        await app.settle()
    for _ in range(times):
        world.clock.advance(9999)
        async with world.app(body) as app:
            await app.get_run("r1").signal("nudge")
            await app.settle()
    world.clock.advance(9999)
    async with world.app(body) as app:
        await app.get_run("r1").signal("go")
        return await app.get_run("r1").result()


async def test_cap_01_now_is_the_time_of_the_first_turn_also_in_a_replay(world: World) -> None:
    @workflow
    async def body(ctx: Context) -> None:
        seen.append(f"{ctx.now().isoformat()}")
        await ctx.wait_for_signal("go")

    await replayed(world, body)
    assert len(seen) >= 2
    assert set(seen) == {"2025-01-01T00:00:00+00:00"}


async def test_cap_02_a_side_effect_happens_once(world: World) -> None:
    def draw() -> int:
        seen.append("drawn")
        return len(seen)

    @workflow
    async def body(ctx: Context) -> int:
        drawn = await ctx.side_effect(draw)
        await ctx.wait_for_signal("go")
        return drawn

    assert await replayed(world, body) == 1
    assert seen == ["drawn"]


async def test_cap_02_random_values_and_uuids_are_the_same_in_every_replay(world: World) -> None:
    @workflow
    async def body(ctx: Context) -> None:
        seen.append((ctx.random.random(), ctx.random.randint(1, 10**9), str(ctx.uuid4()), str(ctx.uuid4())))
        await ctx.wait_for_signal("go")

    await replayed(world, body)
    assert len(seen) >= 2
    assert len(set(seen)) == 1
    assert seen[0][2] != seen[0][3]


async def test_cap_02_and_others_in_every_run(world: World) -> None:
    @workflow
    async def body(ctx: Context) -> str:
        return str(ctx.uuid4())

    @workflow
    async def parent(ctx: Context) -> list[str]:
        drawn = await asyncio.gather(*(ctx.child(body) for _ in range(3)))
        return [str(ctx.uuid4()), *drawn]

    async with world.app(body, parent) as app:
        results = [await (await app.start(parent)).result() for _ in range(3)]
        drawn = [uuid for result in results for uuid in result]
        assert len(set(drawn)) == 12


async def test_cap_05_a_side_effect_that_raises_fails_like_a_step_of_one_attempt(world: World) -> None:
    def fails() -> None:
        seen.append("tried")
        raise ValueError("no such luck")

    @workflow
    async def body(ctx: Context) -> None:
        await ctx.side_effect(fails)

    @workflow
    async def catches(ctx: Context) -> str:
        try:
            await ctx.side_effect(fails)
        except ValueError as error:
            await ctx.wait_for_signal("go")
            return f"caught {error}"
        return "nothing"

    async with world.app(body) as app:
        run = await app.start(body)
        with pytest.raises(RunFailed, match="no such luck"):
            await run.result()
        [only] = await run.steps()
        assert (only.state, only.attempts) == (State.FAILED, 1)
    assert await replayed(world, catches) == "caught no such luck"
    assert seen == ["tried", "tried"]
