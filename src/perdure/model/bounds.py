"""What every store can take: integers of 64 bits, text that is UTF-8 without NUL."""

from __future__ import annotations

from typing import cast

from msgspec import Struct

_INT_MIN, _INT_MAX = -(2**63), 2**63 - 1


def out_of_bounds(value: object, where: str = "the write") -> str | None:
    """What of a value no store could take, in words; None if all of it can be stored."""
    if value is None or isinstance(value, bytes | bool):
        return None
    if isinstance(value, str):
        return _text_fault(value, where)
    if isinstance(value, int):
        fits = _INT_MIN <= value <= _INT_MAX
        return None if fits else f"{where} is an integer of more than 64 bits: {value}"
    if isinstance(value, tuple):
        parts = ((item, where) for item in cast(tuple[object, ...], value))
    elif isinstance(value, Struct):
        parts = ((getattr(value, field), f"{type(value).__name__}.{field}") for field in value.__struct_fields__)
    else:
        return f"{where} is of type {type(value).__name__}, which no store knows"
    for part, place in parts:
        fault = out_of_bounds(part, place)
        if fault is not None:
            return fault
    return None


def _text_fault(text: str, where: str) -> str | None:
    if "\0" in text:
        return f"{where} holds a NUL character: {text!a:.80}"
    try:
        text.encode()
    except UnicodeEncodeError:
        return f"{where} holds a lone surrogate: {text!a:.80}"
    return None
