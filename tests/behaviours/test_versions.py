"""VER: versions side by side, and patches within one. F88."""

from __future__ import annotations

from typing import Any

import pytest

from perdure import Context, NotRegistered, Status, step, workflow
from perdure.model.history import Event
from tests.behaviours.world import World


@step
async def old_step() -> str:
    return "old"


@step
async def new_step() -> str:
    return "new"


def version(number: str) -> Any:
    @workflow(name="flow", version=number)
    async def flow(ctx: Context) -> str:
        await ctx.wait_for_signal("go")
        return number

    return flow


@pytest.mark.parametrize(
    ("order", "newest"), [("1 2", "2"), ("2 1", "2"), ("10 9 2", "10"), ("1.9 1.10", "1.10"), ("beta alpha", "beta")]
)
async def test_ver_01_new_runs_begin_on_the_newest_version_in_whatever_order_they_came(
    world: World, order: str, newest: str
) -> None:
    """VER-04 too."""
    async with world.app(*map(version, order.split())) as app:
        run = await app.start("flow")
        await run.signal("go")
        assert await run.result() == newest
        assert (await run.info()).version == newest


async def test_ver_02_a_run_goes_on_with_the_version_it_began_with(world: World) -> None:
    async with world.app(version("1")) as app:
        await app.start("flow", id="r1")
        await app.settle()
    async with world.app(version("1"), version("2")) as app:
        await app.get_run("r1").signal("go")
        assert await app.get_run("r1").result() == "1"
        run = await app.start("flow")
        await run.signal("go")
        assert await run.result() == "2"


async def test_ver_03_a_version_that_is_not_there_is_left_alone(world: World) -> None:
    async with world.app(version("1")) as app:
        await app.start("flow", id="r1")
        await app.settle()
    async with world.app(version("2")) as app:
        await app.get_run("r1").signal("go")
        before = await app.get_run("r1").info()
        await app.tick(3600)
        assert await app.get_run("r1").info() == before
        assert before.status is Status.SUSPENDED
        with pytest.raises(NotRegistered, match=r"flow@1 .*skew protection"):
            app.registry.workflow("flow", "1")
    async with world.app(version("1")) as app:
        assert await app.get_run("r1").result() == "1"


async def test_f88_a_version_is_recorded_also_when_none_was_declared(world: World) -> None:
    @workflow
    async def plain() -> None: ...

    async with world.app(plain) as app:
        assert (await (await app.start(plain)).info()).version == "1"


async def test_f88_a_child_begins_on_the_version_that_its_parents_code_names(world: World) -> None:
    one, two = version("1"), version("2")

    @workflow
    async def parent(ctx: Context) -> list[str]:
        pinned = await ctx.start_child(one, id="pinned")
        newest = await ctx.start_child("flow", id="newest")
        return [await pinned.result(), await newest.result()]

    async with world.app(parent, one, two) as app:
        run = await app.start(parent)
        await app.settle()
        for child in ("pinned", "newest"):
            await app.get_run(child).signal("go")
        assert await run.result() == ["1", "2"]


# ---------------------------------------------------------------- patches


@workflow(name="patched")
async def before_patch(ctx: Context) -> list[str]:
    await ctx.wait_for_signal("go")
    said = await old_step()
    await ctx.wait_for_signal("end")
    return [said]


@workflow(name="patched")
async def after_patch(ctx: Context) -> list[str]:
    await ctx.wait_for_signal("go")
    answers = [ctx.patched("x") for _ in range(2)]
    said = await (new_step() if answers[0] else old_step())
    answers.append(ctx.patched("x"))
    await ctx.wait_for_signal("end")
    return [said, *map(str, answers), str(ctx.patched("x"))]


async def test_ver_05_a_new_run_takes_the_new_path_and_is_marked(world: World) -> None:
    async with world.app(after_patch) as app:
        await app.start(after_patch, id="r1")
        await app.get_run("r1").signal("go")
        await app.settle()
        markers = [e.name for e in await app.get_run("r1").history() if e.event is Event.MARKER]
        assert markers == ["x"]
    async with world.app(after_patch) as app:
        await app.get_run("r1").signal("end")
        assert await app.get_run("r1").result() == ["new", "True", "True", "True", "True"]


async def test_ver_05_a_run_that_went_the_old_way_stays_on_it(world: World) -> None:
    async with world.app(before_patch) as app:
        await app.start(before_patch, id="r1")
        await app.get_run("r1").signal("go")
        await app.settle()
    for _ in range(2):
        async with world.app(after_patch, old_step) as app:
            await app.get_run("r1").signal("nudge")
            await app.settle()
            assert await app.get_run("r1").status() is Status.SUSPENDED
    async with world.app(after_patch, old_step) as app:
        await app.get_run("r1").signal("end")
        assert await app.get_run("r1").result() == ["old", "False", "False", "False", "False"]


async def test_ver_05_one_that_has_not_come_to_it_takes_the_new_way(world: World) -> None:
    async with world.app(before_patch) as app:
        await app.start(before_patch, id="r1")
        await app.settle()
    async with world.app(after_patch) as app:
        await app.get_run("r1").signal("go")
        await app.settle()
    async with world.app(after_patch) as app:
        await app.get_run("r1").signal("end")
        assert await app.get_run("r1").result() == ["new", "True", "True", "True", "True"]
