"""The workflow loop under CPython's own tests: virtual time, and what those tests expect of a loop that drives itself.

Everything that a test sees of tasks, futures, handles and timers is the workflow loop's. What is added here is only what the
engine does for an instance (deliver timers, drain), and what a host's loop has and a workflow's must not.
"""

from __future__ import annotations

import asyncio
from asyncio import events
from collections.abc import Callable, Generator
from heapq import heappop, heappush
from typing import Any

from perdure.core import loop as core

#: How many loops were made, and handles run: a suite that does not run on them proves nothing.
MADE: dict[str, int] = {"loops": 0, "handles": 0}

TimeGenerator = Callable[[], Generator[float | None, float, None]]


class Timers:
    """The host of a loop: keeps its timers, as an instance keeps them as operations."""

    def __init__(self) -> None:
        self.open: dict[int, tuple[int, core.TimerHandle]] = {}
        self._heap: list[tuple[int, int]] = []
        self._count = 0
        #: Absolute times (seconds) of the timers asked for since `asked` was last emptied.
        self.asked: list[float] = []

    def issue_timer(self, due: int, handle: core.TimerHandle) -> int:
        self._count += 1
        self.open[self._count] = (due, handle)
        heappush(self._heap, (due, self._count))
        self.asked.append(handle.when())
        return self._count

    def complain(self, what: str, error: BaseException | None) -> None:
        """Nobody is told."""

    def abandon(self, seq: int) -> None:
        self.open.pop(seq, None)

    def next_due(self) -> int | None:
        while self._heap and self._heap[0][1] not in self.open:
            heappop(self._heap)
        return self._heap[0][0] if self._heap else None

    def take_due(self, now: int) -> list[core.TimerHandle]:
        taken: list[core.TimerHandle] = []
        while (due := self.next_due()) is not None and due <= now:
            taken.append(self.open.pop(heappop(self._heap)[1])[1])
        return taken


class DrivenLoop(core.WorkflowLoop):
    """A workflow loop that drives itself, in virtual time that begins at 0."""

    _default_executor = None

    def __init__(self, time: TimeGenerator | None = None) -> None:
        self.timers = Timers()
        super().__init__(self.timers, seed=MADE["loops"], handles=core.TURN_HANDLES)
        MADE["loops"] += 1
        self._advances = None if time is None else time()
        if self._advances is not None:
            next(self._advances)
        self._stopping = False
        self._running = False
        self._ended = False
        self._on_error: Any = None

    # -- driving ------------------------------------------------------------------------------------------------------

    def run_until_complete(self, future: Any) -> Any:
        self._check()
        task = asyncio.ensure_future(future, loop=self)
        task.add_done_callback(self._done)
        try:
            self.run_forever()
        finally:
            task.remove_done_callback(self._done)
        if not task.done():
            raise RuntimeError("Event loop stopped before Future completed.")
        return task.result()

    def _done(self, future: asyncio.Future[Any]) -> None:
        self.stop()

    def run_forever(self) -> None:
        self._check()
        if self._running or events._get_running_loop() is not None:
            raise RuntimeError("This event loop is already running")
        self._running = True
        try:
            with self.enter():
                while True:
                    self._iterate()
                    if self._stopping:
                        return
        finally:
            self._running = self._stopping = False

    def _iterate(self) -> None:
        """One iteration as other loops have it: what is ready now; what becomes ready by it is for the next."""
        for handle in self.timers.take_due(self.now):
            self.fire(handle)
        if not self._ready and not self._stopping:
            due = self.timers.next_due()
            if due is None:
                raise AssertionError("nothing is ready and no timer is pending: the test would wait for ever")
            self.now = max(self.now, due)
            return
        MADE["handles"] += len(self._ready)
        reached: list[bool] = []
        super().call_soon(reached.append, True)
        self.drain(lambda: bool(reached))
        self._advance()

    def _advance(self) -> None:
        """Time passes as the test says, for each timer that it has asked for."""
        asked, self.timers.asked = self.timers.asked, []
        if self._advances is None:
            return
        for when in asked:
            try:
                self.advance_time(self._advances.send(when) or 0)
            except StopIteration:
                return

    def advance_time(self, seconds: float) -> None:
        self.now += round(seconds * 1_000_000)

    def _run_once(self) -> None:
        with self.enter():
            self._iterate()

    def stop(self) -> None:
        self._stopping = True

    def close(self) -> None:
        if self._running:
            raise RuntimeError("Cannot close a running event loop")
        self._ended = True
        self._ready.clear()

    def _check(self) -> None:
        if self._ended:
            raise RuntimeError("Event loop is closed")

    # -- what a host's loop has ---------------------------------------------------------------------------------------

    def is_running(self) -> bool:
        return self._running

    def is_closed(self) -> bool:
        return self._ended

    def call_soon(self, callback: Any, *args: Any, context: Any = None) -> asyncio.Handle:  # type: ignore[override]
        self._check()
        return super().call_soon(callback, *args, context=context)

    def set_debug(self, enabled: bool) -> None:
        """There is no debug mode."""

    def set_task_factory(self, factory: Any) -> None:
        """Tasks are the workflow loop's own."""

    def get_task_factory(self) -> None:
        return None

    def set_exception_handler(self, handler: Any) -> None:
        self._on_error = handler

    def get_exception_handler(self) -> Any:
        return self._on_error

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        if self._on_error is not None:
            self._on_error(self, context)

    async def shutdown_asyncgens(self) -> None:
        """Generators end with the body."""

    async def shutdown_default_executor(self, timeout: float | None = None) -> None:
        """There is none."""


def new_loop(time: TimeGenerator | None = None) -> DrivenLoop:
    """A loop for a test; `time` says how time passes in it."""
    return DrivenLoop(time)  # type: ignore[abstract]  # see perdure.core.loop.new_loop


# Named as what they stand for: some tests look at the text of a task.


class Future(core.Future[Any]):
    """A future of the workflow loop, made without asking the loop."""

    def __init__(self, *, loop: Any = None) -> None:
        super().__init__(loop=loop)
        self.number = id(self)


class Task(core.Task[Any]):
    """A task of the workflow loop, made without asking the loop."""

    def __new__(cls, *args: Any, **options: Any) -> Task:
        task = super().__new__(cls)
        task.number = id(task)
        return task
