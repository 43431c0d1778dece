"""Cancelling: the run's one cancel, and what the body itself cancels."""

from __future__ import annotations

import asyncio
import itertools
from typing import Any

import pytest

from perdure.core.instance import Instance
from perdure.core.turn import Cancelled, Continued, StepDone
from perdure.model.messages import Message, MessageKind
from tests.unit.core.driving import Driven, Main, child, new_run, signal, step


async def cleans_up(run: Instance) -> str:
    try:
        await step(run, "work")
        await step(run, "more")
    except asyncio.CancelledError:
        await step(run, "clean up")
    return "done"


def test_the_body_cleans_up_with_durable_steps_and_the_run_ends_cancelled() -> None:
    driven = Driven(cleans_up)
    driven.cancel()
    assert driven.events() == [("cancel", -1, "cancel"), ("abandoned", 0, "work"), ("scheduled", 1, "clean up")]
    assert driven.turn.consumed == [1]
    driven.result(1)
    assert driven.turn.outcome == Cancelled()


def test_a_body_that_lets_the_cancel_through_ends_cancelled_at_once() -> None:
    async def body(run: Instance) -> None:
        await step(run, "work")

    driven = Driven(body)
    driven.cancel()
    assert driven.turn.outcome == Cancelled()
    assert driven.turn.entries[-1].name == "work"


def test_a_body_that_raises_in_its_clean_up_still_ends_cancelled() -> None:
    async def body(run: Instance) -> None:
        try:
            await step(run, "work")
        except asyncio.CancelledError:
            raise ValueError("clean-up failed") from None

    driven = Driven(body)
    driven.cancel()
    assert driven.turn.outcome == Cancelled()


@pytest.mark.parametrize("order", list(itertools.permutations(["result", "cancel", "signal"])))
def test_f37_a_cancel_in_the_turn_of_a_result_is_delivered_once_and_first(order: tuple[str, ...]) -> None:
    """Whatever else came in the same turn, and in whatever order: the await that stands when the turn begins is cancelled."""

    async def body(run: Instance) -> str:
        for number in range(3):
            try:
                await asyncio.gather(step(run, f"work{number}"), signal(run, "go"))
            except asyncio.CancelledError:
                run.set_value("told", b"%d" % number)
        return "done"

    driven = Driven(body)
    arrivals: dict[str, StepDone | Message] = {
        "result": driven.done(0, at=0),
        "cancel": driven.cancelling(at=1),
        "signal": driven.message("go", at=0),
    }
    driven.advance(*(arrivals[name] for name in order), at=1)
    assert driven.events()[:3] == [("cancel", -1, "cancel"), ("abandoned", 0, "work0"), ("abandoned", 1, "go")]
    # The signal is for the wait that follows; the result came too late for its step.
    assert driven.events()[3:] == [
        ("scheduled", 2, "told"),
        ("scheduled", 3, "work1"),
        ("scheduled", 4, "go"),
        ("resolved", 4, "go"),
    ]
    driven.result(3)
    driven.advance(driven.done(5), driven.message("go"))
    assert driven.turn.outcome == Cancelled()
    assert [entry.payload for entry in driven.history if entry.name == "told"] == [b"0"]


@pytest.mark.parametrize("where", range(4))
def test_f37_a_cancel_between_any_two_turns_is_delivered_once(where: int) -> None:
    async def body(run: Instance) -> str:
        told = 0
        for number in range(4):
            try:
                await step(run, f"work{number}")
            except asyncio.CancelledError:
                told += 1
        run.set_value("told", b"%d" % told)
        return "done"

    driven = Driven(body)
    for number in range(4):
        if number == where:
            driven.cancel()
        else:
            driven.result(number)
    assert driven.commit is not None
    assert driven.commit.values == (("told", b"1"),)
    assert driven.turn.outcome == Cancelled()


