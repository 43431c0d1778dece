"""The server's clock is the store's: this process's follows it.

What is asked is what time it is there, and how long the answer took; the answer that took least is the most exact. A clock that
follows nobody (one that a test drives by hand) is followed by the server instead: it is told the time with each call.
"""

from __future__ import annotations

import asyncio
import time  # noqa: TID251  # how long an answer took is elapsed time, not the store's
from collections.abc import Awaitable, Callable
from typing import Final, Protocol, runtime_checkable

from perdure.model.errors import StoreError
from perdure.ports.clock import Clock

#: Seconds between two questions, and how many are asked at first.
_INTERVAL: Final = 10.0
_FIRST: Final = 3


@runtime_checkable
class Following(Protocol):
    """A clock that can be set."""

    def follow(self, now: int) -> None:
        """It is `now` (microseconds since the epoch). Any thread."""
        ...


class Timekeeper:
    """`ask` tells the server's time in microseconds. Event loop only."""

    def __init__(self, clock: Clock, ask: Callable[[], Awaitable[int]]) -> None:
        self._clock = clock
        self._ask = ask
        self._task: asyncio.Task[None] | None = None

    def at(self) -> int | None:
        """The time that the server is to take for now; None: its own."""
        return None if isinstance(self._clock, Following) else self._clock.now()

    async def start(self) -> None:
        """Set the clock, then keep it so. Raises `StoreError` if the server does not answer."""
        if isinstance(self._clock, Following):
            await self._set(self._clock, _FIRST)
            self._task = asyncio.get_running_loop().create_task(self._keep(self._clock))

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _keep(self, clock: Following) -> None:
        while True:
            await asyncio.sleep(_INTERVAL)
            try:
                await self._set(clock, 1)
            except StoreError:
                pass  # The clock runs on by itself; whoever needs the store will say that it is away.

    async def _set(self, clock: Following, times: int) -> None:
        best: tuple[float, int] | None = None
        for _ in range(times):
            asked = time.monotonic()
            answer = await self._ask()
            taken = time.monotonic() - asked
            if best is None or taken < best[0]:
                # It is later now, by about half of what the way there and back took, and by what followed.
                best = taken, answer - round(asked * 1_000_000) - round(taken * 500_000)
        assert best is not None
        clock.follow(round(time.monotonic() * 1_000_000) + best[1])
