"""One run in memory: a body on its deterministic loop, advanced a turn at a time.

`begin` runs the body to its first stop, `replay` brings it to where a history left it, `advance` takes in what the world
brought. Each returns (or completes) a `Turn`. An instance never raises for what user code does; only what the interpreter
itself wants to stop (KeyboardInterrupt, SystemExit) goes through, and the instance is lost then.

The same history gives the same operations, whether it was lived through or replayed: results are delivered one at a time and
the ready queue drains between two.
"""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Callable, Coroutine, Sequence
from heapq import heappop, heappush
from random import Random
from typing import Any

from perdure.core.inbox import Inbox, Key, child_key, message_key, signal_key, token_key
from perdure.core.loop import Closing, Halt, OpFuture, Spin, Task, TimerHandle, WorkflowLoop
from perdure.core.operation import Operation
from perdure.core.replay import Recorded, revive
from perdure.core.turn import (
    Arrival,
    Blocked,
    Body,
    Cancelled,
    Completed,
    Continued,
    Failed,
    StepDone,
    Turn,
)
from perdure.model.errors import (
    ChildFailed,
    DeadlockError,
    ForbiddenInWorkflow,
    NonDeterminismError,
    PerdureError,
    SignalTimeout,
)
from perdure.model.failure import Failure, capture, decode_failure, encode_failure, restore
from perdure.model.history import Entry, Event, Op
from perdure.model.messages import Message, MessageKind
from perdure.model.policy import RetryPolicy
from perdure.model.run import NewRun

#: The position of entries that belong to no operation.
NO_SEQ = -1

#: How often a dying body is told so at its operations before they just never resolve (it swallows everything in a loop).
_LAST_WORDS = 100


class ContinueAsNew(BaseException):
    """Unwinds the body: its run goes on as another link."""


