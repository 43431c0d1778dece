"""Steps: what `@step` makes of functions, and what calling one does inside a workflow and outside."""

from __future__ import annotations

import asyncio
import functools
import inspect
import json
import typing
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator
from dataclasses import FrozenInstanceError, dataclass
from datetime import timedelta
from typing import Any

import msgspec
import pytest

from perdure.authoring.invocation import invoke
from perdure.authoring.marker import ContextMarker
from perdure.authoring.registry import Registry
from perdure.authoring.step import AsyncStep, StepDefinition, SyncStep, step
from perdure.authoring.step_ref import step_ref
from perdure.authoring.workflow import workflow
from perdure.core.instance import Instance
from perdure.core.turn import Completed, Failed, StepDone, Turn
from perdure.model.errors import (
    ForbiddenInWorkflow,
    InvalidArguments,
    InvalidId,
    InvalidValue,
    NotInWorkflow,
    UsageError,
)
from perdure.model.failure import restore
from perdure.model.history import Op
from perdure.model.policy import RetryPolicy
from perdure.model.run import NewRun
from perdure.model.values import encode


class Context(ContextMarker):
    """Stands in for the real one."""


@dataclass
class Order:
    id: int


@dataclass
class Receipt:
    total: int


@step(max_attempts=5, backoff="fixed", base=0.5)
async def charge(order: Order, note: str = "") -> Receipt:
    """Charge the card."""
    return Receipt(order.id * 10 + len(note))


@step
def render(receipt: Receipt) -> str:
    return f"total {receipt.total}"


@step
async def nothing() -> None: ...


class Program:
    """A workflow body for the core."""

    def __init__(self, main: Callable[[], Coroutine[Any, Any, Any]]) -> None:
        self.main = main

    def start(self, instance: Instance) -> Coroutine[Any, Any, Any]:
        return self.main()

    def encode_result(self, value: Any) -> bytes:
        return encode(value, what="result")


def begun(main: Callable[[], Coroutine[Any, Any, Any]]) -> tuple[Instance, Turn]:
    instance = Instance(NewRun(id="r1", workflow="checkout", version="1", input=b"null", seed=7), Program(main))
    return instance, instance.begin(0)


def issued(main: Callable[[], Coroutine[Any, Any, Any]]) -> list[tuple[Op, str, Any]]:
    """The operations of a body's first turn."""
    instance, turn = begun(main)
    assert turn.outcome is None or isinstance(turn.outcome, Completed), turn.outcome
    instance.close()
    return [(one.op, one.name, json.loads(one.payload or b"null")) for one in turn.issued]


def raised(main: Callable[[], Coroutine[Any, Any, Any]]) -> BaseException:
    """What a body's first turn fails with."""
    instance, turn = begun(main)
    instance.close()
    assert isinstance(turn.outcome, Failed)
    return restore(turn.outcome.failure)


# -- decorating -------------------------------------------------------------------------------------------------------


def test_a_step_looks_like_its_function() -> None:
    assert (charge.__name__, charge.__doc__, charge.__module__) == ("charge", "Charge the card.", __name__)
    assert charge.__qualname__ == "charge"
    assert list(inspect.signature(charge).parameters) == ["order", "note"]
    assert inspect.unwrap(charge) is charge.fn
    assert str(charge) == "step 'charge'"
    assert repr(charge).startswith(f"<step 'charge' of {__name__}.charge (")


def test_a_step_knows_whether_it_is_async() -> None:
    assert isinstance(charge, AsyncStep)
    assert charge.is_async
    assert isinstance(render, SyncStep)
    assert not render.is_async


def test_an_async_step_is_async_to_frameworks() -> None:
    assert starlette_is_async(charge)
    assert not starlette_is_async(render)


def starlette_is_async(call: Any) -> bool:
    """As web frameworks ask, on any Python."""
    if hasattr(inspect, "markcoroutinefunction"):
        return inspect.iscoroutinefunction(call)
    return asyncio.iscoroutinefunction(call)


def test_a_step_is_a_frozen_hashable_value() -> None:
    with pytest.raises(FrozenInstanceError):
        charge.name = "other"  # type: ignore[misc]
    assert {charge: 1}[charge] == 1
    assert charge != charge.using(max_attempts=2)


def test_name_defaults_to_the_functions_own() -> None:
    assert charge.name == "charge"
    assert step(name="payments:charge.card")(charge.fn).name == "payments:charge.card"


