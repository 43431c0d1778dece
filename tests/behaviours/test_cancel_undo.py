"""CANCEL with undo: the body is told once, what it did is undone, and so below it. F35, F37, F38, F40."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from typing import Any

import pytest

import perdure
from perdure import (
    ChildFailed,
    Context,
    RunCancelled,
    RunNotFound,
    Status,
    Undo,
    UsageError,
    step,
    workflow,
)
from perdure.model.cancelling import CancelOrder
from perdure.model.commit import Send
from perdure.model.history import Event
from perdure.model.run import TERMINAL
from perdure.model.steps import State
from tests.behaviours.world import Barrier, World, events_of, kinds

done: list[str] = []


@pytest.fixture(autouse=True)
def nothing_done() -> None:
    done.clear()


@step
async def cancel_booking(undo: Undo[str, str]) -> None:
    done.append(f"undo {undo.input}")


@step(compensate=cancel_booking)
async def book(what: str) -> str:
    done.append(f"book {what}")
    return what


@step
async def note(what: str) -> None:
    done.append(what)


@workflow
async def trip(ctx: Context, name: str) -> str:
    await book(f"{name}.a")
    await book(f"{name}.b")
    await ctx.wait_for_signal("go")
    return "went"


@pytest.mark.parametrize("how", ["here", "elsewhere"])
async def test_cancel_03_a_suspended_run_is_undone_in_the_background_and_ends_cancelled(world: World, how: str) -> None:
    async with world.app(trip) as app, world.client() as client:
        events = events_of(app)
        run = await app.start(trip, "r", id="r1")
        await app.settle()
        stands = await (run if how == "here" else client.get_run("r1")).cancel("changed my mind", compensate=True)
        assert stands not in (Status.CANCELLED, Status.COMPLETED)
        with pytest.raises(RunCancelled, match="'r1': changed my mind"):
            await run.result() if how == "here" else await _result(app, "r1")
        assert done == ["book r.a", "book r.b", "undo r.b", "undo r.a"]
        assert (await run.info()).status is Status.CANCELLED
        assert kinds(events, "r1").count("run.failed") == 1


async def _result(app: Any, run_id: str) -> Any:
    await app.settle()
    return await app.get_run(run_id).result()


@pytest.mark.parametrize("waits", ["sleeping", "retrying", "signal", "event"])
async def test_cancel_03_whatever_it_waits_for_it_is_woken(world: World, waits: str) -> None:
    @step(max_attempts=9, base=1000)
    async def fails() -> None:
        raise ValueError("no")

    @workflow(name="body")
    async def body(ctx: Context) -> None:
        await book("a")
        if waits == "sleeping":
            await asyncio.sleep(1000)
        elif waits == "retrying":
            await fails()
        elif waits == "signal":
            await ctx.wait_for_signal("never", timeout=1000)
        else:
            async with asyncio.timeout(1000):
                await asyncio.Event().wait()

    async with world.app(body) as app, world.client() as client:
        run = await app.start(body, id="r1")
        await app.settle()
        assert await run.status() is Status.SUSPENDED
        assert await client.get_run("r1").cancel(compensate=True) not in TERMINAL  # the app may be at it already
        await app.settle()
        assert await run.status() is Status.CANCELLED
        assert done == ["book a", "undo a"]
        assert not [one for one in await run.steps() if one.state in (State.PENDING, State.RETRYING)]


async def test_cancel_03_the_body_cleans_up_with_steps_first(world: World) -> None:
    @workflow
    async def tidy(ctx: Context) -> str:
        await book("a")
        try:
            await ctx.wait_for_signal("go")
        except asyncio.CancelledError:
            await note("caught")
            with contextlib.suppress(TimeoutError):  # F38: it is told once; timeouts of its own work afterwards
                async with asyncio.timeout(5):
                    await ctx.wait_for_signal("never")
            async with asyncio.TaskGroup() as group:
                group.create_task(_of(note("in a group")))
            return "swallowed"
        finally:
            await note("finally")
        return "went"

    async with world.app(tidy) as app:
        run = await app.start(tidy)
        await app.settle()
        await run.cancel(compensate=True)
        await app.tick(10)
        with pytest.raises(RunCancelled):
            await run.result()
        assert done == ["book a", "caught", "in a group", "finally", "undo a"]


async def _of(awaitable: Any) -> Any:
    return await awaitable


async def test_cancel_03_it_is_told_once_however_often_it_is_asked(world: World) -> None:
    @workflow
    async def stubborn(ctx: Context) -> None:
        await book("a")
        for _ in range(2):
            try:
                await ctx.wait_for_signal("go")
            except asyncio.CancelledError:
                await note("told")

    async with world.app(stubborn) as app:
        run = await app.start(stubborn)
        await app.settle()
        for _ in range(3):
            await run.cancel(compensate=True)
            await app.settle()
        assert done == ["book a", "told"]
        await run.signal("go")
        with pytest.raises(RunCancelled):
            await run.result()
        assert done[2:] == ["undo a"]


async def test_cancel_03_a_run_that_has_not_begun_never_begins(world: World) -> None:
    async with world.client(trip) as client:
        delayed = await client.start(trip, "r", id="delayed", delay=3600)
        pending = await client.start(trip, "r", id="pending")
        for run in (delayed, pending):
            await run.cancel("not wanted", compensate=True)
    async with world.app(trip) as app:
        await app.settle()
        for run_id in ("delayed", "pending"):
            with pytest.raises(RunCancelled, match="not wanted"):
                await app.get_run(run_id).result()
    assert done == []


async def test_cancel_02_an_ended_run_stays_and_an_unknown_one_is_an_error(world: World) -> None:
    async with world.app(trip) as app:
        run = await app.start(trip, "r", id="r1")
        await run.signal("go")
        await run.result()
        before = await run.info()
        assert await run.cancel(compensate=True) is Status.COMPLETED
        assert await run.info() == before
        with pytest.raises(RunNotFound):
            await app.get_run("nobody").cancel(compensate=True)
        assert "undo r.a" not in done


@pytest.mark.parametrize("wrong", [1, "yes", None, "false"])
async def test_f35_what_is_neither_true_nor_false_is_refused(world: World, wrong: Any) -> None:
    async with world.app(trip) as app:
        run = await app.start(trip, "r")
        await app.settle()
        with pytest.raises(UsageError, match="compensate must be True or False"):
            await run.cancel(compensate=wrong)
        with pytest.raises(UsageError, match="compensate must be True or False"):
            await app.cancel_where(workflow="trip", compensate=wrong)
        with pytest.raises(UsageError, match="dry_run must be True or False"):
            await app.cancel_where(workflow="trip", dry_run=wrong)
        assert await run.status() is Status.SUSPENDED


@pytest.mark.parametrize("undone", [True, False], ids=["with an undo", "without"])
async def test_cancel_03_a_step_under_way_is_awaited_and_undone_if_it_can_be(world: World, undone: bool) -> None:
    barrier, stopped = Barrier(), asyncio.Event()

    @step
    async def hold(what: str) -> str:
        try:
            await barrier.wait()
        except asyncio.CancelledError:
            stopped.set()
            raise
        return what

    @workflow
    async def works(ctx: Context) -> None:
        await book("a")
        await (hold.using(compensate=cancel_booking) if undone else hold)("b")

    async with world.app(works) as app:
        run = await app.start(works)
        await barrier.reached.wait()
        await run.cancel(compensate=True)
        await app.settle(steps=False)
        if undone:
            assert done == ["book a"]
            barrier.open()
        else:
            await stopped.wait()
        with pytest.raises(RunCancelled):
            await run.result()
        assert done[1:] == (["undo b"] if undone else []) + ["undo a"]


# ---------------------------------------------------------------- below


async def test_cancel_04_the_cancel_goes_down_and_the_deepest_are_undone_first(world: World) -> None:
    @workflow
    async def parent(ctx: Context, depth: int) -> None:
        await book(f"p{depth}")
        if depth:
            await ctx.child(parent, depth - 1)
        else:
            await ctx.child(trip, "t")

    async with world.app(parent, trip) as app:
        run = await app.start(parent, 2, id="p")
        await app.settle()
        assert done == ["book p2", "book p1", "book p0", "book t.a", "book t.b"]
        await run.cancel("over", compensate=True)
        await app.settle()
        assert done[5:] == ["undo t.b", "undo t.a", "undo p0", "undo p1", "undo p2"]
        for one in await app.runs():
            assert one.status is Status.CANCELLED
            assert one.reason is not None
            assert "over" in one.reason


async def test_cancel_04_detached_children_hear_of_it_too_also_below_ended_ones(world: World) -> None:
    @workflow
    async def middle(ctx: Context) -> None:
        await ctx.start_child(trip, "below", id="below")

    @workflow
    async def top(ctx: Context) -> None:
        await ctx.start_child(trip, "detached", id="detached")
        await ctx.start_child(middle, id="middle")
        await ctx.wait_for_signal("never")

    async with world.app(top, middle, trip) as app:
        run = await app.start(top, id="top")
        await app.settle()
        assert await app.get_run("middle").status() is Status.COMPLETED
        done.clear()
        await run.cancel(compensate=True)
        await app.settle()
        for run_id in ("top", "detached", "below"):
            assert await app.get_run(run_id).status() is Status.CANCELLED, run_id
        assert sorted(done) == ["undo below.a", "undo below.b", "undo detached.a", "undo detached.b"]
        assert await app.get_run("middle").status() is Status.COMPLETED
        told = [entry for entry in await app.get_run("detached").history() if entry.event is Event.CANCEL]
        assert len(told) == 1  # from above and from the caller, but once


async def test_cancel_04_whose_parent_is_another_is_not_meant(world: World) -> None:
    async with world.app(trip) as app:
        run = await app.start(trip, "r", id="r1")
        await app.settle()
        await app.engine.ask(Send(CancelOrder(parent=("stranger", 7)).message("r1")))
        await app.settle()
        assert await run.status() is Status.SUSPENDED
        await run.signal("go")
        assert await run.result() == "went"


async def test_f40_a_child_that_was_given_up_by_a_timeout_is_cancelled_plainly(world: World) -> None:
    @workflow
    async def parent(ctx: Context) -> str:
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(ctx.child(trip, "t", id="t"), 5)
        return "went on"

    async with world.app(parent, trip) as app:
        run = await app.start(parent)
        await app.tick(5)
        assert await run.result() == "went on"
        assert await app.get_run("t").status() is Status.CANCELLED
        assert done == ["book t.a", "book t.b"]


async def test_cancel_04_a_parent_that_waits_for_a_cancelled_child_is_told(world: World) -> None:
    @workflow
    async def parent(ctx: Context) -> str:
        try:
            await ctx.child(trip, "t", id="t")
        except ChildFailed as error:
            return error.status
        return "?"

    async with world.app(parent, trip) as app:
        run = await app.start(parent)
        await app.settle()
        await app.get_run("t").cancel(compensate=True)
        assert await run.result() == "cancelled"
        assert done[2:] == ["undo t.b", "undo t.a"]


# ---------------------------------------------------------------- races


async def test_f37_together_with_the_result_that_is_waited_for(world: World) -> None:
    for first in ("cancel", "result"):
        done.clear()
        barrier = Barrier()

        @step(compensate=cancel_booking)
        async def hold(what: str, barrier: str) -> str:
            return what

        @workflow
        async def works(ctx: Context) -> str:
            await book("a")
            await ctx.local_step("hold", barrier.wait)  # noqa: B023
            await note("went on")
            await ctx.wait_for_signal("never")
            return "done"

        async with world.app(works) as app:
            run = await app.start(works, id=first)
            await barrier.reached.wait()
            asking = asyncio.create_task(run.cancel(compensate=True))
            if first == "cancel":
                await asking
            barrier.open()
            await asking
            await app.settle()
            assert await run.status() is Status.CANCELLED
            assert done[-1] == "undo a"
            assert done.count("undo a") == 1


async def test_f37_a_cancel_before_the_last_turn_is_recorded_is_honoured(world: World) -> None:
    @workflow
    async def works(ctx: Context) -> str:
        await book("a")
        await note("last")
        return "done"

    gate = world.gate()
    async with world.app(works, store=gate) as app, world.client() as client:
        from tests.behaviours.world import ends

        stop = gate.stop("before", "write", ends)
        run = await app.start(works, id="r1")
        await stop.reached.wait()
        assert await client.get_run("r1").cancel(compensate=True) is Status.RUNNING
        stop.release()
        with pytest.raises(RunCancelled):
            await run.result()
        assert done == ["book a", "last", "undo a"]


async def test_a_cancel_while_undoing_a_failure_disturbs_no_undo(world: World) -> None:
    barrier = Barrier()

    @step
    async def undo_slowly(undo: Undo[str, str]) -> None:
        await barrier.wait()
        done.append(f"undo {undo.input}")

    @workflow
    async def works(ctx: Context) -> None:
        await book("a")
        await book.using(compensate=undo_slowly)("b")
        raise ValueError("no")

    async with world.app(works) as app:
        run = await app.start(works)
        await barrier.reached.wait()
        await run.cancel(compensate=True)
        await app.settle(steps=False)
        barrier.open()
        with pytest.raises(RunCancelled):
            await run.result()
        assert done == ["book a", "book b", "undo b", "undo a"]


async def test_a_plain_cancel_stops_also_the_undos(world: World) -> None:
    barrier = Barrier()

    @step
    async def undo_never(undo: Undo[str, str]) -> None:
        await barrier.wait()

    @workflow
    async def works(ctx: Context) -> None:
        await book("a")
        await book.using(compensate=undo_never)("b")
        raise ValueError("no")

    async with world.app(works) as app:
        run = await app.start(works)
        await barrier.reached.wait()
        assert await run.cancel() is Status.CANCELLED
        await app.settle()
        assert done == ["book a", "book b"]


async def test_a_process_lost_after_the_cancel_was_accepted(world: World) -> None:
    async with world.doomed(trip) as lost:
        run = await lost.start(trip, "r", id="r1")
        await lost.settle()
    async with world.client() as client:
        await client.get_run("r1").cancel(compensate=True)
    async with world.app(trip) as app:
        await app.tick(60)
        assert await app.get_run("r1").status() is Status.CANCELLED
    assert done == ["book r.a", "book r.b", "undo r.b", "undo r.a"]
    assert run.id == "r1"


# ---------------------------------------------------------------- many at once


async def test_cancel_12_cancel_where_cancels_what_matches_and_tells_of_each(world: World) -> None:
    @workflow
    async def other(ctx: Context) -> None:
        await ctx.wait_for_signal("never")

    async with world.app(trip, other) as app:
        for n in range(3):
            await app.start(trip, f"{n}", id=f"t{n}", tags=["x"] if n != 1 else [])
        ended = await app.start(trip, "e", id="ended", tags=["x"])
        await ended.signal("go")
        await ended.result()
        await app.start(other, id="o", tags=["x"])
        await app.settle()
        tried = await app.cancel_where(workflow="trip", tag="x", dry_run=True)
        assert [(one.id, one.status) for one in tried] == [
            ("ended", Status.COMPLETED),
            ("t2", Status.SUSPENDED),
            ("t0", Status.SUSPENDED),
        ]
        results = await app.cancel_where(workflow="trip", tag="x", reason="all of them")
        assert [(one.id, one.status) for one in results] == [
            ("ended", Status.COMPLETED),
            ("t2", Status.CANCELLED),
            ("t0", Status.CANCELLED),
        ]
        assert await app.get_run("t1").status() is Status.SUSPENDED
        assert await app.get_run("o").status() is Status.SUSPENDED
        with pytest.raises(RunCancelled, match="all of them"):
            await app.get_run("t0").result()
        assert not [one for one in done if one.startswith("undo")]


async def test_cancel_13_by_attribute_and_with_undo(world: World) -> None:
    async with world.app(trip) as app:
        for n in range(3):
            await app.start(trip, f"{n}", id=f"t{n}", attributes={"customer": n % 2})
        await app.settle()
        done.clear()
        results = await app.cancel_where(attributes={"customer": 0}, compensate=True)
        assert [one.id for one in results] == ["t2", "t0"]
        await app.settle()
        assert [await app.get_run(f"t{n}").status() for n in range(3)] == [
            Status.CANCELLED,
            Status.SUSPENDED,
            Status.CANCELLED,
        ]
        assert sorted(done) == ["undo 0.a", "undo 0.b", "undo 2.a", "undo 2.b"]


async def test_cancel_12_all_pages(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("perdure.engine.bulk.PAGE", 2)
    async with world.client(trip) as client:
        for n in range(5):
            await client.start(trip, f"{n}", id=f"t{n}")
        results = await client.cancel_where(status="pending")
        assert [one.id for one in results] == ["t4", "t3", "t2", "t1", "t0"]
        assert {one.status for one in results} == {Status.CANCELLED}
        assert await client.cancel_where(status="pending") == []


async def test_cancel_12_without_a_filter_it_is_refused(world: World) -> None:
    async with world.app(trip) as app:
        run = await app.start(trip, "r")
        await app.settle()
        for wrong, match in (
            ({}, "every run"),
            ({"namespace": "default"}, "every run"),
            ({"workflow": ""}, "workflow"),
            ({"status": "nearly"}, "no status"),
            ({"tag": "x", "reason": 5}, "reason"),
        ):
            with pytest.raises(UsageError, match=match):
                await app.cancel_where(**wrong)
        with pytest.raises(UsageError, match="compensated"):
            await app.cancel_where(tag="x", compensated=True)  # type: ignore[call-arg]
        assert await run.status() is Status.SUSPENDED


# ---------------------------------------------------------------- threads


@pytest.mark.parametrize("why", ["cancel", "abandoned", "timeout"])
async def test_a_sync_step_can_ask_whether_it_is_still_wanted(world: World, why: str) -> None:
    began, go, seen = threading.Event(), threading.Event(), list[bool]()
    over = threading.Event()

    @step
    def works() -> None:
        seen.append(perdure.cancelled())
        began.set()
        go.wait(30)
        seen.append(perdure.cancelled())
        over.set()

    @workflow
    async def body(ctx: Context) -> None:
        if why == "abandoned":
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(ctx.step(works), 5)
        else:
            await ctx.step(works.using(timeout=5) if why == "timeout" else works)

    async with world.app(body) as app:
        run = await app.start(body)
        await asyncio.to_thread(began.wait)
        if why == "cancel":
            await run.cancel()
            await app.settle()
        else:
            await app.tick(5, steps=False)
            await run.wait()
        await app.settle()
        go.set()
        await asyncio.to_thread(over.wait)
        assert seen == [False, True]


async def test_cancelled_is_false_in_a_step_that_is_let_go_and_refused_outside_steps(world: World) -> None:
    began, go, seen = threading.Event(), threading.Event(), list[bool]()

    @step(compensate=cancel_booking)
    def works(what: str) -> str:
        began.set()
        go.wait(30)
        seen.append(perdure.cancelled())
        return what

    @workflow
    async def body(ctx: Context) -> str:
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(ctx.step(works, "let go"), 5)
        try:
            perdure.cancelled()
        except UsageError as error:
            return str(error)
        return "no error"

    async with world.app(body) as app:
        run = await app.start(body)
        await asyncio.to_thread(began.wait)
        await app.tick(5, steps=False)
        go.set()
        assert "inside a step" in await run.result()
        assert seen == [False]
        assert done == ["undo let go"]
    with pytest.raises(UsageError, match="inside a step"):
        perdure.cancelled()