class Instance:
    """The body of one run, its loop, its open operations and its unread messages. One thread at a time."""

    def __init__(self, run: NewRun, body: Body, *, handles: int | None = None) -> None:
        self.run = run
        self.loop = WorkflowLoop(self, run.seed) if handles is None else WorkflowLoop(self, run.seed, handles)
        #: Open operations by position, oldest first.
        self.pending: dict[int, Operation] = {}
        #: Those of them that are steps.
        self.steps: dict[int, Operation] = {}
        self.inbox = Inbox()
        #: What the authoring layer hangs on its instance: the user's context object.
        self.context: Any = None
        self._body = body
        self._main: Task[Any] | None = None
        self._seq = 0
        self._turn = Turn()
        self._recorded: Recorded | None = None
        #: What can be delivered without the world: children that cannot start, keys whose message and wait may have met.
        self._deliverable: list[Operation | Key] = []
        self._due: list[tuple[int, int]] = []
        self._fault: PerdureError | None = None
        self._cancelled = False
        self._finishing = False
        self._successor: NewRun | None = None
        self._patches: dict[str, bool] = {}
        self._random: Random | None = None
        self._last_words = 0

    # -- turns --------------------------------------------------------------------------------------------------------

    def begin(self, now: int) -> Turn:
        """Run the body from its first line to its first stop. `now` is the run's first virtual now."""
        self._turn = Turn()
        self.loop.now = now
        with self.loop.enter():
            self._start()
            self._settle_down()
        return self._finish()

    def advance(self, arrivals: Sequence[Arrival], now: int) -> Turn:
        """Take in what arrived and what is due at `now` (microseconds, the store's), one at a time; run to the next stop."""
        self._turn = Turn()
        self.loop.now = max(self.loop.now, now)
        with self.loop.enter():
            for event in self._in_order(arrivals):
                self._take(event)
                if self._stopped():
                    break
        return self._finish()

    def replay(self, entries: Sequence[Entry], started_at: int) -> Turn:
        """Bring a new instance to where its history left it. The turn's outcome is Blocked if the code does not fit.

        A history with an END entry comes back with the outcome the body reached.
        """
        entries = revive(entries)
        recorded = self._recorded = Recorded(self.run.id, entries)
        self.loop.now = started_at
        with self.loop.enter():
            self._start()
            self._drain()
            for entry in entries:
                if entry.event in _DELIVERED and not self._replay_one(entry, recorded):
                    break
                _note_attempt(self.pending.get(entry.seq), entry)
            if self._fault is None:
                ended = self._main is not None and self._main.done()
                self._fault = recorded.check_complete(self._seq, self.pending.keys(), ended, self._main_error())
        turn = self._finish()
        self._recorded = None
        turn.entries.clear()
        return turn

    def next_due(self) -> int | None:
        """When the earliest open timer or bounded wait is due; None without one."""
        while self._due and self._due[0][1] not in self.pending:
            heappop(self._due)
        return self._due[0][0] if self._due else None

    def listening(self) -> bool:
        """True if a message could resolve an open operation."""
        return self.inbox.waiting()

    def close(self) -> None:
        """Drop the instance. Nothing that a dying frame awaits runs; its plain `finally` lines do."""
        self.loop.close()
        self.pending.clear()
        self.steps.clear()
        self._main = None

    def describe(self) -> str:
        """For messages."""
        return f"run {self.run.id!r} ({self.run.workflow}@{self.run.version})"

    # -- what the body (through the authoring layer) asks for -------------------------------------------------------------

    def step(self, name: str, input: bytes, *, policy: RetryPolicy, decode: Callable[[bytes], Any]) -> OpFuture[Any]:
        """Run a registered step."""
        operation = self._issue(Op.STEP, name, input)
        operation.policy = policy
        return self._future(operation, decode)

    def local(
        self, name: str, call: Callable[[], Any], *, policy: RetryPolicy, decode: Callable[[bytes], Any]
    ) -> OpFuture[Any]:
        """Run a closure of the body as a step, where the body runs."""
        operation = self._issue(Op.LOCAL, name)
        operation.policy = policy
        operation.call = call
        return self._future(operation, decode)

    def signal(
        self, name: str, *, token: str | None, timeout: int | None, decode: Callable[[bytes], Any]
    ) -> OpFuture[Any]:
        """Wait for a signal by name, or for one to a token, at most `timeout` microseconds."""
        due = None if timeout is None else self.loop.now + timeout
        operation = self._issue(Op.SIGNAL, name, None if token is None else token.encode(), due)
        operation.key = signal_key(name) if token is None else token_key(token)
        self._wait(operation)
        return self._future(operation, decode)

    def child(self, run: NewRun, *, decode: Callable[[bytes], Any], refusal: Failure | None = None) -> OpFuture[Any]:
        """Start a child (or join one of the same id) and wait for its end. `refusal`: it cannot start, and why."""
        operation = self._issue(Op.CHILD, run.id, run.input)
        operation.child = run
        return self._await_child(operation, decode, refusal)

    def spawn(self, run: NewRun) -> None:
        """Start a child and do not wait."""
        self._issue(Op.SPAWN, run.id, run.input).child = run

    def join(self, child_id: str, *, decode: Callable[[bytes], Any], refusal: Failure | None = None) -> OpFuture[Any]:
        """Wait for the end of a child started before."""
        return self._await_child(self._issue(Op.JOIN, child_id), decode, refusal)

    def set_value(self, key: str, value: bytes) -> None:
        """Publish a value."""
        self._issue(Op.VALUE, key, value)

    def patched(self, patch: str) -> bool:
        """True if this run takes the new path of a change: it was marked so, or has not been here before."""
        known = self._patches.get(patch)
        if known is None:
            if not self._alive():
                return True
            if self._recorded is not None:
                known = patch in self._recorded.markers
            else:
                known = True
                self._turn.entries.append(Entry(Event.MARKER, NO_SEQ, None, patch, None, self.loop.now))
            self._patches[patch] = known
        return known

    def continue_as_new(self, successor: NewRun) -> None:
        """End this run and go on as `successor`. Never returns."""
        if not self._alive():
            raise ContinueAsNew
        if self._in_subtask():
            raise ForbiddenInWorkflow(
                f"continue_as_new was called in a task of {self.describe()}; call it in the workflow function itself"
            )
        self._successor = successor
        raise ContinueAsNew

    @property
    def random(self) -> Random:
        """The run's own generator: the same numbers in every replay. Not for secrets."""
        if self._random is None:
            self._random = Random(self.run.seed)
        return self._random

    @property
    def now(self) -> int:
        """Virtual now, microseconds."""
        return self.loop.now

    def reserve(self) -> int:
        """The position that the next operation will take."""
        return self._seq

    # -- what the loop asks for ---------------------------------------------------------------------------------------

    def issue_timer(self, due: int, handle: TimerHandle) -> int:
        operation = self._issue(Op.TIMER, "timer", None, due)
        operation.target = handle
        self._open(operation)
        return operation.seq

    def abandon(self, seq: int) -> None:
        operation = self.pending.pop(seq, None)
        if operation is None:
            return
        self.steps.pop(seq, None)
        operation.target = None
        self.inbox.unwait(operation)
        if self._recorded is None and not self.loop.closing:
            self._turn.abandoned.append(operation)
            self._turn.entries.append(Entry(Event.ABANDONED, seq, operation.op, operation.name, None, self.loop.now))

    # -- issuing ------------------------------------------------------------------------------------------------------

    def _issue(self, op: Op, name: str, payload: bytes | None = None, due: int | None = None) -> Operation:
        if not self._alive():
            return Operation(NO_SEQ, op, name)
        operation = Operation(self._seq, op, name, payload, due)
        operation.since = self.loop.now
        if self._recorded is None:
            self._turn.issued.append(operation)
            self._turn.entries.append(
                Entry(Event.SCHEDULED, operation.seq, op, name, payload, self.loop.now, operation.due)
            )
        else:
            fault = self._recorded.match(operation)
            if fault is not None:
                self._fault = fault
                raise Halt
        self._seq += 1
        return operation

    def _alive(self) -> bool:
        """False if the body is to get an operation that never resolves; raises in a body that shall end here."""
        if not self.loop.closing and self._fault is None:
            return True
        self._last_words += 1
        if self._last_words < _LAST_WORDS:
            raise Closing if self.loop.closing else Halt
        return False

    def _future(self, operation: Operation, decode: Callable[[bytes], Any]) -> OpFuture[Any]:
        future = self.loop.operation_future(operation.seq)
        operation.target = future
        operation.decode = decode
        self._open(operation)
        return future

    def _open(self, operation: Operation) -> None:
        if operation.seq == NO_SEQ:
            return
        self.pending[operation.seq] = operation
        if operation.policy is not None:
            self.steps[operation.seq] = operation
        if operation.due is not None:
            heappush(self._due, (operation.due, operation.seq))

    def _await_child(
        self, operation: Operation, decode: Callable[[bytes], Any], refusal: Failure | None
    ) -> OpFuture[Any]:
        if refusal is None or self._recorded is not None:
            operation.key = child_key(operation.name)
            self._wait(operation)
        else:
            operation.refusal = refusal
            operation.child = None
            self._deliverable.append(operation)
        return self._future(operation, decode)

    def _wait(self, operation: Operation) -> None:
        if operation.seq != NO_SEQ and self.inbox.wait(operation) and operation.key is not None:
            self._deliverable.append(operation.key)

    def _in_subtask(self) -> bool:
        main = self._main
        return main is not None and asyncio.current_task(self.loop) is not main

    # -- running ------------------------------------------------------------------------------------------------------

    def _start(self) -> None:
        # A context of its own: what the host's caller had set must not steer a body that may be replayed elsewhere.
        contextvars.Context().run(self._make_main)

    def _make_main(self) -> None:
        self._main = self.loop.create_task(_run(self._body, self), name=self.run.workflow)

    def _drain(self) -> None:
        """Run what is ready; when the body has ended, cancel what it left behind, as `asyncio.run` does."""
        try:
            self.loop.drain(self._stopped)
            if self._main is not None and self._main.done() and not self._finishing and self._fault is None:
                self._finishing = True
                for task in self.loop.live_tasks():
                    task.cancel()
                self.loop.drain(self._stopped)
        except Spin:
            self._fault = DeadlockError(
                f"{self.describe()} ran on without ever waiting; a loop in its body does not end or only awaits sleep(0)"
            )

    def _stopped(self) -> bool:
        return self._fault is not None

    def _settle_down(self) -> None:
        """Drain, and deliver what became deliverable by itself: refused children and messages that lay ready."""
        self._drain()
        while self._deliverable and self._fault is None:
            item = self._deliverable.pop(0)
            if not isinstance(item, Operation):
                self._hand_over(item)
            elif item.seq in self.pending:
                assert item.refusal is not None
                self._deliver(item, Event.FAILED, encode_failure(item.refusal))

    def _hand_over(self, key: Key) -> None:
        found = self.inbox.match(key)
        if found is None:
            return
        operation, message, used = found
        if used:
            self._turn.consumed.append(message.number)
        else:
            self._deliverable.insert(0, key)
        if message.kind is MessageKind.CHILD and message.failed:
            self._deliver(operation, Event.FAILED, encode_failure(_child_failure(message)))
        else:
            self._deliver(operation, Event.RESOLVED, message.payload)

    def _deliver(self, operation: Operation, event: Event, payload: bytes | None, began: int | None = None) -> None:
        """Record a result and let the body see it (drains)."""
        self._turn.entries.append(
            Entry(event, operation.seq, operation.op, operation.name, payload, self.loop.now, None, began)
        )
        self._turn.resolved.append(operation)
        self._resolve(operation, event, payload)
        self._drain()

    def _resolve(self, operation: Operation, event: Event, payload: bytes | None) -> None:
        del self.pending[operation.seq]
        self.steps.pop(operation.seq, None)
        target, operation.target = operation.target, None
        if isinstance(target, TimerHandle):
            self.loop.fire(target)
        elif target is not None and not target.done():
            if event is Event.FAILED:
                target.set_exception(restore(decode_failure(payload or b"")))
                return
            try:
                assert operation.decode is not None
                target.set_result(operation.decode(payload or b"null"))
            except PerdureError as error:
                target.set_exception(error)

    # -- taking in ----------------------------------------------------------------------------------------------------

    def _in_order(self, arrivals: Sequence[Arrival]) -> list[Arrival | Operation]:
        """Cancels first, then by time of arrival or due time; what arrived goes before what is due at the same time."""
        events: list[tuple[int, int, int, Arrival | Operation]] = []
        for order, arrival in enumerate(arrivals):
            first = isinstance(arrival, Message) and arrival.kind is MessageKind.CANCEL
            events.append((0 if first else arrival.at, 0, order, arrival))
        while (due := self.next_due()) is not None and due <= self.loop.now:
            operation = self.pending[heappop(self._due)[1]]
            events.append((due, 1, operation.seq, operation))
        events.sort(key=_by_time)
        return [event[3] for event in events]

    def _take(self, event: Arrival | Operation) -> None:
        if isinstance(event, Operation):
            if event.seq in self.pending:
                self._fire(event)
        elif isinstance(event, StepDone):
            operation = self.pending.get(event.seq)
            if operation is not None:
                self._deliver(operation, Event.FAILED if event.failed else Event.RESOLVED, event.payload, event.began)
        elif event.number > self.inbox.seen:
            self.inbox.seen = event.number
            self._receive(event)
        self._settle_down()

    def _fire(self, operation: Operation) -> None:
        if operation.op is Op.TIMER:
            self._deliver(operation, Event.RESOLVED, None)
            return
        self.inbox.unwait(operation)
        self._deliver(operation, Event.FAILED, encode_failure(capture(_signal_timeout(operation, self))))

    def _receive(self, message: Message) -> None:
        if message.kind is MessageKind.CANCEL:
            self._turn.consumed.append(message.number)
            self._turn.entries.append(Entry(Event.CANCEL, NO_SEQ, None, "cancel", None, self.loop.now))
            self._cancel_body()
        else:
            self.inbox.put(message)
            self._deliverable.append(message_key(message))

    def _cancel_body(self) -> None:
        """The one cancel of a body's life: once, at the main task."""
        if not self._cancelled and self._main is not None:
            self._cancelled = True
            self._main.cancel()

    # -- replaying ----------------------------------------------------------------------------------------------------

    def _replay_one(self, entry: Entry, recorded: Recorded) -> bool:
        """Deliver one recorded result; False once the code has shown that it does not fit."""
        self._fault = self._fault or recorded.check(self._seq, self._main_error())
        if self._fault is not None:
            return False
        self.loop.now = max(self.loop.now, entry.at)
        if entry.event is Event.CANCEL:
            self._cancel_body()
        else:
            operation = self.pending.get(entry.seq)
            if operation is None:
                self._fault = recorded.unexpected(entry, self._main_error())
                return False
            self.inbox.unwait(operation)
            self._resolve(operation, entry.event, entry.payload)
        recorded.pass_by()
        self._drain()
        return self._fault is None

    def _main_error(self) -> BaseException | None:
        main = self._main
        return main.exception() if main is not None and main.done() and not main.cancelled() else None

    # -- the end of a turn --------------------------------------------------------------------------------------------

    def _finish(self) -> Turn:
        turn = self._turn
        main = self._main
        assert main is not None
        if self._fault is not None:
            turn.outcome = Blocked(self._fault)
        elif main.done() and not self.loop.live_tasks():
            self._end(turn, main)
        elif not self.pending:
            turn.outcome = Blocked(
                DeadlockError(
                    f"{self.describe()} waits for something inside itself that can never happen; it is blocked"
                )
            )
        return turn

    def _end(self, turn: Turn, main: Task[Any]) -> None:
        for seq in list(self.pending):
            self.abandon(seq)
        if self._cancelled and self._successor is None:
            # Honoured because it was recorded before the end, also where the body returned or raised after it.
            turn.outcome = Cancelled()
        elif self._successor is not None:
            turn.outcome = Continued(self._successor)
        elif main.cancelled():
            turn.outcome = Failed(_raised_cancelled(self))
        elif (error := main.exception()) is not None:
            turn.outcome = Failed(capture(_explained(error)))
        else:
            turn.outcome = self._completed(main.result())

    def _completed(self, result: Any) -> Completed | Failed:
        try:
            return Completed(self._body.encode_result(result))
        except Exception as error:
            return Failed(capture(error))


