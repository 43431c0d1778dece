"""A shape: how values of one type hint look in JSON, and how they are made again from it."""

from __future__ import annotations

import types
import typing
from collections.abc import Callable
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any, NoReturn, TypeAlias
from uuid import UUID

from perdure.model.shown import shown
from perdure.model.storable import Misfit, is_a

Restore: TypeAlias = Callable[[Any], Any]

NULL, BOOL, INT, FLOAT, TEXT, LIST, OBJECT = "null", "bool", "int", "float", "text", "list", "object"
#: Text that may be any text; other kinds of text (dates, enums...) have a form of their own within it.
ANY_TEXT = "any text"
EVERYTHING = frozenset({NULL, BOOL, INT, FLOAT, TEXT, ANY_TEXT, LIST, OBJECT})

SCALARS: dict[Any, frozenset[str]] = {
    bool: frozenset({BOOL}),
    int: frozenset({INT}),
    float: frozenset({FLOAT}),
    str: frozenset({TEXT, ANY_TEXT}),
    bytes: frozenset({TEXT, ANY_TEXT}),
    bytearray: frozenset({TEXT, ANY_TEXT}),
    datetime: frozenset({TEXT}),
    date: frozenset({TEXT}),
    time: frozenset({TEXT}),
    timedelta: frozenset({TEXT}),
    Decimal: frozenset({TEXT}),
    UUID: frozenset({TEXT}),
}
FORMS: dict[type, str] = {
    type(None): NULL,
    bool: BOOL,
    int: INT,
    float: FLOAT,
    str: TEXT,
    list: LIST,
    dict: OBJECT,
}


class Shape:
    """How values of one hint look in JSON. Mutable only until its compiler is done: hints may refer to themselves."""

    __slots__ = ("discriminated", "forms", "literal", "name", "names", "restore")

    def __init__(self, name: str) -> None:
        self.name = name
        #: The value of plain JSON. Raises `Misfit`.
        self.restore: Restore = _unfinished
        self.forms: frozenset[str] = frozenset()
        #: The keys of its objects, where they are known.
        self.names: frozenset[str] | None = None
        #: Whether one of its fields has only a few values, which tell its objects from others with the same names.
        self.discriminated = False
        #: Whether its values come back as they are in JSON, one of a few.
        self.literal = False

    def become(self, other: Shape) -> None:
        """Take the form of `other`, which may not be finished."""
        self.forms, self.names = other.forms, other.names
        self.discriminated, self.literal = other.discriminated, other.literal
        self.restore = lambda value: other.restore(value)  # noqa: PLW0108  # which may be replaced later


def _unfinished(value: Any) -> Any:
    raise AssertionError("a hint was used before it was compiled")


def _text(hint: object) -> str:
    try:
        return str(hint)[:200]
    except Exception:
        return shown(hint)


def hint_name(hint: Any) -> str:
    """A hint as people write it, without modules."""
    if hint is type(None):
        return "None"
    if hint is ...:
        return "..."
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if origin is None:
        name: str = getattr(hint, "__qualname__", None) or getattr(hint, "__name__", None) or _text(hint)
        return name.rpartition("<locals>.")[2].removeprefix("typing.")
    if origin is typing.Union or origin is types.UnionType:
        return " | ".join(map(hint_name, args))
    if origin is typing.Annotated:
        return hint_name(args[0])
    if origin is typing.Literal:
        return f"Literal[{', '.join(map(repr, args))}]"
    inside = (f"[{', '.join(map(hint_name, arg))}]" if is_a(arg, list) else hint_name(arg) for arg in args)
    return f"{hint_name(origin)}[{', '.join(inside)}]"


def is_literal(hint: Any) -> bool:
    return typing.get_origin(hint) is typing.Literal


def refuse(reason: str) -> NoReturn:
    """Raise `Misfit`."""
    raise Misfit(reason)


def as_is(value: Any) -> Any:
    """For shapes whose values are plain JSON."""
    return value


def at(step: str | int, member: Shape, value: Any) -> Any:
    """The part under `step` of a list or object."""
    try:
        return member.restore(value)
    except Misfit as misfit:
        raise misfit.within(step) from None


def expect(kind: type, value: Any, into: Shape) -> Any:
    """The value itself, if it is of that JSON type."""
    if type(value) is not kind:
        raise Misfit(f"expected {into.name}, found {describe(value)}")
    return value


def describe(value: object) -> str:
    """What was found instead, for a message."""
    if value is None:
        return "None"
    if isinstance(value, list | dict):
        return "a list" if isinstance(value, list) else "an object"
    text = repr(value)
    return f"{type(value).__name__} {text if len(text) <= 60 else text[:60] + '...'}"
