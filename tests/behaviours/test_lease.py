"""LEASE: who may run a run, for how long, and what becomes of runs whose process was lost."""

from __future__ import annotations

import asyncio
import threading

import pytest

from perdure import Context, RunDead, RunTimedOut, Status, current_step, step, workflow
from perdure.model.steps import State
from tests.behaviours.world import Barrier, World, events_of, goes_on, kinds


class Place:
    """A workflow of one step that waits at a barrier, and what came there."""

    def __init__(self) -> None:
        self.barrier = Barrier()
        self.attempts: list[int] = []
        self.cancelled = 0
        barrier, place = self.barrier, self

        @step
        async def hold() -> str:
            place.attempts.append(current_step().attempt)
            try:
                await barrier.wait()
            except asyncio.CancelledError:
                place.cancelled += 1
                raise
            return "done"

        @workflow
        async def body(ctx: Context) -> str:
            return await hold()

        self.body = body


@pytest.fixture
def place() -> Place:
    return Place()


async def test_lease_01_nobody_takes_a_held_run_until_its_lease_has_run_out(world: World, place: Place) -> None:
    async with world.doomed(place.body) as ada:
        run = await ada.start(place.body, id="r1")
        await place.barrier.reached.wait()
        assert (await run.info()).wake_at == world.after(30)
    async with world.app(place.body) as bob:
        await bob.tick(29)
        assert place.attempts == [1]
        assert (await bob.get_run("r1").info()).owner is not None
        place.barrier.open()
        await bob.tick(1)
        assert await bob.get_run("r1").result() == "done"
    assert place.attempts == [1, 2]


async def test_lease_01_what_is_given_back_is_taken_at_once(world: World, place: Place) -> None:
    async with world.app(place.body, drain=0.001) as ada:
        await ada.start(place.body, id="r1")
        await place.barrier.reached.wait()
    place.barrier.open()
    async with world.app(place.body) as bob:
        await bob.settle()
        run = bob.get_run("r1")
        assert await run.result() == "done"
        assert (await run.info()).recoveries == 0


async def test_f74_no_step_begins_on_a_lease_that_has_run_out_meanwhile(world: World, place: Place) -> None:
    """A process sleeps between a commit and the step that it allows; when it wakes, another one is at it."""
    gate = world.gate()
    async with world.app(place.body, store=gate, patience=100) as ada, world.app(place.body) as bob:
        asleep = gate.stop("after", "write", goes_on)
        starting = asyncio.create_task(ada.start(place.body, id="r1"))
        await asleep.reached.wait()
        world.clock.advance(31)
        await bob.settle(steps=False)
        assert place.attempts == [2]
        asleep.release()
        run = await starting
        await ada.settle(steps=False)
        assert place.attempts == [2]
        place.barrier.open()
        assert await run.result() == "done"


async def test_f74_a_step_begins_late_if_the_lease_ran_out_and_nobody_took_it(world: World, place: Place) -> None:
    gate = world.gate()
    async with world.app(place.body, store=gate, patience=100) as ada:
        asleep = gate.stop("after", "write", goes_on)
        starting = asyncio.create_task(ada.start(place.body, id="r1"))
        await asleep.reached.wait()
        world.clock.advance(31)
        place.barrier.open()
        asleep.release()
        run = await starting
        assert await run.result() == "done"
    assert len(place.attempts) == 1


async def test_lease_02_whoever_lost_a_lease_stops_and_changes_nothing(world: World, place: Place) -> None:
    gate = world.gate()
    async with world.app(place.body, store=gate) as ada, world.app(place.body) as bob:
        await ada.start(place.body, id="r1")
        await place.barrier.reached.wait()
        gate.frozen = True
        world.clock.advance(31)
        await bob.settle(steps=False)
        assert place.attempts == [1, 2]
        gate.frozen = False
        await ada.settle(steps=False)  # renews, and is told
        assert place.cancelled == 1
        owner = (await bob.get_run("r1").info()).owner
        assert owner == bob.engine.means.owner
        place.barrier.open()
        assert await ada.get_run("r1").result() == "done"
        [only] = await bob.get_run("r1").steps()
        assert (only.attempts, only.cut, only.state) == (2, 1, State.COMPLETED)


async def test_lease_02_a_result_that_comes_after_the_lease_is_void(world: World, place: Place) -> None:
    async with world.app(place.body, store=(gate := world.gate())) as ada, world.app(place.body) as bob:
        await ada.start(place.body, id="r1")
        await place.barrier.reached.wait()
        gate.frozen = True
        world.clock.advance(31)
        late = gate.stop("before", "write")
        place.barrier.open()
        await late.reached.wait()  # ada has its result, and commits it
        await bob.settle()
        assert await bob.get_run("r1").result() == "done"
        history = await bob.get_run("r1").history()
        late.release()
        await ada.settle()
        assert await bob.get_run("r1").history() == history


