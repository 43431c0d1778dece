"""What simulations found, each as the smallest story that shows it. Named after what is right."""

from __future__ import annotations

import asyncio
import dataclasses

import pytest

from perdure import Context, FatalError, Status, current_step, step, workflow
from perdure.engine.services.watchdog import Watchdog
from perdure.model.errors import StoreUnavailable, UsageError
from perdure.model.history import Event
from perdure.ports.fleet import Serves
from perdure.ports.store import Held, Renewal
from tests.behaviours.world import Barrier, World, goes_on, parks


@pytest.fixture
def world() -> World:
    return World("memory://", "on")


async def events(world: World, run_id: str) -> list[Event]:
    store = world.store()
    run = await store.get(run_id)
    assert run is not None
    return [entry.event for entry in (await store.history([run.incarnation]))[run.incarnation]]


async def test_a_retry_begins_after_the_failure_before_it_is_durable(world: World) -> None:
    """Else a crash would use the number of the second attempt twice."""
    failed, known, barrier = asyncio.Event(), [], Barrier()

    @step(max_attempts=2, base=1)
    async def flaky() -> int:
        if current_step().attempt == 1:
            await barrier.wait()
            failed.set()
            raise RuntimeError("first")
        known.extend(await events(world, "r"))
        return 1

    @step
    async def steady() -> int:
        return 2

    @workflow
    async def both(ctx: Context) -> int:
        return sum(await asyncio.gather(flaky(), steady()))

    gate = world.gate()
    async with world.app(both, store=gate) as app:
        written = gate.stop("before", "write", lambda batch: goes_on(batch) and hasattr(batch[0], "entries"))
        run = await app.start(both, id="r")
        await written.reached.wait()  # the result of `steady` is on its way into the store
        barrier.open()
        await failed.wait()
        await asyncio.sleep(0)
        world.clock.advance(2)  # the second attempt is due
        written.release()
        await app.settle()
        assert await run.result() == 3
    assert Event.ATTEMPT_FAILED in known


async def test_a_claim_that_came_too_late_is_left_alone(world: World) -> None:
    """The process was stopped after its claim; when it goes on, another one has taken the run over and got further."""
    begun: list[tuple[str, int]] = []

    @step(max_attempts=3, base=100)
    async def flaky(who: str) -> None:
        begun.append((who, current_step().attempt))
        raise RuntimeError("again")

    @workflow
    async def waits(ctx: Context) -> None:
        await ctx.wait_for_signal("go")
        await flaky("it")

    async with world.client(waits) as client:
        run = await client.start(waits, id="r")
        gate = world.gate()
        slow = world.app(waits, store=gate, lease=5)
        async with slow:
            await slow.settle()
            stopped = gate.stop("after", "claim", lambda request: True)
            await run.signal("go")
            slow.engine.claimer.kick()
            await stopped.reached.wait()
            world.clock.advance(6)
            slow.engine.executor.cache.clear()
            async with world.app(waits) as quick:
                await quick.settle()
                assert begun == [("it", 1)]
                world.clock.advance(200)
                stopped.release()
                await slow.settle()
                await quick.settle()
    assert begun == [("it", 1), ("it", 2)]


async def test_a_parked_run_may_be_forgotten_while_others_are_loaded(world: World) -> None:
    ran: list[int] = []

    @step
    async def note(n: int) -> int:
        ran.append(n)
        return n

    @workflow
    async def waits(ctx: Context, n: int) -> int:
        first = await note(n)
        return first + await ctx.wait_for_signal("go", type=int)

    gate = world.gate()
    async with world.client(waits) as client, world.app(waits, store=gate) as app:
        warm = await client.start(waits, 1, id="warm")
        cold = await client.start(waits, 2, id="cold")
        await app.settle()
        cache = app.engine.executor.cache
        cache.clear()
        await warm.signal("other")  # loads it, and parks it again
        await app.settle()
        assert len(cache) == 1
        reading = gate.stop("before", "history")
        await asyncio.gather(warm.signal("go", 10), cold.signal("go", 20))
        app.engine.claimer.kick()
        await reading.reached.wait()
        cache.clear()
        reading.release()
        await app.settle()
        assert (await warm.result(), await cold.result()) == (11, 22)
    assert sorted(ran) == [1, 2]


async def test_a_renewal_of_an_older_claim_does_not_cost_the_newer_one(world: World) -> None:
    barrier = Barrier()

    @step
    async def slow() -> int:
        await barrier.wait()
        return 1

    @workflow
    async def works(ctx: Context) -> int:
        return await slow()

    async with world.app(works) as app:
        run = await app.start(works)
        await barrier.reached.wait()
        [held] = app.engine.executor.holdings.all()
        older = Held(held.key.incarnation, held.epoch - 1, 0)
        app.engine.executor.nudges.renewed([older], [Renewal(held.key.incarnation, lost=True)], 0)
        barrier.open()
        assert await run.result() == 1
    assert barrier.count == 1


