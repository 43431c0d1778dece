"""Running step attempts here: async ones as tasks, sync ones in threads, no more at once than allowed.

What comes of an attempt goes back to the executor; whether there is another one is the policy's decision, not ours. An attempt
that is cancelled, or stopped by the interpreter's own exceptions, leaves nothing behind: it is made again (FAULTS F44).
"""

from __future__ import annotations

import asyncio
import contextvars
import logging
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any, Protocol

from perdure.authoring.current import CurrentStep, Stop, current_step, running, stop
from perdure.authoring.journal import Journal, journal
from perdure.authoring.stream import outlet
from perdure.authoring.transacting import Transaction
from perdure.core.operation import Operation
from perdure.engine.around import Proceed
from perdure.engine.held import QUEUED, Held
from perdure.engine.means import Means
from perdure.engine.outlet import Outlet, Outlets
from perdure.engine.threads import Threads
from perdure.engine.transactions import Transactions
from perdure.model.carrier import decode_carrier
from perdure.model.errors import CompensationTimeout, NotRegistered, StepFailed, StepTimeout, UsageError
from perdure.model.history import Op
from perdure.model.ids import step_id
from perdure.ports.clock import Alarm

log = logging.getLogger("perdure.engine")


class Report(Protocol):
    """Whoever wants to know what came of attempts (the executor). Event loop."""

    def succeeded(self, held: Held, operation: Operation, began: int, payload: bytes, said: bytes | None) -> None: ...
    def failed(
        self, held: Held, operation: Operation, began: int, error: BaseException, said: bytes | None
    ) -> None: ...
    def vanished(self, held: Held, operation: Operation, error: BaseException) -> None: ...