async def test_lease_03_a_step_longer_than_the_lease_keeps_it(world: World, place: Place) -> None:
    async with world.app(place.body) as ada, world.app(place.body) as bob:
        run = await ada.start(place.body, id="r1")
        await place.barrier.reached.wait()
        for _ in range(6):
            await ada.tick(16, steps=False)
            await bob.settle()
        assert place.attempts == [1]
        place.barrier.open()
        assert await run.result() == "done"
        assert (await run.info()).recoveries == 0


async def test_lease_03_a_process_that_slept_renews_before_it_claims_what_it_still_holds(
    world: World, place: Place
) -> None:
    async with world.app(place.body) as app:
        run = await app.start(place.body, id="r1")
        await place.barrier.reached.wait()
        await app.tick(3600, steps=False)
        assert place.attempts == [1]
        assert (await run.info()).recoveries == 0
        assert ((await run.info()).wake_at or 0) > world.clock.now()
        place.barrier.open()
        assert await run.result() == "done"


async def test_lease_03_and_claims_nothing_while_it_cannot_renew(world: World, place: Place) -> None:
    gate = world.gate()
    async with world.app(place.body, store=gate) as app:
        await app.start(place.body, id="r1")
        await place.barrier.reached.wait()
        gate.frozen = True
        await app.tick(40, steps=False)
        assert place.attempts == [1]
        gate.frozen = False
        place.barrier.open()
        await app.tick(1)
        assert place.attempts == [1]
        assert await app.get_run("r1").result() == "done"


async def test_lease_03_the_loop_may_be_busy_meanwhile(world: World) -> None:
    """Renewing needs no turn of the event loop: a step that blocks it does not cost the run its lease."""
    renewed = threading.Event()

    @step
    async def blocks() -> str:
        held = app.engine.executor.holdings.claims()
        store_says = renewer.renew(app.engine.means.owner, 60_000_000, held)
        assert [renewal.lost for renewal in store_says] == [False]
        renewed.set()
        return "done"

    @workflow
    async def body(ctx: Context) -> str:
        return await blocks()

    async with world.app(body) as app:
        renewer = app.store.renewer()
        run = await app.start(body)
        assert await run.result() == "done"
        renewer.close()
    assert renewed.is_set()


async def test_lease_04_exactly_one_of_two_takes_an_orphan(world: World, place: Place) -> None:
    async with world.doomed(place.body) as dead:
        await dead.start(place.body, id="r1")
        await place.barrier.reached.wait()
    world.clock.advance(31)
    gates = [world.gate(), world.gate()]
    stops = [gate.stop("before", "claim") for gate in gates]
    place.barrier.open()
    async with world.app(place.body, store=gates[0]) as ada, world.app(place.body, store=gates[1]) as bob:
        for stop in stops:
            await stop.reached.wait()
        for stop in stops:
            stop.release()
        await ada.settle()
        await bob.settle()
        run = ada.get_run("r1")
        assert await run.result() == "done"
        assert place.attempts == [1, 2]
        assert [s.attempts for s in await run.steps()] == [2]


async def test_lease_05_recovery_waits_for_no_body(world: World, place: Place) -> None:
    @workflow
    async def quick(ctx: Context) -> str:
        await ctx.side_effect(lambda: None)
        return "quick"

    async with world.doomed(place.body, quick) as dead:
        for number in range(3):
            await dead.start(place.body, id=f"slow-{number}")
        await dead.settle(steps=False)
    world.clock.advance(31)
    async with world.client(quick) as client:
        await client.start(quick, id="quick")
    async with world.app(place.body, quick) as app:
        await app.settle(steps=False)
        assert place.attempts == [1, 1, 1, 2, 2, 2]  # all three are stuck again,
        assert await app.get_run("quick").result() == "quick"  # and in nobody's way
        place.barrier.open()
        await app.settle()
        assert len(await app.runs(status="completed")) == 4


async def test_lease_11_all_orphans_are_found_however_many(world: World, place: Place) -> None:
    async with world.doomed(place.body) as dead:
        for number in range(250):
            await dead.start(place.body, id=f"r{number}")
        await dead.settle(steps=False)
    world.clock.advance(31)
    place.barrier.open()
    async with world.app(place.body) as app:
        await app.settle()
        assert len(await app.runs(status="completed", limit=1000)) == 250
    assert sorted(place.attempts) == [1] * 250 + [2] * 250


async def test_lease_12_a_live_lease_is_left_alone(world: World, place: Place) -> None:
    async with world.app(place.body) as ada, world.app(place.body) as bob:
        run = await ada.start(place.body)
        await place.barrier.reached.wait()
        before = await run.info()
        for _ in range(3):
            await bob.settle()
        assert await run.info() == before
        place.barrier.open()


