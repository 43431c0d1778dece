"""What of a run's attributes it can be found by."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.model.attributes import MAX_SEARCHED, searchable
from perdure.model.ids import MAX_NAME

SCALARS = (
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats(allow_nan=False, allow_infinity=False)
)


def test_members_of_every_plain_kind_in_one_form_each() -> None:
    data = b' { "text" : "a\\u0062\\/" , "n":7, "x": 1.50, "e": 1e3, "yes":true, "no" : false, "none": null, "": "" } '
    assert searchable(data) == [
        ("text", '"ab/"'),
        ("n", "7"),
        ("x", "1.5"),
        ("e", "1000.0"),
        ("yes", "true"),
        ("no", "false"),
        ("none", "null"),
        ("", '""'),
    ]


def test_lists_and_objects_and_what_is_too_long_are_left_out() -> None:
    fits = "x" * (MAX_SEARCHED - 2)
    data = msgspec.json.encode({"list": [1], "object": {"a": 1}, "fits": fits, "long": fits + "x", "wide": "é" * 200})
    assert searchable(data) == [("fits", f'"{fits}"')]
    data = msgspec.json.encode({"n" * MAX_NAME: 1, "n" * (MAX_NAME + 1): 2, "a\0b": 3})
    assert searchable(data) == [("n" * MAX_NAME, "1")]


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
    assert searchable(b'{"a":1e999,"b":2,"c":"\xff","d":' + huge + b',"e":4}') == [("b", "2"), ("e", "4")]


def test_of_a_name_that_comes_twice_the_last_counts() -> None:
    assert searchable(b'{"a":1,"b":2,"a":3}') == [("a", "3"), ("b", "2")]


@given(st.dictionaries(st.text(max_size=20), SCALARS | st.text(max_size=20) | st.lists(st.integers()), max_size=8))
def test_attr_03_a_run_is_found_by_exactly_its_plain_members(attributes: dict[str, object]) -> None:
    found = dict(searchable(msgspec.json.encode(attributes)))
    plain = {name for name, value in attributes.items() if not isinstance(value, list) and "\0" not in name}
    assert {name for name, value in found.items() if len(value.encode()) <= MAX_SEARCHED} == found.keys()
    assert found.keys() <= plain
    for name in plain:
        text = msgspec.json.encode(attributes[name])
        assert (found.get(name) == text.decode()) == (len(text) <= MAX_SEARCHED)


@given(st.binary(max_size=200))
def test_any_bytes_will_do(data: bytes) -> None:
    searchable(data)
