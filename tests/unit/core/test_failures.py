"""What fails: steps, groups of them, values that cannot be restored, and bodies. The body sees it as it was recorded."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest

from perdure.core.instance import Instance
from perdure.core.turn import Failed
from perdure.model import values
from perdure.model.errors import FatalError, InvalidValue, StepFailed
from perdure.model.failure import restore
from tests.unit.core.driving import ONCE, Driven, step


async def one_step(run: Instance) -> Any:
    return await step(run, "work")


def test_a_steps_error_is_raised_as_its_own_class() -> None:
    driven = Driven(one_step)
    driven.failure(0, FatalError("declined", "card_declined", {"limit": 5}))
    error = driven.error()
    assert isinstance(error, FatalError)
    assert (str(error), error.code, error.details) == ("declined", "card_declined", {"limit": 5})
    assert driven.events() == [("failed", 0, "work")]


def test_an_error_of_an_unknown_class_says_what_it_was() -> None:
    class Unknown(Exception):
        pass

    driven = Driven(one_step)
    driven.failure(0, Unknown("who knows"))
    error = driven.error()
    assert isinstance(error, StepFailed)
    assert error.type.endswith("Unknown")
    assert str(error) == "who knows"


def test_f61_a_value_is_seen_in_its_recorded_form_also_the_first_time() -> None:
    driven = Driven(one_step)
    driven.result(0, (1, 2))
    assert driven.output() == [1, 2]


async def group_of_steps(run: Instance) -> None:
    async def work(name: str) -> None:
        await step(run, name)

    async with asyncio.TaskGroup() as group:
        for name in ("a", "b", "c"):
            group.create_task(work(name))


def test_f34_a_group_with_a_failure_fails_the_run_with_all_of_it() -> None:
    driven = Driven(group_of_steps)
    driven.failure(1, ValueError("b failed"))
    assert driven.events()[0] == ("failed", 1, "b")
    assert sorted(driven.events()[1:]) == [("abandoned", 0, "a"), ("abandoned", 2, "c")]
    error = driven.error()
    assert isinstance(error, ExceptionGroup)
    assert [repr(inner) for inner in error.exceptions] == ["ValueError('b failed')"]


def test_f34_two_failures_in_one_turn_are_one_cause() -> None:
    """The first cancels the others before the second is seen: as if they had come one by one."""
    driven = Driven(group_of_steps)
    driven.advance(driven.failed(1, ValueError("b")), driven.failed(2, ValueError("c")))
    error = driven.error()
    assert isinstance(error, ExceptionGroup)
    assert [str(inner) for inner in error.exceptions] == ["b"]


def test_f34_a_nested_group_from_a_step_is_rebuilt_and_except_star_takes_it_apart() -> None:
    async def body(run: Instance) -> list[str]:
        caught: list[str] = []
        try:
            await step(run, "work")
        except* KeyError as errors:
            caught.append(repr(errors))
        except* ValueError as errors:
            caught.append(repr(errors))
        return caught

    driven = Driven(body)
    driven.failure(0, ExceptionGroup("outer", [ValueError(1), ExceptionGroup("inner", [KeyError(2), ValueError(3)])]))
    assert driven.output() == [
        "ExceptionGroup('outer', [ExceptionGroup('inner', [KeyError(2)])])",
        "ExceptionGroup('outer', [ValueError(1), ExceptionGroup('inner', [ValueError(3)])])",
    ]


def test_f34_an_error_of_the_body_and_one_of_a_task_are_both_told() -> None:
    async def body(run: Instance) -> None:
        async def work() -> None:
            await step(run, "a")

        async with asyncio.TaskGroup() as group:
            group.create_task(work())
            await step(run, "b")

    driven = Driven(body)
    driven.failure(0, ValueError("a"))
    error = driven.error()
    assert isinstance(error, ExceptionGroup)
    assert [str(inner) for inner in error.exceptions] == ["a"]


@pytest.mark.parametrize("error", [StopIteration(7), type("Ours", (StopIteration,), {})(7)])
def test_a_step_that_leaks_stop_iteration_fails_like_any_other(error: StopIteration) -> None:
    driven = Driven(one_step)
    driven.failure(0, error)
    failed = driven.error()
    if type(error) is StopIteration:
        assert isinstance(failed, RuntimeError)
        assert str(failed) == "step 'work' raised StopIteration"
        assert isinstance(failed.__cause__, StopIteration)
    else:
        assert isinstance(failed, StepFailed)


def test_a_result_that_does_not_fit_its_type_is_raised_in_the_body() -> None:
    async def body(run: Instance) -> Any:
        try:
            return await run.step("work", b"null", policy=ONCE, decode=decode_int)
        except InvalidValue as error:
            return error.code

    driven = Driven(body)
    driven.result(0, "no number")
    assert driven.output() == "invalid_value"


def decode_int(data: bytes) -> int:
    return int(values.decode(data, int, what="result"))


@pytest.mark.parametrize("stops", [False, True])
def test_whatever_restoring_a_value_raises_is_raised_in_the_body(stops: bool) -> None:
    def decode(data: bytes) -> Any:
        if stops:
            return next(iter(()))
        raise LookupError("a check of the user's own")

    async def body(run: Instance) -> Any:
        return await run.step("work", b"null", policy=ONCE, decode=decode)

    driven = Driven(body)
    driven.result(0, {"number": 3})
    assert isinstance(driven.error(), RuntimeError if stops else LookupError)


def test_a_body_that_cannot_begin_has_failed() -> None:
    class Unfit:
        def start(self, instance: Instance) -> Any:
            raise InvalidValue("the input does not fit")

        def encode_result(self, value: Any) -> bytes:
            return b""

    driven = Driven(one_step)
    instance = Instance(driven.run, Unfit())
    outcome = instance.begin(driven.now).outcome
    assert isinstance(outcome, Failed)
    assert isinstance(restore(outcome.failure), InvalidValue)


def test_a_result_of_the_body_that_cannot_be_stored_fails_the_run() -> None:
    async def body(run: Instance) -> Any:
        await step(run, "work")
        return object()

    driven = Driven(body)
    driven.result(0)
    assert isinstance(driven.error(), InvalidValue)
    assert "the result cannot be stored" in str(driven.error())


def test_the_bodys_own_error_carries_its_cause_and_traceback() -> None:
    async def body(run: Instance) -> None:
        try:
            await step(run, "work")
        except ValueError as error:
            raise RuntimeError("could not go on") from error

    driven = Driven(body)
    driven.failure(0, ValueError("the cause"))
    assert isinstance(driven.error().__cause__, ValueError)
    assert isinstance(driven.turn.outcome, Failed)
    assert "could not go on" in driven.turn.outcome.failure.traceback


@pytest.mark.parametrize("stop", [KeyboardInterrupt, SystemExit])
def test_what_stops_the_interpreter_goes_through_and_the_host_is_as_it_was(stop: type[BaseException]) -> None:
    async def body(run: Instance) -> None:
        await step(run, "work")
        raise stop

    async def host() -> None:
        task = asyncio.current_task()
        driven = Driven(body)
        with pytest.raises(stop):
            driven.result(0)
        assert asyncio.current_task() is task
        assert asyncio.get_running_loop() is loops[0]
        driven.instance.close()

    loops = [asyncio.new_event_loop()]
    try:
        loops[0].run_until_complete(host())
    finally:
        loops[0].close()


def test_a_base_exception_of_the_users_own_fails_the_run() -> None:
    class Own(BaseException):
        pass

    async def body(run: Instance) -> None:
        raise Own("odd")

    driven = Driven(body)
    assert isinstance(driven.turn.outcome, Failed)
    assert driven.turn.outcome.failure.message == "odd"


def test_what_nobody_looks_at_is_logged_once_and_not_in_replays(caplog: pytest.LogCaptureFixture) -> None:
    async def boom() -> None:
        raise KeyError("in a task")

    async def body(run: Instance) -> str:
        asyncio.create_task(boom())  # noqa: RUF006
        step(run, "fails")
        await step(run, "a")
        asyncio.get_running_loop().call_soon(lambda: 1 / 0)
        await step(run, "b")
        return "done"

    with caplog.at_level(logging.ERROR):
        driven = Driven(body)
        driven.failure(0, FatalError("in the history"))
        driven.result(1)
        driven.result(2)
    assert driven.output() == "done"
    logged = [
        (record.getMessage().split(",")[-1], record.exc_info[0] if record.exc_info else None)
        for record in caplog.records
    ]
    where = f" in the body of {driven.instance.describe()}"
    assert logged == [(where, ZeroDivisionError), (where, KeyError)]
