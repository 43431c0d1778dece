"""What can be stored: a fast test for values that msgspec writes exactly, and a slow walk that mends or explains the rest.

msgspec writes most values as they are, but NaN as null, keys of any type as text, odd time zones rounded, and some classes
not at all. `fits` says whether a value is free of all that, in a fraction of a microsecond. For one that is not, `lower`
makes the plain JSON shape of it, or raises `Misfit` with the path to what cannot be stored.
"""

from __future__ import annotations

import dataclasses
import math
import sys
from collections.abc import Callable, Iterator, Mapping, Set
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum, EnumType
from functools import lru_cache
from typing import Any, TypeAlias
from uuid import UUID

import msgspec

from perdure.model.shown import told

#: Levels of lists and objects inside each other.
MAX_DEPTH = 100

Path: TypeAlias = tuple[str | int, ...]


def is_a(value: object, *kinds: Any) -> bool:
    """`isinstance` that tells type checkers nothing: what a dict of anybody's holds stays Any."""
    return isinstance(value, kinds)


class Misfit(Exception):
    """A value does not fit: why, and the path to it, which its containers complete on the way out."""

    def __init__(self, reason: str, path: Path = ()) -> None:
        super().__init__(reason)
        self.reason = reason
        self.path = path

    def within(self, step: str | int) -> Misfit:
        """The same, seen from the container that holds the value under `step`."""
        return type(self)(self.reason, (step, *self.path))

    def where(self) -> str:
        """The path as `$.items[3].price`."""
        return "$" + "".join(map(_step_text, self.path))


def _step_text(step: str | int) -> str:
    if step in ("[]", "{}"):  # any item of a type hint's list, or dict
        return str(step)
    return f".{step}" if isinstance(step, str) and step.isidentifier() else f"[{step!r}]"


class OddKey(Misfit):
    """A key that is no text, though JSON could write it as one."""


def fits(value: object, room: int = MAX_DEPTH) -> bool:
    """Whether msgspec writes `value` exactly, but for lone surrogates, which it refuses itself."""
    kind = type(value)
    if kind in _EXACT:
        return True
    if kind is dict:
        return _dict_fits(value, room - 1)
    if kind is list or kind is tuple:
        return _items_fit(value, room - 1)
    return _fitting(kind)(value, room - 1)


#: Types whose every value is written exactly.
_EXACT = frozenset({str, int, bool, type(None), date, timedelta, UUID, bytes, bytearray})


def _dict_fits(value: Any, room: int) -> bool:
    if room < 0:
        return False
    for key, item in value.items():
        if type(key) is not str:
            return False
        if type(item) not in _EXACT and not fits(item, room):
            return False
    return True


def _items_fit(items: Any, room: int) -> bool:
    if room < 0:
        return False
    for item in items:
        if type(item) not in _EXACT and not fits(item, room):
            return False
    return True


Fitting: TypeAlias = Callable[[Any, int], bool]


def _fitting_of(kind: Any) -> Fitting:
    """The test for values of one class."""
    if kind is float:
        return lambda value, room: math.isfinite(value)
    if kind is Decimal:
        return lambda value, room: value.is_finite()
    if kind is datetime:
        return lambda value, room: value.tzinfo is None or value.tzinfo is UTC or _whole_minutes(value.utcoffset())
    if kind is time:
        return lambda value, room: value.tzinfo is None or _whole_minutes(value.utcoffset())
    if kind in (set, frozenset) or issubclass(kind, list | tuple):
        return _items_fit
    if issubclass(kind, dict):
        return _dict_fits
    if is_a(kind, EnumType):
        exact = all(type(member.value) in (str, int) for member in kind)
        return lambda value, room: exact
    fields = _native_fields(kind)
    if fields is None:
        return lambda value, room: False
    return lambda value, room: _items_fit([getattr(value, name, None) for name in fields], room)


_fitting: Callable[[Any], Fitting] = lru_cache(maxsize=4096)(_fitting_of)


def _whole_minutes(offset: timedelta | None) -> bool:
    # A zone whose offset depends on the date gives a bare time none.
    return offset is not None and offset.seconds % 60 == 0 and offset.microseconds == 0


def _native_fields(kind: Any) -> tuple[str, ...] | None:
    """The fields of a class that msgspec writes by itself; None: it does not."""
    if issubclass(kind, msgspec.Struct):
        return tuple(kind.__struct_fields__)
    if dataclasses.is_dataclass(kind):
        return tuple(field.name for field in dataclasses.fields(kind))
    if "__attrs_attrs__" in kind.__dict__:
        return tuple(field.name for field in kind.__dict__["__attrs_attrs__"])
    return None


