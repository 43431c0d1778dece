"""OBS-07: what goes with a run from whoever started it: a trace, a tenant. F49."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from functools import partial
from typing import Any

import pytest

from perdure import Context, CurrentStep, Perdure, RunFailed, UsageError, current_step, step, workflow
from perdure.engine.around import Proceed
from tests.behaviours.world import World

TRACE = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"

tenant: ContextVar[str] = ContextVar("tenant", default="nobody")
seen: list[Any] = []


@pytest.fixture(autouse=True)
def _nothing_seen() -> None:
    seen.clear()
    tenant.set("nobody")


def same(value: Any) -> Any:
    return value


def take_tenant() -> Mapping[str, str]:
    return {"tenant": tenant.get()}


@contextmanager
def have_tenant(carrier: Mapping[str, str]) -> Generator[None]:
    token = tenant.set(carrier.get("tenant", "nobody"))
    try:
        yield
    finally:
        tenant.reset(token)


@step
async def looks() -> str:
    return tenant.get()


@step
def looks_in_thread() -> str:
    return tenant.get()


@workflow
async def three(ctx: Context) -> list[str]:
    return [
        tenant.get(),
        ctx.carrier.get("tenant", "none"),
        await looks(),
        await ctx.step(looks_in_thread),
        await ctx.local_step("closure", tenant.get),
    ]


def carrying(app: Perdure) -> Perdure:
    app.carry(capture=take_tenant, restore=have_tenant)
    return app


async def test_obs_07_what_the_caller_has_is_restored_around_each_step_but_not_in_the_body(world: World) -> None:
    async with world.app(three) as app:
        carrying(app)
        tenant.set("blue")
        blue = await app.start(three)
        tenant.set("red")
        red = await app.start(three)
        assert await blue.result() == ["nobody", "blue", "blue", "blue", "blue"]
        assert await red.result() == ["nobody", "red", "red", "red", "red"]
        assert tenant.get() == "red"


async def test_obs_07_in_another_process_and_after_a_replay_too(world: World) -> None:
    @workflow
    async def waits(ctx: Context) -> list[str]:
        await ctx.wait_for_signal("go")
        return [ctx.carrier["tenant"], await looks(), await ctx.step(looks_in_thread)]

    async with world.app() as there, carrying(world.client(waits)) as web:
        there.register(waits)
        carrying(there)
        tenant.set("blue")
        await web.start(waits, id="r1")
        tenant.set("red")
        await there.settle()
    async with world.app(waits) as later:
        carrying(later)
        await later.get_run("r1").signal("go")
        assert await later.get_run("r1").result() == ["blue", "blue", "blue"]


async def test_obs_07_without_a_capture_the_carrier_is_empty_and_without_hooks_nothing_changes(world: World) -> None:
    @contextmanager
    def restore(carrier: Mapping[str, str]) -> Generator[None]:
        seen.append(dict(carrier))
        yield

    tenant.set("blue")
    async with world.app(three) as app:
        assert await (await app.start(three)).result() == ["nobody", "none", "blue", "blue", "blue"]  # the opener's
        undo = app.carry(restore=restore)
        await (await app.start(three)).result()
        assert seen == [{}, {}, {}]
        undo()
        undo()
        await (await app.start(three)).result()
        assert len(seen) == 3


async def test_children_and_next_links_inherit_it_and_may_be_given_more(world: World) -> None:
    @workflow
    async def leaf(ctx: Context) -> dict[str, str]:
        return dict(ctx.carrier)

    @workflow
    async def parent(ctx: Context, rounds: int) -> list[dict[str, str]]:
        if rounds:
            ctx.continue_as_new(rounds - 1)
        later = await ctx.start_child(leaf)
        return [
            await ctx.child(leaf),
            await ctx.child(leaf, carrier={"tenant": "green", "more": "yes"}),
            await later.result(),
            *await ctx.all(rounds_of, [1]),
        ]

    @workflow
    async def rounds_of(ctx: Context, x: int) -> dict[str, str]:
        return dict(ctx.carrier)

    blue = {"tenant": "blue", "a": "b"}
    async with world.app(parent, leaf, rounds_of) as app:
        run = await app.start(parent, 1, carrier=blue)
        assert await run.result() == [blue, blue | {"tenant": "green", "more": "yes"}, blue, blue]


async def test_a_run_that_a_step_starts_is_the_steps(world: World) -> None:
    @workflow
    async def leaf(ctx: Context) -> dict[str, str]:
        return dict(ctx.carrier)

    @step
    async def starts() -> dict[str, str]:
        assert current_step().carrier == {"tenant": "blue"}
        return await leaf.run()

    @workflow
    async def body() -> dict[str, str]:
        return await starts()

    async with world.app(body, leaf) as app:
        assert await (await app.start(body, carrier={"tenant": "blue"})).result() == {"tenant": "blue"}


async def test_a_start_on_an_id_that_is_there_leaves_its_carrier_alone(world: World) -> None:
    async with world.app(three) as app:
        await (await app.start(three, id="r1", carrier={"tenant": "blue"})).result()
        run = await app.start(three, id="r1", carrier={"tenant": "red"})
        assert (await run.result())[1] == "blue"


async def test_signal_with_start_takes_it_along_too(world: World) -> None:
    @workflow
    async def waits(ctx: Context) -> str:
        await ctx.wait_for_signal("go")
        return ctx.carrier["tenant"]

    async with world.app(waits) as app:
        carrying(app)
        tenant.set("blue")
        run = await app.signal_with_start(waits, id="r1", signal="go")
        assert await run.result() == "blue"


@pytest.mark.parametrize(
    ("given", "found"),
    [
        (TRACE, TRACE),
        (TRACE + "-later", TRACE + "-later"),
        ("nonsense", None),
        ("ff" + TRACE[2:], None),
        ("00-" + "0" * 32 + TRACE[35:], None),
        (None, None),
    ],
)
async def test_a_trace_is_given_at_the_start_and_a_malformed_one_is_passed_by(
    world: World, given: str | None, found: str | None
) -> None:
    @step
    async def traced() -> str | None:
        return current_step().traceparent

    @workflow
    async def body(ctx: Context) -> list[str | None]:
        return [ctx.traceparent, await traced()]

    async with world.app(body) as app:
        run = await app.start(body, carrier={} if given is None else {"traceparent": given, "tracestate": "a=b"})
        assert await run.result() == [found, found]


async def test_restore_is_around_the_interceptors_and_its_failure_is_the_attempts(world: World) -> None:
    @contextmanager
    def fails_once(carrier: Mapping[str, str]) -> Generator[None]:
        seen.append("restore")
        if seen.count("restore") == 1:
            raise ConnectionError("no tracer")
        yield
        seen.append("restored")

    async def around(step: CurrentStep, proceed: Proceed) -> Any:
        seen.append(f"attempt {step.attempt}")
        return await proceed()

    @step(max_attempts=2, base=1)
    async def fine() -> str:
        return "fine"

    @workflow
    async def body() -> str:
        return await fine()

    async with world.app(body) as app:
        app.use(around)
        app.carry(restore=fails_once)
        run = await app.start(body)
        await app.tick(60)
        assert await run.result() == "fine"
    assert seen == ["restore", "restore", "attempt 2", "restored"]


async def test_a_restore_that_swallows_an_error_is_told(world: World) -> None:
    @contextmanager
    def swallows(carrier: Mapping[str, str]) -> Generator[None]:
        try:
            yield
        except ValueError:
            pass

    @step
    async def fails() -> None:
        raise ValueError("boom")

    @workflow
    async def body() -> None:
        await fails()

    async with world.app(body) as app:
        app.carry(restore=swallows)
        with pytest.raises(RunFailed, match="swallowed"):
            await (await app.start(body)).result()


async def test_what_cannot_be_carried_is_refused_and_nothing_is_started(world: World) -> None:
    wrong: list[Any] = [1, "x", ["a"], {"a": 1}, {1: "a"}, {"": "a"}, {"a": "\ud800"}, {"a": "x" * 9000}]
    async with world.app(three) as app:
        for each in wrong:
            with pytest.raises(UsageError):
                await app.start(three, id="r1", carrier=each)
            with pytest.raises(UsageError):
                three.using(carrier=each)
            undo = app.carry(capture=partial(same, each))
            with pytest.raises(UsageError, match="capture"):
                await app.start(three, id="r1")
            undo()

        def breaks() -> Mapping[str, str]:
            raise LookupError("no request")

        app.carry(capture=breaks)
        with pytest.raises(LookupError, match="no request"):
            await app.start(three, id="r1")
        assert await app.runs() == []
        with pytest.raises(UsageError, match="neither"):
            app.carry()
        with pytest.raises(UsageError, match="functions"):
            app.carry(capture=1)  # type: ignore[arg-type]


async def test_a_restore_that_gives_no_context_manager_is_told(world: World) -> None:
    async with world.app(three) as app:
        wrong: Any = lambda carrier: 7  # noqa: E731
        app.carry(restore=wrong)
        with pytest.raises(RunFailed, match="context manager"):
            await (await app.start(three)).result()
