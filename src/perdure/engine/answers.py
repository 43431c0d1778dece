"""Waiting for what runs answer to updates: one reader a run, however many wait, and none where the answer is given here.

An answer is a value of the run, committed with the turn that gave it. Whoever waits is told at once of what this process
commits; of all else the reader hears as those do who wait for a run's end (`endings`), and then reads the run, and all answers
that are waited for. None is missed: the reader listens, then reads, and reads again whenever somebody new has come.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from perdure.engine.endings import Endings
from perdure.engine.holdings import Holdings
from perdure.engine.means import Means
from perdure.engine.patience import Reads
from perdure.model.errors import RunNotFound
from perdure.model.run import TERMINAL, Run, RunKey, Status

_ANY = frozenset(Status)
_NONE = frozenset[Status]()


class _Line:
    """Those who wait for answers of one run."""

    __slots__ = ("reader", "waiting", "woken")

    def __init__(self) -> None:
        self.waiting: dict[str, list[asyncio.Future[bytes | Run]]] = {}
        #: Set when somebody new has come, nobody waits any more, or the run has changed.
        self.woken = asyncio.Event()
        self.reader: asyncio.Task[None] | None = None

    def wake(self, change: object) -> None:
        """There is something to read."""
        self.woken.set()

    def tell(self, key: str, outcome: bytes | Run) -> None:
        for future in self.waiting.pop(key, ()):
            if not future.done():
                future.set_result(outcome)

    def fail(self, error: Exception) -> None:
        waiting, self.waiting = self.waiting, {}
        for futures in waiting.values():
            for future in futures:
                if not future.done():
                    future.set_exception(error)


class Answers:
    """Event loop only."""

    def __init__(self, means: Means, reads: Reads, holdings: Holdings, endings: Endings) -> None:
        self._means = means
        self._reads = reads
        self._holdings = holdings
        self._endings = endings
        self._lines: dict[int, _Line] = {}

    def committed(self, run: RunKey, values: Iterable[tuple[str, bytes]]) -> None:
        """This process committed these values."""
        line = self._lines.get(run.incarnation)
        if line is not None:
            for key, data in values:
                line.tell(key, data)
            if not line.waiting:
                line.woken.set()

    async def wait(self, run: RunKey, key: str) -> bytes | Run:
        """The value of `run` under `key`, as soon as there is one; or the run, once it has ended without.

        Raises `RunNotFound` if it is deleted, and `UsageError` when the app is closed. While the store cannot be reached it
        waits on.
        """
        future: asyncio.Future[bytes | Run] = self._means.loop.create_future()
        line = self._lines.get(run.incarnation)
        if line is None:
            line = self._lines[run.incarnation] = _Line()
        line.waiting.setdefault(key, []).append(future)
        line.woken.set()
        if line.reader is None:
            line.reader = self._means.loop.create_task(self._read(run, line))
        try:
            return await future
        finally:
            futures = line.waiting.get(key)
            if futures is not None and future in futures:  # else told
                futures.remove(future)
                if not futures:
                    del line.waiting[key]
                    line.woken.set()  # perhaps nobody waits any more

    async def _read(self, run: RunKey, line: _Line) -> None:
        try:
            while line.waiting:
                await self._look(run, line)
        except Exception as error:
            line.fail(error)
        finally:
            del self._lines[run.incarnation]

    async def _look(self, run: RunKey, line: _Line) -> None:
        # One that is held here is not looked at: what it does is told here.
        watched = _NONE if run.incarnation in self._holdings else _ANY
        with self._endings.listen(run.incarnation, watched) as waiter:
            line.woken.clear()
            now = await self._reads.get(run.id, for_ever=True)
            if now is None or now.incarnation != run.incarnation:
                raise RunNotFound(f"there is no run {run.id!r} any more; it was deleted")
            # After the run: what an ended one has answered is all that it ever will.
            asked = list(line.waiting)
            for key, data in (await self._reads.answers(run, asked)).items():
                line.tell(key, data)
            if now.status in TERMINAL:
                for key in asked:  # Who came meanwhile was not looked for: that is for the next look.
                    line.tell(key, now)
                return
            waiter.saw(now)
            waiter.change.add_done_callback(line.wake)
            try:
                await line.woken.wait()
            finally:
                waiter.change.remove_done_callback(line.wake)
            if waiter.change.done():
                waiter.change.result()
