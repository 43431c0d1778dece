"""Waiting for runs that others work on: never missed, whatever happens to the run, and one look for all who wait."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest

from perdure import Context, RunCancelled, RunFailed, RunNotFound, Status, StoreUnavailable, step, workflow
from perdure.testing import TestApp
from perdure.testing.kit import at_once, let_others_go_on
from tests.behaviours.world import Gate, World


@workflow
async def waits(ctx: Context) -> Any:
    return await ctx.wait_for_signal("go")


@workflow
async def counts(ctx: Context, n: int) -> int:
    await ctx.wait_for_signal("go")
    if n:
        ctx.continue_as_new(n - 1)
    return n


async def calm(*gates: Gate) -> None:
    """Nothing goes on in this process, nor for these in the store."""
    while at_once() > 0 or any(gate.at_work for gate in gates):
        await let_others_go_on()


def waiting(app: TestApp) -> bool:
    return app.engine.executor.tell.endings.waiting()


async def test_two_thousand_waiters_are_one_look_a_poll_and_only_who_is_concerned_reads(world: World) -> None:
    many = 2_000
    async with world.app(waits) as app:
        await asyncio.gather(*(app.start(waits, id=f"r{n}") for n in range(many)))
        await app.settle()
    gate = world.gate()
    async with world.client(waits, store=gate, poll=1) as client:
        tasks = [asyncio.create_task(client.get_run(f"r{n}").result()) for n in range(many)]
        await calm(gate)
        assert gate.calls.pop("get") <= 2 * many
        gate.calls.clear()
        for _ in range(10):
            world.clock.advance(1)
            await calm(gate)
        assert gate.calls == {"standing": 10}
        async with world.app(waits) as app:
            await app.get_run("r7").signal("go", "now")
            await app.settle()
            assert await world.pass_time(tasks[7]) == "now"
        await calm(gate)
        assert gate.calls.pop("get") == 1
        gate.calls.clear()
        world.clock.advance(1)
        await calm(gate)
        assert set(gate.calls) <= {"standing"}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        assert not waiting(client)
        gate.calls.clear()
        world.clock.advance(3)
        await calm(gate)
        assert gate.calls == {}


async def test_many_who_wait_for_one_run_are_all_told(world: World) -> None:
    gate = world.gate()
    async with world.app(waits) as app, world.client(waits, store=gate, poll=1) as client:
        await app.start(waits, id="r")
        await app.settle()
        tasks = [asyncio.create_task(client.get_run("r", waits).result()) for _ in range(300)]
        await calm(gate)
        await app.get_run("r").signal("go", 1)
        await app.settle()
        assert await world.pass_time(asyncio.gather(*tasks)) == [1] * 300


@pytest.mark.parametrize("moment", ["before", "after"])
async def test_f16_an_end_between_a_waiters_read_and_the_next_look_is_not_missed(world: World, moment: str) -> None:
    gate = world.gate()
    async with world.app(waits) as app, world.client(waits, store=gate, poll=1) as client:
        await app.start(waits, id="r")
        await app.settle()
        await client.get_run("r").status()
        stop = gate.stop(moment, "get")
        task = asyncio.create_task(client.get_run("r").result())
        await stop.reached.wait()
        await app.get_run("r").signal("go", 1)
        await app.settle()
        stop.release()
        assert await world.pass_time(task) == 1


async def test_f16_nor_one_while_a_look_is_under_way(world: World) -> None:
    gate = world.gate()
    async with world.app(waits) as app, world.client(waits, store=gate, poll=1) as client:
        await app.start(waits, id="r")
        await app.settle()
        task = asyncio.create_task(client.get_run("r").result())
        await calm(gate)
        stop = gate.stop("after", "standing")
        world.clock.advance(1)
        await stop.reached.wait()
        await app.get_run("r").signal("go", 1)
        await app.settle()
        stop.release()
        assert await world.pass_time(task) == 1


async def test_f11_who_waits_for_a_run_that_is_deleted_is_told_also_if_its_id_is_used_again(world: World) -> None:
    gate = world.gate()
    async with world.app(waits) as app, world.client(waits, store=gate, poll=1) as client:
        for again in (False, True):
            await app.start(waits, id="r")
            await app.settle()
            tasks = [
                asyncio.create_task(client.get_run("r").result()),
                asyncio.create_task(client.get_run("r").result()),
            ]
            await calm(gate)  # both have seen it
            await app.get_run("r").delete()
            if again:
                await app.start(waits, id="r")
            for task in tasks:
                with pytest.raises(RunNotFound, match="any more"):
                    await world.pass_time(task)
        assert not waiting(client)


async def test_a_chain_that_continues_as_new_is_followed_to_its_end(world: World) -> None:
    gate = world.gate()
    async with world.app(counts) as app, world.client(counts, store=gate, poll=1) as client:
        await app.start(counts, 3, id="r")
        await app.settle()
        task = asyncio.create_task(client.get_run("r").result())
        await calm(gate)
        for _ in range(4):
            await app.get_run("r").signal("go")
            await app.settle()
            await calm(gate)
        assert await world.pass_time(task) == 0


async def test_a_failed_run_that_is_revived_is_waited_for_anew(world: World) -> None:
    tries: list[int] = []

    @step(max_attempts=1)
    async def fails_once() -> str:
        tries.append(1)
        if len(tries) == 1:
            raise RuntimeError("the first time")
        return "well"

    @workflow
    async def retried(ctx: Context) -> str:
        await ctx.wait_for_signal("go")
        return await fails_once()

    gate = world.gate()
    async with world.app(retried) as app, world.client(retried, store=gate, poll=1) as client:
        await app.start(retried, id="r")
        await app.settle()
        task = asyncio.create_task(client.get_run("r").result())
        await calm(gate)
        await app.get_run("r").signal("go")
        with pytest.raises(RunFailed, match="the first time"):
            await world.pass_time(task)
        await client.get_run("r").requeue()
        assert await world.pass_time(client.get_run("r").result()) == "well"


async def test_a_blocked_run_is_said_once_and_waited_for(world: World, caplog: pytest.LogCaptureFixture) -> None:
    @workflow(name="changing")
    async def old(ctx: Context) -> int:
        await ctx.wait_for_signal("go")
        return 1

    @workflow(name="changing")
    async def new(ctx: Context) -> int:
        await ctx.side_effect(lambda: 1)
        return await ctx.wait_for_signal("go", type=int)

    gate = world.gate()
    async with world.app(old) as app:
        await app.start(old, id="r")
        await app.settle()
    async with world.client(store=gate, poll=1) as client:
        task = asyncio.create_task(client.get_run("r").result())
        await calm(gate)
        with caplog.at_level(logging.WARNING, "perdure.engine"):
            async with world.app(new) as app:
                await app.get_run("r").signal("go", 2)
                await app.settle()
                assert await client.get_run("r").status() is Status.BLOCKED
                for _ in range(3):
                    world.clock.advance(1)
                    await calm(gate)
        assert not task.done()
        async with world.app(old) as app:
            assert await world.pass_time(task) == 1
    said = [record.getMessage() for record in caplog.records if "waiting on until" in record.getMessage()]
    assert len(said) <= 1


async def test_f41_a_cancel_elsewhere_and_giving_up_here(world: World) -> None:
    gate = world.gate()
    async with world.app(waits) as app, world.client(waits, store=gate, poll=1) as client:
        await app.start(waits, id="r")
        await app.settle()
        run = client.get_run("r")
        tasks = [asyncio.create_task(run.result()) for _ in range(3)]
        settled = [asyncio.create_task(run.wait())]
        await calm(gate)
        assert await world.pass_time(settled[0]) is Status.SUSPENDED
        tasks[0].cancel()
        with pytest.raises(TimeoutError):
            await run.result(timeout=0)
        await calm(gate)
        assert await run.status() is Status.SUSPENDED
        await app.get_run("r").cancel("enough")
        for task in tasks[1:]:
            with pytest.raises(RunCancelled, match="enough"):
                await world.pass_time(task)
        assert not waiting(client)


async def test_wait_hears_when_a_run_comes_to_rest_elsewhere(world: World) -> None:
    gate = world.gate()
    async with world.client(waits, store=gate, poll=1) as client:
        run = await client.start(waits, id="r")
        task = asyncio.create_task(run.wait())
        await calm(gate)
        assert not task.done()
        async with world.app(waits) as app:
            await app.settle()
            assert await world.pass_time(task) is Status.SUSPENDED
            await client.get_run("r").signal("go", 1)
            assert await world.pass_time(client.get_run("r").wait()) is Status.COMPLETED


async def test_who_waits_is_told_after_looks_that_failed(world: World) -> None:
    gate = world.gate()
    async with world.app(waits) as app, world.client(waits, store=gate, poll=1) as client:
        await app.start(waits, id="r")
        await app.settle()
        task = asyncio.create_task(client.get_run("r").result())
        await calm(gate)
        gate.fail("before", "standing", StoreUnavailable("away"), times=3)
        gate.fail("before", "standing", RuntimeError("odd"), times=2)
        await app.get_run("r").signal("go", 1)
        assert await world.pass_time(task) == 1
