"""Closing an app at awkward moments, and steps that end when nobody waits for them any more."""

from __future__ import annotations

import asyncio
import logging
import threading

import pytest

from perdure import Context, FatalError, RunFailed, Status, UsageError, step, workflow
from perdure.engine import stopping
from perdure.model.commit import Create
from perdure.model.steps import State
from tests.behaviours.world import Barrier, World


def our_threads() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name in ("perdure-renewal", "perdure-watchdog")]


@workflow
async def quick(ctx: Context) -> int:
    return 7


async def test_a_step_in_flight_may_use_the_app_while_it_closes(world: World) -> None:
    barrier = Barrier()

    async with world.app(quick) as app:

        @step
        async def starts_another() -> str:
            await barrier.wait()
            return (await app.start(quick, id="other")).id

        @workflow
        async def body(ctx: Context) -> str:
            return await starts_another()

        run = await app.start(body, id="r")
        await barrier.reached.wait()
        asyncio.get_running_loop().call_soon(barrier.open)
    async with world.client(quick) as client:
        assert await client.get_run(run.id).status() is Status.COMPLETED
        assert await client.get_run("other").status() is Status.PENDING


async def test_a_close_that_is_cancelled_stops_everything_all_the_same(world: World) -> None:
    barrier = Barrier()

    @workflow
    async def body(ctx: Context) -> None:
        await ctx.local_step("hold", barrier.wait)

    app = world.app(body)
    await app.__aenter__()
    run = await app.start(body, id="r")
    await barrier.reached.wait()
    closing = asyncio.create_task(app.__aexit__(None, None, None))
    await asyncio.sleep(0)
    closing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await closing
    assert our_threads() == []
    async with world.client() as client:
        assert await client.get_run(run.id).status() is Status.PENDING  # given back


async def test_a_handle_outlives_its_app_and_says_so(world: World) -> None:
    async with world.app(quick) as app:
        run = await app.start(quick)
        await run.result()
    for call in (run.signal("go"), run.cancel(), run.requeue(), run.delete(), run.status()):
        with pytest.raises(UsageError, match="closed"):
            await call


async def test_a_run_created_while_the_app_closes_is_given_back(world: World) -> None:
    calls: list[str] = []

    @step
    async def work() -> None:
        calls.append("work")

    @workflow
    async def body(ctx: Context) -> None:
        await work()

    gate = world.gate()
    async with world.app(body, store=gate) as app:
        stop = gate.stop("after", "write", lambda batch: any(isinstance(write, Create) for write in batch))
        starting = asyncio.create_task(app.start(body, id="r"))
        await stop.reached.wait()
        app.engine.executor.holdings.closed = True  # as the engine does first: else it is claimed again
        closing = asyncio.create_task(stopping.stop(app.engine.executor, app.engine.store, app.engine.means.owner))
        await asyncio.sleep(0)
        stop.release()
        await closing
        await starting
        assert await app.get_run("r").status() is Status.PENDING
    assert calls == []


async def test_an_abandoned_step_that_ends_late_says_nothing_and_hides_no_retry(world: World) -> None:
    stubborn = Barrier()
    tries: list[int] = []

    @step
    async def swallows() -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            await stubborn.wait()

    @step(max_attempts=3, base=100)
    async def flaky() -> int:
        tries.append(1)
        if len(tries) == 1:
            raise RuntimeError("not yet")
        return 7

    long = Barrier()

    @workflow
    async def body(ctx: Context) -> int:
        other = asyncio.create_task(ctx.local_step("long", long.wait))
        retried = asyncio.create_task(flaky())
        try:
            async with asyncio.timeout(10):
                await swallows()
        except TimeoutError:
            pass
        result = await retried
        await other
        return result

    async with world.app(body) as app:
        run = await app.start(body)
        await app.tick(20, steps=False)
        await stubborn.reached.wait()
        stubborn.open()
        await app.settle(steps=False)
        await app.tick(100, steps=False)
        long.open()
        assert await run.result() == 7
        assert [one.state for one in await run.steps() if one.name == "swallows"] == [State.ABANDONED]


