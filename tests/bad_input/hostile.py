"""Values that somebody will pass one day, by name. Each call makes them afresh."""

from __future__ import annotations

import datetime as dt
from typing import Any


class Thing:
    """Has no JSON form."""


class Mute:
    """Cannot even be shown."""

    def __repr__(self) -> str:
        raise RuntimeError("no repr")


def hostile() -> dict[str, Any]:
    cycle: list[Any] = []
    cycle.append(cycle)
    return {
        "nan": float("nan"),
        "infinite": float("inf"),
        "surrogate": "\ud800",
        "nul": "a\0b",
        "empty": "",
        "blank": "  ",
        "too long an id": "x" * 513,
        "control character": "a\nb",
        "too large": "x" * (2 * 1024 * 1024 + 1),
        "word": "word",
        "bytes": b"\xff",
        "zero": 0,
        "negative": -1,
        "one": 1,
        "fraction": 1.5,
        "huge": 1e300,
        "thousands of digits": 10**5000,
        "true": True,
        "list": [1],
        "odd keys": {(1, 2): 1},
        "set": {1},
        "cycle": cycle,
        "generator": (each for each in (1,)),
        "object": Thing(),
        "mute": Mute(),
        "class": int,
        "function": len,
        "ellipsis": ...,
        "naive datetime": dt.datetime(2025, 1, 1),
        "last datetime": dt.datetime.max.replace(tzinfo=dt.UTC),
        "negative timedelta": dt.timedelta(seconds=-1),
        "longest timedelta": dt.timedelta.max,
    }


#: What is a value that can be stored.
STORABLE = frozenset(
    {
        *("nul", "empty", "blank", "too long an id", "control character", "word", "bytes", "zero", "negative", "one"),
        *("fraction", "huge", "true", "list", "set", "naive datetime", "last datetime"),
        *("negative timedelta", "longest timedelta"),
    }
)
