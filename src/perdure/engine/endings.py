"""Waiting for runs: whoever wants a run's end is told here, once, after it is durable.

Ends that happen in this process are announced at once and kept for a while, so that `start` and `result` in one process need no
read. Ends that happen elsewhere are found by looking how the runs stand that somebody waits for, one look for all (see
`services.lookout`); only those that stand otherwise than their waiters saw are read.

None is missed: a waiter is listed before it reads its run, and a change after that read is followed by a look (at the store's
hint, or at the next poll), which compares with what the waiter saw. If the look is answered before that read, what it found is
kept for the waiter, and compared when it has read.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager

from msgspec import Struct

from perdure.model.errors import UsageError
from perdure.model.run import Run, RunKey, Status
from perdure.ports.store import Standing, Store

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


class Waiter:
    """One who waits for a change of a run. Event loop only."""

    __slots__ = ("_looked", "_saw", "_stands", "change", "watched")

    def __init__(self, watched: frozenset[Status]) -> None:
        #: The run's end, or None: read it again.
        self.change: asyncio.Future[Ending | None] = asyncio.get_running_loop().create_future()
        #: To be told only if the run stands like one of these; if there are none, it is not looked at.
        self.watched = watched
        #: How the run stood when the waiter read it.
        self._saw: Standing | None = None
        #: How it was found to stand before that (None: it was gone), if it was looked at.
        self._looked = False
        self._stands: Standing | None = None

    def saw(self, run: Run) -> None:
        """The waiter has read its run, and waits for it to stand otherwise."""
        self.saw_standing(Standing(run.status, run.wake_at, run.updated_at))

    def saw_standing(self, standing: Standing) -> None:
        """As `saw`, of one who knows only how it stands."""
        self._saw = standing
        if self._looked:
            self.stands(self._stands)

    def stands(self, now: Standing | None) -> None:
        """The run was looked at; None: it is gone."""
        if self._saw is None:
            self._looked, self._stands = True, now
        elif now is None or (now != self._saw and now.status in self.watched and _differ(self._saw, now)):
            self.tell(None)

    def tell(self, ending: Ending | None) -> None:
        if not self.change.done():
            self.change.set_result(ending)

    def leave(self) -> None:
        """Nobody waits any more."""
        if self.change.done() and not self.change.cancelled():
            self.change.exception()  # seen, so that asyncio does not complain
        else:
            self.change.cancel()


def _differ(saw: Standing, now: Standing) -> bool:
    """A lease that was renewed does not count: that happens all the time, and changes nothing."""
    return (saw.status, saw.updated_at) != (now.status, now.updated_at) or (
        now.status is not Status.RUNNING and saw.wake_at != now.wake_at
    )


class Endings:
    """Event loop only."""

    def __init__(self) -> None:
        self._recent: OrderedDict[int, Ending] = OrderedDict()
        self._bytes = 0
        self._waiters: dict[int, dict[Waiter, None]] = {}
        self._closed = False

    def ended(self, key: RunKey, ending: Ending) -> None:
        """A run ended here."""
        for waiter in self._waiters.get(key.incarnation, ()):
            waiter.tell(ending)
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
        for waiter in self._waiters.get(key.incarnation, ()):
            waiter.tell(None)

    def watched(self) -> list[int]:
        """The runs to be looked at for those who wait, by incarnation."""
        found: list[int] = []
        for incarnation, line in self._waiters.items():
            for waiter in line:
                if waiter.watched and not waiter.change.done():
                    found.append(incarnation)
                    break
        return found

    def stand(self, asked: Sequence[int], found: Mapping[int, Standing]) -> None:
        """A look that began after these were listed: whoever saw their run stand otherwise shall look again."""
        for incarnation in asked:
            for waiter in self._waiters.get(incarnation, ()):
                waiter.stands(found.get(incarnation))

    def __len__(self) -> int:
        return len(self._waiters)

    async def look(self, store: Store) -> None:
        """Tell those whose run stands otherwise than they saw."""
        asked = self.watched()
        if asked:
            self.stand(asked, await store.standing(asked))

    def recent(self, incarnation: int) -> Ending | None:
        """The end of a run that ended here lately."""
        return self._recent.get(incarnation)

    def waiting(self) -> bool:
        return bool(self._waiters)

    def close(self) -> None:
        """Nothing is told here any more: whoever waits would wait for ever."""
        self._closed = True
        for line in self._waiters.values():
            for waiter in line:
                if not waiter.change.done():
                    waiter.change.set_exception(_closed())

    @contextmanager
    def listen(self, incarnation: int, watched: frozenset[Status] = frozenset()) -> Generator[Waiter]:
        """To be told of the run's next change, for as long as this lasts. Listen first, then read the run, then wait.

        `watched`: what the run is looked at for, if it is not held here: only a change to one of these is told.
        Raises `UsageError`, as does the waiter's `change`, where the app was closed.
        """
        if self._closed:
            raise _closed()
        waiter = Waiter(watched)
        self._waiters.setdefault(incarnation, {})[waiter] = None
        try:
            yield waiter
        finally:
            line = self._waiters[incarnation]
            del line[waiter]
            if not line:
                del self._waiters[incarnation]
            waiter.leave()

    def _drop(self, incarnation: int) -> None:
        ending = self._recent.pop(incarnation, None)
        if ending is not None:
            self._bytes -= _size(ending)


def _size(ending: Ending) -> int:
    return len(ending.output or b"")


def _closed() -> UsageError:
    return UsageError("the app was closed, so it cannot tell how the run ends; the run is not touched by that")
