"""Running step attempts here: async ones as tasks, sync ones in threads, no more at once than allowed.

What comes of an attempt goes back to the executor; whether there is another one is the policy's decision, not ours. An attempt
that is cancelled, or stopped by the interpreter's own exceptions, leaves nothing behind: it is made again (FAULTS F44).
"""

from __future__ import annotations

import asyncio
import contextvars
from collections import deque
from typing import Protocol

from perdure.authoring.current import CurrentStep, running
from perdure.core.operation import Operation
from perdure.engine.held import QUEUED, Held
from perdure.engine.means import Means
from perdure.engine.threads import Threads
from perdure.model import values
from perdure.model.errors import NotRegistered, StepFailed, StepTimeout
from perdure.model.history import Op
from perdure.model.ids import step_id


class Report(Protocol):
    """Whoever wants to know what came of attempts (the executor). Event loop."""

    def succeeded(self, held: Held, operation: Operation, began: int, payload: bytes) -> None: ...
    def failed(self, held: Held, operation: Operation, began: int, error: BaseException) -> None: ...
    def vanished(self, held: Held, operation: Operation, error: BaseException) -> None: ...


class Steps:
    """The step attempts of one engine. Event loop only."""

    def __init__(self, means: Means, report: Report) -> None:
        self._means = means
        self._report = report
        self._threads = Threads(means.settings.max_threads)
        self._running = 0
        self._waiting: deque[tuple[Held, Operation]] = deque()
        self._context = contextvars.copy_context()

    @property
    def running(self) -> int:
        return self._running

    def start(self, held: Held, operation: Operation) -> None:
        """Make the next attempt of a step, as soon as there is room."""
        if self._running >= self._means.settings.max_steps:
            held.tasks[operation.seq] = QUEUED
            self._waiting.append((held, operation))
            return
        self._running += 1
        context = self._context.copy()
        attempt = operation.attempts + 1
        key = step_id(held.key.id, held.key.incarnation, operation.seq)
        info = CurrentStep(key, held.key.id, operation.name, operation.seq, attempt)
        context.run(running.set, info)
        task = self._means.loop.create_task(self._attempt(held, operation, context), context=context)
        held.tasks[operation.seq] = task

    def close(self) -> None:
        """Start nothing more."""
        self._waiting.clear()
        self._threads.close()

    async def _attempt(self, held: Held, operation: Operation, context: contextvars.Context) -> None:
        began = self._means.store.now()
        report = self._report
        try:
            payload = await self._bounded(held, operation, context)
        except asyncio.CancelledError as error:
            task = asyncio.current_task()
            if held.gone or (task is not None and task.cancelling()):
                return
            # Nobody cancelled it: the step's own code raised it.
            failure = StepFailed(
                "the step raised CancelledError, though nobody cancelled it", type="asyncio:CancelledError"
            )
            failure.__cause__ = error
            report.failed(held, operation, began, failure)
        except (KeyboardInterrupt, SystemExit, GeneratorExit) as error:
            report.vanished(held, operation, error)
        except BaseException as error:
            report.failed(held, operation, began, error)
        else:
            report.succeeded(held, operation, began, payload)
        finally:
            self._running -= 1
            self._next()

    async def _bounded(self, held: Held, operation: Operation, context: contextvars.Context) -> bytes:
        timeout = None if operation.policy is None else operation.policy.timeout
        if timeout is None:
            return await self._call(held, operation, context)
        # By our clock, as all time: `asyncio.timeout` alone would go by the loop's.
        loop, limit = asyncio.get_running_loop(), asyncio.timeout(None)
        alarm = self._means.clock.call_at(self._means.clock.now() + timeout, lambda: limit.reschedule(loop.time()))
        try:
            async with limit:
                return await self._call(held, operation, context)
        except TimeoutError as error:
            if not limit.expired():
                raise
            raise StepTimeout(
                f"step {operation.name!r} of run {held.key.id!r} took longer than its timeout of {timeout / 1_000_000:g} s"
            ) from error
        finally:
            alarm.cancel()

    async def _call(self, held: Held, operation: Operation, context: contextvars.Context) -> bytes:
        if operation.op is Op.LOCAL:
            return await self._closure(held, operation)
        if not self._means.registry.has_step(operation.name):
            raise NotRegistered(
                f"step {operation.name!r} of run {held.key.id!r} is not registered here, and remote steps require a "
                "transport; include the module that defines it"
            )
        definition = self._means.registry.step(operation.name)
        args, kwargs = definition.signature.unbind(operation.payload or b"null")
        if definition.is_async:
            result = await definition.fn(*args, **kwargs)
        else:
            result = await self._threads.run(context.copy(), lambda: definition.fn(*args, **kwargs))
        return definition.signature.encode_result(result)

    async def _closure(self, held: Held, operation: Operation) -> bytes:
        assert operation.call is not None
        result = operation.call()
        if asyncio.iscoroutine(result) or asyncio.isfuture(result):
            result = await result
        what = f"result of local step {operation.name!r} of run {held.key.id!r}"
        return values.encode(result, what=what)

    def _next(self) -> None:
        while self._waiting and self._running < self._means.settings.max_steps:
            held, operation = self._waiting.popleft()
            if held.tasks.get(operation.seq) is QUEUED:
                self.start(held, operation)