async def test_lease_13_each_recovery_is_counted_and_progress_takes_it_back(world: World) -> None:
    barriers = [Barrier(), Barrier()]

    @step
    async def hold(n: int) -> None:
        await barriers[n].wait()

    @workflow
    async def two(ctx: Context) -> None:
        await hold(0)
        await hold(1)

    async with world.doomed(two) as app:
        await app.start(two, id="r1")
        await barriers[0].reached.wait()
    for count in (1, 2, 3):
        world.clock.advance(31)
        async with world.doomed(two) as app:
            await app.settle(steps=False)
            assert (await app.get_run("r1").info()).recoveries == count
    barriers[0].open()
    world.clock.advance(31)
    async with world.doomed(two) as app:
        await app.settle(steps=False)
        assert (await app.get_run("r1").info()).recoveries == 0


async def test_lease_14_a_run_that_kills_its_processes_is_dead_after_so_many(world: World, place: Place) -> None:
    async with world.doomed(place.body) as app:
        await app.start(place.body, id="r1")
        await place.barrier.reached.wait()
    for _ in range(2):
        world.clock.advance(31)
        async with world.doomed(place.body, max_recoveries=2) as app:
            await app.settle(steps=False)
            assert await app.get_run("r1").status() is Status.RUNNING
    assert len(place.attempts) == 3
    world.clock.advance(31)
    dead: list[str] = []
    app = world.app(place.body, max_recoveries=2)
    app.on_dead(dead.append)
    async with app:
        events = events_of(app)
        forget = app.on_dead(lambda run_id: dead.append("forgotten"))
        forget()
        await app.settle()
        run = app.get_run("r1")
        assert await run.status() is Status.DEAD
        assert len(place.attempts) == 3
        assert kinds(events) == ["run.failed"]
        assert (events[0].status, dead) == ("dead", ["r1"])
        with pytest.raises(RunDead, match="recovered 3 times") as caught:
            await run.result()
        assert caught.value.code == "max_recovery_attempts"


async def test_lease_14_a_listener_that_raises_hurts_nobody(world: World, place: Place) -> None:
    async with world.doomed(place.body) as app:
        await app.start(place.body, id="r1")
        await place.barrier.reached.wait()
    world.clock.advance(31)
    async with world.doomed(place.body) as app:
        await app.settle(steps=False)
    world.clock.advance(31)
    async with world.app(place.body, max_recoveries=1) as app:
        dead: list[str] = []

        def raises(run_id: str) -> None:
            raise ValueError(run_id)

        app.on_dead(raises)
        app.on_dead(dead.append)
        await app.settle()
        assert dead == ["r1"]


async def test_lease_15_a_run_never_runs_twice_at_once(world: World, place: Place) -> None:
    async with world.client(place.body) as client:
        await client.start(place.body, id="r1")
    gates = [world.gate() for _ in range(3)]
    stops = [gate.stop("before", "claim") for gate in gates]
    async with (
        world.app(place.body, store=gates[0]) as ada,
        world.app(place.body, store=gates[1]) as bob,
        world.app(place.body, store=gates[2]) as eve,
    ):
        for stop in stops:
            await stop.reached.wait()
        for stop in reversed(stops):
            stop.release()
        for app in (ada, bob, eve):
            await app.settle(steps=False)
        assert place.attempts == [1]
        place.barrier.open()
        for app in (ada, bob, eve):
            await app.settle()
        assert await ada.get_run("r1").result() == "done"
    assert place.attempts == [1]


async def test_f08_a_run_that_only_waits_is_no_orphan(world: World) -> None:
    @workflow
    async def waits(ctx: Context) -> str:
        return await ctx.wait_for_signal("go", type=str)

    async with world.app(waits) as app:
        run = await app.start(waits, id="r1")
        await app.settle()
        before = await run.info()
    for _ in range(12):
        async with world.doomed(waits) as app:
            await app.tick(60)
    async with world.app(waits) as app:
        assert await app.get_run("r1").info() == before
        await app.get_run("r1").signal("go", "now")
        assert await app.get_run("r1").result() == "now"


async def test_f73_recovery_does_not_move_the_deadline(world: World) -> None:
    barrier = Barrier()

    @workflow(timeout=100)
    async def bounded(ctx: Context) -> None:
        await ctx.local_step("hold", barrier.wait)

    async with world.doomed(bounded) as app:
        await app.start(bounded, id="r1")
        await barrier.reached.wait()
        deadline = (await app.get_run("r1").info()).deadline
        assert deadline == world.after(100)
    for _ in range(3):
        world.clock.advance(31)
        async with world.doomed(bounded) as app:
            await app.settle(steps=False)
            assert (await app.get_run("r1").info()).deadline == deadline
    async with world.app(bounded) as app:
        await app.tick(30)  # when the last lease has run out
        with pytest.raises(RunTimedOut):
            await app.get_run("r1").result()
    assert barrier.count == 4
