"""OBS: what subscribers hear, and when."""

from __future__ import annotations

import asyncio

import pytest

from perdure import Context, Lifecycle, RunFailed, step, workflow
from tests.behaviours.world import World, ends, events_of, kinds


@step
async def hello(name: str) -> str:
    return f"hello {name}"


@workflow(version="3")
async def greet(ctx: Context, name: str) -> str:
    return await hello(name)


async def test_obs_05_the_events_of_a_run_of_one_step(world: World) -> None:
    async with world.app(greet) as app:
        events = events_of(app)
        run = await app.start(greet, "you", id="r1", namespace="blue")
        await run.result()
        assert kinds(events) == ["run.started", "step.started", "step.completed", "run.completed"]
        incarnation = (await run.info()).incarnation
        for event in events:
            facts = (event.run_id, event.incarnation, event.workflow, event.version, event.namespace, event.at)
            assert facts == ("r1", incarnation, "greet", "3", "blue", world.clock.now())
        assert [(e.step, e.seq, e.attempt) for e in events if e.kind == "step.started"] == [("hello", 0, 1)]
        assert [(e.step, e.seq) for e in events if e.kind == "step.completed"] == [("hello", 0)]
        assert events[-1].status == "completed"


async def test_obs_05_of_one_that_waits_retries_and_fails(world: World) -> None:
    @step(max_attempts=2, base=10)
    async def fails() -> None:
        raise ValueError("no")

    @workflow
    async def body(ctx: Context) -> None:
        await asyncio.sleep(5)
        await fails()

    async with world.app(body) as app:
        events = events_of(app)
        run = await app.start(body)
        await app.tick(60)
        with pytest.raises(RunFailed):
            await run.result()
        assert kinds(events) == [
            "run.started",
            "run.suspended",
            "step.started",
            "step.retrying",
            "run.suspended",
            "step.started",
            "step.failed",
            "run.failed",
        ]
        assert [e.error for e in events if e.error] == ["no", "no", "no"]
        assert [e.attempt for e in events if e.kind == "step.started"] == [1, 2]


async def test_obs_05_a_replay_tells_nothing_again(world: World) -> None:
    @workflow
    async def waits(ctx: Context) -> str:
        said = await hello("you")
        await ctx.wait_for_signal("go")
        return said

    async with world.app(waits) as app:
        await app.start(waits, id="r1")
        await app.settle()
    async with world.app(waits) as app:
        events = events_of(app)
        await app.get_run("r1").signal("go")
        await app.get_run("r1").result()
        assert kinds(events) == ["run.completed"]


async def test_an_event_is_told_when_it_is_durable_and_not_before(world: World) -> None:
    gate = world.gate()
    async with world.app(greet, store=gate) as app:
        events = events_of(app)
        stop = gate.stop("before", "write", ends)
        run = await app.start(greet, "you")
        await stop.reached.wait()
        assert kinds(events) == ["run.started", "step.started"]
        stop.release()
        await run.result()
        assert kinds(events) == ["run.started", "step.started", "step.completed", "run.completed"]


async def test_a_subscriber_that_raises_hurts_nobody(world: World, caplog: pytest.LogCaptureFixture) -> None:
    def raises(event: Lifecycle) -> None:
        raise ValueError(event.kind)

    async with world.app(greet) as app:
        app.subscribe(raises)
        events = events_of(app)
        assert await (await app.start(greet, "you")).result() == "hello you"
        assert kinds(events)[-1] == "run.completed"
    assert "a subscriber raised" in caplog.text


async def test_two_apps_in_one_process_tell_their_own(world: World) -> None:
    async with world.app(greet) as ada, world.app(greet) as bob:
        of_ada, of_bob = events_of(ada), events_of(bob)
        await (await ada.start(greet, "ada", id="a")).result()
        await (await bob.start(greet, "bob", id="b")).result()
        await ada.settle()
        await bob.settle()
        assert {event.run_id for event in of_ada} == {"a"}
        assert {event.run_id for event in of_bob} == {"b"}