def test_f37_a_cancel_while_a_child_is_being_started_is_delivered_and_passed_on_to_the_child() -> None:
    async def body(run: Instance) -> None:
        await step(run, "before")
        await child(run, "ship")

    driven = Driven(body)
    driven.result(0)
    driven.cancel()
    assert driven.events() == [("cancel", -1, "cancel"), ("let_go", 1, "ship")]
    assert driven.commit is not None
    assert driven.commit.cancels == ()
    [message] = driven.commit.sends
    assert (message.kind, message.run_id) == (MessageKind.CANCEL, "ship")
    assert driven.turn.outcome is None
    driven.advance(driven.child_failed("ship", ValueError("cancelled")))
    assert driven.turn.outcome == Cancelled()


def test_a_second_cancel_changes_nothing() -> None:
    driven = Driven(cleans_up)
    driven.cancel()
    driven.cancel()
    assert driven.turn.consumed == [2]
    assert list(driven.instance.pending) == [1]
    driven.result(1)
    assert driven.turn.outcome == Cancelled()


def test_a_cancel_is_for_the_body_not_for_its_tasks() -> None:
    async def background(run: Instance) -> None:
        await step(run, "background")

    async def body(run: Instance) -> None:
        task = asyncio.create_task(background(run))
        try:
            await step(run, "work")
        except asyncio.CancelledError:
            await task

    driven = Driven(body)
    driven.cancel()
    assert driven.events() == [("cancel", -1, "cancel"), ("abandoned", 0, "work")]
    driven.result(1)
    assert driven.turn.outcome == Cancelled()


def test_a_cancel_after_the_body_ended_is_kept_while_its_tasks_clean_up() -> None:
    async def background(run: Instance) -> None:
        try:
            await step(run, "background")
        finally:
            await step(run, "clean up")

    async def body(run: Instance) -> str:
        task = asyncio.create_task(background(run))
        await step(run, "work")
        return "done" if not task.done() else "?"

    driven = Driven(body)
    driven.result(0)
    driven.cancel()
    assert driven.turn.outcome is None
    driven.result(2)
    assert driven.turn.outcome == Cancelled()


def test_a_message_that_came_before_the_cancel_is_not_lost() -> None:
    """The cancel goes first, though its number is higher: the earlier message is still there for the clean-up."""

    async def body(run: Instance) -> Any:
        try:
            await step(run, "work")
        except asyncio.CancelledError:
            reason = await signal(run, "reason")
            run.set_value("reason", b"%d" % reason)

    driven = Driven(body)
    reason = driven.message("reason", 7)
    driven.advance(reason, driven.cancelling())
    assert driven.events()[:3] == [("cancel", -1, "cancel"), ("abandoned", 0, "work"), ("scheduled", 1, "reason")]
    assert driven.commit is not None
    assert driven.commit.values == (("reason", b"7"),)
    assert driven.commit.seen == 2
    assert sorted(driven.commit.consumed) == [1, 2]


# ---------------------------------------------------------------- F38


def after_a_cancel(then: Any) -> Main:
    async def body(run: Instance) -> None:
        try:
            await step(run, "work")
        except asyncio.CancelledError:
            pass
        await then(run)
        await step(run, "last")

    return body


async def a_timeout(run: Instance) -> None:
    limit = asyncio.timeout(5)
    with pytest.raises(TimeoutError):
        await within(limit, step(run, "slow"))


async def within(limit: asyncio.Timeout, work: Any) -> None:
    async with limit:
        await work


async def a_wait_for(run: Instance) -> None:
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(step(run, "slow"), 5)


async def a_group(run: Instance) -> None:
    async def fails() -> None:
        await asyncio.sleep(5)
        raise ValueError("one of them")

    with pytest.raises(ExceptionGroup):
        await grouped(fails(), asyncio.sleep(60))


async def nested(run: Instance) -> None:
    with pytest.raises(TimeoutError):
        await within(asyncio.timeout(5), grouped(asyncio.sleep(60), _result(step(run, "slow"))))


