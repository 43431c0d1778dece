"""Tagged values: JSON that names its own types, for what has no hint: the arguments and attributes of errors.

Plain JSON stands for itself. Everything else is an object with the key `$`: `{"$": "tuple", "v": [1, 2]}`, or
`{"$": "shop.orders:Order", "v": {...}}` for a class, found again only where its module is already imported (else the plain
`v` comes back). Text is cleaned, never refused.
"""

from __future__ import annotations

import math
import sys
from base64 import b64decode, b64encode
from collections.abc import Callable, Iterable
from typing import Any, TypeAlias

import msgspec

from perdure.model.errors import InvalidValue
from perdure.model.storable import is_a
from perdure.model.values import decode, encode

Json: TypeAlias = Any

_DEPTH = 20
#: Items of a collection, and characters of a text: nobody waits for an error that holds a data set.
_MAX_ITEMS = 10_000
_MAX_TEXT = 1_000_000
_WHAT = "an error's attribute"


def clean(text: str, limit: int | None = None) -> str:
    """`text` as every store, log and page can carry it: lone surrogates and NUL as their escapes; bounded, middle cut out."""
    text = str.encode(text, "utf-8", "backslashreplace").decode().replace("\0", "\\x00")
    if limit is None or len(text) <= limit:
        return text
    # Within the limit with its mark, so that text which was cut is not cut again.
    half = max(limit - 60, 2) // 2
    return f"{text[:half]}\n... {len(text) - 2 * half} characters left out ...\n{text[-half:]}"


def class_name(cls: type) -> str:
    """`module:qualname`."""
    return f"{cls.__module__}:{cls.__qualname__}"


def find_class(name: str) -> type | None:
    """The class of that name, if its module is already imported here. Imports nothing, runs nobody's code."""
    module_name, _, qualname = name.partition(":")
    found: Any = sys.modules.get(module_name)
    for part in qualname.split("."):
        found = getattr(found, "__dict__", {}).get(part)
    return found if is_a(found, type) else None


def pack(value: object, error: Callable[[BaseException], Json], depth: int = _DEPTH) -> Json:
    """The JSON of `value`; `error` packs exceptions. Raises `InvalidValue` for what cannot be carried."""
    if value is None or type(value) is bool or type(value) is int:
        return value
    if is_a(value, str, bytes, bytearray, list, tuple, set, frozenset, dict):
        _check_size(value)
    if type(value) is str:
        return clean(value)
    if depth == 0:
        raise InvalidValue(f"{_WHAT} is nested too deeply, or contains itself")
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else {"$": "float", "v": repr(float(value))}
    if isinstance(value, BaseException):
        return {"$": "error", "v": error(value)}
    if isinstance(value, bytes | bytearray):
        return {"$": "bytes", "v": b64encode(value).decode()}
    if type(value) in (list, tuple, set, frozenset):
        return _pack_items(value, error, depth - 1)
    if is_a(value, dict):
        return _pack_dict(value, error, depth - 1)
    return _pack_object(value)


def _pack_items(value: Any, error: Callable[[BaseException], Json], depth: int) -> Json:
    items = [pack(item, error, depth) for item in value]
    return items if type(value) is list else {"$": type(value).__name__, "v": items}


def _check_size(value: Any) -> None:
    if len(value) > (_MAX_TEXT if isinstance(value, str | bytes | bytearray) else _MAX_ITEMS):
        raise InvalidValue(f"{_WHAT} is too large")


def _pack_dict(value: Any, error: Callable[[BaseException], Json], depth: int) -> Json:
    if all(type(key) is str for key in value):
        fields = {clean(key): pack(item, error, depth) for key, item in value.items()}
        return {"$": "dict", "v": fields} if "$" in fields else fields
    return {"$": "map", "v": [[pack(key, error, depth), pack(item, error, depth)] for key, item in value.items()]}


def _pack_object(value: object) -> Json:
    name = class_name(type(value))
    data = encode(value, what=_WHAT)
    plain = msgspec.json.decode(data)
    if find_class(name) is not type(value):
        return plain
    try:
        decode(data, type(value), what=_WHAT)
    except InvalidValue:
        return plain
    return {"$": name, "v": plain}


def unpack(value: Json, error: Callable[[Json], BaseException]) -> Any:
    """What `pack` packed; `error` unpacks exceptions. A class that is not imported here comes back as plain JSON."""
    if is_a(value, list):
        return [unpack(item, error) for item in value]
    if not is_a(value, dict):
        return value
    if "$" not in value:
        return {key: unpack(item, error) for key, item in value.items()}
    tag: str = value["$"]
    inner: Any = value.get("v")
    if tag in _COLLECTIONS:
        return _COLLECTIONS[tag](unpack(item, error) for item in inner)
    match tag:
        case "float":
            return float(inner)
        case "bytes":
            return b64decode(inner)
        case "error":
            return error(inner)
        case "dict":
            return {key: unpack(item, error) for key, item in inner.items()}
        case "map":
            return {unpack(key, error): unpack(item, error) for key, item in inner}
        case _:
            return _unpack_object(tag, inner)


_COLLECTIONS: dict[str, Callable[[Iterable[Any]], Any]] = {"tuple": tuple, "set": set, "frozenset": frozenset}


def _unpack_object(name: str, plain: Json) -> Any:
    cls = find_class(name)
    if cls is None:
        return plain
    try:
        return decode(msgspec.json.encode(plain), cls, what=_WHAT)
    except InvalidValue:  # the class has changed since
        return plain
