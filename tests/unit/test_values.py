"""Values: everything that is accepted comes back equal under its hint, and what would not is refused with the path to it."""

from __future__ import annotations

import dataclasses
import io
import math
import sys
import uuid
from collections import OrderedDict, deque, namedtuple
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from enum import Enum, Flag, IntEnum, StrEnum, auto
from pathlib import PurePosixPath
from typing import (
    Annotated,
    Any,
    Generic,
    Literal,
    NamedTuple,
    NewType,
    NoReturn,
    NotRequired,
    Optional,
    TypedDict,
    TypeVar,
    Union,
)
from zoneinfo import ZoneInfo

import msgspec
import pydantic
import pytest

from perdure.model.errors import InvalidValue, UsageError, ValueTooLarge
from perdure.model.values import MAX_VALUE, check_hint, decode, decoder, encode

T = TypeVar("T")


class Color(Enum):
    RED = "red"
    BLUE = "blue"


class Level(IntEnum):
    LOW = 1
    HIGH = 2


class Mood(StrEnum):
    CALM = "calm"
    WILD = "wild"


class Access(Flag):
    READ = auto()
    WRITE = auto()


class Mixed(Enum):
    ONE = 1
    TWO = "two"
    PAIR = (1, 2)


class Opaque(Enum):
    HERE = object()
    THERE = sys.stdout


class Point(NamedTuple):
    x: int
    y: int = 0


class Options(TypedDict):
    name: str
    when: NotRequired[datetime]


@dataclass
class Line:
    sku: str
    price: Decimal
    color: Color | None = None


@dataclass
class Order:
    id: uuid.UUID
    lines: list[Line]
    placed: datetime
    tags: set[str] = field(default_factory=set)
    parent: Order | None = None


@dataclass(frozen=True, slots=True)
class Frozen:
    a: int
    b: tuple[int, ...] = ()


@dataclass
class Approved:
    by: str


@dataclass
class Rejected:
    by: str
    reason: str


@dataclass
class Decision:
    outcome: Approved | Rejected | None
    history: list[Approved | Rejected]


@dataclass
class Page(Generic[T]):
    items: list[T]
    next: Page[T] | None = None


@dataclass
class Choice(Generic[T]):
    value: T
    kind: Mixed


@dataclass
class Computed:
    a: int
    double: int = field(init=False, default=0)

    def __post_init__(self) -> None:
        self.double = self.a * 2


class Packet(msgspec.Struct):
    body: bytes
    ttl: timedelta | None = None


class Cat(msgspec.Struct, tag=True):
    name: str


class Dog(msgspec.Struct, tag=True):
    name: str


class Model(pydantic.BaseModel):
    id: int
    at: datetime
    amount: Decimal = Decimal(1)
    children: list[Model] = []


class Aliased(pydantic.BaseModel):
    size: int = pydantic.Field(alias="theSize")


class Email(str):
    __slots__ = ()


Tuple2 = namedtuple("Tuple2", "a b")  # untyped on purpose
#: The older spellings, which people still write.
UNION: Any = Union
OPTIONAL: Any = Optional
UserId = NewType("UserId", int)
AMSTERDAM = ZoneInfo("Europe/Amsterdam")
ORDER = Order(
    uuid.UUID(int=7),
    [Line("a", Decimal("1.50"), Color.RED), Line("b", Decimal("1E+5"))],
    datetime(2024, 2, 29, 12, tzinfo=UTC),
    {"x", "y"},
    Order(uuid.UUID(int=8), [], datetime(2024, 1, 1)),
)


def _name(case: object) -> str:
    return case[:40] if isinstance(case, str) else type(case).__name__ if not isinstance(case, type) else case.__name__


def round_trip(value: object, hint: Any) -> Any:
    return decode(encode(value, hint, what="the value"), hint, what="the value")


