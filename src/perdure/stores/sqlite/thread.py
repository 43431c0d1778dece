"""A thread that owns one connection and does the jobs it is given, as many at a time as have come."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from queue import Empty, SimpleQueue
from threading import Thread
from typing import Any, Protocol, TypeAlias

from perdure.model.commit import Write
from perdure.stores.sqlite.forking import CROSSING


class Batch:
    """Writes to apply, in order; the result is the list of their answers."""

    __slots__ = ("future", "writes")

    def __init__(self, writes: Sequence[Write], future: asyncio.Future[Any]) -> None:
        self.writes = writes
        self.future = future


class Call:
    """Something else to do: with the open transaction (on the writer), with the connection (on a reader)."""

    __slots__ = ("action", "future")

    def __init__(self, action: Callable[[Any], Any], future: asyncio.Future[Any] | None = None) -> None:
        self.action = action
        self.future = future


Job: TypeAlias = Batch | Call

#: A job's future (None: nobody waits), its result, and its error in place of one.
Outcome: TypeAlias = tuple["asyncio.Future[Any] | None", Any, BaseException | None]


class Desk(Protocol):
    """What a thread does. All methods are called on the thread."""

    def open(self) -> None: ...

    def serve(self, jobs: Sequence[Job]) -> list[Outcome]:
        """One outcome a job. What it raises is told to all."""
        ...

    def close(self) -> None: ...


#: So many jobs at most are served at once.
_MOST: int = 1000


class ConnectionThread:
    """Start, put jobs, stop: from the loop that `start` was called on. Results come to that loop, one call for all."""

    def __init__(self, name: str, desk: Desk) -> None:
        self._name = name
        self._desk = desk
        self._queue: SimpleQueue[Job | None] = SimpleQueue()
        self._thread: Thread | None = None
        self._closed: asyncio.Future[Any] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    async def start(self) -> None:
        """Raises what the desk's `open` raises."""
        CROSSING.guard()
        self._loop = asyncio.get_running_loop()
        opened = self._loop.create_future()
        self._closed = self._loop.create_future()
        self._thread = Thread(target=self._main, args=(opened, self._closed), name=self._name, daemon=True)
        self._thread.start()
        try:
            await opened
        except asyncio.CancelledError:
            self._queue.put(None)
            raise
        except BaseException:
            self._thread.join()
            raise

    async def write(self, writes: Sequence[Write]) -> Any:
        """The answers to a batch."""
        assert self._loop is not None  # it was started
        future: asyncio.Future[Any] = self._loop.create_future()
        self._queue.put(Batch(writes, future))
        return await future

    async def call(self, action: Callable[[Any], Any]) -> Any:
        """What `action` returns."""
        assert self._loop is not None
        future: asyncio.Future[Any] = self._loop.create_future()
        self._queue.put(Call(action, future))
        return await future

    def tell(self, action: Callable[[Any], Any]) -> None:
        """As `call`, from any thread, for nobody to wait for."""
        self._queue.put(Call(action))

    async def stop(self) -> None:
        """Everything that was put before is done first."""
        if self._thread is None or self._closed is None:
            return
        self._queue.put(None)
        await self._closed
        self._thread.join()  # It has nothing left to do.
        self._thread = None

    def _main(self, opened: asyncio.Future[Any], closed: asyncio.Future[Any]) -> None:
        try:
            with CROSSING.inside():
                self._desk.open()
        except BaseException as error:
            self._resolve([(opened, None, error)])
            return
        self._resolve([(opened, None, None)])
        last = False
        while not last:
            jobs, last = self._next()
            if jobs:
                self._resolve(self._serve(jobs))
        with CROSSING.inside():
            self._desk.close()
        self._resolve([(closed, None, None)])

    def _serve(self, jobs: Sequence[Job]) -> list[Outcome]:
        try:
            with CROSSING.inside():
                return self._desk.serve(jobs)
        except BaseException as error:  # The thread goes on: whoever waits is told, and later jobs are served.
            return [(job.future, None, error) for job in jobs]

    def _next(self) -> tuple[list[Job], bool]:
        """Wait for a job and take all that have come with it; whether they are the last."""
        job = self._queue.get()
        jobs: list[Job] = []
        while job is not None:
            jobs.append(job)
            if len(jobs) == _MOST:
                return jobs, False
            try:
                job = self._queue.get_nowait()
            except Empty:
                return jobs, False
        return jobs, True

    def _resolve(self, outcomes: list[Outcome]) -> None:
        assert self._loop is not None
        try:
            self._loop.call_soon_threadsafe(_settle, outcomes)
        except RuntimeError:
            pass  # The loop is closed: nobody waits any more.


def _settle(outcomes: list[Outcome]) -> None:
    for future, result, error in outcomes:
        if future is None or future.done():  # nobody waits, or no more
            continue
        if error is None:
            future.set_result(result)
        else:
            future.set_exception(error)