async def grouped(*work: Any) -> None:
    async with asyncio.TaskGroup() as group:
        for one in work:
            group.create_task(one)


@pytest.mark.parametrize("then", [a_timeout, a_wait_for, a_group, nested])
def test_f38_timeouts_and_groups_work_after_a_handled_cancel(then: Any) -> None:
    driven = Driven(after_a_cancel(then))
    driven.cancel()
    driven.advance(at=5)
    # Nothing is left of the cancel: the next await stands.
    assert [operation.name for operation in driven.instance.pending.values()] == ["last"]
    driven.result(driven.instance.reserve() - 1)
    assert driven.turn.outcome == Cancelled()


def test_f38_a_timeout_around_a_handled_cancel_still_is_a_timeout() -> None:
    async def body(run: Instance) -> None:
        try:
            async with asyncio.timeout(5):
                try:
                    await step(run, "work")
                except asyncio.CancelledError:
                    await step(run, "clean up")
        except TimeoutError:
            run.set_value("timed out", b"1")

    driven = Driven(body)
    driven.cancel()
    driven.advance(at=5)
    assert driven.commit is not None
    assert driven.commit.values == (("timed out", b"1"),)


@pytest.mark.parametrize("uncancels", [False, True])
def test_f38_the_count_of_cancels_is_balanced(uncancels: bool) -> None:
    counts: list[int] = []

    async def body(run: Instance) -> None:
        task = asyncio.current_task()
        assert task is not None
        try:
            await step(run, "work")
        except asyncio.CancelledError:
            counts.append(task.cancelling())
            if uncancels:
                task.uncancel()
        await step(run, "clean up")
        counts.append(task.cancelling())

    driven = Driven(body)
    driven.cancel()
    counts.clear()  # the driver replays after each turn
    driven.result(1)
    assert counts == [0, 1, 0]  # the live body's second, and both of its replay


def test_f38_a_cancel_that_a_task_holds_up_counts_until_the_body_hears_of_it() -> None:
    counts: list[int] = []

    async def slow_to_stop(run: Instance) -> None:
        try:
            await step(run, "work")
        finally:
            await step(run, "stop")

    async def body(run: Instance) -> None:
        task = asyncio.current_task()
        assert task is not None
        try:
            await asyncio.create_task(slow_to_stop(run))
        except asyncio.CancelledError:
            counts.append(task.cancelling())
        await step(run, "last")
        counts.append(task.cancelling())

    driven = Driven(body)
    driven.cancel()
    assert counts == []
    driven.result(1)
    counts.clear()
    driven.result(2)
    assert counts == [0, 1, 0]


# ---------------------------------------------------------------- what the body cancels


def test_f40_a_cancelled_sleep_leaves_no_timer() -> None:
    async def body(run: Instance) -> None:
        task = asyncio.create_task(asyncio.sleep(3600))
        await step(run, "a")
        task.cancel()
        await step(run, "b")

    driven = Driven(body)
    assert driven.instance.next_due() is not None
    driven.result(0)
    assert driven.events() == [("resolved", 0, "a"), ("scheduled", 2, "b"), ("abandoned", 1, "timer")]
    assert driven.instance.next_due() is None
    assert driven.commit is not None
    assert driven.commit.wake_at is None


def test_f40_a_wait_for_in_time_leaves_nothing_behind() -> None:
    async def body(run: Instance) -> Any:
        first = await asyncio.wait_for(step(run, "quick"), 60)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(asyncio.sleep(3600), 60)
        return first

    driven = Driven(body)
    driven.result(0, "in time")
    assert ("abandoned", 1, "timer") in driven.events()
    driven.advance(at=60)
    assert driven.output() == "in time"
    assert driven.instance.pending == {}


def test_a_cancelled_step_is_abandoned_and_its_late_result_ignored() -> None:
    async def body(run: Instance) -> None:
        task = asyncio.create_task(_result(step(run, "slow")))
        await step(run, "quick")
        task.cancel()
        await step(run, "last")

    driven = Driven(body)
    driven.result(1)
    assert [operation.name for operation in driven.turn.abandoned] == ["slow"]
    late = driven.result(0, "late")
    assert late.entries == []
    assert late.resolved == []