async def test_a_queued_sync_step_whose_attempt_is_over_never_runs(world: World) -> None:
    begun, go, loop = asyncio.Event(), threading.Event(), asyncio.get_running_loop()
    ran: list[str] = []

    @step
    def blocks() -> None:
        loop.call_soon_threadsafe(begun.set)
        go.wait(10)

    @step
    def queued() -> None:
        ran.append("queued")

    @workflow
    async def blocking(ctx: Context) -> None:
        await ctx.step(blocks)

    @workflow
    async def gives_up(ctx: Context) -> str:
        try:
            async with asyncio.timeout(5):
                await ctx.step(queued)
        except TimeoutError:
            return "gave up"
        return "ran"

    async with world.app(blocking, gives_up, max_threads=1) as app:
        first = await app.start(blocking)
        await begun.wait()
        second = await app.start(gives_up)
        await app.tick(10, steps=False)
        assert await second.result() == "gave up"
        go.set()
        await first.result()
    assert ran == []


async def test_a_group_that_holds_a_fatal_error_is_not_tried_again(world: World) -> None:
    tries: list[int] = []

    @step(max_attempts=5)
    async def grouped() -> None:
        tries.append(1)
        async with asyncio.TaskGroup() as group:
            group.create_task(fatal())

    async def fatal() -> None:
        raise FatalError("no")

    @workflow
    async def body(ctx: Context) -> None:
        await grouped()

    async with world.app(body) as app:
        with pytest.raises(RunFailed):
            await (await app.start(body)).result()
    assert tries == [1]


class Treacherous(Exception):
    @property
    def retryable(self) -> bool:
        raise RuntimeError("not telling")


async def test_an_error_that_cannot_be_asked_fails_its_step(world: World) -> None:
    @workflow
    async def body(ctx: Context) -> None:
        def act() -> None:
            raise Treacherous("odd")

        await ctx.local_step("odd", act)

    async with world.app(body) as app:
        with pytest.raises(RunFailed, match="odd"):
            await (await app.start(body)).result()


async def test_a_listener_that_raises_anything_stops_nothing(world: World) -> None:
    def listener(event: object) -> None:
        raise asyncio.CancelledError

    async def awaits(event: object) -> None: ...

    async with world.app(quick) as app:
        app.subscribe(listener)
        with pytest.raises(UsageError, match="plain function"):
            app.subscribe(awaits)  # type: ignore[arg-type]
        assert await (await app.start(quick)).result() == 7


async def test_a_blocked_run_is_logged_with_its_reason(world: World, caplog: pytest.LogCaptureFixture) -> None:
    @workflow
    async def stuck(ctx: Context) -> None:
        await asyncio.Event().wait()

    async with world.app(stuck) as app:
        with caplog.at_level(logging.WARNING, "perdure.engine"):
            run = await app.start(stuck, id="r")
            await app.settle()
            waiting = asyncio.create_task(run.result())
            while "waiting on until it can go on" not in caplog.text:
                await app.settle()  # which does not know of the waiter's own look at the store
            await app.settle()
            waiting.cancel()
    texts = [record.getMessage() for record in caplog.records]
    assert sum("'r' (stuck@1) is blocked" in text for text in texts) == 1
    assert sum("waiting on until it can go on" in text for text in texts) == 1


async def test_a_step_error_is_traced_from_the_users_code_on(world: World) -> None:
    @step
    async def fails() -> None:
        raise RuntimeError("boom")

    @workflow
    async def body(ctx: Context) -> None:
        await fails()

    async with world.app(body) as app:
        with pytest.raises(RunFailed) as caught:
            await (await app.start(body)).result()
    [note] = caught.value.__cause__.__notes__  # type: ignore[union-attr]
    assert __file__ in note.split("File ")[1]  # the first frame
    assert "perdure/engine" not in note


async def test_what_fails_is_in_the_log(world: World, caplog: pytest.LogCaptureFixture) -> None:
    @step(max_attempts=2, base=1)
    async def fails() -> None:
        raise RuntimeError("boom")

    @workflow
    async def body(ctx: Context) -> None:
        await fails()

    with caplog.at_level(logging.INFO, "perdure.engine"):
        async with world.app(body) as app:
            run = await app.start(body, id="r")
            await app.tick(2)
            with pytest.raises(RunFailed):
                await run.result()
    texts = [record.getMessage() for record in caplog.records]
    assert any("'fails' of run 'r' failed and will be tried again" in text and "boom" in text for text in texts)
    assert any("'fails' of run 'r' failed: " in text for text in texts)
    assert any(text.startswith("perdure: run 'r' failed: ") for text in texts)
