"""Signatures: arguments become JSON that other languages could have written, and come back by their hints."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from functools import partial
from typing import TYPE_CHECKING, Any, Never, TypeVar

import pydantic
import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.authoring.signature import Signature
from perdure.model.errors import InvalidArguments, InvalidValue, UsageError, ValueTooLarge

if TYPE_CHECKING:
    from nowhere import Unknowable  # type: ignore[import-not-found]

T = TypeVar("T")


@dataclass
class Order:
    id: int
    at: datetime | None = None


class Amount(pydantic.BaseModel):
    amount: int = pydantic.Field(ge=0)


class Refusing:
    """A class that this package cannot store."""


class Opaque:
    """Callable, but nobody can tell with what."""

    __signature__ = 5

    def __call__(self) -> None: ...


def signature(function: Callable[..., Any]) -> Signature:
    return Signature(function, "step 'charge'")


def stored(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    return json.loads(signature(function).bind(args, kwargs))


def called(function: Callable[..., Any], data: Any) -> Any:
    args, kwargs = signature(function).unbind(json.dumps(data).encode())
    return function(*args, **kwargs)


def nothing() -> list[Any]:
    return []


def one(order: Order) -> list[Any]:
    return [order]


def two(order: Order, note: str) -> list[Any]:
    return [order, note]


def grown(order: Order, note: str = "none", *, urgent: bool = False) -> list[Any]:
    return [order, note, urgent]


def loose(order: Any) -> list[Any]:
    return [order]


def loose_grown(order: Any, note: Any = "none") -> list[Any]:
    return [order, note]


def all_defaults(count: int = 1, note: str = "none") -> list[Any]:
    return [count, note]


# -- the rule ---------------------------------------------------------------------------------------------------------


def test_no_parameter_takes_nothing() -> None:
    assert stored(nothing) is None
    assert called(nothing, None) == []
    assert called(nothing, {}) == []


def test_one_parameter_takes_the_input_itself() -> None:
    assert stored(one, Order(1)) == {"id": 1, "at": None}
    assert stored(one, order=Order(1)) == {"id": 1, "at": None}
    assert called(one, {"id": 1}) == [Order(1)]


def test_several_parameters_take_an_object_of_their_names() -> None:
    assert stored(two, Order(1), note="x") == {"order": {"id": 1, "at": None}, "note": "x"}
    assert called(two, {"note": "x", "order": {"id": 1}}) == [Order(1), "x"]


def test_arguments_come_back_by_their_hints() -> None:
    moment = datetime(2026, 1, 2, tzinfo=UTC)
    data = signature(two).bind((Order(1, moment), "x"), {})
    assert signature(two).unbind(data) == ((Order(1, moment), "x"), {})


def test_defaults_are_not_stored_so_they_need_not_be_storable() -> None:
    def function(order: int, client: object = Refusing(), *, mode: str = "a") -> tuple[int, object, str]:
        return order, client, mode

    assert stored(function, 1) == {"order": 1}
    assert called(function, {"order": 1, "mode": "b"})[::2] == (1, "b")
    assert isinstance(called(function, {"order": 1})[1], Refusing)


def test_the_first_parameter_is_always_stored() -> None:
    assert stored(all_defaults) == {"count": 1}
    assert stored(all_defaults, note="x") == {"count": 1, "note": "x"}


def test_a_single_default_is_stored() -> None:
    def function(count: int = 5) -> int:
        return count

    assert stored(function) == 5
    assert called(function, 7) == 7


def test_keyword_only_and_positional_only_parameters() -> None:
    def function(a: int, /, b: int, *, c: int) -> tuple[int, int, int]:
        return a, b, c

    data = stored(function, 1, 2, c=3)
    assert data == {"a": 1, "b": 2, "c": 3}
    assert called(function, data) == (1, 2, 3)
    with pytest.raises(InvalidArguments, match="takes 'a' by position only"):
        signature(function).bind((), {"a": 1, "b": 2, "c": 3})


def test_a_single_keyword_only_parameter_takes_the_input_itself() -> None:
    def function(*, order: Order) -> Order:
        return order

    assert stored(function, order=Order(1)) == {"id": 1, "at": None}
    assert called(function, {"id": 1}) == Order(1)


def test_a_left_out_default_before_a_given_one() -> None:
    def function(a: int, b: int = 2, c: int = 3) -> tuple[int, int, int]:
        return a, b, c

    assert stored(function, 1, c=9) == {"a": 1, "c": 9}
    assert called(function, {"a": 1, "c": 9}) == (1, 2, 9)


def test_bound_parameters_of_a_partial_are_no_input() -> None:
    def function(client: object, order: int, note: str = "") -> tuple[int, str]:
        return order, note

    bound = partial(function, Refusing())
    assert stored(bound, 1, note="x") == {"order": 1, "note": "x"}
    assert called(bound, {"order": 1, "note": "x"}) == (1, "x")


def test_names_that_are_not_ascii() -> None:
    scope: dict[str, Any] = {}
    exec("def function(größe: int, 名前: int = 1): ...", scope)
    data = signature(scope["function"]).bind((1, 2), {})
    assert json.loads(data) == {"größe": 1, "名前": 2}
    assert signature(scope["function"]).unbind(data) == ((1, 2), {})


def test_f67_the_caller_may_change_what_it_passed() -> None:
    items = [1]
    data = signature(loose).bind((items,), {})
    items.append(2)
    assert signature(loose).unbind(data) == (([1],), {})


# -- growing ----------------------------------------------------------------------------------------------------------


def test_a_second_parameter_with_a_default_keeps_old_inputs_working() -> None:
    old = signature(one).bind((Order(1),), {})
    args, kwargs = signature(grown).unbind(old)
    assert grown(*args, **kwargs) == [Order(1), "none", False]


def test_an_old_input_that_looks_like_arguments_by_name_is_still_the_first_parameter() -> None:
    values: list[Any] = [
        {"order": 1},
        {"order": 1, "note": "x"},
        {"order": {"order": {}}},
        {"$args": {"order": 1}},
        {"$args": 1},
    ]
    for value in values:
        old = signature(loose).bind((value,), {})
        assert signature(loose).unbind(old) == ((value,), {})
        args, kwargs = signature(loose_grown).unbind(old)
        assert loose_grown(*args, **kwargs) == [value, "none"]


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["order", "note", "$args", "x", ""]), inner, max_size=3)
    ),
    max_leaves=8,
)


@given(JSON)
def test_no_old_input_is_misread_after_growth(value: Any) -> None:
    old = signature(loose).bind((value,), {})
    assert signature(loose).unbind(old) == ((value,), {})
    args, kwargs = signature(loose_grown).unbind(old)
    assert loose_grown(*args, **kwargs) == [value, "none"]


@given(JSON, JSON)
def test_no_new_input_is_misread(value: Any, note: Any) -> None:
    assert signature(loose_grown).unbind(signature(loose_grown).bind((value, note), {})) == ((value, note), {})
    args, kwargs = signature(loose_grown).unbind(signature(loose_grown).bind((value,), {}))
    assert loose_grown(*args, **kwargs) == [value, "none"]


def test_a_foreign_input_of_one_parameter_is_never_taken_apart() -> None:
    assert called(loose, {"order": 1}) == [{"order": 1}]
    assert called(loose, {"order": 1, "note": "x"}) == [{"order": 1, "note": "x"}]


def test_growing_from_no_parameter() -> None:
    old = signature(nothing).bind((), {})
    args, kwargs = signature(all_defaults).unbind(old)
    assert all_defaults(*args, **kwargs) == [1, "none"]


def test_null_is_an_argument_where_the_first_parameter_takes_it() -> None:
    def function(order: int | None = 5, note: str = "x") -> tuple[int | None, str]:
        return order, note

    assert called(function, None) == (None, "x")


def test_a_third_parameter_with_a_default_keeps_old_inputs_working() -> None:
    old = signature(two).bind((Order(1), "x"), {})
    assert called(grown, json.loads(old)) == [Order(1), "x", False]


def test_old_inputs_without_a_parameter_that_is_needed_now_are_refused() -> None:
    with pytest.raises(InvalidArguments, match=r"step 'charge' takes an object with order, note, but was given 5"):
        signature(two).unbind(b"5")
    with pytest.raises(InvalidArguments, match="lacks 'note'"):
        signature(two).unbind(b'{"order":{"id":1}}')


def test_inputs_with_what_is_not_taken_are_refused() -> None:
    with pytest.raises(InvalidArguments, match="lacks 'note' and has 'nte', which it does not take"):
        signature(two).unbind(b'{"order":{"id":1},"nte":"x"}')
    with pytest.raises(InvalidArguments, match="takes no input, but was given 5"):
        signature(nothing).unbind(b"5")


def test_input_that_is_no_json_is_refused() -> None:
    for function in (one, two, grown, loose):
        for data in (b"{", b"", b"nope", b'{"$args":', b'{"$args":{"order":1}', b"\xff"):
            with pytest.raises(InvalidArguments):
                signature(function).unbind(data)


# -- arguments that do not fit ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("args", "kwargs", "message"),
    [
        ((), {}, "step 'charge' needs 'order'"),
        ((1, "x", True), {}, "takes at most 2 positional arguments"),
        ((1,), {"order": 2}, "was given 'order' twice"),
        ((1,), {"nte": "x"}, "has no parameter 'nte'"),
    ],
)
def test_wrong_arguments_are_told(args: tuple[Any, ...], kwargs: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidArguments, match=message) as caught:
        signature(grown).bind(args, kwargs)
    given = ", ".join([*map(repr, args), *(f"{name}={value!r}" for name, value in kwargs.items())])
    assert f"(order: Order, note: str = 'none', urgent: bool = False), called with ({given})" in str(caught.value)


def test_values_that_cannot_be_stored_are_refused_at_the_call() -> None:
    for value in (float("nan"), "\ud800", {1: 2}, open, iter([1])):
        with pytest.raises(InvalidValue, match="argument 'order' of step 'charge'"):
            signature(loose).bind((value,), {})


def test_a_value_that_is_too_large_is_refused() -> None:
    with pytest.raises(ValueTooLarge, match="argument 'order' of step 'charge'"):
        signature(loose).bind(("x" * 3_000_000,), {})


def test_an_input_that_fails_its_hint_is_refused_and_shown() -> None:
    with pytest.raises(
        InvalidArguments, match=r"argument 'order' of step 'charge' .* expected int.*given \{\"id\":\"x\"\}"
    ):
        signature(one).unbind(b'{"id":"x"}')


def test_start_06_a_validator_of_the_hint_refuses() -> None:
    def pay(amount: Amount) -> None: ...

    assert signature(pay).unbind(b'{"amount":1}') == ((Amount(amount=1),), {})
    with pytest.raises(InvalidArguments, match="greater than or equal to 0"):
        signature(pay).unbind(b'{"amount":-1}')


def test_a_long_input_is_shortened_in_messages() -> None:
    with pytest.raises(InvalidArguments) as caught:
        signature(one).unbind(b'"' + b"x" * 5000 + b'"')
    assert "(5,002 bytes)" in str(caught.value)
    assert len(str(caught.value)) < 400


# -- results ----------------------------------------------------------------------------------------------------------


def test_a_result_comes_back_by_its_hint() -> None:
    def function() -> tuple[Decimal, set[int]]: ...  # type: ignore[empty-body]

    data = signature(function).encode_result((Decimal("1.5"), {1}))
    assert signature(function).decode_result(data) == (Decimal("1.5"), {1})


@pytest.mark.parametrize("value", [None, 5, "x", {"id": "x"}, [Order(1)], Amount(amount=1)])
def test_a_result_that_is_not_what_the_function_says_is_told(value: Any) -> None:
    def function() -> Order: ...  # type: ignore[empty-body]

    with pytest.raises(
        InvalidValue, match=f"step 'charge' says it returns Order, but returned the {type(value).__name__}"
    ):
        signature(function).encode_result(value)


def test_a_result_where_none_was_promised_is_told() -> None:
    def function() -> None: ...

    def never() -> Never: ...  # type: ignore[empty-body]

    for promise in (function, never):
        assert signature(promise).encode_result(None) == b"null"
        with pytest.raises(InvalidValue, match="says it returns None, but returned the int 5"):
            signature(promise).encode_result(5)


async def test_a_result_that_nobody_awaited_is_told() -> None:
    async def later() -> int:
        return 1

    with pytest.raises(InvalidValue, match="is a coroutine that nobody awaited"):
        signature(loose).encode_result(later())


def test_f58_an_iterator_is_no_result() -> None:
    with pytest.raises(InvalidValue, match="the result of step 'charge'"):
        signature(lambda: None).encode_result(iter([1]))


def test_without_a_hint_a_result_is_plain_json() -> None:
    plain = signature(lambda: None)
    assert plain.decode_result(plain.encode_result(Order(1))) == {"id": 1, "at": None}


# -- what cannot be a signature ---------------------------------------------------------------------------------------


def test_star_arguments_are_refused() -> None:
    def args(*orders: int) -> None: ...

    def kwargs(order: int, **more: int) -> None: ...

    with pytest.raises(UsageError, match=r"step 'charge' takes \*orders, which has no fixed names"):
        signature(args)
    with pytest.raises(UsageError, match=r"step 'charge' takes \*\*more, which has no fixed names"):
        signature(kwargs)


def test_hints_that_cannot_be_restored_are_refused() -> None:
    def takes(client: Refusing) -> None: ...

    def yields() -> Iterator[int]: ...  # type: ignore[empty-body]

    def yields_async() -> AsyncIterator[int]: ...  # type: ignore[empty-body]

    with pytest.raises(UsageError, match=r"parameter 'client' of step 'charge'.*Refusing"):
        signature(takes)
    for function in (yields, yields_async):
        with pytest.raises(UsageError, match="the result of step 'charge'"):
            signature(function)


def test_a_callable_without_a_signature_is_refused() -> None:
    with pytest.raises(UsageError, match="the parameters of step 'charge' cannot be found out"):
        signature(Opaque())


# -- hints as strings -------------------------------------------------------------------------------------------------


def test_f62_hints_of_local_classes_are_found() -> None:
    @dataclass
    class Local:
        x: int

    def function(local: Local, more: list[Local] | None = None) -> dict[str, Local]: ...  # type: ignore[empty-body]

    assert signature(function).unbind(b'{"local":{"x":1},"more":[{"x":2}]}') == ((Local(1), [Local(2)]), {})
    assert signature(function).decode_result(b'{"a":{"x":1}}') == {"a": Local(1)}


def test_a_local_name_of_a_caller_is_not_taken_for_the_functions_own() -> None:
    class Order:  # Not the one that `one` means.
        pass

    assert signature(one).hints()[0] is not Order


def test_hints_of_enclosed_variables_are_found_later() -> None:
    def function(order: Later) -> Later:
        return order or Later(0)  # Encloses it.

    found = signature(function)

    @dataclass
    class Later:
        x: int

    assert found.unbind(b'{"x":1}') == ((Later(1),), {})


def test_hints_that_come_later_in_the_module_are_found_when_needed() -> None:
    found = signature(takes_later)
    globals()["DefinedLater"] = Order
    try:
        assert found.unbind(b'{"id":1}') == ((Order(1),), {})
    finally:
        del globals()["DefinedLater"]


def takes_later(order: DefinedLater) -> None:  # type: ignore[name-defined]  # noqa: F821
    ...


def test_a_hint_that_is_never_there_is_told_when_needed() -> None:
    def function(order: Unknowable) -> None: ...

    found = signature(function)
    for use in (partial(found.bind, (1,), {}), partial(found.unbind, b"1")):
        with pytest.raises(
            UsageError, match="the hint Unknowable of parameter 'order' of step 'charge' cannot be resolved"
        ):
            use()


def test_a_hint_that_is_no_expression_is_refused_at_once() -> None:
    def function(order: int) -> None: ...

    function.__annotations__["order"] = "int |"
    with pytest.raises(UsageError, match=r"the hint int \| of parameter 'order' .* cannot be resolved"):
        signature(function)


def test_a_generic_function_takes_plain_json() -> None:
    def function(value: T) -> T:
        return value

    assert called(function, {"a": 1}) == {"a": 1}
