"""What of a run's attributes it can be found by."""

from __future__ import annotations

from decimal import Decimal

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from perdure import UsageError, attr
from perdure.model.attributes import MAX_SEARCHED, Condition, matches, merged, plain, searchable
from perdure.model.ids import MAX_NAME

SCALARS = (
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats(allow_nan=False, allow_infinity=False)
)


def test_members_of_every_plain_kind_in_one_form_each() -> None:
    data = b' { "text" : "a\\u0062\\/" , "n":7, "x": 1.50, "e": 1e3, "yes":true, "no" : false, "none": null, "": "" } '
    assert searchable(data) == [
        ("text", "sab/"),
        ("n", "n25007"),
        ("x", "n250015"),
        ("e", "n25031"),
        ("yes", "btrue"),
        ("no", "bfalse"),
        ("none", "z"),
        ("", "s"),
    ]


def test_lists_and_objects_and_what_is_too_long_are_left_out() -> None:
    fits = "x" * (MAX_SEARCHED - 2)
    data = msgspec.json.encode({"list": [1], "object": {"a": 1}, "fits": fits, "long": fits + "x", "wide": "é" * 200})
    assert searchable(data) == [("fits", f"s{fits}")]
    data = msgspec.json.encode({"n" * MAX_NAME: 1, "n" * (MAX_NAME + 1): 2, "a\0b": 3})
    assert searchable(data) == [("n" * MAX_NAME, "n25001")]


NESTED = b'{"a":' + b"[" * 100_000 + b"]" * 100_000 + b"}"
TEXTS = (
    b"",
    b"7",
    b"[1]",
    b'"text"',
    b"{",
    b'{"a":1} {"b":2}',
    b"\xff\xfe",
    b"\0",
    b'{"a":"\\ud800"}',
    b'{"\\ud800":1}',
)


@pytest.mark.parametrize("data", [None, *TEXTS, b'{"a":' * 100_000, NESTED], ids=lambda data: repr(data)[:30])
def test_f59_whatever_is_no_json_object_is_found_by_nothing(data: bytes | None) -> None:
    assert searchable(data) == []


def test_one_odd_member_does_not_hide_the_others() -> None:
    huge = b"9" * 5000
    assert searchable(b'{"a":1e999,"b":2,"c":"\xff","d":' + huge + b',"e":4}') == [("b", "n25002"), ("e", "n25004")]


def test_of_a_name_that_comes_twice_the_last_counts() -> None:
    assert searchable(b'{"a":1,"b":2,"a":3}') == [("a", "n25003"), ("b", "n25002")]


@given(st.dictionaries(st.text(max_size=20), SCALARS | st.text(max_size=20) | st.lists(st.integers()), max_size=8))
def test_attr_03_a_run_is_found_by_exactly_its_plain_members(attributes: dict[str, object]) -> None:
    found = dict(searchable(msgspec.json.encode(attributes)))
    plain = {name for name, value in attributes.items() if not isinstance(value, list) and "\0" not in name}
    assert found.keys() == {name for name in plain if len(msgspec.json.encode(attributes[name])) <= MAX_SEARCHED}


@given(st.binary(max_size=200))
def test_any_bytes_will_do(data: bytes) -> None:
    searchable(data)


def key(value: object) -> str:
    return dict(searchable(msgspec.json.encode({"a": value})))["a"]


NUMBERS = st.integers(-(2**63), 2**64 - 1) | st.floats(allow_nan=False, allow_infinity=False)


@given(NUMBERS, NUMBERS)
@example(0.1, 1)
@example(-5e-324, 5e-324)
@example(2**53, 2**53 + 1)
@example(1.7976931348623157e308, 2**63)
@example(-12, -123)
def test_attr_03_keys_of_numbers_are_in_the_order_of_what_their_json_says(one: float, two: float) -> None:
    first, second = (Decimal(msgspec.json.encode(number).decode()) for number in (one, two))
    assert (key(one) < key(two)) == (first < second)
    assert (key(one) == key(two)) == (first == second)


@given(st.text(max_size=8), st.text(max_size=8))
@example("\0", "\1")
@example("\1", "\1\0")
@example("a\0b", "a")
def test_attr_03_keys_of_texts_are_in_their_order_also_as_bytes(one: str, two: str) -> None:
    assert (key(one) < key(two)) == (one < two) == (key(one).encode() < key(two).encode())
    assert "\0" not in key(one)


def test_attr_04_each_kind_of_value_has_a_key_of_its_own_kind() -> None:
    assert {key(value)[0] for value in (1, -1, 0, 0.0, 1e300, -7.5)} == {"n"}
    assert {key(value) for value in (True, False, None)} == {"btrue", "bfalse", "z"}
    assert key("true") == "strue"


@given(st.dictionaries(st.sampled_from("abc"), SCALARS | st.sampled_from("xyz")), st.sampled_from("abc"), SCALARS)
def test_attr_03_a_run_without_the_attribute_never_matches(
    attributes: dict[str, object], name: str, value: object
) -> None:
    data = msgspec.json.encode(attributes)
    equal, unequal = (matches([each], data) for each in (attr(name) == value, attr(name) != value))
    assert (equal or unequal) == (name in attributes)
    assert not (equal and unequal)


def test_attr_03_what_is_of_another_kind_is_neither_greater_nor_less() -> None:
    data = b'{"n":5,"t":"5","b":true,"z":null}'
    assert not any(matches([each], data) for name in "tbz" for each in (attr(name) > 0, attr(name) <= 9))
    assert not any(matches([each], data) for name in "nbz" for each in (attr(name) > "", attr(name) <= "~"))
    assert all(matches([attr(name) != 4], data) for name in "ntbz")


@pytest.mark.parametrize("value", [[1], {"a": 1}, b"x" * 300, "x" * 300, float("nan"), object()], ids=range(6))
def test_attr_03_what_no_run_can_be_found_by_is_refused(value: object) -> None:
    with pytest.raises(UsageError):
        attr("a") == value  # noqa: B015


@pytest.mark.parametrize("value", [True, None])
def test_attr_03_only_numbers_and_texts_are_greater_or_less(value: object) -> None:
    with pytest.raises(UsageError, match="only numbers and texts"):
        attr("a") > value  # type: ignore[operator]  # pyright: ignore[reportOperatorIssue]  # noqa: B015


def test_attr_03_conditions_are_listed_and_not_joined() -> None:
    with pytest.raises(UsageError, match="where=\\["):
        assert attr("a") > 1 and attr("a") < 2  # noqa: PT018
    with pytest.raises(UsageError, match="where=\\["):
        assert 1 < attr("a") < 2
    assert isinstance(attr("a") > 1, Condition)
    assert (attr("a") > 1) == (attr("a") > 1)


def test_attr_01_others_are_put_over_name_by_name_and_the_rest_stays_as_written() -> None:
    assert (
        merged(b'{"a": 1.50, "b":{"x":1}, "c":3}', b'{"b":{"y":2},"d":null}')
        == b'{"a":1.50,"b":{"y":2},"c":3,"d":null}'
    )
    assert merged(None, b'{"a":1}') == merged(b"no object", b'{"a":1}') == b'{"a":1}'
    assert plain(b'{"a": [1]}') == {"a": [1]}
    assert plain(b"\xff") == plain(None) == {}
