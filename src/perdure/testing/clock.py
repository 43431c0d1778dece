"""A clock that stands still until a test moves it."""

from __future__ import annotations

import asyncio
import heapq
import itertools
from collections.abc import Callable
from datetime import timedelta
from threading import Lock

from perdure.model.durations import micros

#: 2025-01-01T00:00:00Z.
START = 1_735_689_600_000_000


class ManualClock:
    """The Clock port, driven by hand.

    `now` may be called from any thread. Alarms fire in the order of their times, those of one time in the order they were
    asked for, each on the loop that asked for it: at once where `advance` or `set` is called on that loop's own thread (the
    clock then stands at the alarm's time while it fires), else as soon as that loop gets to it.
    """

    def __init__(self, start: int = START) -> None:
        self._now = start
        self._lock = Lock()
        self._alarms: list[ManualAlarm] = []
        self._order = itertools.count()

    def now(self) -> int:
        return self._now

    def call_at(self, when: int, callback: Callable[[], None]) -> ManualAlarm:
        """An alarm for a time that has come fires at the loop's next iteration."""
        loop = asyncio.get_running_loop()
        alarm = ManualAlarm(when, next(self._order), callback, loop)
        with self._lock:
            if when > self._now:
                heapq.heappush(self._alarms, alarm)
                return alarm
        loop.call_soon(alarm.fire)
        return alarm

    def next_alarm(self) -> int | None:
        """When the next alarm will fire; None if none is set."""
        with self._lock:
            while self._alarms and self._alarms[0].cancelled:
                heapq.heappop(self._alarms)
            return self._alarms[0].when if self._alarms else None

    def advance(self, by: float | timedelta) -> None:
        """Move on by seconds or a `timedelta`, firing what comes due on the way."""
        self.set(self._now + micros(by))

    def set(self, now: int) -> None:
        """Jump to a time in microseconds since the epoch. Backwards too, as real clocks do: then nothing fires."""
        while (alarm := self._next_due(now)) is not None:
            alarm.go()
        with self._lock:
            self._now = now

    def _next_due(self, until: int) -> ManualAlarm | None:
        """Move to the next alarm that is not later than `until`, and take it off the list."""
        with self._lock:
            while self._alarms and self._alarms[0].when <= until:
                alarm = heapq.heappop(self._alarms)
                if not alarm.cancelled:
                    self._now = max(self._now, alarm.when)
                    return alarm
            return None


class ManualAlarm:
    """What `ManualClock.call_at` returns."""

    def __init__(self, when: int, order: int, callback: Callable[[], None], loop: asyncio.AbstractEventLoop) -> None:
        self.when = when
        self.cancelled = False
        self._order = order
        self._callback = callback
        self._loop = loop

    def __lt__(self, other: ManualAlarm) -> bool:
        return (self.when, self._order) < (other.when, other._order)

    def cancel(self) -> None:
        self.cancelled = True

    def fire(self) -> None:
        """Call back, unless cancelled or fired before. On the loop's thread."""
        if not self.cancelled:
            self.cancelled = True
            self._callback()

    def go(self) -> None:
        """Fire on the loop's thread, from any thread. An alarm of a loop that is closed is forgotten."""
        if _running_loop() is self._loop:
            self.fire()
        elif not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self.fire)


def _running_loop() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None
