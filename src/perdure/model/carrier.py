"""The carrier: a few texts that go with a run from whoever started it to its steps, children and next links.

Perdure reads none of them but `traceparent` (W3C Trace Context, https://www.w3.org/TR/trace-context/).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final, cast

import msgspec

from perdure.model.errors import UsageError
from perdure.model.ids import check_name
from perdure.model.shown import shown

#: Bytes of a whole carrier, as JSON.
MAX_CARRIER: Final = 8192

_TRACEPARENT: Final = re.compile(r"(?!ff)[0-9a-f]{2}-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}(-.*)?")


def check_carrier(value: object, what: str = "a carrier") -> dict[str, str]:
    """The carrier, a copy. Raises `UsageError` naming `what` for anything but names and texts of bounded size."""
    if not isinstance(value, Mapping):
        raise UsageError(f"{what} must be a mapping of names to texts, not {shown(value)}")
    carrier: dict[str, str] = {}
    for name, text in cast("Mapping[object, object]", value).items():
        check_name(name, f"a name in {what}")
        if not isinstance(text, str):
            raise UsageError(f"{what} holds texts only; its {shown(name)} is {shown(text)}")
        carrier[cast("str", name)] = text
    try:
        size = len(msgspec.json.encode(carrier))
    except UnicodeEncodeError:
        raise UsageError(f"{what} holds a lone surrogate, which cannot be stored") from None
    if size > MAX_CARRIER:
        raise UsageError(f"{what} has {size} bytes; it may have {MAX_CARRIER}. Put large things into the input")
    return carrier


def encode_carrier(carrier: Mapping[str, str]) -> bytes | None:
    """As it is stored: JSON; None for an empty one."""
    return msgspec.json.encode(carrier) if carrier else None


def decode_carrier(data: bytes | None) -> dict[str, str]:
    """What was stored. What is no carrier counts as an empty one."""
    try:
        return {} if data is None else msgspec.json.decode(data, type=dict[str, str])
    except msgspec.MsgspecError:
        return {}


def inherit(parent: bytes | None, given: bytes | None) -> bytes | None:
    """A child's carrier: its parent's, with what it is given on top."""
    if parent is None or given is None:
        return parent if given is None else given
    return encode_carrier(decode_carrier(parent) | decode_carrier(given))


def traceparent(carrier: Mapping[str, str]) -> str | None:
    """The trace that the run belongs to. None if there is none, or what is there is malformed (then W3C asks to pass it by)."""
    text = carrier.get("traceparent")
    return text if text is not None and _TRACEPARENT.fullmatch(text) else None
