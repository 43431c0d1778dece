"""What the context offers for waiting: until a time, or for the world."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from datetime import datetime, timedelta
from typing import Any, TypeVar, cast, overload

from perdure.authoring.seat import Seat
from perdure.model import values
from perdure.model.durations import instant, unsigned_micros
from perdure.model.ids import check_name

T = TypeVar("T")


class Waiting(Seat):
    """The part of the context that waits."""

    __slots__ = ()

    async def sleep_until(self, when: datetime | float) -> None:
        """Sleep until an aware datetime, or seconds since the epoch."""
        self._inside()
        due = instant(when, "sleep_until")
        future = asyncio.get_running_loop().create_future()
        handle = asyncio.get_running_loop().call_at(due / 1_000_000, _wake, future)
        try:
            await future
        finally:
            handle.cancel()

    @overload
    async def wait_for_signal(
        self, name: str, *, type: type[T], token: str | None = ..., timeout: float | timedelta | None = ...
    ) -> T: ...
    @overload
    async def wait_for_signal(
        self, name: str, *, type: Any = ..., token: str | None = ..., timeout: float | timedelta | None = ...
    ) -> Any: ...
    def wait_for_signal(
        self, name: str, *, type: Any = Any, token: str | None = None, timeout: float | timedelta | None = None
    ) -> Coroutine[Any, Any, Any]:
        """Wait for a signal sent to this run by name, or with `token` for one sent to that token from anywhere.

        Signals that came before are waiting already, first in first out. `timeout` (seconds or `timedelta`) raises
        `SignalTimeout`; with 0, only what is there already is taken.
        """
        check_name(name, "a signal's name")
        if token is not None:
            check_name(token, "a token")
        limit = None if timeout is None else unsigned_micros(timeout, "timeout")
        wait = self._inside().signal(name, token=token, timeout=limit, decode=values.decoder(type))
        return cast("Coroutine[Any, Any, Any]", wait)


def _wake(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