def fields_of(kind: Any) -> tuple[str, ...]:
    """The names of the fields of any class that can be stored; empty: it has none."""
    return _native_fields(kind) or (tuple(getattr(kind, "model_fields", ())) if is_pydantic(kind) else ())


def is_pydantic(kind: Any) -> bool:
    """Whether it is a pydantic model. Never imports pydantic: who has a model has imported it."""
    model = getattr(sys.modules.get("pydantic"), "BaseModel", None)
    return isinstance(model, type) and issubclass(kind, model)


def is_path(kind: Any) -> bool:
    """Whether it is one of pathlib's paths. Never imports pathlib."""
    path = getattr(sys.modules.get("pathlib"), "PurePath", None)
    return isinstance(path, type) and issubclass(kind, path)


def enum_forms(kind: type[Enum]) -> dict[bytes, Enum]:
    """The members by the JSON they are stored as: their values, or their names if some value cannot be stored."""
    try:
        forms = {msgspec.json.encode(lower(member.value)): member for member in kind}
        if len(forms) == len(kind):
            return forms
    except Misfit:
        pass
    return {msgspec.json.encode(member.name): member for member in kind}


_forms = lru_cache(maxsize=1024)(enum_forms)


def lower(value: object, odd_keys: bool = False) -> Any:
    """A copy of `value` that msgspec writes exactly. Raises `Misfit`.

    With `odd_keys`, keys may be what JSON has to write as text (numbers, enums, dates, UUIDs...): the caller must see to it
    that they come back. Two keys must not become the same text.
    """
    return _lower(value, odd_keys, ())


def _lower(value: object, odd_keys: bool, inside: tuple[int, ...]) -> Any:
    kind = type(value)
    if isinstance(value, str):
        return _text(value) if not isinstance(value, Enum) else _enum(value)
    if isinstance(value, Enum):
        return _enum(value)
    if kind in _EXACT and kind is not int:
        return value
    scalar = _scalar(value)
    if scalar is not None:
        return scalar
    if id(value) in inside:
        raise Misfit("it contains itself")
    if len(inside) >= MAX_DEPTH:
        raise Misfit(f"it is nested more than {MAX_DEPTH} levels deep")
    inside = (*inside, id(value))
    whole: Any = value
    if is_a(value, dict):
        return _lower_dict(whole, odd_keys, inside)
    if is_a(value, list, tuple, set, frozenset):
        return [_item(item, index, odd_keys, inside) for index, item in enumerate(whole)]
    return _lower_object(value, odd_keys, inside)


def _item(value: object, step: str | int, odd_keys: bool, inside: tuple[int, ...]) -> Any:
    try:
        return _lower(value, odd_keys, inside)
    except Misfit as misfit:
        raise misfit.within(step) from None


def _text(value: str) -> str:
    try:
        return str.encode(value, "utf-8").decode()
    except UnicodeEncodeError as error:
        at = f"character {error.start}, {value[error.start]!r}, is half of a surrogate pair"
        raise Misfit(f"a text that is not Unicode ({at})") from None


def _enum(value: Enum) -> Any:
    if not isinstance(value.name, str):
        return lower(value.value)  # a combination of flags
    for form, member in _forms(type(value)).items():
        if member is value:
            return msgspec.json.decode(form)
    return lower(value.value)  # a combination of flags that has a name: "A|B"


def _scalar(value: Any) -> Any:
    """A number, time, or a subclass of one, as its base class; None: it is none of them."""
    if isinstance(value, int):
        try:
            int.__repr__(value)
        except ValueError as error:
            raise Misfit(f"an integer with too many digits ({error})") from None
        return int(value)
    if isinstance(value, float):
        if not math.isfinite(value):
            raise Misfit(f"{value!r} is no JSON number: use None, or a text")
        return float(value)
    if isinstance(value, Decimal):
        if not value.is_finite():
            raise Misfit(f"{value!r} is no JSON number: use None, or a text")
        return Decimal(value)
    if isinstance(value, datetime):
        return _datetime(value)
    if isinstance(value, date):
        return date(value.year, value.month, value.day)
    if isinstance(value, time):
        return _time(value)
    if isinstance(value, timedelta):
        return timedelta(value.days, value.seconds, value.microseconds)
    if isinstance(value, memoryview):
        return value.tobytes()
    return None


def _datetime(value: datetime) -> datetime:
    if value.tzinfo is not None and not _whole_minutes(value.utcoffset()):
        value = value.astimezone(UTC)  # the same instant; JSON has no offsets of seconds
    return datetime.combine(value.date(), value.timetz())