RESTORED: list[tuple[Any, Any]] = [
    (None, None),
    (True, bool),
    (0, int),
    (2**63, int),
    (2**64, int),
    (-(2**64), int),
    (10**4000, int),
    (2**70, Any),
    ({"n": 2**200}, Any),
    (1.5, float),
    (-0.0, float),
    (1e308, float),
    (5e-324, float),
    (1.0, Any),
    ("", str),
    ("\0 \\u0000 \u2028 \U0001f600 </script>", str),
    ([1, [2, [3]]], list[Any]),
    ((1, "a"), tuple[int, str]),
    ((1, (2, (3,))), tuple[int, tuple[int, tuple[int]]]),
    ((), tuple[()]),
    ((1, 2), tuple[int, ...]),
    ({1, 2}, set[int]),
    (frozenset({(1, "a")}), frozenset[tuple[int, str]]),
    ({1, "a"}, set[int | str]),
    ({"a": {"b": None}}, dict[str, dict[str, None]]),
    ({1: "a", -2: "b"}, dict[int, str]),
    ({Color.RED: 1}, dict[Color, int]),
    ({Level.LOW: 1}, dict[Level, int]),
    ({Mood.CALM: 1}, dict[Mood, int]),
    ({uuid.UUID(int=1): {2: "x"}}, dict[uuid.UUID, dict[int, str]]),
    ({date(2024, 1, 1): 1}, dict[date, int]),
    ({Decimal("1.5"): 1}, dict[Decimal, int]),
    ({b"\xff": 1}, dict[bytes, int]),
    ({1.5: 1}, dict[float, int]),
    ([{1: 2}], list[dict[int, int]]),
    (datetime(2024, 2, 29, 23, 59, 59, 999999), datetime),
    (datetime(2024, 2, 29, tzinfo=UTC), datetime),
    (datetime(2024, 2, 29, tzinfo=timezone(-timedelta(hours=9, minutes=30))), datetime),
    (datetime(2024, 7, 1, tzinfo=AMSTERDAM), datetime),
    (datetime(1900, 1, 1, tzinfo=AMSTERDAM), datetime),  # its offset then was 19 minutes 32 seconds
    (datetime.min, datetime),
    (datetime.max, datetime),
    (date(1, 1, 1), date),
    (time(1, 2, 3, 4), time),
    (time(1, 2, tzinfo=timezone(timedelta(hours=2))), time),
    (timedelta(days=-1, microseconds=1), timedelta),
    (timedelta.max, timedelta),
    (Decimal("-0.1000"), Decimal),
    (uuid.UUID(int=2**128 - 1), uuid.UUID),
    (b"\0\xff", bytes),
    (bytearray(b"\0\xff"), bytearray),
    (PurePosixPath("/a/b"), PurePosixPath),
    (Email("a@b"), Email),
    (Color.RED, Color),
    (Level.HIGH, Level),
    (Mood.WILD, Mood),
    (Access.READ | Access.WRITE, Access),
    (Mixed.ONE, Mixed),
    (Mixed.TWO, Mixed),
    ([Mixed.PAIR], list[Mixed]),
    (Opaque.THERE, Opaque),
    ("a", Literal["a", "b"]),
    (True, Literal[1, True]),
    (1, Literal[True, 1]),
    (Color.BLUE, Literal[Color.BLUE]),
    (b"x", Literal[b"x", "x"]),
    (Point(1, 2), Point),
    ([Point(1)], list[Point]),
    (Tuple2(1, "a"), Tuple2),
    ({"name": "a", "when": datetime(2024, 1, 1)}, Options),
    (UserId(3), UserId),
    (3, Annotated[int, "unhashable", []]),
    (ORDER, Order),
    ({"o": [ORDER]}, dict[str, list[Order]]),
    ((ORDER, None), tuple[Order, Order | None]),
    (Frozen(1, (2, 3)), Frozen),
    ({Frozen(1)}, set[Frozen]),
    (Approved("x"), Approved | Rejected),
    (Rejected("x", "y"), Approved | Rejected),
    (Decision(Rejected("x", "y"), [Approved("z"), Rejected("", "")]), Decision),
    (Decision(None, []), OPTIONAL[Decision]),
    ([1, "a", None, 2.5], list[UNION[int, str, float, None]]),
    (1, int | float),
    (1.0, int | float),
    (datetime(2024, 1, 1), date | datetime),
    (date(2024, 1, 1), date | datetime),
    (uuid.UUID(int=1), uuid.UUID | datetime | int),
    ("auto", Literal["auto"] | int),
    ("auto", Literal["auto"] | str),
    ("other", Literal["auto"] | str),
    (Page([ORDER], Page([])), Page[Order]),
    (Page([Approved("x")], Page([Rejected("x", "y")])), Page[Approved | Rejected]),
    (Choice(Choice(3, Mixed.PAIR), Mixed.ONE), Choice[Choice[int]]),
    (Computed(4), Computed),
    (Packet(b"\xff", timedelta(1)), Packet),
    ([Cat("a"), Dog("b")], list[Cat | Dog]),
    (Cat("a"), Cat | Dog | int | None),
    (Model(id=1, at=datetime(2024, 1, 1), children=[Model(id=2, at=datetime(2024, 1, 1, tzinfo=UTC))]), Model),
    ([Model(id=1, at=datetime(2024, 1, 1))], list[Model | None]),
    ({"a": Model(id=1, at=datetime(2024, 1, 1))}, dict[str, Model | int]),
    (Aliased(theSize=3), Aliased),
    ([1, 2], Sequence[int]),
    ({"a": 1}, Mapping[str, int]),
    ({"a": [1]}, object),
    ([1, "x"], list[object]),
]


