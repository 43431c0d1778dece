"""Daemon threads for synchronous steps: a step that never returns must not keep the process from ending."""

from __future__ import annotations

import asyncio
import contextvars
import queue
import threading
from collections.abc import Callable
from typing import Any, TypeAlias

_Job: TypeAlias = "tuple[contextvars.Context, Callable[[], Any], asyncio.AbstractEventLoop, asyncio.Future[Any]] | None"


class Threads:
    """Up to `limit` threads, started as they are needed. `run` from the event loop only."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._jobs: queue.SimpleQueue[_Job] = queue.SimpleQueue()
        self._count = 0
        self._idle = 0
        self._lock = threading.Lock()

    def run(self, context: contextvars.Context, call: Callable[[], Any]) -> asyncio.Future[Any]:
        """Run `call` in a thread, inside `context`. Cancelling the future drops the result; the thread goes on."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Any] = loop.create_future()
        self._jobs.put((context, call, loop, future))
        with self._lock:
            if self._idle < self._jobs.qsize() and self._count < self._limit:
                self._count += 1
                threading.Thread(target=self._work, name=f"perdure-step-{self._count}", daemon=True).start()
        return future

    def close(self) -> None:
        """Let idle threads end. Busy ones end after their step."""
        with self._lock:
            for _ in range(self._count):
                self._jobs.put(None)
            self._count = 0

    def _work(self) -> None:
        while True:
            with self._lock:
                self._idle += 1
            job = self._jobs.get()
            with self._lock:
                self._idle -= 1
            if job is None:
                return
            context, call, loop, future = job
            del job
            result, error = None, None
            try:
                result = context.run(call)
            except BaseException as raised:
                error = raised
            try:
                loop.call_soon_threadsafe(_finish, future, result, error)
            except RuntimeError:
                return  # the loop is closed: nobody waits any more
            del context, call, loop, future, result, error


def _finish(future: asyncio.Future[Any], result: Any, error: BaseException | None) -> None:
    if future.done():
        return
    if error is None:
        future.set_result(result)
    elif isinstance(error, StopIteration):
        future.set_exception(RuntimeError(f"the step raised StopIteration: {error}"))
    else:
        future.set_exception(error)
