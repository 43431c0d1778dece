"""The Clock port: the only source of time of a process."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol


class Alarm(Protocol):
    """A callback that was asked for; `cancel` is idempotent and safe after it fired."""

    def cancel(self) -> None: ...


class Clock(Protocol):
    """Time for one process. Integer microseconds since the Unix epoch; adapters may be driven by hand in tests."""

    def now(self) -> int:
        """The time now. Any thread."""
        ...

    def call_at(self, when: int, callback: Callable[[], None]) -> Alarm:
        """Call `callback` on the running event loop's thread once `now() >= when`. Call from that thread only."""
        ...
