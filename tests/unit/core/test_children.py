"""Children: started and awaited, started and left, joined, refused, cancelled; and the next link of a chain."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from perdure.core.instance import Instance
from perdure.core.turn import Cancelled, Continued
from perdure.model import values
from perdure.model.cancelling import order_of
from perdure.model.commit import Join
from perdure.model.endings import cancelled_failure
from perdure.model.errors import ChildFailed, FatalError, ForbiddenInWorkflow, NotRegistered, UsageError
from perdure.model.failure import Failure, capture, encode_failure
from perdure.model.messages import Message, MessageKind
from tests.unit.core.driving import Driven, child, join, new_run, step


def refusal() -> Failure:
    error = ChildFailed("child 'ship' failed to start: ghost is not registered", child_id="ship", status="not started")
    error.__cause__ = NotRegistered("ghost is not registered")
    return capture(error)


def refused(run: Instance) -> Any:
    return run.child(new_run("ship"), decode=values.decoder(Any), refusal=refusal())


def test_child_01_a_child_is_born_with_the_turn_that_asks_for_it_and_its_end_resolves_the_wait() -> None:
    async def body(run: Instance) -> Any:
        return await child(run, "ship")

    driven = Driven(body)
    assert driven.commit is not None
    assert [(born.seq, born.run.id) for born in driven.commit.children] == [(0, "ship")]
    assert driven.commit.listening
    driven.advance(driven.ended("ship", 42))
    assert driven.output() == 42


def test_child_02_a_childs_failure_is_told_with_its_cause() -> None:
    async def body(run: Instance) -> Any:
        return await child(run, "ship")

    driven = Driven(body)
    driven.advance(driven.child_failed("ship", ValueError("sank")))
    error = driven.error()
    assert isinstance(error, ChildFailed)
    assert str(error) == "child 'ship' failed: sank"
    assert (error.child_id, error.status) == ("ship", "failed")
    assert isinstance(error.__cause__, ValueError)


def test_a_cancelled_child_says_so() -> None:
    async def body(run: Instance) -> Any:
        try:
            await child(run, "ship")
        except ChildFailed as error:
            return error.status

    driven = Driven(body)
    payload = encode_failure(cancelled_failure())
    driven.advance(Message(1, MessageKind.CHILD, "ship", None, payload, True, driven.now))
    assert driven.output() == "cancelled"


def test_child_06_a_child_that_cannot_start_fails_its_parent_in_the_same_turn() -> None:
    async def body(run: Instance) -> Any:
        return await refused(run)

    driven = Driven(body)
    assert driven.events() == [("scheduled", 0, "ship"), ("failed", 0, "ship")]
    assert "failed to start" in str(driven.error())
    assert driven.commit is not None
    assert driven.commit.children == ()


def test_child_06_the_store_may_refuse_a_child_too() -> None:
    async def body(run: Instance) -> Any:
        return await child(run, "taken")

    driven = Driven(body)
    driven.advance(driven.child_failed("taken", FatalError("the id is taken", "child_start_failed")))
    error = driven.error()
    assert isinstance(error, ChildFailed)
    assert str(error) == "child 'taken' failed to start: the id is taken"
    assert error.status == "not started"


def test_refusals_are_told_in_the_order_they_were_asked_for_and_before_anything_else() -> None:
    async def body(run: Instance) -> Any:
        return [
            str(error)[:5] for error in await asyncio.gather(*(refused(run) for _ in range(3)), return_exceptions=True)
        ]

    driven = Driven(body)
    assert [event for event, _, _ in driven.events()] == ["scheduled"] * 3 + ["failed"] * 3
    assert driven.output() == ["child"] * 3


def test_a_refusal_that_nobody_awaits_any_more_is_not_told() -> None:
    async def body(run: Instance) -> str:
        refused(run).cancel()
        await step(run, "a")
        return "fine"

    driven = Driven(body)
    assert driven.events() == [("scheduled", 0, "ship"), ("abandoned", 0, "ship"), ("scheduled", 1, "a")]
    assert driven.commit is not None
    assert (driven.commit.children, driven.commit.cancels) == ((), ())


def test_child_04_a_spawned_child_is_born_and_not_waited_for() -> None:
    async def body(run: Instance) -> str:
        run.spawn(new_run("ship"))
        return "gone on"

    driven = Driven(body)
    assert driven.output() == "gone on"
    assert driven.commit is not None
    assert [born.run.id for born in driven.commit.children] == ["ship"]
    assert driven.commit.cancels == ()


def test_child_05_joining_a_spawned_child_waits_for_its_end() -> None:
    async def body(run: Instance) -> Any:
        run.spawn(new_run("ship"))
        await step(run, "a")
        return await join(run, "ship")

    driven = Driven(body)
    driven.result(1)
    assert driven.commit is not None
    assert driven.commit.joins == (Join(2, "ship"),)
    driven.advance(driven.ended("ship", "home"))
    assert driven.output() == "home"


def test_one_end_resolves_every_wait_for_that_child() -> None:
    async def body(run: Instance) -> Any:
        return await asyncio.gather(child(run, "ship"), join(run, "ship"), join(run, "ship"))

    driven = Driven(body)
    driven.advance(driven.ended("ship", 1))
    assert driven.output() == [1, 1, 1]
    assert driven.turn.consumed == [1]


def test_a_child_whose_wait_is_given_up_is_cancelled_and_a_joined_one_is_not() -> None:
    async def body(run: Instance) -> None:
        mine, joined = child(run, "mine"), join(run, "joined")
        await step(run, "a")
        mine.cancel()
        joined.cancel()
        await step(run, "b")

    driven = Driven(body)
    driven.result(2)
    assert driven.commit is not None
    assert driven.commit.cancels == ("mine",)


def test_a_child_given_up_in_the_turn_that_asked_for_it_is_not_born() -> None:
    async def body(run: Instance) -> None:
        child(run, "mine").cancel()
        await step(run, "a")

    driven = Driven(body)
    assert driven.commit is not None
    assert (driven.commit.children, driven.commit.cancels) == ((), ())


def test_children_that_are_still_awaited_at_the_end_are_cancelled_and_spawned_ones_go_on() -> None:
    async def body(run: Instance) -> None:
        child(run, "awaited")
        run.spawn(new_run("spawned"))
        await step(run, "a")

    driven = Driven(body)
    driven.result(2)
    assert driven.commit is not None
    assert driven.commit.cancels == ("awaited",)


def test_child_15_a_fan_gives_its_results_in_input_order_and_takes_neighbouring_positions() -> None:
    async def body(run: Instance) -> Any:
        first = run.reserve()
        return await asyncio.gather(*(child(run, f"{run.run.id}.all.{first}.{index}") for index in range(3)))

    driven = Driven(body)
    names = [name for _, _, name in driven.events()]
    assert names == ["run1.all.0.0", "run1.all.0.1", "run1.all.0.2"]
    for index in (2, 0, 1):
        driven.advance(driven.ended(names[index], index))
    assert driven.output() == [0, 1, 2]


def test_a_parent_that_is_cancelled_with_undo_passes_that_on_and_ends_after_its_child() -> None:
    async def body(run: Instance) -> None:
        await child(run, "ship")

    driven = Driven(body)
    driven.cancel()
    assert driven.turn.outcome is None
    assert driven.commit is not None
    assert driven.commit.cancels == ()
    [message] = driven.commit.sends
    assert (message.kind, message.run_id) == (MessageKind.CANCEL, "ship")
    assert order_of(message.payload).parent == (driven.commit.run.id, driven.commit.run.incarnation)
    driven.advance(driven.ended("ship"))
    assert driven.turn.outcome == Cancelled()


# ---------------------------------------------------------------- the next link


async def goes_on(run: Instance) -> None:
    await step(run, "a")
    run.continue_as_new(new_run("run1~1"))


def test_can_01_a_body_goes_on_as_another_link_and_its_code_ends_there() -> None:
    async def body(run: Instance) -> None:
        await goes_on(run)
        run.set_value("never", b"1")

    driven = Driven(body)
    driven.result(0)
    assert driven.turn.outcome == Continued(new_run("run1~1"))
    assert driven.commit is not None
    assert driven.commit.successor == new_run("run1~1")
    assert (driven.commit.output, driven.commit.error, driven.commit.values) == (None, None, ())


def test_going_on_is_not_swallowed_and_gives_up_what_is_open() -> None:
    async def body(run: Instance) -> None:
        child(run, "ship")
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(asyncio.sleep(60))
                run.continue_as_new(new_run("run1~1"))
        except Exception:
            run.set_value("never", b"1")

    driven = Driven(body)
    assert isinstance(driven.turn.outcome, Continued)
    assert driven.commit is not None
    assert (driven.commit.values, driven.commit.children) == ((), ())


def test_an_error_raised_on_the_way_out_is_not_lost_by_going_on() -> None:
    async def in_a_finally(run: Instance) -> None:
        try:
            run.continue_as_new(new_run("run1~1"))
        finally:
            raise KeyError("cleaning up failed")

    async def in_a_group(run: Instance) -> None:
        async def cleans_up() -> None:
            try:
                await asyncio.sleep(60)
            finally:
                raise KeyError("cleaning up failed")

        async with asyncio.TaskGroup() as group:
            group.create_task(cleans_up())
            await asyncio.sleep(0)
            run.continue_as_new(new_run("run1~1"))

    assert isinstance(Driven(in_a_finally).error(), KeyError)
    group = Driven(in_a_group).error()
    assert isinstance(group, ExceptionGroup)
    assert [type(error) for error in group.exceptions] == [KeyError]


def test_a_body_that_catches_its_going_on_has_failed() -> None:
    async def body(run: Instance) -> str:
        try:
            run.continue_as_new(new_run("run1~1"))
        except BaseException:
            return "went on"

    error = Driven(body).error()
    assert isinstance(error, UsageError)
    assert "called continue_as_new" in str(error)


def test_only_the_workflow_function_itself_can_go_on() -> None:
    async def body(run: Instance) -> None:
        await asyncio.create_task(goes_on(run))

    driven = Driven(body)
    driven.result(0)
    assert isinstance(driven.error(), ForbiddenInWorkflow)
    assert "call it in the workflow function itself" in str(driven.error())


# ---------------------------------------------------------------- values and chance


def test_values_are_published_with_the_turn_newest_last() -> None:
    async def body(run: Instance) -> None:
        run.set_value("progress", b"1")
        run.set_value("progress", b"2")
        await step(run, "a")

    driven = Driven(body)
    assert driven.commit is not None
    assert driven.commit.values == (("progress", b"1"), ("progress", b"2"))


@pytest.mark.parametrize("seed", [0, 7, 2**62 - 1])
def test_cap_02_chance_is_the_same_in_every_replay(seed: int) -> None:
    async def body(run: Instance) -> list[Any]:
        first = run.random.random()
        await step(run, f"{first}")
        return [first, run.random.getrandbits(128), run.random.choice("abc")]

    driven = Driven(body, seed=seed)
    driven.result(0)
    copy, turn = driven.replay()
    assert turn.outcome == driven.turn.outcome
    assert Driven(body, seed=seed).history[0].name == driven.history[0].name
    assert Driven(body, seed=seed + 1).history[0].name != driven.history[0].name
    copy.close()


def test_cap_01_now_is_the_same_in_every_replay() -> None:
    async def body(run: Instance) -> list[int]:
        first = run.now
        await step(run, "a")
        return [first, run.now]

    driven = Driven(body)
    driven.advance(driven.done(0), at=9)
    copy, turn = driven.replay()
    assert turn.outcome == driven.turn.outcome
    copy.close()
