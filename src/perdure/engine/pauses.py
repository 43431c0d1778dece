"""Waiting by the clock: until a time, and ever longer between two tries of what cannot be done for now."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

from perdure.ports.clock import Clock

_FIRST = 50_000
_LONGEST = 5_000_000


def pauses() -> Iterator[int]:
    """Without end. Microseconds."""
    pause = _FIRST
    while True:
        yield pause
        pause = min(pause * 2, _LONGEST)


async def sleep_until(clock: Clock, when: int) -> None:
    """Wait until the clock says `when`."""
    event = asyncio.Event()
    alarm = clock.call_at(when, event.set)
    try:
        await event.wait()
    finally:
        alarm.cancel()
