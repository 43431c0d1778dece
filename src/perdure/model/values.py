"""Values: what a workflow, step or message carries, as JSON bytes, and back by type hint."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import msgspec

from perdure.model.errors import InvalidValue, ValueTooLarge

#: Bytes.
MAX_VALUE = 2 * 1024 * 1024

_encode = msgspec.json.Encoder().encode


def encode(value: object, type: Any = Any, *, what: str, limit: int = MAX_VALUE) -> bytes:
    """JSON bytes of `value`; `what` names it in errors. Raises `InvalidValue` and `ValueTooLarge`."""
    try:
        data = _encode(value)
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidValue(f"{what} cannot be stored: {error}") from error
    if b"null" in data:
        _check(value, "$", what)
    if len(data) > limit:
        raise ValueTooLarge(f"{what} is {len(data):,} bytes as JSON, more than the {limit:,} allowed")
    return data


def _check(value: object, path: str, what: str) -> None:
    if isinstance(value, float) and not math.isfinite(value):
        raise InvalidValue(f"{what} cannot be stored: {value} at {path} is no JSON number")
    if isinstance(value, dict):
        for key, item in value.items():
            _check(item, f"{path}.{key}", what)
    elif isinstance(value, list | tuple):
        for index, item in enumerate(value):
            _check(item, f"{path}[{index}]", what)


def decode(data: bytes, type: Any = Any, *, what: str) -> Any:
    """The value of JSON bytes, restored by the hint `type`. Raises `InvalidValue`."""
    try:
        return decoder(type)(data)
    except (msgspec.DecodeError, ValueError) as error:
        raise InvalidValue(f"{what} does not fit its type: {error}") from error


def decoder(type: Any) -> Callable[[bytes], Any]:
    """A function that restores values of that hint."""
    try:
        return _cached(type)
    except TypeError:
        return msgspec.json.Decoder(type).decode


@lru_cache(maxsize=4096)
def _cached(type: Any) -> Callable[[bytes], Any]:
    return msgspec.json.Decoder(type).decode


def check_hint(type: Any) -> None:
    """Raise `InvalidValue` for a hint that can never be restored."""
    try:
        decoder(type)
    except TypeError as error:
        raise InvalidValue(f"values of type {type!r} cannot be restored: {error}") from error