@pytest.mark.parametrize(("value", "hint"), RESTORED, ids=_name)
def test_f61_f62_what_is_accepted_comes_back_equal_and_of_its_own_class(value: Any, hint: Any) -> None:
    back = round_trip(value, hint)
    assert back == value
    assert type(back) is type(value)
    check_hint(hint)
    assert decoder(hint)(encode(value, hint, what="v")) == value


def test_f61_types_inside_containers_are_restored_too() -> None:
    back = round_trip(ORDER, Order)
    assert type(back.lines[0].price) is Decimal
    assert back.lines[0].color is Color.RED
    assert type(back.tags) is set
    assert type(back.parent) is Order
    assert back.placed.tzinfo is not None


def test_without_a_hint_values_come_back_in_their_plain_json_shape() -> None:
    assert round_trip((1, {"a": Decimal("1.5")}), Any) == [1, {"a": "1.5"}]
    assert round_trip(Point(1, 2), Any) == [1, 2]
    assert round_trip(Line("a", Decimal(1), Color.RED), Any) == {"sku": "a", "price": "1", "color": "red"}
    assert round_trip(Color.RED, Any) == "red"
    assert round_trip(b"abc", Any) == "YWJj"


def test_dict_order_survives() -> None:
    assert list(round_trip({"z": 1, "a": 2, "m": 3}, dict[str, int])) == ["z", "a", "m"]


def test_an_ambiguous_hour_keeps_its_instant() -> None:
    late = datetime(2024, 10, 27, 2, 30, tzinfo=AMSTERDAM, fold=1)
    assert round_trip(late, datetime).timestamp() == late.timestamp()


def test_subclasses_of_plain_types_come_back_as_what_the_hint_says() -> None:
    assert round_trip(OrderedDict(a=1), dict[str, int]) == {"a": 1}
    assert type(round_trip(Email("x"), str)) is str
    assert round_trip(memoryview(b"ab"), bytes) == b"ab"


def test_a_field_with_a_default_may_be_missing_in_older_data() -> None:
    assert decode(b'{"sku":"a","price":"2"}', Line, what="v") == Line("a", Decimal(2))
    assert decode(b'{"kind":[1,2],"value":{"kind":1,"value":0}}', Choice[Choice[int]], what="v").kind is Mixed.PAIR


def test_f67_later_changes_by_the_owner_do_not_reach_what_was_stored() -> None:
    lines = [Line("a", Decimal(1))]
    data = encode(lines, list[Line], what="v")
    lines[0].sku = "changed"
    lines.append(lines[0])
    assert decode(data, list[Line], what="v") == [Line("a", Decimal(1))]
    first, second = (decode(data, list[Line], what="v") for _ in range(2))
    first.append("more")
    assert second == [Line("a", Decimal(1))]


def test_local_classes_that_refer_to_themselves_are_restored() -> None:
    @dataclass
    class Node:
        name: str
        children: list[Node] = field(default_factory=list)

    tree = Node("a", [Node("b"), Node("c", [Node("d")])])
    assert round_trip(tree, Node) == tree


def _cycle() -> list[Any]:
    inner: dict[str, Any] = {}
    inner["again"] = [inner]
    return [inner]


