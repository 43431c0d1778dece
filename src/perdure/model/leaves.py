"""Shapes without parts that we know: scalars, enums, literals, and classes that restore themselves."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from datetime import date, datetime
from typing import Any, TypeAlias

import msgspec

from perdure.model.shape import (
    EVERYTHING,
    FORMS,
    OBJECT,
    SCALARS,
    Restore,
    Shape,
    describe,
    hint_name,
    is_literal,
    refuse,
)
from perdure.model.shown import told
from perdure.model.storable import Misfit, enum_forms, is_path, lower

Hook: TypeAlias = Callable[[Any, Any], Any]

#: A step of a path as msgspec writes it: `.name` or `[3]`. (It does not say which key of a dict: `[...]`.)
_STEP = re.compile(r"\.([^.\[`]+)|\[(\d+)\]")


def leaf(hint: Any, hook: Hook | None = None) -> Restore:
    """For a hint that msgspec restores by itself, with `hook` for classes inside that it does not know."""
    name = hint_name(hint)

    def restore(value: Any) -> Any:
        try:
            return msgspec.convert(value, hint, str_keys=True, dec_hook=hook)
        except msgspec.ValidationError as error:
            reason, _, place = str(error).partition(" - at `")
            if reason.startswith("Expected `") and not place:
                reason = f"expected {name}, found {describe(value)}"
            raise Misfit(reason, tuple(field or int(index) for field, index in _STEP.findall(place))) from None
        except Exception as error:  # of a class's own __post_init__
            raise Misfit(f"{name} cannot be made of it: {type(error).__name__}: {told(error)}") from error

    return restore


def literal(args: Sequence[Any], into: Shape) -> None:
    table: dict[bytes, Any] = {msgspec.json.encode(lower(value)): value for value in args}
    into.literal = all(value is None or type(value) in FORMS for value in args)
    into.forms = _forms(table)
    into.restore = _lookup(table, into)


def _forms(table: Iterable[bytes]) -> frozenset[str]:
    values: list[object] = [msgspec.json.decode(data) for data in table]
    return frozenset(FORMS[type(value)] for value in values)


def _lookup(table: dict[bytes, Any], into: Shape) -> Restore:
    def restore(value: Any) -> Any:
        try:
            return table[msgspec.json.encode(value)]
        except KeyError:
            raise Misfit(f"expected one of {into.name}, found {describe(value)}") from None

    return restore


def enumeration(cls: Any, into: Shape) -> None:
    table = enum_forms(cls)
    into.forms = _forms(table)
    kinds: set[Any] = {type(member.value) for member in cls}
    into.restore = leaf(cls) if kinds in ({str}, {int}) else _lookup(table, into)


def pydantic_model(cls: Any, into: Shape) -> None:
    fields: dict[str, Any] = cls.model_fields
    into.forms, into.names = EVERYTHING, None
    if "root" not in fields:
        into.forms = frozenset({OBJECT})
        into.names = frozenset(field.alias or name for name, field in fields.items())
        into.discriminated = any(is_literal(field.annotation) for field in fields.values())

    def restore(value: Any) -> Any:
        try:
            return cls.model_validate_json(msgspec.json.encode(value))
        except Exception as error:
            raise Misfit(f"{cls.__qualname__} does not accept it: {told(error)}") from error

    into.restore = restore


def scalar_class(cls: Any, into: Shape) -> None:
    """A subclass of a scalar, or a path; anything else has no known shape."""
    base: Any
    make: Callable[[Any], Any]
    if is_path(cls):
        base, make = str, cls
    elif issubclass(cls, datetime):
        base, make = datetime, lambda value: cls.combine(value.date(), value.timetz())
    elif issubclass(cls, date):
        base, make = date, lambda value: cls(value.year, value.month, value.day)
    else:
        base = next((base for base in (str, int, float) if issubclass(cls, base)), None)
        make = cls
    if base is None:
        refuse(
            f"{hint_name(cls)} has no JSON form that it could be restored from: "
            "use a dataclass, a msgspec.Struct, a pydantic model, or plain JSON types"
        )
    into.forms = SCALARS[base]
    inner = leaf(base)

    def restore(value: Any) -> Any:
        plain = inner(value)
        try:
            return make(plain)
        except Exception as error:
            raise Misfit(f"{hint_name(cls)} cannot be made of {describe(plain)}: {told(error)}") from error

    into.restore = restore
