"""A deterministic asyncio loop: a queue of ready handles and virtual time, driven from outside one turn at a time.

Theory of operation. A workflow body is ordinary asyncio code. Its loop never polls and never sleeps: `drain` runs ready
handles until none is left, then control goes back to the host. What the body waits for are *operations*; a timer is one too
(`call_at` issues it through the host). The host delivers results one at a time and drains between two, so the order in which
the body sees the world is exactly the order that the history recorded.

What would leak the world into the body, and what is done about it:

* *Addresses.* Sets of tasks and futures iterate by hash. Ours hash by mix(seed, creation number). (Plain numbers would
  collide across runs in asyncio's process-wide task set.) `order` refuses what asyncio makes by itself.
* *The collector.* An async generator that the body lets go of is closed in a task of its own, as always in asyncio; one that
  is part of a reference cycle is not, since only chance says when the collector comes by.
* *I/O and threads.* Every loop method that is not made for a workflow raises `ForbiddenInWorkflow`.
* *The host's loop.* `enter` swaps the running loop, the current task (kept per thread since Python 3.14) and the
  async-generator hooks, and puts them back.
* *Endless turns.* `drain` runs a bounded number of handles, so that a `sleep(0)` spin ends as a fault and not as a hang.
"""

from __future__ import annotations

import asyncio
import contextvars
import gc
import sys
from asyncio import events, tasks
from collections.abc import AsyncGenerator, Callable
from typing import Any, Protocol, TypeVar, TypeVarTuple

from perdure.core.order import check_new_future, check_new_task
from perdure.core.unwinding import unwind
from perdure.model.errors import ForbiddenInWorkflow

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

#: Handles one turn may run. A body that needs more in one turn is spinning.
TURN_HANDLES = 1_000_000

#: No timer is due later (microseconds): what every store's integer column holds. `sleep(math.inf)` is one that never fires.
FAR = 1 << 61

_MASK = (1 << 61) - 2  # what fits a hash without being folded, and is never -1


class Spin(BaseException):
    """A turn ran more handles than any sensible turn needs."""


class Host(Protocol):
    """What the loop needs from the instance that owns it."""

    def issue_timer(self, due: int, handle: TimerHandle) -> int:
        """A timer for `due` (microseconds) was asked for; returns its position."""
        ...

    def abandon(self, seq: int) -> None:
        """Nobody awaits operation `seq` any more."""
        ...

    def complain(self, what: str, error: BaseException | None) -> None:
        """Something went wrong in a task or callback of the body, and nobody looked at it."""
        ...


class _Nobody:
    """The host of a loop that was closed."""

    def issue_timer(self, due: int, handle: TimerHandle) -> int:
        return -1

    def abandon(self, seq: int) -> None:
        pass

    def complain(self, what: str, error: BaseException | None) -> None:
        pass


_NOBODY = _Nobody()


class TimerHandle(asyncio.TimerHandle):
    """A durable timer: the handle asyncio knows, and the operation behind it (-1: none, it is due at once)."""

    __slots__ = ("seq",)
    seq: int

    def __hash__(self) -> int:
        return hash((self.seq, self.when()))

    def __eq__(self, other: object) -> bool:
        return self is other


class Future(asyncio.Future[T]):
    """A future whose hash is the same in every replay."""

    __slots__ = ("number",)
    number: int

    def __hash__(self) -> int:
        return self.number


class OpFuture(Future[T]):
    """The future of an operation. Cancelling it abandons the operation."""

    __slots__ = ("seq",)
    seq: int

    def cancel(self, msg: Any | None = None) -> bool:
        if not super().cancel(msg):
            return False
        loop = self.get_loop()
        assert isinstance(loop, WorkflowLoop)
        loop.host.abandon(self.seq)
        return True


class Task(asyncio.Task[T]):
    """A task whose hash is the same in every replay."""

    __slots__ = ("number",)
    number: int

    def __hash__(self) -> int:
        return self.number


