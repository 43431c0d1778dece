"""The event loop of a simulated process: asyncio's own, but somebody outside decides when it runs, one callback at a time.

So a process can be killed, or stopped for a while, between any two callbacks, and nothing of it runs any more: no `finally`,
no cancellation. Many such loops share one thread, and one seed decides who is next.
"""

from __future__ import annotations

import asyncio
import heapq
import threading
from asyncio import events
from collections.abc import Callable
from typing import Any


class _NoSelector:
    """A simulated process has no sockets."""

    def select(self, timeout: float | None) -> list[Any]:
        return []

    def close(self) -> None: ...


class HostLoop(asyncio.BaseEventLoop):
    """`time` gives its seconds. Nothing runs but in `step`."""

    def __init__(self, time: Callable[[], float], trouble: Callable[[str], None]) -> None:
        super().__init__()
        self._seconds = time
        self._selector = _NoSelector()
        self.set_exception_handler(lambda loop, context: trouble(_told(context)))

    def time(self) -> float:
        return self._seconds()

    def has_work(self) -> bool:
        """True if something is ready to run now."""
        scheduled: list[asyncio.TimerHandle] = self._scheduled  # type: ignore[attr-defined]
        while scheduled and (scheduled[0].cancelled() or scheduled[0].when() <= self.time()):
            handle = heapq.heappop(scheduled)
            handle._scheduled = False  # type: ignore[attr-defined]
            if not handle.cancelled():
                self._ready.append(handle)  # type: ignore[attr-defined]
        return bool(self._ready)  # type: ignore[attr-defined]

    def next_timer(self) -> float | None:
        """When the earliest timer fires."""
        self.has_work()
        return self._scheduled[0].when() if self._scheduled else None  # type: ignore[attr-defined]

    def step(self) -> None:
        """Run the next ready callback, if there is one."""
        if not self.has_work():
            return
        handle: asyncio.Handle = self._ready.popleft()  # type: ignore[attr-defined]
        if handle.cancelled():
            return
        self._thread_id = threading.get_ident()
        events._set_running_loop(self)
        try:
            handle._run()
        finally:
            events._set_running_loop(None)
            self._thread_id = None  # type: ignore[assignment]

    def _write_to_self(self) -> None: ...

    def _process_events(self, event_list: list[Any]) -> None: ...


def _told(context: dict[str, Any]) -> str:
    return f"{context.get('message')}: {context.get('exception')!r}"


def bury(loop: HostLoop) -> None:
    """Let go of what a dead loop still holds, without a word."""
    events._set_running_loop(loop)
    try:
        for task in asyncio.all_tasks(loop):
            task._log_destroy_pending = False  # type: ignore[attr-defined]
            _unwind(task.get_coro())
    finally:
        events._set_running_loop(None)
    loop.close()


class _Buried(BaseException):
    """Ends the coroutines of a dead process."""


def _unwind(coro: Any) -> None:
    # Not `close`, which drops the inner frames of one that awaits something on its way out.
    for _ in range(100):
        try:
            coro.throw(_Buried())
        except BaseException:
            return
