"""Properties of values, over nested types: F61 and F62 for whatever anybody nests into whatever."""

from __future__ import annotations

import dataclasses
import math
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from enum import Enum, StrEnum
from typing import Any, Literal, NamedTuple, Optional
from uuid import UUID

import msgspec
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from perdure.model.errors import InvalidValue
from perdure.model.hints import shape
from perdure.model.storable import Misfit, fits, lower
from perdure.model.values import decode, encode


class Size(Enum):
    SMALL = 1
    LARGE = 2


class Tone(StrEnum):
    DARK = "dark"
    LIGHT = "light"


class Odd(Enum):
    PAIR = (1, 2)
    TEXT = "text"


#: Text that UTF-8 can carry, NUL included.
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
ZONES = st.none() | st.just(UTC) | st.integers(-1439, 1439).map(lambda m: timezone(timedelta(minutes=m)))

#: Not as types, for hints that are made of what was drawn.
LIST: Any = list
TUPLE: Any = tuple
SET: Any = set
DICT: Any = dict
OPTIONAL: Any = Optional
NAMED: Any = NamedTuple

Case = tuple[Any, st.SearchStrategy[Any]]  # a hint, and values of it

HASHABLE: list[Case] = [
    (None, st.none()),
    (bool, st.booleans()),
    (int, st.integers() | st.integers(-(10**60), 10**60)),
    (float, st.floats(allow_nan=False, allow_infinity=False)),
    (str, TEXTS),
    (bytes, st.binary(max_size=8)),
    (datetime, st.datetimes(timezones=ZONES)),
    (date, st.dates()),
    (time, st.times(timezones=ZONES)),
    (timedelta, st.timedeltas()),
    (Decimal, st.decimals(allow_nan=False, allow_infinity=False)),
    (UUID, st.uuids()),
    (Size, st.sampled_from(Size)),
    (Tone, st.sampled_from(Tone)),
    (Odd, st.sampled_from(Odd)),
    (Literal["a", 1, None], st.sampled_from(["a", 1, None])),
]
KEYS: list[Case] = [
    case
    for case in HASHABLE
    if case[0] in (str, int, bytes, datetime, date, time, timedelta, Decimal, UUID, Size, Tone)
]


@st.composite
def containers(draw: st.DrawFn, inner: st.SearchStrategy[Case]) -> Case:
    kind = draw(st.sampled_from(["list", "tuple", "row", "dict", "keyed", "optional", "dataclass", "named", "struct"]))
    hint, values = draw(inner)
    if kind == "list":
        return LIST[hint], st.lists(values, max_size=3)
    if kind == "tuple":
        other, others = draw(inner)
        return TUPLE[hint, other], st.tuples(values, others)
    if kind == "row":
        return TUPLE[hint, ...], st.lists(values, max_size=3).map(tuple)
    if kind == "dict":
        return DICT[str, hint], st.dictionaries(TEXTS, values, max_size=3)
    if kind == "keyed":
        key, keys = draw(st.sampled_from(KEYS))
        return DICT[key, hint], st.dictionaries(keys, values, max_size=3)
    if kind == "optional":
        return OPTIONAL[hint], st.none() | values
    other, others = draw(inner)
    cls: Any
    if kind == "dataclass":
        cls = dataclasses.make_dataclass("Made", [("a", hint), ("b", other)], frozen=draw(st.booleans()), eq=True)
    elif kind == "named":
        cls = NAMED("Named", [("a", hint), ("b", other)])
    else:
        cls = dataclasses.make_dataclass("Slotted", [("a", hint), ("b", other)], slots=True)
    return cls, st.builds(cls, values, others)


#: Hints that msgspec restores, and such as only we can.
CASES: st.SearchStrategy[Case] = st.recursive(st.sampled_from(HASHABLE), containers, max_leaves=6)
SETS: st.SearchStrategy[Case] = st.sampled_from(HASHABLE).map(lambda case: (SET[case[0]], st.sets(case[1], max_size=4)))


def same(one: Any, other: Any) -> bool:
    """Equal, and of the same types all the way down."""
    if type(one) is not type(other) or one != other:
        return False
    if isinstance(one, dict):
        return all(same(*pair) for pair in zip(one.items(), other.items(), strict=True))
    if isinstance(one, list | tuple):
        return all(same(*pair) for pair in zip(one, other, strict=True))
    if dataclasses.is_dataclass(one):
        return all(same(getattr(one, f.name), getattr(other, f.name)) for f in dataclasses.fields(one))
    return not isinstance(one, float) or math.copysign(1, one) == math.copysign(1, other)


@settings(max_examples=200, suppress_health_check=[HealthCheck.too_slow])
@given(st.data(), CASES | SETS)
def test_f61_f62_every_value_comes_back_equal_under_its_hint(data: st.DataObject, case: Case) -> None:
    hint, values = case
    value = data.draw(values)
    stored = encode(value, hint, what="v")
    back = decode(stored, hint, what="v")
    assert same(back, value)
    assert encode(back, hint, what="v") == stored or isinstance(value, set)


@settings(max_examples=200, suppress_health_check=[HealthCheck.too_slow])
@given(st.data(), CASES | SETS)
def test_the_shape_restores_what_msgspec_restores(data: st.DataObject, case: Case) -> None:
    hint, values = case
    value = data.draw(values)
    stored = encode(value, hint, what="v")
    assert same(shape(hint).restore(msgspec.json.decode(stored)), decode(stored, hint, what="v"))


ANY_TEXT = st.text(max_size=4)  # lone surrogates too
ANYTHING: st.SearchStrategy[Any] = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | ANY_TEXT
    | st.binary(max_size=3)
    | st.decimals()
    | st.uuids(),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.lists(inner, max_size=3).map(tuple)
        | st.dictionaries(ANY_TEXT | st.integers() | st.floats() | st.none(), inner, max_size=3)
        | st.sets(st.integers() | st.floats() | ANY_TEXT, max_size=3)
        | st.builds(lambda a: [object(), a], inner)
    ),
    max_leaves=8,
)


@settings(max_examples=200)
@given(ANYTHING)
def test_anything_is_either_refused_or_stored_for_good(value: Any) -> None:
    try:
        stored = encode(value, what="v")
    except InvalidValue as error:
        assert str(error).startswith("v cannot be stored: at $")  # noqa: PT017  # either way is right
        return
    plain = decode(stored, what="v")
    assert encode(plain, what="v") == stored
    assert same(decode(stored, what="v"), plain)


@settings(max_examples=200)
@given(ANYTHING)
def test_the_fast_test_and_the_slow_walk_agree(value: Any) -> None:
    try:
        lowered = msgspec.json.encode(lower(value))
    except (Misfit, TypeError):
        lowered = None
    if lowered is None:
        try:
            assert not fits(value) or msgspec.json.encode(value) is None
        except UnicodeEncodeError:
            pass
    elif fits(value):
        assert msgspec.json.encode(value) == lowered
