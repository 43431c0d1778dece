"""Waiting for runs: whoever wants a run's end is told here, once, after it is durable.

Ends that happen in this process are announced at once and kept for a while, so that `start` and `result` in one process need no
read. Ends that happen elsewhere are found by looking at the store again when it may have changed.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict

from msgspec import Struct

from perdure.model.errors import UsageError
from perdure.model.run import RunKey, Status

#: Ends that are kept, the bytes of all their outputs, and of one.
_REMEMBERED = 1000
_REMEMBERED_BYTES = 4 * 1024 * 1024
_LARGE = 64 * 1024


class Ending(Struct, frozen=True, gc=False):
    """How a run ended."""

    status: Status
    output: bytes | None
    error: bytes | None
    continued_to: str | None = None


class Endings:
    """Event loop only."""

    def __init__(self) -> None:
        self._recent: OrderedDict[int, Ending] = OrderedDict()
        self._bytes = 0
        self._waiters: dict[int, list[asyncio.Future[Ending | None]]] = {}
        self._closed = False

    def ended(self, key: RunKey, ending: Ending) -> None:
        """A run ended here."""
        for future in self._waiters.pop(key.incarnation, ()):
            if not future.done():
                future.set_result(ending)
        # Only what is final for ever: any other end may be taken back by a requeue, perhaps elsewhere.
        if ending.status is Status.COMPLETED and _size(ending) <= _LARGE:
            self._drop(key.incarnation)
            self._recent[key.incarnation] = ending
            self._bytes += _size(ending)
            while len(self._recent) > _REMEMBERED or self._bytes > _REMEMBERED_BYTES:
                self._drop(next(iter(self._recent)))

    def touched(self, key: RunKey) -> None:
        """A run came to rest or was revived here: whoever waits shall look again."""
        self._drop(key.incarnation)
        for future in self._waiters.pop(key.incarnation, ()):
            if not future.done():
                future.set_result(None)

    def changed(self) -> None:
        """The store may have changed elsewhere: all who wait shall look again."""
        waiters, self._waiters = self._waiters, {}
        for line in waiters.values():
            for future in line:
                if not future.done():
                    future.set_result(None)

    def recent(self, incarnation: int) -> Ending | None:
        """The end of a run that ended here lately."""
        return self._recent.get(incarnation)

    def waiting(self) -> bool:
        return bool(self._waiters)

    def close(self) -> None:
        """Nothing is told here any more: whoever waits would wait for ever."""
        self._closed = True
        waiters, self._waiters = self._waiters, {}
        for line in waiters.values():
            for future in line:
                if not future.done():
                    future.set_exception(_closed())

    def listen(self, incarnation: int) -> asyncio.Future[Ending | None]:
        """A future of the run's end; None means: look at the store again. Listen first, then look. Cancel when done.

        Raises `UsageError`, as does the future, where the app was closed.
        """
        if self._closed:
            raise _closed()
        future: asyncio.Future[Ending | None] = asyncio.get_running_loop().create_future()
        self._waiters.setdefault(incarnation, []).append(future)
        future.add_done_callback(lambda done: self._forget(incarnation, done))
        return future

    def _drop(self, incarnation: int) -> None:
        ending = self._recent.pop(incarnation, None)
        if ending is not None:
            self._bytes -= _size(ending)

    def _forget(self, incarnation: int, future: asyncio.Future[Ending | None]) -> None:
        line = self._waiters.get(incarnation)
        if line is not None and future in line:
            line.remove(future)
            if not line:
                del self._waiters[incarnation]


def _size(ending: Ending) -> int:
    return len(ending.output or b"")


def _closed() -> UsageError:
    return UsageError("the app was closed, so it cannot tell how the run ends; the run is not touched by that")