@pytest.mark.parametrize("name", ["", "  ", "x" * 256, "a\nb"])
def test_f5_a_bad_name_is_refused(name: str) -> None:
    with pytest.raises(InvalidId, match="the name of a step"):
        step(name=name)(charge.fn)


def test_a_name_by_position_is_explained() -> None:
    with pytest.raises(UsageError, match='write @step\\(name="charge"\\)'):
        step("charge")  # type: ignore[call-overload]


# -- options ----------------------------------------------------------------------------------------------------------


def test_without_options_there_is_one_attempt() -> None:
    assert render.policy == RetryPolicy(max_attempts=1, backoff="exp", base=1_000_000, cap=3_600_000_000)


def test_options_are_seconds_or_timedelta() -> None:
    made = step(max_attempts=3, backoff="exp", base=0.25, cap=timedelta(minutes=2), factor=3, jitter=0.5, timeout=30)
    assert made(render.fn).policy == RetryPolicy(
        max_attempts=3, backoff="exp", base=250_000, cap=120_000_000, factor=3, jitter=0.5, timeout=30_000_000
    )


def test_remote_10_using_overrides_the_policy_field_by_field() -> None:
    once = charge.using(max_attempts=1)
    assert once.policy == msgspec.structs.replace(charge.policy, max_attempts=1)
    assert charge.policy.max_attempts == 5
    assert once.using(timeout=2).policy.backoff == "fixed"
    assert once.using(timeout=2).using(timeout=None).policy.timeout is None
    assert type(once) is AsyncStep
    assert type(render.using(max_attempts=2)) is SyncStep
    assert (once.name, once.fn, once.__name__) == (charge.name, charge.fn, "charge")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"max_attempts": 0}, "max_attempts must be at least 1"),
        ({"max_attempts": "3"}, "max_attempts must be a number, not '3'"),
        ({"max_attempts": 1.5}, "max_attempts must be a number, not 1.5"),
        ({"max_attempts": True}, "max_attempts must be a number, not True"),
        ({"backoff": "linear"}, "backoff must be"),
        ({"base": -1}, "cannot be negative"),
        ({"base": "1s"}, "base must be seconds or a timedelta, not '1s'"),
        ({"cap": float("inf")}, "cap must be finite"),
        ({"factor": 0}, "factor must be above 0"),
        ({"jitter": 2}, "jitter must be between 0 and 1"),
        ({"timeout": 0}, "timeout must be positive"),
        ({"retries": 3}, "has no option 'retries'; there are max_attempts, backoff, base"),
    ],
)
def test_a_bad_option_is_refused_naming_the_step(options: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=f"@step on step 'render'.*{message}"):
        step(**options)(render.fn)
    with pytest.raises(UsageError, match=f"step 'render'.using.*{message}"):
        render.using(**options)
    with pytest.raises(UsageError, match=f"step_ref.*{message}"):
        step_ref("x", **options)


# -- calling outside workflows ----------------------------------------------------------------------------------------


async def test_outside_a_workflow_a_call_is_a_plain_call() -> None:
    assert await charge(Order(1), note="xx") == Receipt(12)
    assert render(Receipt(3)) == "total 3"
    live = Order(1)
    assert await step(_same)(live) is live


async def _same(order: Order) -> Order:
    return order


async def test_a_plain_call_runs_when_awaited() -> None:
    call = charge(Order(1))
    assert inspect.iscoroutine(call)
    assert await call == Receipt(10)


async def test_a_step_called_in_a_step_is_a_plain_call() -> None:
    @step
    async def outer(order: Order) -> str:
        return render(await charge(order))

    assert await outer(Order(1)) == "total 10"


async def test_a_plain_call_raises_what_the_function_raises() -> None:
    with pytest.raises(TypeError, match="missing 1 required positional argument"):
        await charge()  # type: ignore[call-arg]


# -- calling inside workflows -----------------------------------------------------------------------------------------


def test_in_a_workflow_a_call_is_an_operation() -> None:
    async def body() -> None:
        await charge(Order(1), note="x")

    assert issued(body) == [(Op.STEP, "charge", {"order": {"id": 1}, "note": "x"})]


