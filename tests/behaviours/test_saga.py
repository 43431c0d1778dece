"""SAGA: what was done is undone when the run fails, in reverse order of completion, durably, and once."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

import pytest

from perdure import (
    CompensationTimeout,
    Context,
    RunCancelled,
    RunFailed,
    Status,
    StepTimeout,
    Undo,
    current_step,
    step,
    step_ref,
    workflow,
)
from perdure.model.history import Event
from perdure.model.steps import State
from tests.behaviours.world import Barrier, World, events_of

done: list[str] = []


@pytest.fixture(autouse=True)
def nothing_done() -> None:
    done.clear()


@step
async def cancel_booking(undo: Undo[str, str]) -> None:
    done.append(f"undo {undo.input}: {undo.output}")


@step(compensate=cancel_booking)
async def book(what: str) -> str:
    done.append(f"book {what}")
    return f"{what}-1"


@step
async def fail(why: str) -> None:
    raise ValueError(why)


def undos(events: list[Any]) -> list[tuple[str, str]]:
    """What was told of undos: kind and name."""
    return [(event.kind, event.step) for event in events if (event.step or "").startswith("compensate:")]


async def test_saga_01_a_failure_undoes_what_was_done_the_last_first(world: World) -> None:
    @workflow
    async def trip(ctx: Context) -> None:
        for what in "abc":
            await book(what)
        await fail("no room")

    async with world.app(trip) as app:
        run = await app.start(trip, id="r1")
        with pytest.raises(RunFailed, match="no room") as caught:
            await run.result()
        assert isinstance(caught.value.__cause__, ValueError)
        assert done == ["book a", "book b", "book c", "undo c: c-1", "undo b: b-1", "undo a: a-1"]
        names = [one.name for one in await run.steps()]
        assert names == ["book"] * 3 + ["fail"] + ["compensate:book"] * 3


async def test_saga_01_a_run_that_goes_well_undoes_nothing(world: World) -> None:
    @workflow
    async def trip(ctx: Context) -> str:
        with contextlib.suppress(ValueError):
            await fail("caught")
        return await book("a")

    async with world.app(trip) as app:
        run = await app.start(trip)
        assert await run.result() == "a-1"
        await app.settle()
        assert done == ["book a"]


async def test_saga_01_a_result_that_cannot_be_stored_is_a_failure_too(world: World) -> None:
    @workflow
    async def trip(ctx: Context) -> Any:
        await book("a")
        return object()

    async with world.app(trip) as app:
        run = await app.start(trip)
        with pytest.raises(RunFailed, match="cannot be stored"):
            await run.result()
        assert done == ["book a", "undo a: a-1"]


async def test_saga_02_only_what_completed_is_undone(world: World) -> None:
    @workflow
    async def trip(ctx: Context) -> None:
        await book("a")
        await fail.using(compensate=cancel_booking)("b failed")

    async with world.app(trip) as app:
        run = await app.start(trip)
        with pytest.raises(RunFailed, match="b failed"):
            await run.result()
        assert done == ["book a", "undo a: a-1"]


async def test_saga_02_in_order_of_completion_not_of_the_calls(world: World) -> None:
    slow = Barrier()

    @step(compensate=cancel_booking)
    async def book_slowly(what: str) -> str:
        await slow.wait()
        return what

    @workflow
    async def trip(ctx: Context) -> None:
        first = asyncio.ensure_future(book_slowly("first"))
        await book("second")
        slow.open()
        await first
        await fail("no")

    async with world.app(trip) as app:
        run = await app.start(trip)
        with pytest.raises(RunFailed):
            await run.result()
        assert done[-2:] == ["undo first: first", "undo second: second-1"]


async def test_saga_03_what_was_done_before_a_wait_is_undone_after_it(world: World) -> None:
    @workflow
    async def trip(ctx: Context) -> None:
        await book("a")
        await ctx.wait_for_signal("go")
        await book("b")
        await fail("late")

    async with world.app(trip) as app:
        run = await app.start(trip, id="r1")
        await app.settle()
        assert await run.status() is Status.SUSPENDED
    async with world.app(trip) as app:
        run = app.get_run("r1")
        await run.signal("go")
        with pytest.raises(RunFailed, match="late"):
            await run.result()
    assert done == ["book a", "book b", "undo b: b-1", "undo a: a-1"]


async def test_saga_04_an_undo_is_tried_as_often_as_it_was_said(world: World) -> None:
    tries: list[int] = []

    @step
    async def reluctant(undo: Undo[str, str]) -> None:
        tries.append(current_step().attempt)
        if len(tries) < 3:
            raise ConnectionError("not yet")

    @workflow
    async def trip(ctx: Context) -> None:
        await book.using(compensate=reluctant, compensation_attempts=3)("a")
        await fail("no")

    async with world.app(trip) as app:
        events = events_of(app)
        run = await app.start(trip)
        await app.tick(60)
        assert tries == [1, 2, 3]
        assert await run.status() is Status.FAILED
        told = undos(events)
        assert [kind for kind, _ in told].count("step.completed") == 1
        assert told[-1] == ("step.completed", "compensate:book")


async def test_saga_05_an_undo_that_never_succeeds_is_told_and_the_others_run(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    @step
    async def hopeless(undo: Undo[str, str]) -> None:
        raise ConnectionError("never")

    @workflow
    async def trip(ctx: Context) -> None:
        await book("a")
        await book.using(compensate=hopeless)("b")
        await book("c")
        await fail("the reason")

    async with world.app(trip) as app:
        events = events_of(app)
        run = await app.start(trip)
        with pytest.raises(RunFailed, match="the reason"):
            await run.result()
        assert done[3:] == ["undo c: c-1", "undo a: a-1"]
        assert [event.step for event in events if event.kind == "step.failed"] == ["fail", "compensate:book"]
    assert [r for r in caplog.records if r.levelname == "ERROR" and "'compensate:book'" in r.getMessage()]


@pytest.mark.parametrize("by", ["cancel_booking", step_ref("cancel_booking")], ids=["name", "reference"])
async def test_saga_06_by_name_the_undo_is_the_step_of_that_name(world: World, by: Any) -> None:
    @workflow
    async def trip(ctx: Context) -> None:
        await step_ref("book", compensate=by)("a")
        await ctx.step(step_ref("book").using(compensate=by), "b")
        await fail("no")

    async with world.app(trip, book, cancel_booking) as app:
        run = await app.start(trip)
        with pytest.raises(RunFailed):
            await run.result()
        assert done == ["book a", "book b", "undo b: b-1", "undo a: a-1"]
        undone = (await run.steps())[-1]
        assert (undone.name, undone.input) == ("compensate:book", b'{"input":"a","output":"a-1"}')


async def test_saga_06_an_undo_that_nobody_serves_fails_and_the_others_run(world: World) -> None:
    @workflow
    async def trip(ctx: Context) -> None:
        await book("a")
        await book.using(compensate="nobody")("b")
        await fail("no")

    async with world.app(trip) as app:
        events = events_of(app)
        run = await app.start(trip)
        with pytest.raises(RunFailed, match="no"):
            await run.result()
        assert done[2:] == ["undo a: a-1"]
        [told] = [event for event in events if event.kind == "step.failed" and event.step == "compensate:book"]
        assert "'nobody'" in (told.error or "")


async def test_saga_07_local_and_registered_steps_are_undone_in_one_order(world: World) -> None:
    @workflow
    async def trip(ctx: Context) -> None:
        async def unhold(undo: Undo[None, dict[str, int]]) -> None:
            assert undo.input is None
            done.append(f"unhold {undo.output['n']}")

        await book("a")
        await ctx.local_step("hold", lambda: {"n": 1}, type=dict[str, int], compensate=unhold)
        await book("b")
        await ctx.local_step("hold", lambda: {"n": 2}, compensate=lambda undo: done.append(f"free {undo.output}"))
        await ctx.local_step("hold", lambda: 3, compensate=cancel_booking_of_nothing)
        await fail("no")

    @step
    async def cancel_booking_of_nothing(undo: Undo[None, int]) -> None:
        done.append(f"by a step: {undo.input} {undo.output}")

    async with world.app(trip, cancel_booking_of_nothing) as app:
        run = await app.start(trip)
        with pytest.raises(RunFailed, match="no"):
            await run.result()
        assert done[2:] == [
            "by a step: None 3",
            "free {'n': 2}",
            "undo b: b-1",
            "unhold 1",
            "undo a: a-1",
        ]


async def test_saga_08_an_undo_goes_by_its_own_options_only(world: World) -> None:
    barrier = Barrier()
    tries: list[int] = []

    @step(timeout=5, max_attempts=2, base=0)
    async def slow_undo(undo: Undo[str, str]) -> None:
        tries.append(current_step().attempt)
        await barrier.wait()

    @workflow
    async def trip(ctx: Context) -> None:
        await book.using(compensate=slow_undo, timeout=1000, max_attempts=9)("a")
        await fail("no")

    async with world.app(trip) as app:
        run = await app.start(trip)
        await barrier.reached.wait()
        await app.tick(5, steps=False)
        await app.tick(5, steps=False)
        await app.settle()
        with pytest.raises(RunFailed, match="no"):
            await run.result()
        assert tries == [1, 2]
        [undone] = [entry for entry in await run.history() if entry.event is Event.FAILED and "comp" in entry.name]
        assert b"step_timeout" in (undone.payload or b"")


async def test_saga_14_an_undo_is_durable_before_it_begins_and_has_a_key_of_its_own(world: World) -> None:
    keys: list[str] = []

    @step
    async def note(undo: Undo[str, str]) -> None:
        seen = [one for one in await app.get_run("r1").steps() if one.name == "compensate:book"]
        assert [(one.state, one.seq) for one in seen] == [(State.PENDING, 2)]
        keys.append(current_step().key)
        assert current_step().name == "compensate:book"

    @step(compensate=note, name="book")
    async def book_noting(what: str) -> str:
        keys.append(current_step().key)
        return what

    @workflow
    async def trip(ctx: Context) -> None:
        await book_noting("a")
        await fail("no")

    async with world.app(trip) as app:
        run = await app.start(trip, id="r1")
        with pytest.raises(RunFailed, match="no"):
            await run.result()
        assert [one.state for one in await run.steps()] == [State.COMPLETED, State.FAILED, State.COMPLETED]
        assert len(set(keys)) == 2


async def test_saga_16_an_undo_without_a_timeout_is_given_up_after_the_apps(world: World) -> None:
    barrier = Barrier()

    @step
    async def hangs(undo: Undo[str, str]) -> None:
        await barrier.wait()

    @workflow
    async def trip(ctx: Context) -> None:
        await book("a")
        await book.using(compensate=hangs)("b")
        await fail("no")

    async with world.app(trip, compensation_timeout=7) as app:
        run = await app.start(trip)
        await barrier.reached.wait()
        await app.tick(6, steps=False)
        assert "undo a: a-1" not in done
        await app.tick(1, steps=False)
        with pytest.raises(RunFailed, match="no"):
            await run.result()
        assert done[-1] == "undo a: a-1"
        [undone] = [entry for entry in await run.history() if entry.event is Event.FAILED and "comp" in entry.name]
        assert b'"code":"compensation_timeout"' in (undone.payload or b"")
    assert issubclass(CompensationTimeout, StepTimeout)


async def test_saga_17_its_own_timeout_counts_in_place_of_the_apps(world: World) -> None:
    barrier = Barrier()

    @step(timeout=100)
    async def hangs(undo: Undo[str, str]) -> None:
        await barrier.wait()

    @workflow
    async def trip(ctx: Context) -> None:
        await book.using(compensate=hangs)("b")
        await fail("no")

    async with world.app(trip, compensation_timeout=7) as app:
        run = await app.start(trip)
        await barrier.reached.wait()
        await app.tick(50, steps=False)
        assert await run.status() is Status.RUNNING
        barrier.open()
        await app.settle()
        assert (await run.steps())[-1].state is State.COMPLETED


async def test_saga_18_a_compensated_run_that_is_replayed_fails_as_it_did(world: World) -> None:
    @workflow
    async def trip(ctx: Context) -> None:
        await book("a")
        await book("b")
        await fail("the reason")

    async with world.app(trip) as app:
        run = await app.start(trip)
        with pytest.raises(RunFailed):
            await run.result()
        before, history = list(done), await run.history()
        await run.requeue()
        with pytest.raises(RunFailed, match="the reason"):
            await run.result()
        assert done == before
        again = await run.history()
        assert [entry for entry in again if entry.event is not Event.REQUEUED][: len(history)] == list(history)
        assert len(again) == len(history) + 2  # that it was revived, and that it ended


# ---------------------------------------------------------------- crashes


@pytest.mark.parametrize("at", ["second undo", "first undo"])
async def test_a_process_lost_while_undoing_is_made_up_for_and_nothing_is_undone_twice(world: World, at: str) -> None:
    barrier = Barrier()

    @step
    async def undo_it(undo: Undo[str, str]) -> None:
        if undo.input == ("a" if at == "second undo" else "b") and not barrier.opened.is_set():
            await barrier.wait()
        done.append(f"undid {undo.input}")

    @workflow
    async def trip(ctx: Context) -> None:
        await book.using(compensate=undo_it)("a")
        await book.using(compensate=undo_it)("b")
        await fail("no")

    async with world.doomed(trip) as lost:
        await lost.start(trip, id="r1")
        await barrier.reached.wait()
    barrier.open()
    async with world.app(trip) as app:
        await app.tick(60)
        with pytest.raises(RunFailed, match="no"):
            await app.get_run("r1").result()
    assert done == ["book a", "book b", "undid b", "undid a"]


# ---------------------------------------------------------------- let go


async def test_a_step_that_was_given_up_under_way_is_awaited_and_undone_at_once(world: World) -> None:
    barrier = Barrier()

    @step(compensate=cancel_booking)
    async def book_slowly(what: str) -> str:
        await barrier.wait()
        return what

    @workflow
    async def trip(ctx: Context) -> str:
        try:
            async with asyncio.timeout(10):
                await book_slowly("slow")
        except TimeoutError:
            done.append("gave up")
        await ctx.wait_for_signal("go")
        return "done"

    async with world.app(trip) as app:
        run = await app.start(trip)
        await barrier.reached.wait()
        await app.tick(10, steps=False)
        assert done == ["gave up"]
        assert (await run.steps())[1].state is State.LET_GO
        barrier.open()
        await app.settle()
        assert done[-1] == "undo slow: slow"
        assert await run.status() is Status.SUSPENDED
        await run.signal("go")
        assert await run.result() == "done"
    assert done.count("undo slow: slow") == 1


async def test_a_run_does_not_end_before_what_it_gave_up_is_undone(world: World) -> None:
    barrier = Barrier()

    @step(compensate=cancel_booking)
    async def book_slowly(what: str) -> str:
        await barrier.wait()
        return what

    @workflow
    async def trip(ctx: Context) -> str:
        task = asyncio.create_task(_of(book_slowly("left behind")))
        await book("a")
        assert not task.done()
        return "done"

    async with world.app(trip) as app:
        run = await app.start(trip)
        await barrier.reached.wait()
        await app.settle(steps=False)
        assert await run.status() is Status.RUNNING
        barrier.open()
        assert await run.result() == "done"
        assert done == ["book a", "undo left behind: left behind"]


async def _of(awaitable: Any) -> Any:
    return await awaitable


@pytest.mark.parametrize("ends", ["well", "badly"])
async def test_f31_a_group_that_fails_undoes_those_that_were_under_way(world: World, ends: str) -> None:
    barrier = Barrier()

    @step(compensate=cancel_booking)
    async def book_slowly(what: str) -> str:
        await barrier.wait()
        if ends == "badly":
            raise ConnectionError("no room")
        return what

    @workflow
    async def trip(ctx: Context) -> None:
        await book("before")
        async with asyncio.TaskGroup() as group:
            group.create_task(_of(book_slowly("slow")))
            group.create_task(_of(book("quick")))
            group.create_task(_then_fails())

    async def _then_fails() -> None:
        await fail("the first to fail")

    async with world.app(trip) as app:
        run = await app.start(trip)
        await barrier.reached.wait()
        await app.settle(steps=False)
        assert done == ["book before", "book quick"]
        barrier.open()
        with pytest.raises(RunFailed) as caught:
            await run.result()
        assert isinstance(caught.value.__cause__, ExceptionGroup)
        last = ["undo slow: slow"] if ends == "well" else []
        assert done[2:] == [*last, "undo quick: quick-1", "undo before: before-1"]


async def test_a_step_that_never_began_is_just_not_made(world: World) -> None:
    @workflow
    async def trip(ctx: Context) -> str:
        await book("a")
        future: Any = book("never")
        future.cancel()
        await ctx.wait_for_signal("go")
        return "done"

    async with world.app(trip) as app:
        run = await app.start(trip)
        await run.signal("go")
        assert await run.result() == "done"
        assert done == ["book a"]
        assert (await run.steps())[1].state is State.ABANDONED


async def test_a_let_go_step_whose_process_is_lost_is_made_again_and_undone(world: World) -> None:
    barrier = Barrier()

    @step(compensate=cancel_booking)
    async def book_slowly(what: str) -> str:
        if not barrier.opened.is_set():
            await barrier.wait()
        return current_step().key

    @workflow
    async def trip(ctx: Context) -> str:
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(book_slowly("slow"), 5)
        await book("instead")
        await ctx.wait_for_signal("go")
        return "done"

    async with world.doomed(trip) as lost:
        await lost.start(trip, id="r1")
        await barrier.reached.wait()
        await lost.tick(5, steps=False)
        assert done == ["book instead"]
    barrier.open()
    async with world.app(trip) as app:
        await app.tick(60)
        assert len(done) == 2
        assert done[1].startswith("undo slow: ")
        run = app.get_run("r1")
        await run.signal("go")
        assert await run.result() == "done"


async def test_a_failing_run_waits_for_what_it_let_go_with_its_retries(world: World) -> None:
    tries: list[int] = []

    @step(compensate=cancel_booking, max_attempts=3, base=10)
    async def book_badly(what: str) -> str:
        tries.append(current_step().attempt)
        if len(tries) < 3:
            raise ConnectionError("try again")
        return what

    @workflow
    async def trip(ctx: Context) -> None:
        await book("a")
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(book_badly("b"), 5)
        raise ValueError("no")

    async with world.app(trip) as app:
        run = await app.start(trip)
        await app.tick(5)
        assert await run.status() is Status.SUSPENDED
        await app.tick(60)
        with pytest.raises(RunFailed, match="no"):
            await run.result()
        assert done == ["book a", "undo b: b", "undo a: a-1"]
        assert tries == [1, 2, 3]


# ---------------------------------------------------------------- what undoes nothing


async def test_a_run_that_continues_as_new_undoes_nothing(world: World) -> None:
    @workflow
    async def trip(ctx: Context, n: int) -> str:
        await book(str(n))
        if n:
            ctx.continue_as_new(n - 1)
        return "done"

    async with world.app(trip) as app:
        run = await app.start(trip, 1)
        assert await run.result() == "done"
        assert done == ["book 1", "book 0"]


async def test_a_run_that_is_blocked_or_out_of_time_undoes_nothing(world: World) -> None:
    @workflow(timeout=60)
    async def late(ctx: Context) -> None:
        await book("a")
        await ctx.wait_for_signal("never")

    @workflow
    async def stuck(ctx: Context) -> None:
        await book("b")
        await asyncio.Event().wait()

    async with world.app(late, stuck) as app:
        one, other = await app.start(late), await app.start(stuck)
        await app.tick(61)
        assert await one.status() is Status.CANCELLED
        assert await other.status() is Status.BLOCKED
        assert done == ["book a", "book b"]


async def test_plain_cancel_01_runs_no_undo(world: World) -> None:
    @workflow
    async def trip(ctx: Context) -> None:
        await book("a")
        await ctx.wait_for_signal("never")

    async with world.app(trip) as app:
        run = await app.start(trip)
        await app.settle()
        await run.cancel()
        await app.tick(60)
        with pytest.raises(RunCancelled):
            await run.result()
        assert done == ["book a"]


# ---------------------------------------------------------------- shapes


async def test_an_undo_gets_the_arguments_as_the_step_got_them(world: World) -> None:
    seen: list[Any] = []

    @step
    async def look(undo: Undo[Any, Any]) -> None:
        seen.append(undo.input)

    @step
    async def by_name(input: dict[str, Any], output: int) -> None:
        seen.append((input, output))

    @step(compensate=look)
    async def none() -> None: ...

    @step(compensate=look)
    async def one(one: dict[str, int]) -> None: ...

    @step(compensate=by_name)
    async def several(first: int, second: int = 2, *, third: int = 3) -> int:
        return first + second + third

    @workflow
    async def trip(ctx: Context) -> None:
        await none()
        await one({"one": 1})  # stored with its name on it
        await several(1, third=5)
        raise ValueError("no")

    async with world.app(trip) as app:
        run = await app.start(trip)
        with pytest.raises(RunFailed):
            await run.result()
        assert seen == [({"first": 1, "third": 5}, 8), {"one": 1}, None]


async def test_an_undo_in_a_thread_and_of_a_sync_step(world: World) -> None:
    @step
    def undo_it(undo: Undo[int, int]) -> None:
        done.append(f"undo {undo.input + undo.output}")

    @step(compensate=undo_it)
    def do_it(n: int) -> int:
        return n

    @workflow
    async def trip(ctx: Context) -> None:
        await ctx.step(do_it, 1)
        raise ValueError("no")

    async with world.app(trip) as app:
        run = await app.start(trip)
        with pytest.raises(RunFailed):
            await run.result()
        assert done == ["undo 2"]
