"""SINGLE: at most so many runs of a key go on at once; the others wait in line, and none is forgotten."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest

from perdure import Context, QueueFull, RunTimedOut, Singleton, Status, UsageError, step, workflow
from perdure.engine.loading import as_new
from perdure.model.commit import Create
from perdure.model.errors import InvalidArguments, InvalidId
from perdure.testing import TestApp
from tests.behaviours.world import Barrier, World, events_of, kinds


class Place:
    """Workflows of one step that waits at a barrier of its own, and who is there."""

    def __init__(self, limit: int = 1, depth: int | None = None) -> None:
        self.barriers: dict[str, Barrier] = {}
        self.began: list[str] = []
        self.inside = self.most = 0

        @step
        async def hold(name: str) -> str:
            self.began.append(name)
            self.inside += 1
            self.most = max(self.most, self.inside)
            try:
                await self.barrier(name).wait()
            finally:
                self.inside -= 1
            return name

        @workflow(singleton=Singleton(key=lambda name, key: key, limit=limit, max_queue_depth=depth))
        async def body(name: str, key: str) -> str:
            return await hold(name)

        self.body = body

    def barrier(self, name: str) -> Barrier:
        return self.barriers.setdefault(name, Barrier())

    async def start(self, app: TestApp, *names: str, key: str = "k") -> None:
        for name in names:
            await app.start(self.body, name, key, id=name)
        await app.settle(steps=False)

    async def let(self, app: TestApp, name: str) -> None:
        """Have one end."""
        self.barrier(name).open()
        await app.get_run(name).result()
        await app.settle(steps=False)


@workflow(singleton=Singleton())
async def alone() -> str:
    return "done"


async def test_single_01_a_lone_run_completes_at_once_and_starts_once(world: World) -> None:
    async with world.app(alone) as app:
        events = events_of(app)
        run = await app.start(alone, id="r")
        await app.settle()
        assert await run.result() == "done"
        assert kinds(events, "r").count("run.started") == 1


async def test_single_02_the_second_waits_until_the_first_has_ended(world: World) -> None:
    place = Place()
    async with world.app(place.body) as app:
        await place.start(app, "one", "two")
        await place.start(app, "other", key="other")
        assert place.began == ["one", "other"]
        assert await app.get_run("two").wait() is Status.SUSPENDED
        await place.let(app, "one")
        assert place.began == ["one", "other", "two"]
        await place.let(app, "two")
        await place.let(app, "other")


async def test_single_03_the_run_carries_its_key_as_a_tag(world: World) -> None:
    place = Place()
    async with world.app(place.body) as app:
        await app.start(place.body, "one", "order:42", id="one", tags=["urgent"])
        assert (await app.get_run("one").info()).tags == ("urgent", "singleton:order:42")
        assert [run.id for run in await app.runs(tag="singleton:order:42")] == ["one"]
        await place.let(app, "one")


async def test_single_03_without_a_key_the_workflow_is_the_key(world: World) -> None:
    async with world.app(alone) as app:
        assert (await (await app.start(alone)).info()).tags == ("singleton:alone",)


async def test_single_04_first_in_first_out_over_five_runs(world: World) -> None:
    place = Place()
    names = ["1", "2", "3", "4", "5"]
    async with world.app(place.body) as app:
        await place.start(app, *names)
        for position, name in enumerate(names):
            assert place.began == names[: position + 1]
            await place.let(app, name)
    assert place.most == 1


async def test_single_05_a_limit_of_two_admits_the_two_oldest(world: World) -> None:
    place = Place(limit=2)
    async with world.app(place.body) as app:
        await place.start(app, "1", "2", "3", "4")
        assert sorted(place.began) == ["1", "2"]
        await place.let(app, "2")
        assert sorted(place.began) == ["1", "2", "3"]
        for name in ("1", "3", "4"):
            await place.let(app, name)


async def test_single_09_a_full_line_refuses_and_writes_nothing(world: World) -> None:
    place = Place(depth=2)
    async with world.app(place.body) as app:
        await place.start(app, "1", "2", "3")
        with pytest.raises(QueueFull, match="takes no more runs of key 'k': 2 wait") as caught:
            await app.start(place.body, "4", "k", id="4")
        error = caught.value
        assert (error.workflow, error.key, error.depth, error.code) == ("body", "k", 2, "queue_full")
        assert [run.id for run in await app.runs()] == ["3", "2", "1"]
        assert (await app.start(place.body, "2", "k", id="2")).id == "2"  # It is there already.
        for name in "123":
            await place.let(app, name)


async def test_single_10_after_an_end_a_start_is_taken_again(world: World) -> None:
    place = Place(depth=1)
    async with world.app(place.body) as app:
        await place.start(app, "1", "2")
        with pytest.raises(QueueFull):
            await app.start(place.body, "3", "k", id="3")
        await place.let(app, "1")
        await place.start(app, "3")
        await place.let(app, "2")
        await place.let(app, "3")


async def test_single_10_without_a_depth_nothing_is_refused(world: World) -> None:
    place = Place()
    async with world.app(place.body) as app:
        names = [str(number) for number in range(20)]
        await place.start(app, *names)
        for name in names:
            await place.let(app, name)


async def test_single_a_run_that_is_done_leaves_no_gate_behind(world: World) -> None:
    place = Place()
    async with world.app(place.body) as app:
        await place.start(app, "1", "2")
        [gate] = await app.queues()
        assert (gate.key.name, gate.key.key, gate.held, gate.waiting) == ("singleton:body", "k", 1, 1)
        assert [(each.run.id, each.held) for each in gate.tickets] == [("1", True), ("2", False)]
        await place.let(app, "1")
        await place.let(app, "2")
        assert await app.queues() == []


# ---------------------------------------------------------------- ends of all kinds


async def test_cancel_14_cancelling_the_holder_wakes_the_next_without_a_tick(world: World) -> None:
    place = Place()
    async with world.app(place.body) as app:
        await place.start(app, "1", "2")
        await app.get_run("1").cancel()
        await app.settle(steps=False)
        assert place.began == ["1", "2"]
        await place.let(app, "2")


async def test_cancel_14_a_run_that_waits_leaves_the_line(world: World) -> None:
    place = Place()
    async with world.app(place.body) as app:
        await place.start(app, "1", "2", "3")
        await app.get_run("2").cancel()
        await place.let(app, "1")
        assert place.began == ["1", "3"]
        await place.let(app, "3")


async def test_f20_a_process_that_runs_nothing_frees_the_slot(world: World) -> None:
    place = Place()
    async with world.app(place.body) as app, world.client(place.body) as client:
        await place.start(app, "1", "2")
        await client.get_run("1").cancel()
        assert (await client.get_run("2").info()).wake_at is not None  # due, or taken already
        world.clock.advance(31)  # whoever has not heard of it polls
        await app.settle(steps=False)
        assert place.began == ["1", "2"]
        await place.let(app, "2")


async def test_single_deleting_the_holder_wakes_the_next(world: World) -> None:
    place = Place()
    async with world.app(place.body) as app:
        await place.start(app, "1", "2")
        await app.get_run("1").delete()
        await app.settle(steps=False)
        assert place.began == ["1", "2"]
        await place.let(app, "2")


async def test_xto_05_a_holder_that_is_out_of_time_wakes_the_next(world: World) -> None:
    place = Place()
    async with world.app(place.body) as app:
        run = await app.start(place.body, "1", "k", id="1", timeout=5)
        await place.start(app, "2")
        world.clock.advance(5)
        await app.settle(steps=False)
        with pytest.raises(RunTimedOut):
            await run.result()
        await app.settle(steps=False)
        assert place.began == ["1", "2"]
        await place.let(app, "2")


async def test_xto_the_time_in_line_does_not_count(world: World) -> None:
    place = Place()
    async with world.app(place.body) as app:
        await place.start(app, "1")
        await app.start(place.body, "2", "k", id="2", timeout=5)
        world.clock.advance(20)
        await app.settle(steps=False)
        assert (await app.get_run("2").info()).deadline is None
        await place.let(app, "1")
        assert (await app.get_run("2").info()).deadline == world.after(5)
        await place.let(app, "2")


async def test_a_lost_process_keeps_the_slot_until_its_run_is_recovered(world: World) -> None:
    place = Place()
    async with world.doomed(place.body) as ada:
        await place.start(ada, "1", "2")
    async with world.app(place.body) as bob:
        await bob.settle(steps=False)
        assert place.began == ["1"]
        world.clock.advance(31)
        await bob.settle(steps=False)
        assert place.began == ["1", "1"]
        await place.let(bob, "1")
        assert place.began == ["1", "1", "2"]
        await place.let(bob, "2")


# ---------------------------------------------------------------- lives of all kinds


async def test_single_a_chain_keeps_its_slot(world: World) -> None:
    barrier = Barrier()
    links: list[str] = []

    @workflow(singleton=Singleton())
    async def chain(ctx: Context, left: int) -> str:
        links.append(ctx.run_id)
        if left:
            ctx.continue_as_new(left - 1)
        await ctx.local_step("wait", barrier.wait)
        return ctx.run_id

    async with world.app(chain) as app:
        first = await app.start(chain, 2, id="a")
        second = await app.start(chain, 0, id="b")
        await app.settle(steps=False)
        assert links == ["a", "a~1", "a~2"]
        assert await second.status() is Status.SUSPENDED
        assert (await app.get_run("a~2").info()).tags == ("singleton:chain",)
        barrier.open()
        assert (await first.result(), await second.result()) == ("a~2", "b")


async def test_single_a_delayed_start_takes_no_slot_before_its_time(world: World) -> None:
    place = Place()
    async with world.app(place.body) as app:
        await app.start(place.body, "later", "k", id="later", delay=10, timeout=5)
        await place.start(app, "1")
        assert place.began == ["1"]
        world.clock.advance(10)
        await app.settle(steps=False)
        run = app.get_run("later")
        assert (await run.info()).deadline is None
        assert await run.status() is Status.SUSPENDED
        await place.let(app, "1")
        assert place.began == ["1", "later"]
        assert (await run.info()).deadline == world.after(5)
        await place.let(app, "later")


async def test_single_a_delayed_start_goes_on_where_the_line_is_free(world: World) -> None:
    place = Place()
    async with world.app(place.body) as app:
        await app.start(place.body, "later", "k", id="later", delay=10)
        world.clock.advance(10)
        await app.settle(steps=False)
        assert place.began == ["later"]
        await place.let(app, "later")


async def test_single_signals_that_come_in_line_are_there_when_it_begins(world: World) -> None:
    barrier = Barrier()

    @workflow(singleton=Singleton())
    async def body(ctx: Context, wait: bool) -> object:
        if wait:
            await ctx.local_step("wait", barrier.wait)
        return await ctx.wait_for_signal("go")

    async with world.app(body) as app:
        first = await app.start(body, True, id="1")
        second = await app.start(body, False, id="2")
        await app.settle(steps=False)
        await second.signal("go", "early")
        await app.settle(steps=False)
        assert await second.status() is Status.SUSPENDED
        assert (await second.info()).started_at is None
        barrier.open()
        await first.signal("go", "first")
        assert await first.result() == "first"
        assert await second.result() == "early"


async def test_f80_a_requeued_run_waits_in_line_again(world: World) -> None:
    place = Place()
    broken = [True]

    @workflow(singleton=Singleton(key="k"))
    async def frail(ctx: Context, name: str) -> str:
        if broken.pop() if broken else False:
            raise ValueError("broken")
        await ctx.local_step("wait", place.barrier(name).wait)
        return name

    async with world.app(frail) as app:
        first = await app.start(frail, "1", id="1")
        await app.settle(steps=False)
        assert await first.status() is Status.FAILED
        second = await app.start(frail, "2", id="2")
        await app.settle(steps=False)
        await first.requeue()
        await app.settle(steps=False)
        assert await first.status() is Status.SUSPENDED
        place.barrier("2").open()
        assert await second.result() == "2"
        place.barrier("1").open()
        assert await first.result() == "1"


async def test_single_children_wait_in_line_too(world: World) -> None:
    place = Place()

    @workflow
    async def parent(ctx: Context) -> list[str]:
        return [*await asyncio.gather(place.body.run("1", "k"), place.body.run("2", "k"))]

    async with world.app(place.body, parent) as app:
        run = await app.start(parent, id="p")
        await app.settle(steps=False)
        assert place.began == ["1"]
        place.barrier("1").open()
        await place.barrier("2").reached.wait()
        place.barrier("2").open()
        assert await run.result() == ["1", "2"]
    assert place.most == 1


async def test_single_a_child_that_would_wait_for_its_own_parent_is_an_error(world: World) -> None:
    @workflow(singleton=Singleton(key="k"))
    async def nested(ctx: Context, deep: bool) -> str:
        return await nested.run(False) if deep else "done"

    async with world.app(nested) as app:
        run = await app.start(nested, True, id="p")
        await app.settle()
        with pytest.raises(Exception, match="for ever"):
            await run.result()


async def test_single_a_start_that_is_repeated_takes_one_place(world: World) -> None:
    place = Place()
    async with world.app(place.body) as app:
        for _ in range(3):
            await place.start(app, "1", "2")
        [gate] = await app.queues()
        assert (gate.held, gate.waiting) == (1, 1)
        await place.let(app, "1")
        await place.let(app, "2")


async def test_single_two_processes_share_the_limit(world: World) -> None:
    place = Place()
    async with world.app(place.body) as ada, world.app(place.body) as bob:
        await place.start(ada, "1", "3")
        await place.start(bob, "2", "4")
        assert place.began == ["1"]
        for name in ("1", "3", "2", "4"):
            place.barrier(name).open()
            await ada.get_run(name).result()
            await ada.settle(steps=False)
            await bob.settle(steps=False)
        assert place.most == 1


# ---------------------------------------------------------------- bad input


async def test_single_a_key_that_is_none_is_refused_and_nothing_written(world: World) -> None:
    @workflow(singleton=Singleton(key=lambda order: order["customer"]))
    async def ship(order: Any) -> None: ...

    async with world.app(ship) as app:
        with pytest.raises(InvalidArguments, match=r"singleton key of ship cannot be made: .*customer"):
            await app.start(ship, {})
        with pytest.raises(InvalidId, match="singleton key of ship must be a string, not NoneType"):
            await app.start(ship, {"customer": None})
        await app.start(ship, {"customer": 42}, id="r")
        assert (await app.get_run("r").info()).tags == ("singleton:42",)
        assert len(await app.runs()) == 1


@pytest.mark.parametrize(
    "options", [{"limit": 0}, {"limit": True}, {"max_queue_depth": -1}, {"key": 3}, {"key": ""}], ids=str
)
def test_single_a_singleton_that_cannot_be_is_refused(options: dict[str, Any]) -> None:
    with pytest.raises(UsageError):
        Singleton(**options)


async def test_single_something_else_than_a_singleton_is_refused() -> None:
    with pytest.raises(UsageError, match="must be like Singleton"):
        workflow(singleton="k")(alone.fn)  # type: ignore[call-overload]


# ---------------------------------------------------------------- runs made in other ways


async def test_single_a_fork_waits_in_line(world: World) -> None:
    place = Place()
    async with world.app(place.body) as app:
        await place.start(app, "1")
        await place.let(app, "1")
        await place.start(app, "2")
        fork = await app.get_run("1").fork(from_step=0)
        await app.settle(steps=False)
        assert (await fork.status(), place.began) == (Status.SUSPENDED, ["1", "2"])
        await place.let(app, "2")
        assert await fork.result() == "1"
        assert place.most == 1


async def test_single_a_retry_with_another_input_has_the_key_of_that_input(world: World) -> None:
    place = Place(depth=0)
    async with world.app(place.body) as app:
        await place.start(app, "1")
        await place.let(app, "1")
        again = await app.get_run("1").retry_with_input("2", "other")
        await app.settle(steps=False)
        assert (await again.info()).tags == ("singleton:other",)
        with pytest.raises(QueueFull):
            await app.get_run("1").retry_with_input("3", "other")
        place.barrier("2").open()
        assert await again.result() == "2"


async def test_single_a_run_started_without_its_code_is_held_to_it(world: World) -> None:
    """As those that events start, in a process that does not know the workflow."""
    place = Place()
    async with world.app(place.body) as app:
        await place.start(app, "1")
        new = msgspec.structs.replace(as_new(await app.get_run("1").info()), id="2", gate=None)
        await app.engine.ask(Create(run=msgspec.structs.replace(new, input=place.body.encode_input(("2", "k"), {}))))
        await app.settle(steps=False)
        assert place.began == ["1"]
        [gate] = await app.queues()
        assert (gate.held, gate.waiting) == (1, 1)
        await place.let(app, "1")
        await place.let(app, "2")