class WorkflowLoop(asyncio.AbstractEventLoop):
    """The loop of one workflow instance. Not thread-safe: one thread at a time, inside `enter`."""

    def __init__(self, host: Host, seed: int, handles: int) -> None:
        self.host = host
        #: Virtual now, microseconds.
        self.now = 0
        #: True once the instance is being dropped.
        self.closing = False
        self._ready: list[asyncio.Handle] = []
        self._seed = seed * 0x9E3779B97F4A7C15
        self._count = 0
        self._handles = handles
        self._tasks: list[Task[Any]] = []
        self._prune_at = 32
        #: True while the garbage collector is at work on this thread.
        self.collecting = False

    # -- driving ------------------------------------------------------------------------------------------------------

    def enter(self) -> _Entered:
        """Make this the running loop of the thread for a while."""
        return _Entered(self)

    def drain(self, stopped: Callable[[], bool]) -> None:
        """Run ready handles until none is left or `stopped()`. Inside `enter` only. Raises `Spin`."""
        budget = self._handles
        while self._ready:
            ready, self._ready = self._ready, []  # an empty deque would take 700 bytes of each parked run
            for handle in ready:
                if not handle.cancelled():
                    handle._run()
                    if stopped():
                        return
                budget -= 1
                if budget == 0:
                    raise Spin

    def stirred(self) -> bool:
        """True if something is ready, though no turn goes on."""
        return bool(self._ready)

    def fire(self, handle: TimerHandle) -> None:
        """A timer is due."""
        self._ready.append(handle)

    def live_tasks(self) -> list[Task[Any]]:
        """The tasks that are not done, oldest first."""
        return [task for task in self._tasks if not task.done()]

    def let_go(self) -> None:
        """The body has ended: forget its tasks, and say which of their errors nobody looked at.

        (Asyncio says so when a task is collected, which is a matter of the Python version.)
        """
        done = [task for task in self._tasks if task.done()]
        self._tasks = self.live_tasks()
        for task in done:
            if getattr(task, "_log_traceback", False) and not task.cancelled():
                self.host.complain("Task exception was never retrieved", task.exception())

    def close(self) -> None:
        """Drop the instance: unwind every coroutine. What a dying frame still awaits never comes, and nothing warns."""
        self.closing = True
        self._ready.clear()
        live = self.live_tasks()
        if live:  # an ended run has none
            with self.enter():
                for task in live:
                    self._unwind(task)
        self._ready.clear()
        self._tasks.clear()
        self.host = _NOBODY  # the instance goes now, not when the collector finds it

    def _unwind(self, task: Task[Any]) -> None:
        task._log_destroy_pending = False  # type: ignore[attr-defined]  # pyright: ignore[reportAttributeAccessIssue]
        tasks._enter_task(self, task)
        if not unwind(task.get_coro()):
            _STUBBORN.setdefault(self, []).append(task.get_coro())
        tasks._leave_task(self, task)
        tasks._unregister_task(task)

    def finalize(self, agen: AsyncGenerator[Any, Any]) -> None:
        """The body has let go of a generator that has not ended: close it as asyncio does, in a task of its own."""
        # One that the collector found, in a turn or between two, is just dropped: see the head of this module.
        if events._get_running_loop() is self and not self.collecting and not self.closing:
            self.create_task(agen.aclose())

    # -- what asyncio asks of a loop ----------------------------------------------------------------------------------

    def time(self) -> float:
        return self.now / 1_000_000

    def get_debug(self) -> bool:
        return False

    def is_running(self) -> bool:
        return True

    def is_closed(self) -> bool:
        return self.closing

    def call_soon(
        self, callback: Callable[[*Ts], object], *args: *Ts, context: contextvars.Context | None = None
    ) -> asyncio.Handle:
        handle = asyncio.Handle(callback, args, self, context)
        self._ready.append(handle)
        return handle

    def call_later(
        self, delay: float, callback: Callable[[*Ts], object], *args: *Ts, context: contextvars.Context | None = None
    ) -> asyncio.TimerHandle:
        return self._timer(min(self.now + _micros(delay), FAR), callback, args, context)

    def call_at(
        self, when: float, callback: Callable[[*Ts], object], *args: *Ts, context: contextvars.Context | None = None
    ) -> asyncio.TimerHandle:
        return self._timer(_micros(when), callback, args, context)

    def _timer(self, due: int, callback: Any, args: Any, context: contextvars.Context | None) -> TimerHandle:
        handle = TimerHandle(due / 1_000_000, callback, args, self, context)
        handle.seq = -1
        if due <= self.now:
            self._ready.append(handle)
        else:
            handle.seq = self.host.issue_timer(due, handle)
        return handle

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        assert isinstance(handle, TimerHandle)
        if handle.seq >= 0:
            self.host.abandon(handle.seq)

    def create_future(self) -> Future[Any]:
        check_new_future(sys._getframe(1))  # pyright: ignore[reportPrivateUsage]  (the one cheap way)
        future: Future[Any] = Future(loop=self)
        future.number = self._next_hash()
        return future

    def operation_future(self, seq: int) -> OpFuture[Any]:
        """The future of operation `seq`."""
        future: OpFuture[Any] = OpFuture(loop=self)
        future.number = self._next_hash()
        future.seq = seq
        return future

    def create_task(
        self, coro: Any, *, name: str | None = None, context: contextvars.Context | None = None, **options: Any
    ) -> Task[Any]:
        check_new_task(sys._getframe(1), coro)  # pyright: ignore[reportPrivateUsage]  (the one cheap way)
        if not asyncio.iscoroutine(coro):
            # A step call is a future already; `create_task(charge(order))` shall work as for any coroutine.
            coro = _await(coro)
        task: Task[Any] = Task.__new__(Task)  # pyright: ignore[reportUnknownVariableType]
        task.number = self._next_hash()  # before __init__, which puts the task into asyncio's process-wide set
        Task.__init__(  # pyright: ignore[reportUnknownMemberType]
            task, coro, loop=self, name=name or f"task-{self._count}", context=context
        )
        if self.closing:
            return _stillborn(task)
        self._tasks.append(task)
        if len(self._tasks) >= self._prune_at:
            self._tasks = self.live_tasks()  # the body may still ask those that are done
            self._prune_at = 2 * len(self._tasks) + 32
        return task

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        # What nobody asked of an operation is in the history. A task's own error is nowhere else.
        if not isinstance(context.get("future"), OpFuture):
            self.host.complain(context.get("message", "an error"), context.get("exception"))

    def _next_hash(self) -> int:
        self._count += 1
        return ((self._seed + self._count) * 0xBF58476D1CE4E5B9 >> 3) & _MASK