def test_f46_a_call_is_issued_in_program_order_when_it_is_made() -> None:
    async def body() -> None:
        first, second = charge(Order(1)), nothing()
        third = asyncio.create_task(charge(Order(3)))
        await asyncio.gather(second, first, third)

    assert [name_and_input[1:] for name_and_input in issued(body)] == [
        ("charge", {"order": {"id": 1}}),
        ("nothing", None),
        ("charge", {"order": {"id": 3}}),
    ]


def test_the_operation_carries_the_policy_of_the_step_as_used() -> None:
    async def body() -> None:
        await asyncio.gather(charge(Order(1)), charge.using(max_attempts=1)(Order(1)))

    instance, turn = begun(body)
    instance.close()
    assert [one.policy and one.policy.max_attempts for one in turn.issued] == [5, 1]


def test_f61_a_workflow_sees_the_result_as_it_was_stored() -> None:
    seen: list[Any] = []

    async def body() -> None:
        seen.append(await charge(Order(1)))

    instance, _ = begun(body)
    instance.advance([StepDone(0, b'{"total":7}', False, 1)], 1)
    assert seen == [Receipt(7)]


def test_a_sync_step_called_in_a_workflow_says_how_to_call_it() -> None:
    async def body() -> None:
        render(Receipt(1))

    error = raised(body)
    assert isinstance(error, ForbiddenInWorkflow)
    assert "run 'r1' (checkout@1) called the sync step 'render' directly; write `await ctx.step(render, ...)`" in str(
        error
    )


def test_bad_arguments_in_a_workflow_name_run_and_position() -> None:
    async def body() -> None:
        await asyncio.gather(nothing(), charge(Order(1), nte="x"))  # type: ignore[call-arg]

    error = raised(body)
    assert isinstance(error, InvalidArguments)
    assert "step 'charge' has no parameter 'nte'" in str(error)
    assert "(in run 'r1' (checkout@1) at position 1)" in str(error)


def test_a_value_that_cannot_be_stored_in_a_workflow_names_run_and_position() -> None:
    async def body() -> None:
        await charge(Order(1), float("nan"))  # type: ignore[arg-type]

    error = raised(body)
    assert isinstance(error, InvalidValue)
    assert "argument 'note' of step 'charge'" in str(error)
    assert "(in run 'r1' (checkout@1) at position 0)" in str(error)


# -- ctx.step ---------------------------------------------------------------------------------------------------------


def invoking(target: Any, *args: Any, **kwargs: Any) -> Callable[[], Coroutine[Any, Any, Any]]:
    async def body() -> Any:
        host: Any = asyncio.get_running_loop()
        return await invoke(host.host, target, args, kwargs)

    return body


def test_ctx_step_takes_async_and_sync_steps_references_and_names() -> None:
    assert issued(invoking(charge, Order(1), note="x")) == [(Op.STEP, "charge", {"order": {"id": 1}, "note": "x"})]
    assert issued(invoking(render, Receipt(1))) == [(Op.STEP, "render", {"total": 1})]
    assert issued(invoking(step_ref("pay:charge"), 5)) == [(Op.STEP, "pay:charge", 5)]
    assert issued(invoking("pay:charge", {"a": 1})) == [(Op.STEP, "pay:charge", {"a": 1})]
    assert issued(invoking("pay:charge", a=1)) == [(Op.STEP, "pay:charge", {"a": 1})]


@workflow
async def ship(ctx: Context, order: Order) -> None: ...


@functools.wraps(charge)
async def wrapping(order: Order) -> Receipt:
    return await charge(order)


@pytest.mark.parametrize(
    ("target", "message"),
    [
        (charge.fn, r"charge, which is no step: decorate it with @step, or use ctx.local_step"),
        (ship, r"ctx.step was given a workflow; write `await workflow.run\(...\)`"),
        (ship.using(id="x"), r"ctx.step was given a workflow"),
        (wrapping, r"charge, which wraps a step; give it the step itself"),
        (5, r"ctx.step needs a step, a step_ref or a step's name, not 5"),
    ],
)
def test_ctx_step_says_what_to_do_about_anything_else(target: Any, message: str) -> None:
    error = raised(invoking(target, Order(1)))
    assert isinstance(error, UsageError)
    assert (error.args[0], "(in run 'r1' (checkout@1) at position 0)" in error.args[0]) == (error.args[0], True)
    with pytest.raises(UsageError, match=message):
        raise error


# -- references -------------------------------------------------------------------------------------------------------


