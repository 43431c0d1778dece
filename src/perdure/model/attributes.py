"""Which attributes of a run it can be found by.

A run's attributes are the JSON of an object, kept as it came. To be found by are its members that are texts, integers, floats,
booleans or null, in one form for each value (the canonical JSON text), so that every store compares them in the same way: as
texts. The number `1` is not the number `1.0`.
"""

from __future__ import annotations

from typing import Final

import msgspec

from perdure.model.ids import MAX_NAME

#: Bytes of a value's canonical JSON. A longer one is stored, and found by nothing.
MAX_SEARCHED: Final = 256

_members = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_decode = msgspec.json.Decoder().decode
_encode = msgspec.json.Encoder().encode


def searchable(data: bytes | None) -> list[tuple[str, str]]:
    """Names and canonical JSON texts of what a run with these attributes can be found by; each name once, in their order.

    Left out are lists, objects and values that are too long; names that are too long or hold a NUL, which not every store
    takes; and everything, if `data` is not the JSON of an object. Never raises: `data` may be any bytes.
    """
    if not data:
        return []
    try:
        members = _members(data)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return []
    found: list[tuple[str, str]] = []
    for name, raw in members.items():
        text = _canonical(raw)
        if text is not None and len(name) <= MAX_NAME and "\0" not in name:
            found.append((name, text))
    return found


def _canonical(raw: msgspec.Raw) -> str | None:
    try:
        value = _decode(raw)
        if isinstance(value, list | dict):
            return None
        data = _encode(value)
    except (msgspec.DecodeError, UnicodeError, RecursionError, OverflowError, ValueError):
        return None
    return data.decode() if len(data) <= MAX_SEARCHED else None