def _micros(seconds: float) -> int:
    if -FAR < seconds * 1_000_000 < FAR:
        return round(seconds * 1_000_000)
    if seconds != seconds:
        raise ValueError("a delay cannot be NaN")
    return FAR if seconds > 0 else -FAR


def _forbid(name: str) -> Callable[..., Any]:
    def forbidden(self: Any, *args: Any, **kwargs: Any) -> Any:
        raise ForbiddenInWorkflow(
            f"loop.{name} cannot be used in a workflow body: it would do I/O, use a thread or depend on this process. "
            "Put it in a step."
        )

    forbidden.__name__ = name
    return forbidden


for _name, _member in list(vars(asyncio.AbstractEventLoop).items()):
    if callable(_member) and not _name.startswith("__") and _name not in vars(WorkflowLoop):
        setattr(WorkflowLoop, _name, _forbid(_name))


def new_loop(host: Host, seed: int, handles: int | None = None) -> WorkflowLoop:
    """A loop for one instance. `handles` bounds a turn; None: as many as any sensible turn needs."""
    # Not abstract: whatever asyncio's interface has beyond the class's own methods was forbidden by name just above.
    return WorkflowLoop(host, seed, handles or TURN_HANDLES)  # type: ignore[abstract]


def _keep_current_task(loop: asyncio.AbstractEventLoop, task: Any) -> Any:
    """Before Python 3.14 current tasks are kept by loop: those of the host and of ours do not meet."""


_swap_current_task: Callable[[asyncio.AbstractEventLoop, Any], Any] = (
    getattr(tasks, "_swap_current_task", _keep_current_task) if sys.version_info >= (3, 14) else _keep_current_task
)


class _Entered:
    """A workflow's loop as the running one of this thread, in place of the host's. (A generator would take thrice the time.)"""

    __slots__ = ("_hooks", "_loop", "_outer", "_task")

    def __init__(self, loop: WorkflowLoop) -> None:
        self._loop = loop

    def __enter__(self) -> None:
        loop = self._loop
        self._outer = outer = events._get_running_loop()
        self._task = None if outer is None else _swap_current_task(outer, None)
        self._hooks = sys.get_asyncgen_hooks()
        events._set_running_loop(loop)
        sys.set_asyncgen_hooks(firstiter=_watch_collector, finalizer=loop.finalize)

    def __exit__(self, *raised: object) -> None:
        outer = self._outer
        sys.set_asyncgen_hooks(*self._hooks)
        events._set_running_loop(outer)
        if outer is not None:
            _swap_current_task(outer, self._task)


async def _await(future: Any) -> Any:
    return await future


def _watch_collector(agen: AsyncGenerator[Any, Any]) -> None:
    if _note_collection not in gc.callbacks:
        gc.callbacks.append(_note_collection)


def _note_collection(phase: str, info: dict[str, int]) -> None:
    loop = events._get_running_loop()
    if isinstance(loop, WorkflowLoop):
        loop.collecting = phase == "start"


def _stillborn(task: Task[Any]) -> Task[Any]:
    """One that a dying frame made: it never runs."""
    coro: Any = task.get_coro()
    coro.close()
    task._log_destroy_pending = False  # type: ignore[attr-defined]  # pyright: ignore[reportAttributeAccessIssue]
    tasks._unregister_task(task)
    return task


#: Bodies that swallow everything in a loop, so that they cannot be ended. Nor may the collector end them: it would wake them
#: outside their loop, where calling a step runs it.
_STUBBORN: dict[WorkflowLoop, list[Any]] = {}


def stubborn(loop: WorkflowLoop) -> bool:
    """True of a loop that was closed, but whose body could not be ended."""
    return loop in _STUBBORN
