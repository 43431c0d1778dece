"""QUEUE: so many steps and runs of the fleet go on at once, so many in a time, and in an order that can be chosen."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import pytest

from perdure import (
    Context,
    NotRegistered,
    RunFailed,
    Singleton,
    Status,
    UsageError,
    current_step,
    step,
    step_ref,
    workflow,
)
from perdure.model.errors import InvalidId
from perdure.model.history import Event
from perdure.testing import TestApp
from tests.behaviours.world import Barrier, World, parks


class Place:
    """A workflow of one queued step that waits at a barrier of its own, and who is there."""

    def __init__(self) -> None:
        self.barriers: dict[str, Barrier] = {}
        self.began: list[str] = []
        self.inside = self.most = 0

        @step(queue="q")
        async def hold(name: str) -> str:
            self.began.append(name)
            self.inside += 1
            self.most = max(self.most, self.inside)
            try:
                await self.barrier(name).wait()
            finally:
                self.inside -= 1
            return name

        @workflow(name="queued")
        async def body(name: str, key: str | None, priority: int) -> str:
            return await hold.using(queue_key=key, priority=priority)(name)

        @workflow
        async def whole(name: str) -> str:
            return await hold.using(queue=None)(name)

        self.hold, self.body, self.whole = hold, body, whole

    def barrier(self, name: str) -> Barrier:
        return self.barriers.setdefault(name, Barrier())

    async def start(self, app: TestApp, *names: str, key: str | None = None, priority: int = 0) -> None:
        for name in names:
            await app.start(self.body, name, key, priority, id=name)
            await app.settle(steps=False)

    async def let(self, app: TestApp, *names: str) -> None:
        """Have some end, one after the other."""
        for name in names:
            self.barrier(name).open()
            await app.get_run(name).result()
            await app.settle(steps=False)

    async def serve_all(self, app: TestApp) -> list[str]:
        """Have whoever is at it end, until all have; in which order they were served."""
        while self.inside:
            await self.let(app, self.began[-1])
        return self.began


@pytest.fixture
def place() -> Place:
    return Place()


def queued(world: World, place: Place, *more: Any, **queue: Any) -> TestApp:
    app = world.app(place.body, place.whole, *more)
    app.queue("q", **queue)
    return app


async def test_queue_01_the_second_step_waits_while_the_first_is_in_flight(world: World, place: Place) -> None:
    async with queued(world, place, concurrency=1) as app:
        await place.start(app, "a", "b")
        assert place.began == ["a"]
        b = await app.get_run("b").info()
        assert (b.status, b.wake_at, b.owner) == (Status.SUSPENDED, None, None)
        await place.let(app, "a", "b")


async def test_queue_02_a_result_frees_the_slot(world: World, place: Place) -> None:
    async with queued(world, place, concurrency=1) as app:
        await place.start(app, "a", "b", "c")
        await place.let(app, "a")
        assert place.began == ["a", "b"]
        await place.let(app, "b", "c")
        assert (place.began, place.most) == (["a", "b", "c"], 1)


async def test_queue_03_a_rate_is_kept_whoever_asks(world: World, place: Place) -> None:
    async with queued(world, place, rate=(2, timedelta(seconds=1))) as app:
        await place.start(app, "a", "b", "c")
        await place.start(app, "urgent", priority=9)
        assert place.began == ["a", "b"]
        world.clock.advance(0.5)
        await app.settle(steps=False)
        assert place.began == ["a", "b"]
        world.clock.advance(0.5)
        await app.settle(steps=False)
        assert sorted(place.began) == ["a", "b", "c", "urgent"]
        await place.let(app, *place.began)


async def test_queue_03_another_process_lets_the_next_window_in(world: World, place: Place) -> None:
    async with queued(world, place, rate=(1, 1)) as app:
        await place.start(app, "a", "b")
        await place.let(app, "a")
    async with queued(world, place, rate=(1, 1)) as app:
        assert place.began == ["a"]
        world.clock.advance(1)
        await app.settle(steps=False)
        assert place.began == ["a", "b"]
        await place.let(app, "b")


async def test_queue_04_the_greatest_priority_goes_first(world: World, place: Place) -> None:
    async with queued(world, place, concurrency=1) as app:
        await place.start(app, "a", "b")
        await place.start(app, "c", priority=5)
        await place.start(app, "d", priority=-5)
        assert await place.serve_all(app) == ["a", "c", "b", "d"]


async def test_queue_05_keys_take_turns(world: World, place: Place) -> None:
    async with queued(world, place, concurrency=1, fairness="key") as app:
        await place.start(app, "x1", "x2", "x3", key="x")
        await place.start(app, "y1", "y2", key="y")
        await place.start(app, "x4", key="x", priority=1)
        assert await place.serve_all(app) == ["x1", "x4", "y1", "x2", "y2", "x3"]


async def test_queue_06_lifo_admits_the_newest(world: World, place: Place) -> None:
    async with queued(world, place, concurrency=1, order="lifo") as app:
        await place.start(app, "a", "b", "c")
        assert await place.serve_all(app) == ["a", "c", "b"]


async def test_queue_07_the_key_is_the_run_unless_one_is_given(world: World, place: Place) -> None:
    @workflow
    async def many(ctx: Context, name: str) -> list[str]:
        return await asyncio.gather(*(place.hold(f"{name}{number}") for number in range(2)))

    async with queued(world, place, many, concurrency=1, fairness="key") as app:
        for name in ("a", "b"):
            await app.start(many, name, id=name)
            await app.settle(steps=False)
        [queue] = await app.queues("q")
        assert [each.fairness for each in queue.tickets] == ["a", "a", "b", "b"]
        while place.inside:
            place.barrier(place.began[-1]).open()
            await app.settle(steps=False)
        assert place.began == ["a0", "b0", "a1", "b1"]


async def test_queue_07_all_attempts_of_a_step_have_one_slot(world: World, place: Place) -> None:
    attempts: list[int] = []

    @step(queue="q", max_attempts=3, base=5)
    async def frail() -> int:
        attempts.append(current_step().attempt)
        if len(attempts) < 3:
            raise ValueError("again")
        return len(attempts)

    @workflow
    async def body() -> int:
        return await frail()

    async with queued(world, place, body, concurrency=1) as app:
        run = await app.start(body)
        await app.settle(steps=False)
        await place.start(app, "next")
        assert (attempts, place.began) == ([1], [])
        [queue] = await app.queues("q")
        assert (queue.held, queue.waiting) == (1, 1)
        for seconds in (5, 10):
            world.clock.advance(seconds)
            await app.settle(steps=False)
        assert await run.result() == 3
        await app.settle(steps=False)
        assert (attempts, place.began) == ([1, 2, 3], ["next"])
        await place.let(app, "next")


async def test_queue_11_a_freed_slot_wakes_runs_that_would_look_much_later(world: World, place: Place) -> None:
    @workflow
    async def patient(ctx: Context) -> str:
        async with asyncio.timeout(3600):
            return await place.hold("b")

    async with queued(world, place, patient, concurrency=1) as app:
        await place.start(app, "a")
        run = await app.start(patient, id="b")
        await app.settle(steps=False)
        assert (await run.info()).wake_at == world.after(3600)
        await place.let(app, "a", "b")


async def test_queue_a_step_in_a_queue_costs_no_more_commits_where_there_is_room(world: World, place: Place) -> None:
    @step
    async def plain() -> None: ...

    @workflow
    async def body(queue: bool) -> None:
        for _ in range(3):
            await (plain.using(queue="q") if queue else plain)()

    gate = world.gate()
    counts: list[int] = []
    app = world.app(body, store=gate)
    app.queue("q", concurrency=1)
    async with app:
        for queue in (False, True):
            before = gate.calls["write"]
            await (await app.start(body, queue)).result()
            counts.append(gate.calls["write"] - before)
    assert counts[0] == counts[1]


async def test_queue_steps_that_run_beside_it_do_not_keep_it_from_its_slot(world: World, place: Place) -> None:
    other = Barrier()

    @workflow
    async def both(ctx: Context) -> list[Any]:
        return list(await asyncio.gather(place.hold("b"), ctx.local_step("other", other.wait)))

    async with queued(world, place, both, concurrency=1) as app:
        await place.start(app, "a")
        run = await app.start(both, id="r")
        await other.reached.wait()
        await app.settle(steps=False)
        assert (place.began, await run.status()) == (["a"], Status.RUNNING)
        await place.let(app, "a")
        assert place.began == ["a", "b"]  # at once, not with the next renewal
        place.barrier("b").open()
        other.open()
        assert await run.result() == ["b", None]


async def test_queue_a_whole_run_waits_before_it_begins(world: World, place: Place) -> None:
    async with queued(world, place, concurrency=1) as app:
        for name in ("a", "b"):
            await app.start(place.whole, name, id=name, queue="q", queue_key="k")
        await app.settle(steps=False)
        assert place.began == ["a"]
        b = app.get_run("b")
        assert ((await b.info()).started_at, await b.status()) == (None, Status.SUSPENDED)
        [queue] = await app.queues("q")
        assert [(each.run.id, each.seq, each.fairness) for each in queue.tickets] == [("a", -1, "k"), ("b", -1, "k")]
        await place.let(app, "a", "b")


async def test_queue_runs_and_steps_stand_in_one_line(world: World, place: Place) -> None:
    async with queued(world, place, concurrency=1) as app:
        await place.start(app, "a")
        await app.start(place.whole, "b", id="b", queue="q")
        await app.start(place.whole, "c", id="c", queue="q", priority=3)
        await app.settle(steps=False)
        assert await place.serve_all(app) == ["a", "c", "b"]


async def test_queue_a_child_goes_through_a_queue(world: World, place: Place) -> None:
    @workflow
    async def parent(ctx: Context) -> str:
        return await ctx.child(place.whole, "c", queue="q")

    async with queued(world, place, parent, concurrency=1) as app:
        await place.start(app, "a")
        run = await app.start(parent, id="p")
        await app.settle(steps=False)
        assert place.began == ["a"]
        await place.let(app, "a")
        place.barrier("c").open()
        assert await run.result() == "c"


async def test_f79_a_full_queue_keeps_no_other_queue_waiting(world: World, place: Place) -> None:
    free = Barrier()

    @step(queue="free")
    async def elsewhere() -> None:
        await free.wait()

    @workflow
    async def body() -> None:
        await elsewhere()

    async with queued(world, place, body, concurrency=1) as app:
        app.queue("free", concurrency=1)
        await place.start(app, *(str(number) for number in range(30)))
        await app.start(body, id="other")
        await free.reached.wait()
        [full] = await app.queues("q")
        assert [each.run.id for each in full.tickets if each.held] == ["0"]  # who holds it is to be seen
        assert full.waiting == 29
        free.open()
        await place.serve_all(app)


# ---------------------------------------------------------------- giving up, dying, coming back


async def test_queue_a_step_that_nobody_awaits_any_more_leaves_the_line(world: World, place: Place) -> None:
    @workflow
    async def hasty(ctx: Context) -> str:
        try:
            async with asyncio.timeout(5):
                return await place.hold("hasty")
        except TimeoutError:
            return await ctx.wait_for_signal("go", type=str)

    async with queued(world, place, hasty, concurrency=1) as app:
        await place.start(app, "a")
        run = await app.start(hasty, id="hasty")
        await app.settle(steps=False)
        await place.start(app, "c")
        world.clock.advance(5)
        await app.settle(steps=False)
        [queue] = await app.queues("q")
        assert [each.run.id for each in queue.tickets] == ["a", "c"]
        await place.let(app, "a")
        assert place.began == ["a", "c"]
        await place.let(app, "c")
        await run.signal("go", "on")
        assert await run.result() == "on"


async def test_queue_a_step_that_is_cut_off_gives_its_slot_to_the_next(world: World, place: Place) -> None:
    @workflow
    async def hasty(ctx: Context) -> str:
        try:
            async with asyncio.timeout(5):
                return await place.hold("hasty")
        except TimeoutError:
            return "late"

    async with queued(world, place, hasty, concurrency=1) as app:
        run = await app.start(hasty, id="hasty")
        await app.settle(steps=False)
        await place.start(app, "b")
        world.clock.advance(5)
        assert await run.result() == "late"
        await app.settle(steps=False)
        assert place.began == ["hasty", "b"]
        await place.let(app, "b")


async def test_queue_a_cancelled_run_gives_back_all_it_has(world: World, place: Place) -> None:
    async with queued(world, place, concurrency=1) as app:
        await place.start(app, "a", "b", "c")
        await app.get_run("b").cancel()
        await app.get_run("a").cancel()
        await app.settle(steps=False)
        assert place.began == ["a", "c"]
        await place.let(app, "c")


async def test_queue_a_run_that_fails_gives_back_what_others_of_it_hold(world: World, place: Place) -> None:
    @workflow
    async def fails(ctx: Context) -> None:
        asyncio.get_running_loop().create_task(place.hold("left"))
        await asyncio.sleep(1)
        raise ValueError("no")

    async with queued(world, place, fails, concurrency=1) as app:
        run = await app.start(fails, id="f")
        await app.settle(steps=False)
        await place.start(app, "b")
        world.clock.advance(1)
        with pytest.raises(RunFailed):
            await run.result()
        await app.settle(steps=False)
        assert place.began == ["left", "b"]
        await place.let(app, "b")


async def test_queue_a_lost_process_holds_its_slots_until_its_runs_are_recovered(world: World, place: Place) -> None:
    doomed = world.doomed(place.body)
    doomed.queue("q", concurrency=1)
    async with doomed as ada:
        await place.start(ada, "a", "b")
    async with queued(world, place, concurrency=1) as bob:
        await bob.settle(steps=False)
        assert place.began == ["a"]
        world.clock.advance(31)
        await bob.settle(steps=False)
        assert place.began == ["a", "a"]
        history = await bob.get_run("a").history()
        await place.let(bob, "a", "b")
        assert place.began == ["a", "a", "b"]
        assert [entry.event for entry in history][:2] == [Event.SCHEDULED, Event.GATED]


async def test_queue_a_process_lost_between_a_grant_and_its_step_counts_the_attempt(world: World, place: Place) -> None:
    """The grant was durable, and the step may have begun: its number is used up, also where the turn had not seen the grant."""
    attempts: list[int] = []
    barrier = Barrier()

    @step(queue="q")
    async def numbered() -> None:
        attempts.append(current_step().attempt)
        await barrier.wait()

    @workflow
    async def body() -> None:
        await numbered()

    doomed = world.doomed(body)
    doomed.queue("q", concurrency=1)
    async with doomed as ada:
        await ada.start(body, id="r")
        await barrier.reached.wait()
    async with queued(world, place, body, concurrency=1) as bob:
        world.clock.advance(31)
        await bob.settle(steps=False)
        assert attempts == [1, 2]
        barrier.open()
        await bob.get_run("r").result()


async def test_queue_drained_runs_keep_their_place(world: World, place: Place) -> None:
    async with queued(world, place, concurrency=1) as ada:
        await place.start(ada, "a", "b")
        place.barrier("a").open()
    async with queued(world, place, concurrency=1) as bob:
        await bob.settle(steps=False)
        await place.let(bob, "a", "b")
    assert place.most == 1


async def test_queue_a_requeued_run_asks_anew_for_what_was_under_way(world: World, place: Place) -> None:
    fail = [True]

    @step
    async def breaks() -> None:
        if fail:
            raise ValueError("no")

    @workflow
    async def both(ctx: Context) -> list[Any]:
        async with asyncio.TaskGroup() as group:
            one = group.create_task(place.hold("one"))
            two = group.create_task(breaks())
        return [one.result(), two.result()]

    async with queued(world, place, both, concurrency=1) as app:
        run = await app.start(both, id="r")
        await app.settle(steps=False)
        assert await run.status() is Status.FAILED
        await place.start(app, "b")
        fail.clear()
        await run.requeue()
        await app.settle(steps=False)
        assert await run.status() is Status.SUSPENDED
        [queue] = await app.queues("q")
        assert [(each.run.id, each.held) for each in queue.tickets] == [("b", True), ("r", False)]
        await place.let(app, "b")
        place.barrier("one").open()
        assert await run.result() == ["one", None]


async def test_queue_a_grant_that_meets_a_parking_run_is_not_lost(world: World, place: Place) -> None:
    gate = world.gate()
    app = world.app(place.body, store=gate)
    app.queue("q", concurrency=1)
    async with queued(world, place, concurrency=1) as other, app:
        await place.start(other, "a")
        stop = gate.stop("before", "write", parks)
        starting = asyncio.create_task(app.start(place.body, "b", None, 0, id="b"))
        await stop.reached.wait()
        place.barrier("a").open()
        await other.get_run("a").result()
        stop.release()
        await starting
        await app.settle(steps=False)
        assert place.began == ["a", "b"]
        await place.let(app, "b")


async def test_queue_a_slot_that_comes_as_the_step_is_given_up_goes_to_the_next(world: World, place: Place) -> None:
    """Cancel against grant: the holder ends while the turn that gives the place in line up is on its way."""

    @workflow
    async def hasty(ctx: Context) -> str:
        try:
            async with asyncio.timeout(5):
                return await place.hold("hasty")
        except TimeoutError:
            return await ctx.wait_for_signal("go", type=str)

    gate = world.gate()
    app = world.app(hasty, store=gate)
    app.queue("q", concurrency=1)
    async with queued(world, place, concurrency=1) as other, app:
        await place.start(other, "a")
        run = await app.start(hasty, id="hasty")
        await app.settle(steps=False)
        await place.start(other, "c")
        stop = gate.stop("before", "write", parks)
        world.clock.advance(5)
        await stop.reached.wait()
        place.barrier("a").open()
        await other.get_run("a").result()
        stop.release()
        await app.settle(steps=False)
        await other.settle(steps=False)
        assert place.began == ["a", "c"]
        await place.let(other, "c")
        await run.signal("go", "on")
        assert await run.result() == "on"
        [queue] = await other.queues("q")
        assert queue.tickets == ()


# ---------------------------------------------------------------- code that changes


async def test_queue_a_step_that_waits_for_no_queue_by_its_history_begins(world: World, place: Place) -> None:
    """A deploy moves a step into a queue while a run has it under way: nobody ever asked for a slot for it."""
    barrier = Barrier()

    @step
    async def work() -> str:
        await barrier.wait()
        return "done"

    def version(queue: str | None) -> Any:
        @workflow(name="body")
        async def body(ctx: Context) -> str:
            return await work.using(queue=queue)()

        return body

    before, after = version(None), version("q")
    doomed = world.doomed(before)
    async with doomed as ada:
        await ada.start(before, id="r")
        await barrier.reached.wait()
    barrier.open()
    async with queued(world, place, after, concurrency=1) as bob:
        world.clock.advance(31)
        await bob.settle()
        assert await bob.get_run("r").result() == "done"


async def test_queue_a_step_that_left_its_queue_begins_and_gives_the_slot_back(world: World, place: Place) -> None:
    barrier = Barrier()

    @step
    async def work() -> str:
        await barrier.wait()
        return "done"

    def version(queue: str | None) -> Any:
        @workflow(name="body")
        async def body(ctx: Context) -> str:
            return await work.using(queue=queue)()

        return body

    before, after = version("q"), version(None)
    doomed = world.doomed(before)
    doomed.queue("q", concurrency=1)
    async with doomed as ada:
        await ada.start(before, id="r")
        await barrier.reached.wait()
    barrier.open()
    async with queued(world, place, after, concurrency=1) as bob:
        world.clock.advance(31)
        await bob.settle()
        assert await bob.get_run("r").result() == "done"
        [queue] = await bob.queues("q")
        assert queue.tickets == ()


# ---------------------------------------------------------------- declarations


async def test_queue_more_room_counts_at_once(world: World, place: Place) -> None:
    async with queued(world, place, concurrency=1) as app:
        await place.start(app, "a", "b", "c")
        app.queue("q", concurrency=2)
        await app.settle(steps=False)
        assert place.began == ["a", "b"]
        app.queue("q", concurrency=1)
        await app.settle(steps=False)
        await place.let(app, "a")
        assert place.began == ["a", "b"]
        await place.let(app, "b", "c")


async def test_queue_the_newest_process_says_how_much_room_there_is(world: World, place: Place) -> None:
    async with queued(world, place, concurrency=1) as old:
        await place.start(old, "a", "b")
        world.clock.advance(1)
        async with queued(world, place, concurrency=2) as new:
            await new.settle(steps=False)
            await old.settle(steps=False)
            assert place.began == ["a", "b"]
            await place.start(old, "c")  # whose declaration is the older one
            [queue] = await old.queues("q")
            assert (queue.rules.limit, queue.held, queue.waiting) == (2, 2, 1)
            for name in ("a", "b", "c"):
                place.barrier(name).open()
                await old.get_run(name).result()
                await old.settle(steps=False)
                await new.settle(steps=False)


async def test_queue_namespaces_have_queues_of_their_own(world: World, place: Place) -> None:
    async with queued(world, place, concurrency=1) as app:
        await app.start(place.body, "a", None, 0, id="a", namespace="red")
        await app.start(place.body, "b", None, 0, id="b", namespace="blue")
        await app.settle(steps=False)
        assert sorted(place.began) == ["a", "b"]
        assert [each.key.namespace for each in await app.queues("q")] == ["blue", "default", "red"]
        assert [each.key.namespace for each in await app.queues("q", namespace="red")] == ["red"]
        await place.let(app, "a", "b")


async def test_queue_an_empty_queue_is_there_too(world: World, place: Place) -> None:
    async with queued(world, place, concurrency=3, rate=(10, timedelta(minutes=1)), fairness="key") as app:
        [queue] = await app.queues()
        rules = queue.rules
        assert (queue.key.name, queue.held, queue.waiting) == ("q", 0, 0)
        assert (rules.limit, rules.rate, rules.window, rules.fair, rules.lifo) == (3, 10, 60_000_000, True, False)


# ---------------------------------------------------------------- bad input


async def test_queue_an_undeclared_queue_is_an_error_at_the_call(world: World, place: Place) -> None:
    async with world.app(place.body, place.whole) as app:
        with pytest.raises(NotRegistered, match=r"queue 'q' is not declared here.*No queue is declared"):
            await app.start(place.whole, "a", queue="q")
        assert await app.runs() == []
        app.queue("other", concurrency=1)
        run = await app.start(place.body, "a", None, 0)
        with pytest.raises(RunFailed, match=r"queue 'q' is not declared here.*Declared are other"):
            await run.result()
        assert place.began == []


async def test_queue_a_singleton_has_a_line_of_its_own(world: World, place: Place) -> None:
    @workflow(singleton=Singleton())
    async def alone() -> None: ...

    async with queued(world, place, alone) as app:
        with pytest.raises(UsageError, match="is a singleton"):
            await app.start(alone, queue="q")
        with pytest.raises(UsageError, match="queue_key"):
            await app.start(place.whole, "a", queue_key="k")
        assert await app.runs() == []


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"concurrency": 0}, "concurrency"),
        ({"concurrency": True}, "concurrency"),
        ({"concurrency": 1.5}, "concurrency"),
        ({"rate": 3}, "rate of queue 'q' is a number and a time"),
        ({"rate": (0, 1)}, "the rate of queue 'q'"),
        ({"rate": (1, 0)}, "the rate's time"),
        ({"rate": (1, "1m")}, "rate of queue"),
        ({"order": "random"}, "order"),
        ({"fairness": "run"}, "fairness"),
    ],
    ids=str,
)
def test_queue_a_declaration_that_cannot_be_is_refused(options: dict[str, Any], message: str) -> None:
    app = TestApp()
    with pytest.raises(UsageError, match=message):
        app.queue("q", **options)


@pytest.mark.parametrize("name", ["", "  ", 3, "singleton:ship"], ids=str)
def test_queue_a_name_that_cannot_be_is_refused(name: Any) -> None:
    with pytest.raises(UsageError):
        TestApp().queue(name)
    with pytest.raises(UsageError):
        step(queue=name)(lambda: None)


def test_queue_options_of_a_step_without_a_queue_are_refused(place: Place) -> None:
    with pytest.raises(UsageError, match="for a step in a queue"):
        step_ref("s", queue_key="k")
    with pytest.raises(UsageError, match="priority"):
        place.hold.using(priority="high")  # type: ignore[arg-type]
    with pytest.raises(InvalidId):
        place.hold.using(queue_key="")
    with pytest.raises(UsageError, match="queue, queue_key, priority"):
        place.hold.using(queu="q")  # type: ignore[call-arg]


async def test_queue_a_closed_app_lists_nothing(world: World, place: Place) -> None:
    app = queued(world, place)
    with pytest.raises(UsageError, match="not open"):
        await app.queues()
    async with app:
        with pytest.raises(UsageError):
            await app.queues(limit=0)
        with pytest.raises(UsageError):
            await app.queues("")