async def _run(body: Body, instance: Instance) -> Any:
    coroutine: Coroutine[Any, Any, Any] = body.start(instance)
    return await coroutine


def _by_time(event: tuple[int, int, int, object]) -> tuple[int, int, int]:
    return event[:3]


def _note_attempt(operation: Operation | None, entry: Entry) -> None:
    """What the history says of a step's attempts, for whoever runs the next one."""
    if operation is None:
        return
    if entry.event is Event.ATTEMPT_FAILED:
        operation.attempts += 1
        operation.failures += 1
        operation.next_at = entry.due
    elif entry.event is Event.ATTEMPT_CUT:
        operation.attempts += 1


def _child_failure(message: Message) -> Failure:
    inner = decode_failure(message.payload or b"")
    if inner.code == "child_start_failed":
        text, status = f"child {message.name!r} failed to start: {inner.message}", "not started"
    else:
        text, status = f"child {message.name!r} failed: {inner.message}", inner.code or "failed"
    error = ChildFailed(text, child_id=message.name, status=status)
    error.__cause__ = restore(inner)
    return capture(error)


def _signal_timeout(operation: Operation, instance: Instance) -> SignalTimeout:
    key = operation.key
    what = f"token {key[1]!r}" if key is not None and key[0] == "token" else f"signal {operation.name!r}"
    seconds = ((operation.due or 0) - operation.since) / 1_000_000
    return SignalTimeout(
        f"{instance.describe()} waited {seconds:g} seconds for {what}, and none came",
        signal=operation.name,
        timeout=seconds,
    )


def _raised_cancelled(instance: Instance) -> Failure:
    return capture(
        PerdureError(f"the body of {instance.describe()} raised CancelledError, though nobody cancelled the run")
    )


def _explained(error: BaseException) -> BaseException:
    if isinstance(error, RuntimeError) and "attached to a different loop" in str(error):
        error.add_note("A workflow body cannot await what belongs to another event loop; put it in a step.")
    return error


_DELIVERED = frozenset({Event.RESOLVED, Event.FAILED, Event.CANCEL})
