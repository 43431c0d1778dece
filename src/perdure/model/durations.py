"""Durations: `timedelta` or seconds in the public API, strings like `1.5h` only in configuration and on the command line."""

from __future__ import annotations

import math
import re
from datetime import UTC, datetime, timedelta

from perdure.model.errors import UsageError
from perdure.model.shown import shown

MICROSECOND = 1
SECOND = 1_000_000

_UNITS = {"ms": 1_000, "s": SECOND, "m": 60 * SECOND, "h": 3600 * SECOND, "d": 86400 * SECOND, "w": 604800 * SECOND}
_WORDS = {"second": "s", "minute": "m", "hour": "h", "day": "d", "week": "w"}
_TEXT = re.compile(r"^\s*(\d+(?:\.\d+)?)\s*([a-z]+)\s*$")
_LONGEST = 10**17  # about 3,000 years


def micros(value: float | timedelta, what: str = "a duration") -> int:
    """Microseconds of seconds or a `timedelta`. Raises `UsageError` for what is no finite duration."""
    if isinstance(value, timedelta):
        # Exact, where total_seconds() would round.
        result = (value.days * 86400 + value.seconds) * SECOND + value.microseconds
    elif isinstance(value, bool) or not isinstance(value, int | float):
        raise UsageError(f"{what} must be seconds or a timedelta, not {shown(value)}")
    elif isinstance(value, float) and not math.isfinite(value):
        raise UsageError(f"{what} must be finite, not {shown(value)}")
    else:
        result = round(value * SECOND)
    if abs(result) > _LONGEST:
        raise UsageError(f"{what} of {shown(value)} is longer than any store can hold")
    return result


def unsigned_micros(value: float | timedelta, what: str) -> int:
    """As `micros`, and not below zero."""
    result = micros(value, what)
    if result < 0:
        raise UsageError(f"{what} cannot be negative, but is {shown(value)}")
    return result


def positive_micros(value: float | timedelta, what: str) -> int:
    """As `micros`, and above zero."""
    result = micros(value, what)
    if result <= 0:
        raise UsageError(f"{what} must be positive, not {shown(value)}")
    return result


def parse_duration(text: str) -> int:
    """Microseconds of `500ms`, `30s`, `15m`, `1.5h`, `7d`, `2w`, `7 days`. Raises `UsageError` for anything else."""
    match = _TEXT.match(text.lower())
    if match:
        word = match[2].removesuffix("s") if match[2] not in _UNITS else match[2]
        unit = _UNITS.get(_WORDS.get(word, match[2]))
        if unit is not None:
            result = float(match[1]) * unit
            if result > _LONGEST:
                raise UsageError(f"{text!r} is longer than any store can hold")
            return round(result)
    raise UsageError(f"{text!r} is no duration; write for example 500ms, 30s, 15m, 1.5h, 7d or 2w")


def instant(when: datetime | float, what: str = "a time") -> int:
    """Microseconds since the epoch of an aware `datetime` or of seconds since the epoch. Raises `UsageError`."""
    if isinstance(when, datetime):
        if when.tzinfo is None:
            raise UsageError(
                f"{what} {when.isoformat()} has no time zone; use an aware datetime, e.g. datetime.now(UTC)"
            )
        delta = when - datetime(1970, 1, 1, tzinfo=UTC)
        return micros(delta, what)
    if isinstance(when, timedelta):
        raise UsageError(
            f"{what} must be an aware datetime or seconds since the epoch, not a timedelta, which is a delay"
        )
    return micros(when, what)
