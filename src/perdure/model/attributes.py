"""Which attributes of a run it can be found by, and how they compare.

A run's attributes are the JSON of an object, kept as it came. To be found by are its members that are texts, numbers, booleans
or null. Each has a *key*: a text whose order is that of the values, so that every store finds and compares them in the same
way, byte by byte, in one index:

=======  =============================================================================================================
boolean  `bfalse`, `btrue`
number   `n1` for zero, `n2` + exponent + digits above it, `n0` + the nines' complement of these + `~` below it
text     `s` + the text (NUL, which not every store takes, is 0x01 0x01 there, and 0x01 is 0x01 0x02)
null     `z`
=======  =============================================================================================================

A number is what its JSON says in decimal: 1 is 1.0, and integers beyond what a float can tell apart are told apart.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from decimal import Decimal
from enum import StrEnum
from typing import Any, Final

import msgspec
from msgspec import Struct

from perdure.model.errors import UsageError
from perdure.model.ids import MAX_NAME

#: Bytes of a value's canonical JSON. A longer one is stored, and found by nothing.
MAX_SEARCHED: Final = 256

#: Exponents of what floats and the longest integers are go from -324 to 308: with this they have three digits.
_EXPONENTS: Final = 500
_COMPLEMENT: Final = str.maketrans("0123456789", "9876543210")

_members = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_decode = msgspec.json.Decoder().decode
_encode = msgspec.json.Encoder().encode


class Compare(StrEnum):
    """How an attribute is compared. What is greater or less is so among numbers, or among texts."""

    EQ = "="
    NE = "!="
    GT = ">"
    GTE = ">="
    LT = "<"
    LTE = "<="


class Condition(Struct, frozen=True):
    """An attribute compared with a value, given by its key. No value is none: who lacks the attribute never matches."""

    name: str
    compare: Compare
    key: str

    def __bool__(self) -> bool:
        raise UsageError(
            "conditions cannot be joined with and, or, not, nor chained like 1 < attr(...) < 5; "
            "list them: where=[attr(...) > 1, attr(...) < 5]"
        )

    def tests(self) -> tuple[tuple[str, str], ...]:
        """What the run's key is compared with: operators, as SQL has them, and keys."""
        kind = self.key[0]
        match self.compare:
            case Compare.EQ:
                return (("=", self.key),)
            case Compare.NE:
                return (("<>", self.key),)
            case Compare.GT | Compare.GTE:
                return ((self.compare.value, self.key), ("<", chr(ord(kind) + 1)))
            case Compare.LT | Compare.LTE:
                return ((">=", kind), (self.compare.value, self.key))

    def holds(self, key: str) -> bool:
        """Whether it holds for an attribute of that key."""
        return all(_HOLDS[operator](key, other) for operator, other in self.tests())


_HOLDS: Final[dict[str, Any]] = {
    "=": str.__eq__,
    "<>": str.__ne__,
    ">": str.__gt__,
    ">=": str.__ge__,
    "<": str.__lt__,
    "<=": str.__le__,
}


def searchable(data: bytes | None) -> list[tuple[str, str]]:
    """Names and keys of what a run with these attributes can be found by; each name once, in their order.

    Left out are lists, objects and values that are too long; names that are too long or hold a NUL; and everything, if `data`
    is not the JSON of an object. Never raises: `data` may be any bytes.
    """
    found: list[tuple[str, str]] = []
    for name, raw in _object(data).items():
        key = _key(raw)
        if key is not None and len(name) <= MAX_NAME and "\0" not in name:
            found.append((name, key))
    return found


def matches(conditions: Iterable[Condition], data: bytes | None) -> bool:
    """Whether all of them hold for a run with these attributes."""
    keys = dict(searchable(data))
    return all(each.name in keys and each.holds(keys[each.name]) for each in conditions)


def leading(conditions: Sequence[Condition]) -> str | None:
    """Of several attributes, the one by which to look for runs, in an index by name and key: rather one value than a range."""
    for compare in (Compare.EQ, None):
        for each in conditions:
            if compare is None or each.compare is compare:
                return each.name
    return None


def merged(data: bytes | None, changes: bytes) -> bytes:
    """The attributes with others put over them, name by name; what is not touched stays as it was written."""
    return _encode(_object(data) | _object(changes))


def plain(data: bytes | None) -> dict[str, Any]:
    """The attributes; of bytes that are no object, none."""
    try:
        return {name: _decode(raw) for name, raw in _object(data).items()}
    except (msgspec.DecodeError, UnicodeError, RecursionError, OverflowError, ValueError):
        return {}


def _object(data: bytes | None) -> dict[str, msgspec.Raw]:
    if not data:
        return {}
    try:
        return _members(data)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return {}


def _key(raw: msgspec.Raw) -> str | None:
    try:
        value = _decode(raw)
        if isinstance(value, list | dict):
            return None
        data = _encode(value)
    except (msgspec.DecodeError, UnicodeError, RecursionError, OverflowError, ValueError):
        return None
    if len(data) > MAX_SEARCHED:
        return None
    if isinstance(value, str):
        return "s" + value.replace("\1", "\1\2").replace("\0", "\1\1")
    if value is None:
        return "z"
    if isinstance(value, bool):
        return f"b{data.decode()}"
    return _number(Decimal(data.decode())) if math.isfinite(value) else None


def _number(value: Decimal) -> str:
    if not value:
        return "n1"
    sign, digits, _ = value.as_tuple()
    exponent = f"{value.adjusted() + _EXPONENTS:03}"
    text = exponent + "".join(map(str, digits)).rstrip("0")
    return f"n0{text.translate(_COMPLEMENT)}~" if sign else f"n2{text}"