class Steps:
    """The step attempts of one engine. Event loop only."""

    def __init__(self, means: Means, report: Report, sure: Callable[[Held], bool], outlets: Outlets) -> None:
        self._means = means
        #: False: the run may not be ours any more. What has not begun is asked for again once that is known.
        self._sure = sure
        self._report = report
        self._outlets = outlets
        self._threads = Threads(means.settings.max_threads)
        self._transactions = Transactions(means, self._threads)
        self._running = 0
        self._waiting: deque[tuple[Held, Operation]] = deque()
        self._context = contextvars.copy_context()

    def start(self, held: Held, operation: Operation) -> None:
        """Make the next attempt of a step, as soon as there is room."""
        if self._running >= self._means.settings.max_steps:
            held.tasks[operation.seq] = QUEUED
            self._waiting.append((held, operation))
            return
        self._running += 1
        context = self._context.copy()
        kept, over = Journal(operation.attempts + 1, self._means.store.now), Stop()
        written = self._outlets.of(held, operation)
        context.run(_enter, current(held, operation), kept, over, written)
        task = self._means.loop.create_task(self._attempt(held, operation, kept, over, written), context=context)
        held.tasks[operation.seq] = task

    def close(self) -> None:
        """Start nothing more."""
        self._waiting.clear()
        self._threads.close()

    async def _attempt(self, held: Held, operation: Operation, kept: Journal, over: Stop, written: Outlet) -> None:
        began = self._means.store.now()
        outcome: bytes | BaseException
        try:
            outcome = await self._bounded(held, operation)
        except BaseException as error:
            outcome = error
        over.asked = True  # a thread may be at it still
        if written.used:
            outcome = await _flushed(written, outcome)
        written.close()
        task: asyncio.Task[None] | None = asyncio.current_task()
        try:
            # Whoever abandons the step, or lets its run go, takes the attempt from the run's tasks first. Then nobody asks.
            if not held.gone and held.tasks.get(operation.seq) is task:
                self._tell(held, operation, began, outcome, kept.close(), task)
        except Exception as error:
            log.exception("perdure: step %r cannot be reported; this is a fault in Perdure", operation.name)
            self._report.vanished(held, operation, error)
        finally:
            del outcome, task  # an error holds this frame
            self._running -= 1
            self._next()

    def _tell(
        self,
        held: Held,
        operation: Operation,
        began: int,
        outcome: bytes | BaseException,
        said: bytes | None,
        task: asyncio.Task[None] | None,
    ) -> None:
        report = self._report
        if isinstance(outcome, bytes):
            report.succeeded(held, operation, began, outcome, said)
        elif isinstance(outcome, KeyboardInterrupt | SystemExit | GeneratorExit):
            report.vanished(held, operation, outcome)
        elif not isinstance(outcome, asyncio.CancelledError):
            report.failed(held, operation, began, outcome, said)
        elif task is not None and task.cancelling():
            report.vanished(
                held, operation, outcome
            )  # the whole process is being stopped, or the step's task by its own code
        else:
            failure = StepFailed(
                "the step raised CancelledError, though nobody cancelled it", type="asyncio:CancelledError"
            )
            failure.__cause__ = outcome
            report.failed(held, operation, began, failure, said)

    async def _bounded(self, held: Held, operation: Operation) -> bytes:
        timeout = None if operation.policy is None else operation.policy.timeout
        given_up = timeout is None and operation.undoes
        if given_up:
            timeout = self._means.settings.compensation_timeout
        if timeout is None:
            return await self._call(held, operation, _nothing)
        # By our clock, as all time: `asyncio.timeout` alone would go by the loop's.
        means, limit = self._means, asyncio.timeout(None)
        alarms: list[Alarm] = []

        def run_out() -> None:
            limit.reschedule(means.loop.time())

        def begun() -> None:
            alarms.append(means.clock.call_at(means.clock.now() + timeout, run_out))

        try:
            async with limit:
                return await self._call(held, operation, begun)
        except TimeoutError as error:
            if not limit.expired():
                raise
            raise (CompensationTimeout if given_up else StepTimeout)(
                f"step {operation.name!r} of run {held.key.id!r} took longer than its timeout of {timeout / 1_000_000:g} s"
            ) from error
        finally:
            for alarm in alarms:
                alarm.cancel()

    async def _call(self, held: Held, operation: Operation, begun: Callable[[], None]) -> bytes:
        """`begun` is called when the function begins: a sync one may wait for a thread before."""
        run, encode = self._runner(held, operation, begun)
        hooks, step = self._means.hooks, current_step()
        if hooks.around:
            run = hooks.around.wrapped(step, run)
        restored = hooks.carriers.restore(step.carrier)
        if restored is None:
            return encode(await run())
        with restored:
            return encode(await run())
        raise UsageError("a context manager of a restore hook of app.carry swallowed what the step raised")

    def _runner(
        self, held: Held, operation: Operation, begun: Callable[[], None]
    ) -> tuple[Proceed, Callable[[Any], bytes]]:
        """What runs the step's function, and what encodes its result."""
        if operation.op is Op.LOCAL:
            call, encode = operation.call, operation.encode
            assert call is not None
            if isinstance(call, Transaction):
                return partial(self._transactions.run, held, operation, call, begun), call.encode

            async def closure() -> Any:
                begun()
                return await call()

            return closure, encode or _encoded
        name = operation.serves or operation.name
        if not self._means.registry.has_step(name):
            raise NotRegistered(
                f"step {name!r} of run {held.key.id!r} is not registered here, and remote steps require a "
                "transport; include the module that defines it"
            )
        definition = self._means.registry.step(name)
        signature = definition.signature

        async def function() -> Any:
            # Each time anew: a step may change what it was given.
            args, kwargs = signature.unbind(operation.payload or b"null")
            if definition.is_async:
                begun()
                return await definition.fn(*args, **kwargs)
            # With all that is set by now, also by interceptors.
            context = contextvars.copy_context()
            return await self._threads.run(context, lambda: definition.fn(*args, **kwargs), begun)

        return function, signature.encode_result

    def _next(self) -> None:
        while self._waiting and self._running < self._means.settings.max_steps:
            held, operation = self._waiting.popleft()
            if held.tasks.get(operation.seq) is not QUEUED:
                continue
            if self._sure(held):
                self.start(held, operation)
            else:
                del held.tasks[operation.seq]


def current(held: Held, operation: Operation) -> CurrentStep:
    """The attempt that is to be made next, as the step sees it."""
    run, key = held.instance.run, held.key
    return CurrentStep(
        step_id(key.id, key.incarnation, operation.seq),
        key.id,
        operation.name,
        operation.seq,
        operation.attempts + 1,
        run.workflow,
        run.version,
        run.namespace,
        operation.op is Op.LOCAL,
        decode_carrier(run.carrier),
    )


def _enter(step: CurrentStep, kept: Journal, over: Stop, written: Outlet) -> None:
    running.set(step)
    journal.set(kept)
    stop.set(over)
    outlet.set(written)


async def _flushed(written: Outlet, outcome: bytes | BaseException) -> bytes | BaseException:
    """What came of the attempt, once all that it wrote to streams is durable."""
    if isinstance(outcome, BaseException) and not isinstance(outcome, Exception):
        return outcome  # it is being stopped
    try:
        await written.written()
    except BaseException as error:
        if isinstance(outcome, bytes) or not isinstance(error, Exception):
            return error
    return outcome


def _nothing() -> None:
    """Nobody wants to know when the step begins."""


def _encoded(result: bytes) -> bytes:
    """What gives its result's bytes itself."""
    return result