def _time(value: time) -> time:
    if value.tzinfo is not None and not _whole_minutes(value.utcoffset()):
        raise Misfit("a time whose zone has no fixed offset of whole minutes: use a datetime, or a time without a zone")
    return time(value.hour, value.minute, value.second, value.microsecond, value.tzinfo)


def _lower_dict(value: dict[Any, Any], odd_keys: bool, inside: tuple[int, ...]) -> dict[str, Any]:
    result: dict[str, Any] = {}
    for key, item in value.items():
        text = _key(key, odd_keys)
        if text in result:
            raise Misfit(f"two keys that are both {text!r} in JSON")
        result[text] = _item(item, text, odd_keys, inside)
    return result


def _key(key: object, odd_keys: bool) -> str:
    if isinstance(key, str):  # an enum of texts too: it equals its text
        return _text(key.value if isinstance(key, Enum) else key)
    name = type(key).__name__
    plain = key.value if isinstance(key, Enum) else key
    if isinstance(plain, bool) or not isinstance(plain, _KEYS):
        raise Misfit(f"the key {_short(key)}: keys of type {name} have no JSON form; use str keys, or a list of pairs")
    if not odd_keys:
        raise OddKey(
            f"the key {_short(key)}: keys of type {name} come back as str where no type hint restores them; "
            f"use str keys, or say dict[{name}, ...] in the type hint"
        )
    if type(plain) is int:
        return str(plain)
    texts: dict[str, None] = msgspec.json.decode(msgspec.json.encode({lower(plain): None}))
    return next(iter(texts))


#: Types of keys, besides str, that JSON can write as text and a hint restores.
_KEYS = (str, int, float, Decimal, UUID, date, time, timedelta, bytes)


def _lower_object(value: object, odd_keys: bool, inside: tuple[int, ...]) -> Any:
    kind = type(value)
    if isinstance(value, msgspec.Struct):
        return _lower_struct(value, odd_keys, inside)
    fields = _native_fields(kind)
    if fields is not None:
        held = ((name, getattr(value, name)) for name in fields if hasattr(value, name))
        return {name: _item(item, name, odd_keys, inside) for name, item in held}
    if is_pydantic(kind):
        model: Any = value
        try:
            plain = model.model_dump(mode="json", by_alias=True, round_trip=True)
        except Exception as error:
            raise Misfit(f"a {kind.__name__} that pydantic cannot write: {told(error)}") from error
        return _lower(plain, False, inside)
    if is_path(kind):
        return _text(str(value))
    raise Misfit(_advice(value))


def _lower_struct(value: msgspec.Struct, odd_keys: bool, inside: tuple[int, ...]) -> Any:
    config = value.__struct_config__
    held: list[tuple[str, Any]] = []
    for name, encoded in zip(value.__struct_fields__, value.__struct_encode_fields__, strict=True):
        item = getattr(value, name)
        if item is not msgspec.UNSET:
            held.append((encoded, _item(item, name, odd_keys, inside)))
    tag = [] if config.tag is None else [(config.tag_field or "type", config.tag)]
    return [item for _, item in tag + held] if config.array_like else dict(tag + held)


def _short(value: object) -> str:
    try:
        text = repr(value)
    except Exception:
        return f"a {type(value).__name__}"
    return text if len(text) <= 60 else f"{text[:60]}..."


def _advice(value: object) -> str:
    """What it is that cannot be stored, and what to do instead."""
    name = f"{type(value).__module__}.{type(value).__qualname__}".removeprefix("builtins.")
    if hasattr(value, "__await__"):
        return f"an awaitable ({name}): await it, and store what it gives"
    if hasattr(value, "read") or hasattr(value, "fileno"):
        return f"an open file or connection ({name}): store its path or address"
    if isinstance(value, Iterator) or hasattr(value, "__aiter__"):
        return f"an iterator ({name}) gives its items only once: collect them into a list"
    if isinstance(value, BaseException):
        return f"an error ({name}): raise it, or store its text"
    if isinstance(value, type) or callable(value):
        return f"code ({_short(value)}): store its name, or the data it would work on"
    if isinstance(value, Mapping):
        return f"a mapping of class {name}: make it a dict"
    if isinstance(value, Set) or hasattr(value, "__getitem__") or hasattr(value, "__iter__"):
        return f"a collection of class {name}: make it a list, tuple, set or dict"
    return (
        f"an object of class {name}, which has no JSON form: make it a dataclass, a msgspec.Struct or a pydantic model"
    )