def test_a_reference_is_typed_and_issues_by_name() -> None:
    receipts = step_ref("payments:charge", type=Receipt, max_attempts=3)
    seen: list[Any] = []

    async def body() -> None:
        seen.append(await receipts(Order(1)))
        await receipts(order=Order(1), note="x")

    instance, turn = begun(body)
    assert (turn.issued[0].name, turn.issued[0].payload) == ("payments:charge", b'{"id":1}')
    assert turn.issued[0].policy == RetryPolicy(max_attempts=3)
    turn = instance.advance([StepDone(0, b'{"total":7}', False, 1)], 1)
    assert seen == [Receipt(7)]
    assert json.loads(turn.issued[0].payload or b"") == {"order": {"id": 1}, "note": "x"}
    instance.close()


def test_a_reference_without_input_sends_nothing() -> None:
    async def body() -> None:
        await step_ref("ping")()

    assert issued(body) == [(Op.STEP, "ping", None)]


def test_a_reference_takes_one_input_or_keywords() -> None:
    reference = step_ref("ping")
    for args, kwargs in [((1, 2), {}), ((1,), {"a": 2})]:
        with pytest.raises(InvalidArguments, match="step 'ping' takes one input, or keywords for an object of them"):
            reference.bind(args, kwargs)


def test_a_reference_cannot_be_called_outside_a_workflow() -> None:
    with pytest.raises(NotInWorkflow, match="step 'ping' is only a name here"):
        _ = step_ref("ping")()


def test_a_references_options_override_one_by_one() -> None:
    reference = step_ref("ping", max_attempts=3, timeout=5)
    assert reference.using(max_attempts=1).policy == RetryPolicy(max_attempts=1, timeout=5_000_000)


def test_a_reference_to_what_cannot_be_is_refused() -> None:
    with pytest.raises(InvalidId):
        step_ref("")
    with pytest.raises(UsageError, match="the result of step 'ping'"):
        step_ref("ping", type=type(iter([])))


# -- F56: what else is callable ---------------------------------------------------------------------------------------


class Payments:
    @staticmethod
    @step
    async def inner(x: int) -> int:
        return x

    @step
    @staticmethod
    def outer(x: int) -> int:
        return x


class MorePayments(Payments):
    """Inherits them."""


async def test_f56_staticmethods_work_in_both_orders_and_inherited() -> None:
    for owner in (Payments, MorePayments, Payments(), MorePayments()):
        assert isinstance(owner.outer, SyncStep)
        assert owner.outer(1) == 1
        assert isinstance(owner.inner, AsyncStep)
        assert await owner.inner(1) == 1


def test_f56_methods_are_refused() -> None:
    with pytest.raises(UsageError, match=r"the method .*Bad\.method, whose self cannot be stored"):

        class Bad:
            @step
            async def method(self, x: int) -> None: ...

    with pytest.raises(UsageError, match=r"the method .*Bad2\.inner, whose self cannot be stored"):

        class Bad2:
            @classmethod
            @step
            def inner(cls, x: int) -> None: ...


def test_f56_classmethods_are_refused_in_both_orders() -> None:
    with pytest.raises(UsageError, match=r"@step was put on the method .*Bad\.inner"):

        class Bad:
            @classmethod
            @step
            def inner(cls, x: int) -> None: ...

    with pytest.raises(UsageError, match=r"@step was put on the method .*Bad2\.outer, whose cls cannot be stored"):

        class Bad2:
            @step
            @classmethod
            def outer(cls, x: int) -> None: ...


@dataclass
class Handler:
    """Callable, and unhashable."""

    factor: int

    def __call__(self, x: int) -> int:
        return x * self.factor

    async def later(self, x: int) -> int:
        return x * self.factor


@dataclass
class AsyncHandler:
    factor: int

    async def __call__(self, x: int) -> int:
        return x * self.factor


async def test_f56_callable_objects_bound_methods_and_partials_work_under_a_name() -> None:
    handler = step(name="times-two")(Handler(2))
    assert handler(3) == 6
    assert handler.signature.bind((3,), {}) == b"3"
    assert await step(name="later")(AsyncHandler(2))(3) == 6
    assert await step(Handler(2).later)(3) == 6
    assert step(Handler(2).later).name == "later"
    partial = step(name="partial")(functools.partial(Handler(2), x=4))
    assert partial() == 8
    assert await step(name="partial")(functools.partial(_twice, 2))() == 4
    assert step(name="lambda")(lambda: 5)() == 5


