"""Daemon threads for synchronous steps: a step that never returns must not keep the process from ending."""

from __future__ import annotations

import asyncio
import contextvars
import queue
import threading
from collections.abc import Callable
from typing import Any, TypeAlias

from perdure.model.shown import told

#: What `_do` takes.
_Job: TypeAlias = tuple[
    contextvars.Context, Callable[[], Any], Callable[[], None], asyncio.AbstractEventLoop, "asyncio.Future[Any]"
]


class Threads:
    """Up to `limit` threads, started as they are needed. `run` and `close` from the event loop only."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._jobs: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._count = 0
        #: Threads that wait for a job, less the jobs that wait for one of them: whoever gives a job takes one off.
        self._idle = 0
        self._lock = threading.Lock()

    def run(
        self, context: contextvars.Context, call: Callable[[], Any], begun: Callable[[], None]
    ) -> asyncio.Future[Any]:
        """Run `call` in a thread, inside `context`; `begun` is called on the loop when it begins.

        Cancelling the future takes the job back if no thread has it yet; else its result is dropped, and the thread goes on.
        """
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Any] = loop.create_future()
        with self._lock:
            self._idle -= 1
            if self._idle < 0 and self._count < self._limit:
                self._count += 1
                self._idle += 1
                threading.Thread(target=self._work, name=f"perdure-step-{self._count}", daemon=True).start()
        self._jobs.put((context, call, begun, loop, future))
        return future

    def close(self) -> None:
        """Begin nothing more, and let idle threads end. Busy ones end after their step."""
        while True:
            try:
                self._jobs.get_nowait()
            except queue.Empty:
                break
        for _ in range(self._count):
            self._jobs.put(None)
        self._count = 0

    def _work(self) -> None:
        while True:
            job = self._jobs.get()
            if job is None:
                return
            try:
                _do(*job)
            except RuntimeError:
                return  # the loop is closed: nobody waits any more
            del job
            with self._lock:
                self._idle += 1


def _do(
    context: contextvars.Context,
    call: Callable[[], Any],
    begun: Callable[[], None],
    loop: asyncio.AbstractEventLoop,
    future: asyncio.Future[Any],
) -> None:
    if future.done():  # taken back; a look from another thread that comes too late only runs what was to run anyway
        return
    loop.call_soon_threadsafe(begun)
    result, error = None, None
    try:
        result = context.run(call)
    except BaseException as raised:
        error = raised
    loop.call_soon_threadsafe(_finish, future, result, error)


def _finish(future: asyncio.Future[Any], result: Any, error: BaseException | None) -> None:
    if future.done():
        return
    if error is None:
        future.set_result(result)
    elif isinstance(error, StopIteration):
        future.set_exception(RuntimeError(f"the step raised StopIteration: {told(error)}"))
    else:
        future.set_exception(error)