async def test_steps_that_a_block_cut_off_use_up_their_attempt(world: World) -> None:
    attempts: list[tuple[str, int]] = []
    barrier = Barrier()

    @step
    async def slow() -> int:
        attempts.append((current_step().run_id, current_step().attempt))
        await barrier.wait()
        return 1

    @step
    async def quick() -> int:
        return 2

    @workflow
    async def chained(ctx: Context, link: int) -> int:
        both = asyncio.gather(slow(), quick())
        if link == 0:
            await quick()
            ctx.continue_as_new(1)  # cannot be stored: the next link's id is taken
        return sum(await both)

    async with world.app(chained) as app:
        await app.start(chained, 1, id="r~1")
        run = await app.start(chained, 0, id="r")
        await app.settle(steps=False)
        assert await run.status() is Status.BLOCKED
        await app.get_run("r~1").delete()
        store = app.store
        await store.unblock([Serves("chained", chained.version, "other code")])
        barrier.open()
        await app.settle()
        assert await run.result() == 3
    assert attempts == [("r~1", 1), ("r", 1), ("r", 2), ("r~1", 1)]


async def test_a_requeued_run_that_is_lost_at_once_uses_up_its_attempt(world: World) -> None:
    attempts: list[int] = []
    barrier = Barrier()

    @step
    async def fragile() -> int:
        attempts.append(current_step().attempt)
        if len(attempts) == 1:
            raise FatalError("not the first time")
        await barrier.wait()
        return 1

    @workflow
    async def works(ctx: Context) -> int:
        return await fragile()

    gate = world.gate()
    async with world.app(works, store=gate, lease=5, drain=0.01) as lost, world.client(works) as client:
        run = await lost.start(works, id="r")
        await lost.settle()
        await run.requeue()
        await barrier.reached.wait()
        gate.frozen = True  # its lease is not renewed
        world.clock.advance(6)
        async with world.app(works) as other:
            await other.settle(steps=False)  # it has the run now
            barrier.open()
            await other.settle()
            assert await client.get_run("r").result() == 1
    assert attempts == [1, 2, 3]


async def test_f85_who_waits_on_an_app_that_closes_is_told(world: World) -> None:
    @workflow
    async def waits(ctx: Context) -> None:
        await ctx.wait_for_signal("never")

    async with world.app(waits) as app:
        run = await app.start(waits)
        waiting = [asyncio.create_task(run.result()), asyncio.create_task(run.result(timeout=60))]
        await app.settle()
    for each in waiting:
        with pytest.raises(UsageError, match="closed"):
            await each


async def test_closing_ends_though_the_store_does_not_answer(world: World) -> None:
    @workflow
    async def waits(ctx: Context) -> None:
        await ctx.wait_for_signal("never")

    gate = world.gate()
    async with world.app(waits, store=gate, drain=0.01) as app:
        run = await app.start(waits)
        await app.settle()
        gate.fail("before", "write", StoreUnavailable("down"), times=1_000)
        asking = asyncio.create_task(run.signal("never"))
        await asyncio.sleep(0)
    with pytest.raises(StoreUnavailable, match="closed"):
        await asking


async def test_a_run_goes_on_at_once_though_the_answer_that_it_was_moved_was_lost(world: World) -> None:
    @step
    async def note() -> int:
        return 1

    @workflow
    async def waits(ctx: Context) -> int:
        await note()
        return await ctx.wait_for_signal("go", type=int)

    gate = world.gate()
    async with world.app(waits, store=gate) as app, world.client(waits) as client:
        parking = gate.stop("before", "write", parks)
        run = await app.start(waits, id="r")
        await parking.reached.wait()
        await client.get_run("r").signal("go", 7)
        gate.fail("after", "write", StoreUnavailable("lost"), parks)
        parking.release()
        assert await world.pass_time(run.result()) == 7
        info = await run.info()
        assert (info.epoch, info.recoveries) == (1, 0)


async def test_a_loop_that_was_not_asked_for_a_sign_of_life_is_not_dead(world: World) -> None:
    """Else one that is asked four times a second is dead in between, where it may be silent for less than that."""
    seconds = [0.0]
    async with world.app() as app:
        means = dataclasses.replace(app.engine.means, monotonic=lambda: seconds[0])
        watchdog = Watchdog(means, app.engine.executor.holdings)
        watchdog.start()
        seconds[0] = 1_000.0
        assert not watchdog.dead()
        await watchdog.stop()