async def _twice(x: int) -> int:
    return 2 * x


@pytest.mark.parametrize("target", [Handler(2), functools.partial(_twice, 2), lambda: 5])
def test_f56_what_has_no_name_needs_one(target: Any) -> None:
    with pytest.raises(UsageError, match=r'@step needs a name for .*: write step\(name="\.\.\."\)'):
        step(target)


@pytest.mark.parametrize("target", [5, None, "x", Order, int])
def test_f56_what_is_no_function_is_refused(target: Any) -> None:
    with pytest.raises(UsageError, match="@step needs a function"):
        step(name="x")(target)


def timed(function: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
    @functools.wraps(function)
    async def wrapper(*args: Any, **kwargs: Any) -> Any:
        return await function(*args, **kwargs)

    return wrapper


def careless(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        return function(*args, **kwargs)

    return wrapper


async def test_f56_a_step_over_another_decorator_keeps_the_functions_parameters() -> None:
    @step
    @timed
    async def inner(x: int, y: int = 2) -> int:
        return x + y

    assert isinstance(inner, AsyncStep)
    assert inner.signature.bind((1,), {"y": 5}) == b'{"x":1,"y":5}'
    assert await inner(1) == 3
    assert inner.name == "inner"


async def test_f56_a_step_over_a_decorated_step_calls_through() -> None:
    outer = step(name="outer")(timed(charge))
    assert await outer(Order(1)) == Receipt(10)
    assert outer.signature.bind((Order(1),), {}) == b'{"order":{"id":1}}'


def test_f56_a_framework_resolves_the_hints_of_a_step() -> None:
    assert typing.get_type_hints(charge) == {"order": Order, "note": str, "return": Receipt}
    # As FastAPI does.
    globals_of_call = getattr(charge, "__globals__", {})
    assert eval(str(inspect.signature(charge).parameters["order"].annotation), globals_of_call) is Order


async def test_f56_another_decorator_over_a_step_goes_through_it() -> None:
    wrapper = timed(charge)
    assert await wrapper(Order(1)) == Receipt(10)

    async def body() -> None:
        await wrapper(Order(1))

    assert issued(body) == [(Op.STEP, "charge", {"order": {"id": 1}})]


def test_f56_a_plain_wrapper_around_an_async_function_is_refused() -> None:
    with pytest.raises(
        UsageError, match=r"a plain function that wraps the async function .*_twice; make the wrapper async"
    ):
        step(careless(_twice))


def test_f56_a_step_of_a_step_or_workflow_is_refused() -> None:
    with pytest.raises(UsageError, match="@step was put on step 'charge', which is one already"):
        step(charge)
    with pytest.raises(UsageError, match="@step was put on workflow 'ship'"):
        step(ship)  # type: ignore[call-overload]


def test_f58_generators_are_refused() -> None:
    def numbers() -> Iterator[int]:
        yield 1

    async def later() -> AsyncIterator[int]:
        yield 1

    class Generating:
        def __call__(self) -> Iterator[int]:
            yield 1

    for target in (numbers, later, functools.partial(numbers), Generating()):
        with pytest.raises(UsageError, match="an iterator cannot be stored, so return a list instead of yielding"):
            step(name="numbers")(target)


def test_f58_a_generator_that_a_wrapper_collects_is_a_step() -> None:
    def collected(function: Callable[[], Iterator[int]]) -> Callable[[], list[int]]:
        @functools.wraps(function)
        def wrapper() -> list[int]:
            return list(function())

        wrapper.__annotations__["return"] = list[int]
        return wrapper

    @collected
    def numbers() -> Iterator[int]:
        yield from (1, 2)

    numbers.__wrapped__.__annotations__["return"] = list[int]  # type: ignore[attr-defined]
    assert step(numbers)() == [1, 2]


def test_a_step_that_asks_for_the_context_is_refused() -> None:
    with pytest.raises(
        UsageError, match=r"step 'f' asks for a Context, which only workflows have; use perdure.current_step"
    ):

        @step
        async def f(ctx: Context, x: int) -> None: ...


def test_decorating_registers_nothing() -> None:
    assert not Registry().steps()
    assert isinstance(charge, StepDefinition)