def _deep(levels: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(levels):
        value = [value]
    return value


async def _coroutine() -> None: ...


class _Angry:
    @property
    def __await__(self) -> object:
        raise LookupError("leave me alone")


REFUSED: list[tuple[Any, str, str]] = [
    (math.nan, "$", "nan is no JSON number"),
    ({"items": [1, {"price": math.inf}]}, "$.items[1].price", "inf is no JSON number"),
    ([Line("a", Decimal("NaN"))], "$[0].price", "Decimal('NaN') is no JSON number"),
    (Page([-math.inf]), "$.items[0]", "-inf is no JSON number"),
    ({"x": {math.nan}}, "$.x[0]", "nan is no JSON number"),
    ("a\ud800", "$", "half of a surrogate pair"),
    ({"a": ["\udfff"]}, "$.a[0]", "half of a surrogate pair"),
    ({"a": {"\ud800": 1}}, "$.a", "half of a surrogate pair"),
    ({1: 2}, "$", "keys of type int come back as str where no type hint restores them"),
    ({"odd key": {uuid.UUID(int=0): 2}}, "$['odd key']", "keys of type UUID come back as str"),
    ({(1, 2): 3}, "$", "keys of type tuple have no JSON form"),
    ({None: 3}, "$", "keys of type NoneType have no JSON form"),
    ({True: 3}, "$", "keys of type bool have no JSON form"),
    (_cycle(), "$[0].again[0]", "it contains itself"),
    (_deep(101), "$[0][0]", "nested more than 100 levels deep"),
    (_deep(200_000), "$[0][0]", "nested more than 100 levels deep"),
    (10**5000, "$", "too many digits"),
    ({"f": io.StringIO()}, "$.f", "an open file or connection (_io.StringIO): store its path"),
    ((n for n in range(3)), "$", "an iterator (generator) gives its items only once: collect them into a list"),
    ({"m": map(str, [1])}, "$.m", "an iterator (map) gives its items only once"),
    (range(3), "$", "a collection of class range: make it a list"),
    ({}.keys(), "$", "a collection of class dict_keys"),
    (deque([1]), "$", "a collection of class collections.deque"),
    (1j, "$", "an object of class complex, which has no JSON form: make it a dataclass"),
    (ValueError("x"), "$", "an error (ValueError): raise it, or store its text"),
    ([int], "$[0]", "code (<class 'int'>)"),
    (print, "$", "code ("),
    (object(), "$", "an object of class object, which has no JSON form"),
    (msgspec.UNSET, "$", "an object of class msgspec"),
    (time(1, tzinfo=AMSTERDAM), "$", "a time whose zone has no fixed offset"),
]


@pytest.mark.parametrize(("value", "path", "reason"), REFUSED, ids=_name)
def test_f61_what_would_not_come_back_is_refused_with_the_path_to_it(value: Any, path: str, reason: str) -> None:
    with pytest.raises(InvalidValue) as caught:
        encode(value, what="input of step 'charge' of run 'r1'")
    message = str(caught.value)
    assert message.startswith(f"input of step 'charge' of run 'r1' cannot be stored: at {path}")
    assert reason in message
    assert isinstance(caught.value, UsageError)


def test_an_awaitable_is_refused_with_the_advice_to_await_it() -> None:
    coroutine = _coroutine()
    with pytest.raises(InvalidValue, match=r"an awaitable \(coroutine\): await it"):
        encode({"receipt": coroutine}, what="the input")
    coroutine.close()


def test_objects_that_misbehave_when_looked_at_are_refused_like_others() -> None:
    with pytest.raises(InvalidValue, match="the input cannot be stored: LookupError: leave me alone"):
        encode([_Angry()], what="the input")


def test_a_depth_of_exactly_the_limit_is_stored() -> None:
    value = _deep(99)
    assert round_trip(value, list[Any]) == value
    assert round_trip({"a": _deep(98)}, Any) == {"a": _deep(98)}


def test_odd_keys_need_a_hint_that_restores_them() -> None:
    for hint in (dict[str, int], dict[Any, int], dict[int | str, int], Any):
        with pytest.raises(InvalidValue, match=r"\$: the key 1: keys of type int"):
            encode({1: 2}, hint, what="v")
    with pytest.raises(InvalidValue, match=r"\$\.a\[0\]: the key 1: keys of type int"):
        encode({"a": [{1: 2}]}, dict[str, Any], what="v")


def test_two_keys_that_are_one_in_json_are_refused() -> None:
    with pytest.raises(InvalidValue, match="two keys that are both '1' in JSON"):
        encode({1: "a", "1": "b"}, dict[int | str, str], what="v")


def test_f65_a_value_above_the_limit_names_what_and_both_sizes() -> None:
    at_limit = "x" * (MAX_VALUE - 2)
    assert len(encode(at_limit, what="v")) == MAX_VALUE
    with pytest.raises(
        ValueTooLarge, match=r"result of step 'fetch' of run 'r1' is 2,097,153 bytes .* the 2,097,152 allowed"
    ):
        encode(at_limit + "x", what="result of step 'fetch' of run 'r1'")
    with pytest.raises(ValueTooLarge, match=r"v is 12 bytes as JSON, more than the 10 allowed"):
        encode("x" * 10, what="v", limit=10)


MISFITS: list[tuple[bytes, Any, str]] = [
    (b'"x"', int, "does not fit its type int: at $: expected int, found str 'x'"),
    (b"1.0", int, "expected int, found float 1.0"),
    (b"true", int, "expected int, found bool True"),
    (b"null", str, "expected str, found None"),
    (b'{"a":[{"sku":"s","price":[]}]}', dict[str, list[Line]], "at $.a[0].price: expected Decimal, found a list"),
    (b'[{"sku":"s"}]', list[Line], "at $[0]: the field 'price' of Line is missing"),
    (b'{"a b":{"1":"x"}}', dict[str, dict[int, int]], "at $['a b']['1']: expected int, found str 'x'"),
    (b'"green"', Color, "at $: Invalid enum value 'green'"),
    (b"[3,4]", Mixed, "expected one of Mixed, found a list"),
    (b'"c"', Literal["a", "b"], "expected one of Literal['a', 'b'], found str 'c'"),
    (b"[1]", tuple[int, int], "expected 2 items for tuple[int, int], found 1"),
    (b"[]", Point, "expected 2 items for Point, found 0"),
    (b"{}", Options, "the key 'name' of Options is missing"),
    (b'{"outcome":{"bye":1},"history":[]}', Decision, "at $.outcome: "),
    (b'{"outcome":{"by":1},"history":[]}', Decision, "at $.outcome.by: expected str, found int 1"),
    (b'"2024-13-01T00:00:00"', datetime, "at $: Invalid RFC3339 encoded datetime"),
    (b'{"id":"x","at":"2024-01-01T00:00:00"}', Model, "at $: Model does not accept it: "),
    (b'{"type":"Bird"}', Cat | Dog, "no Cat, for at $.type: Invalid value 'Bird'"),
    (b"[1e999]", list[float], "is not JSON (Number out of range"),
]


@pytest.mark.parametrize(("data", "hint", "message"), MISFITS, ids=_name)
def test_a_mismatch_names_what_the_path_and_what_was_expected_and_found(data: bytes, hint: Any, message: str) -> None:
    with pytest.raises(InvalidValue) as caught:
        decode(data, hint, what="the result of step 'a'")
    assert str(caught.value).startswith("the result of step 'a' ")
    assert message in str(caught.value)
    with pytest.raises(InvalidValue) as again:
        decoder(hint)(data)
    assert str(again.value) == str(caught.value).replace("the result of step 'a'", "the value")


@pytest.mark.parametrize("data", [b"", b"{", b'{"a":', b"nope", b"1 2", b'"\xff"', b"[" * 100_000])
def test_f64_truncated_or_alien_bytes_are_an_error_that_shows_their_beginning(data: bytes) -> None:
    with pytest.raises(InvalidValue, match=r"the input (is not JSON|is nested too deeply)"):
        decode(data, Order, what="the input")


def test_a_class_that_refuses_its_own_data_is_named() -> None:
    @dataclass
    class Strict:
        n: int

        def __post_init__(self) -> None:
            if self.n < 0:
                raise LookupError("negative")

    with pytest.raises(InvalidValue, match=r"at \$\[0\]: Strict does not accept it: LookupError: negative"):
        decode(b'[{"n":-1}]', list[Strict], what="v")


class Plain:
    """Has no shape that we know."""


@dataclass
class WithPlain:
    inner: list[Plain]


@dataclass
class WithInit:
    a: dataclasses.InitVar[int]


class StructWithCode(msgspec.Struct):
    run: Callable[[], int]


@dataclass
class Unresolved:
    a: NotThere  # type: ignore[name-defined]  # noqa: F821


UNRESTORABLE: list[tuple[Any, str]] = [
    (Callable[[], int], "Callable"),
    (Iterator[int], "Iterator"),
    (io.TextIOWrapper, "TextIOWrapper"),
    (type, "type"),
    (Exception, "Exception"),
    (complex, "complex"),
    (Plain, "Plain has no JSON form that it could be restored from: use a dataclass"),
    (WithPlain, "at $.inner[]: Plain has no JSON form"),
    (dict[str, list[Plain]], "at ${}[]: Plain has no JSON form"),
    (WithInit, "WithInit has an InitVar"),
    (StructWithCode, "at $.run: "),
    (Unresolved, "an annotation of Unresolved cannot be resolved (name 'NotThere' is not defined)"),
    (list["Nowhere"], "the name 'Nowhere' stands for no class yet"),  # type: ignore[name-defined]  # noqa: F821
    (str | uuid.UUID, "str and UUID look the same in JSON"),
    (str | bytes, "str and bytes look the same in JSON"),
    (str | Color, "str and Color look the same in JSON"),
    (int | Level, "int and Level look the same in JSON"),
    (dict[str, int] | Line, "dict[str, int] and Line look the same in JSON"),
    (dict[tuple[int, int], str], "keys of tuple[int, int] have no JSON form"),
    (dict[bool, str], "keys of bool have no JSON form"),
    (dict[str | uuid.UUID, str], "str and UUID look the same"),
    (deque[int], "deque has no JSON form"),
]


@pytest.mark.parametrize(("hint", "reason"), UNRESTORABLE, ids=_name)
def test_f58_hints_that_can_never_be_restored_are_refused(hint: Any, reason: str) -> None:
    with pytest.raises(InvalidValue) as caught:
        check_hint(hint, what="the result of step 'a'")
    assert str(caught.value).startswith("the result of step 'a': the type hint ")
    assert reason in str(caught.value)
    with pytest.raises(InvalidValue):
        decode(b"1", hint, what="v")


def test_unions_of_classes_with_the_same_fields_are_refused_unless_a_literal_tells_them_apart() -> None:
    @dataclass
    class A:
        x: int

    @dataclass
    class B:
        x: int

    @dataclass
    class C:
        kind: Literal["c"]
        x: int

    @dataclass
    class D:
        kind: Literal["d"]
        x: int

    with pytest.raises(InvalidValue, match=r"A and .*B look the same in JSON"):
        check_hint(A | B)
    for value in (C("c", 1), D("d", 2)):
        assert round_trip([value], list[C | D]) == [value]


def test_lists_in_a_union_that_cannot_be_told_apart_are_an_error_not_a_guess() -> None:
    assert round_trip([[1], ["a"]], list[list[int] | list[str]]) == [[1], ["a"]]
    with pytest.raises(InvalidValue, match=r"it could be set\[int\] or tuple\[int, ...\]"):
        round_trip({1}, set[int] | tuple[int, ...])


def test_a_result_that_never_comes_may_be_hinted_so() -> None:
    check_hint(NoReturn)
    with pytest.raises(InvalidValue, match="expected no value at all, found int 1"):
        decode(b"1", NoReturn, what="v")


def test_f61_pydantic_models_do_not_smuggle_in_what_is_no_json() -> None:
    class Reading(pydantic.BaseModel):
        value: float

    with pytest.raises(InvalidValue, match=r"at \$\[0\]\.value: nan is no JSON number"):
        encode([Reading(value=math.nan)], what="v")

    class Raw(pydantic.BaseModel):
        data: bytes

    with pytest.raises(InvalidValue, match=r"at \$: a Raw that pydantic cannot write: "):
        encode(Raw(data=b"\xff"), what="v")


@pytest.mark.skipif(sys.version_info < (3, 12), reason="platform: the syntax of Python 3.12")
def test_type_aliases_are_restored_even_if_they_refer_to_themselves() -> None:
    names: dict[str, Any] = {}
    exec(  # this file is read by Python 3.11 too
        "type Json = dict[str, Json] | list[Json] | str | int | None\n"
        "type Pair[T] = tuple[T, T]\n"
        "type Number = int | float\n"
        "type Rows = list[Pair[Number]]\n",
        names,
    )
    assert round_trip({"a": [1, {"b": None}]}, names["Json"]) == {"a": [1, {"b": None}]}
    assert round_trip([(1, 2.5)], names["Rows"]) == [(1, 2.5)]
    with pytest.raises(InvalidValue, match=r"at \$\.a\[0\]: "):
        decode(b'{"a":[1.5]}', names["Json"], what="v")


def test_pydantic_is_never_imported_for_its_own_sake() -> None:
    import subprocess

    program = (
        "import sys\n"
        "from perdure.model.values import *\n"
        "assert decode(encode({'a': [1]}, what='v'), dict[str, list[int]], what='v') == {'a': [1]}\n"
        "try: encode(object(), what='v')\n"
        "except Exception as error: assert 'no JSON form' in str(error)\n"
        "assert 'pydantic' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)
