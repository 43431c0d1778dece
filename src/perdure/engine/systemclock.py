"""The real clock: the machine's time, and the event loop's timers."""

from __future__ import annotations

import asyncio
import time  # noqa: TID251  (the one place where time comes from)
from collections.abc import Callable


class SystemClock:
    """The Clock port on this machine. A jump of the machine's clock moves what is due with it, unless it follows a store's."""

    def __init__(self) -> None:
        #: From the monotonic clock to the time of whoever is followed; None: nobody is.
        self._offset: int | None = None

    def now(self) -> int:
        if self._offset is None:
            return time.time_ns() // 1000
        return time.monotonic_ns() // 1000 + self._offset

    def follow(self, now: int) -> None:
        """It is `now`, by a clock that counts more than this machine's: a server's. Any thread."""
        self._offset = now - time.monotonic_ns() // 1000

    def call_at(self, when: int, callback: Callable[[], None]) -> asyncio.TimerHandle:
        """May fire up to the timer's resolution early by this clock: whoever asked looks at `now` again."""
        loop = asyncio.get_running_loop()
        return loop.call_later(max(0, when - self.now()) / 1_000_000, callback)