def test_a_result_in_the_same_turn_as_its_cancel_counts_only_if_it_came_first() -> None:
    async def body(run: Instance) -> str:
        slow = asyncio.create_task(_result(step(run, "slow")))
        await step(run, "quick")
        slow.cancel()
        await asyncio.wait([slow])
        return "cancelled" if slow.cancelled() else "done"

    driven = Driven(body)
    driven.advance(driven.done(1, at=1), driven.done(0, at=2), at=2)
    assert driven.output() == "cancelled"
    driven = Driven(body)
    driven.advance(driven.done(1, at=2), driven.done(0, at=1), at=2)
    assert driven.output() == "done"


def test_shielded_operations_survive_a_timeout() -> None:
    async def body(run: Instance) -> Any:
        ship = asyncio.ensure_future(child(run, "ship"))
        try:
            async with asyncio.timeout(5):
                await asyncio.shield(ship)
        except TimeoutError:
            await step(run, "tell them")
        return await ship

    driven = Driven(body)
    driven.advance(at=5)
    assert driven.turn.abandoned == []
    driven.result(2)
    driven.advance(driven.ended("ship", "shipped"))
    assert driven.output() == "shipped"


def test_a_body_that_raises_cancelled_error_itself_has_failed() -> None:
    async def body(run: Instance) -> None:
        await step(run, "a")
        raise asyncio.CancelledError

    driven = Driven(body)
    driven.result(0)
    assert "raised CancelledError, though nobody cancelled the run" in str(driven.error())


def test_what_a_task_leaves_behind_that_the_ended_body_left_is_cancelled_too() -> None:
    told: list[str] = []

    async def left(run: Instance, depth: int) -> None:
        try:
            await asyncio.sleep(1000)
        finally:
            told.append(f"left {depth}")
            if depth < 3:
                asyncio.create_task(left(run, depth + 1))  # noqa: RUF006

    async def body(run: Instance) -> str:
        asyncio.create_task(left(run, 1))  # noqa: RUF006
        await step(run, "a")
        return "ended"

    driven = Driven(body)
    told.clear()
    driven.result(0)
    assert driven.output() == "ended"
    assert told[:3] == ["left 1", "left 2", "left 3"]


def test_what_a_left_task_needs_to_clean_up_is_not_cancelled() -> None:
    async def left(run: Instance) -> None:
        try:
            await asyncio.sleep(1000)
        finally:
            await asyncio.create_task(_result(step(run, "clean up")))
            await step(run, "report")

    async def body(run: Instance) -> str:
        asyncio.create_task(left(run))  # noqa: RUF006
        await step(run, "a")
        return "ended"

    driven = Driven(body)
    driven.result(0)
    assert driven.turn.outcome is None
    driven.result(2)
    driven.result(3)
    assert driven.output() == "ended"


def test_an_ended_body_whose_tasks_never_stop_making_others_is_blocked() -> None:
    async def again() -> None:
        try:
            await asyncio.sleep(1000)
        finally:
            asyncio.create_task(again())  # noqa: RUF006

    async def body(run: Instance) -> None:
        asyncio.create_task(again())  # noqa: RUF006
        await step(run, "a")

    driven = Driven(body)
    driven.result(0)
    assert "ran on without ever waiting" in str(driven.fault())


def test_a_cancel_while_the_next_link_is_prepared() -> None:
    """A body that goes on as another link after its cancel does so: the cancel was delivered to this link."""

    async def body(run: Instance) -> None:
        try:
            await step(run, "work")
        except asyncio.CancelledError:
            run.continue_as_new(new_run("run1~1"))

    driven = Driven(body)
    driven.cancel()
    assert isinstance(driven.turn.outcome, Continued)


async def _result(future: Any) -> Any:
    return await future
