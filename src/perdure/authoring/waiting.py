"""What the context offers for waiting: until a time, or for the world."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Mapping
from datetime import datetime, timedelta
from typing import Any, TypeVar, cast, overload

from perdure.authoring.events import encode_match
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

    @overload
    async def wait_for_event(
        self,
        name: str,
        *,
        match: Mapping[str, Any] | None = ...,
        type: type[T],
        timeout: float | timedelta | None = ...,
    ) -> T: ...
    @overload
    async def wait_for_event(
        self,
        name: str,
        *,
        match: Mapping[str, Any] | None = ...,
        type: Any = ...,
        timeout: float | timedelta | None = ...,
    ) -> Any: ...
    def wait_for_event(
        self,
        name: str,
        *,
        match: Mapping[str, Any] | None = None,
        type: Any = Any,
        timeout: float | timedelta | None = None,
    ) -> Coroutine[Any, Any, Any]:
        """Wait for an event of this name that is published in the run's namespace, and return its payload.

        `match`: fields of the payload and the values that all of them must have; a field inside another one by a dotted path,
        `{"customer.id": 7}`. An event that was kept because nobody took it is taken at once, the oldest first. `type`
        restores the payload. `timeout` (seconds or `timedelta`) raises `EventTimeout`; with 0, only what is kept already
        is taken.
        """
        check_name(name, "an event's name")
        limit = None if timeout is None else unsigned_micros(timeout, "timeout")
        data = None if match is None else encode_match(match, f"the match of event {name!r}")
        wait = self._inside().event(name, match=data, timeout=limit, decode=values.decoder(type))
        return cast("Coroutine[Any, Any, Any]", wait)


def _wake(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
