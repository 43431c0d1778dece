"""What a body asks for: each operation takes the next position and goes into the turn, or is held against the history."""

from __future__ import annotations

import logging
from collections.abc import Callable
from random import Random
from typing import Any, TypeAlias

import msgspec

from perdure.core.inbox import Inbox, Key, child_key, event_key, signal_key, token_key, update_key
from perdure.core.loop import OpFuture, TimerHandle, new_loop
from perdure.core.operation import Operation
from perdure.core.pending import Pending
from perdure.core.replay import Recorded
from perdure.core.turn import Turn
from perdure.model.attributes import merged
from perdure.model.errors import PerdureError
from perdure.model.failure import Failure
from perdure.model.gates import Ask
from perdure.model.history import Entry, Event, Op
from perdure.model.policy import RetryPolicy
from perdure.model.run import NewRun

log = logging.getLogger("perdure.core")

#: What takes a step's effect back, given its input and output.
Undo: TypeAlias = Callable[[bytes | None, bytes], OpFuture[Any]]

_CHILDREN = frozenset({Op.CHILD, Op.JOIN})

#: The position of entries that belong to no operation.
NO_SEQ = -1

#: What an operation that changes attributes is called in the history.
_ATTRIBUTES = "searchAttributes"


class Issuing:
    """The half of an instance that the body talks to. `Instance` is the other half."""

    def __init__(self, run: NewRun, handles: int | None) -> None:
        self.run = run
        self.loop = new_loop(self, run.seed, handles)
        self._open = Pending()
        #: What can be delivered without the world: children that cannot start, keys whose message and wait may have met.
        self._deliverable: list[Operation | Key] = []
        self._turn = Turn()
        self._seq = 0
        self._recorded: Recorded | None = None
        self._fault: PerdureError | None = None
        self._patches: dict[str, bool] = {}
        self._random: Random | None = None

    @property
    def pending(self) -> dict[int, Operation]:
        """Open operations by position, oldest first."""
        return self._open.operations

    @property
    def steps(self) -> dict[int, Operation]:
        """Those of them that are steps."""
        return self._open.steps

    @property
    def inbox(self) -> Inbox:
        return self._open.inbox

    def describe(self) -> str:
        """For messages."""
        return f"run {self.run.id!r} ({self.run.workflow}@{self.run.version})"

    def complain(self, what: str, error: BaseException | None) -> None:
        """Log what went wrong in a task or callback of the body where nobody looks: once, and not in every replay."""
        if self.live():
            log.error("perdure: %s, in the body of %s", what, self.describe(), exc_info=error)

    def live(self) -> bool:
        """True if what the body does now is new; False in a replay, and in a turn that will not count."""
        return self._alive() and self._replaying() is None

    def say(self, record: logging.LogRecord) -> None:
        """Have a line of the body's log said once this turn is committed. Only while it is `live`."""
        self._turn.said.append(record)

    # -- what the body (through the authoring layer) asks for ---------------------------------------------------------

    def step(
        self,
        name: str,
        input: bytes,
        *,
        policy: RetryPolicy,
        decode: Callable[[bytes], Any],
        undo: Undo | None = None,
        undoes: bool = False,
        serves: str | None = None,
        gate: Ask | None = None,
    ) -> OpFuture[Any]:
        """Run a registered step: the one called `serves`, or like the operation, with `gate` once that lets it through.

        `undo`, `undoes`: see `Operation`.
        """
        operation = self._issue(Op.STEP, name, input)
        operation.policy = policy
        operation.undo = undo
        operation.undoes = undoes
        operation.serves = serves
        if gate is not None or self._recorded is not None:
            self._gate(operation, gate)
        return self._future(operation, decode)

    def local(
        self,
        name: str,
        call: Callable[[], Any],
        *,
        policy: RetryPolicy,
        decode: Callable[[bytes], Any],
        encode: Callable[[Any], bytes] | None = None,
        undo: Undo | None = None,
        undoes: bool = False,
    ) -> OpFuture[Any]:
        """Run a closure of the body as a step, where the body runs. Without `encode` it gives its result's bytes.

        `undo`, `undoes`: see `Operation`.
        """
        operation = self._issue(Op.LOCAL, name)
        operation.policy = policy
        operation.call = call
        operation.encode = encode
        operation.undo = undo
        operation.undoes = undoes
        return self._future(operation, decode)

    def signal(
        self, name: str, *, token: str | None, timeout: int | None, decode: Callable[[bytes], Any]
    ) -> OpFuture[Any]:
        """Wait for a signal by name, or for one to a token, at most `timeout` microseconds."""
        due = None if timeout is None else self.loop.now + timeout
        operation = self._issue(Op.SIGNAL, name, None if token is None else token.encode(), due)
        # A replay waits for the recorded token, which the store knows the wait by, whatever the code makes of it now.
        operation.key = signal_key(name) if operation.payload is None else token_key(operation.payload.decode())
        self._wait(operation)
        return self._future(operation, decode)

    def update(self, name: str, *, due: int | None, decode: Callable[[bytes], Any]) -> OpFuture[Any]:
        """Wait for an update by name, until `due` (microseconds) at most."""
        operation = self._issue(Op.UPDATE, name, None, due)
        operation.key = update_key(name)
        self._wait(operation)
        return self._future(operation, decode)

    def event(
        self, name: str, *, match: bytes | None, timeout: int | None, decode: Callable[[bytes], Any]
    ) -> OpFuture[Any]:
        """Wait for an event whose payload fits `match` (the JSON of an object of paths and values; None: any)."""
        due = None if timeout is None else self.loop.now + timeout
        # A replay keeps to the recorded match, by which the store knows the wait.
        operation = self._issue(Op.EVENT, name, match, due)
        operation.key = event_key(str(operation.seq))
        self._wait(operation)
        return self._future(operation, decode)

    def child(self, run: NewRun, *, decode: Callable[[bytes], Any], refusal: Failure | None = None) -> OpFuture[Any]:
        """Start a child (or join one of the same id) and wait for its end. `refusal`: it cannot start, and why."""
        operation = self._issue(Op.CHILD, run.id, run.input)
        operation.child = run
        return self._await_child(operation, decode, refusal)

    def spawn(self, run: NewRun) -> None:
        """Start a child and do not wait."""
        operation = self._issue(Op.SPAWN, run.id, run.input)
        operation.child = run
        if operation.seq != NO_SEQ:
            self._open.undoings().detached.append(run.id)

    def join(self, child_id: str, *, decode: Callable[[bytes], Any], refusal: Failure | None = None) -> OpFuture[Any]:
        """Wait for the end of a child started before."""
        return self._await_child(self._issue(Op.JOIN, child_id), decode, refusal)

    def send(self, token: str, payload: bytes) -> None:
        """Send a signal to a token of the run's namespace, with this turn's commit."""
        self._issue(Op.SEND, token, payload)

    def set_value(self, key: str, value: bytes) -> None:
        """Publish a value."""
        self._issue(Op.VALUE, key, value)

    def put_attributes(self, changes: bytes) -> None:
        """Put attributes over the run's, name by name."""
        operation = self._issue(Op.ATTRIBUTES, _ATTRIBUTES, changes)
        if operation.seq != NO_SEQ:
            # A replay does so too, on top of what the store has by now: with the last of them it is all the same.
            attributes = merged(self.run.attributes, operation.payload or b"")
            self.run = msgspec.structs.replace(self.run, attributes=attributes)

    def write(self, stream: str, payload: bytes) -> None:
        """Write to a stream. The history only says that it was written: what, is in the stream."""
        self._issue(Op.STREAM, stream).payload = payload

    def patched(self, patch: str) -> bool:
        """True if this run takes the new path of a change: it was marked so, or has not been here before."""
        known = self._patches.get(patch)
        if known is None:
            if not self._alive():
                return True
            recorded = self._replaying()
            if recorded is not None:
                known = patch in recorded.markers
            else:
                known = True
                self._turn.entries.append(Entry(Event.MARKER, NO_SEQ, None, patch, None, self.loop.now))
            self._patches[patch] = known
        return known

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
        self._await(operation)
        return operation.seq

    def abandon(self, seq: int) -> None:
        operation = self.pending.get(seq)
        if operation is None:
            return
        operation.target = None
        turn: Turn | None = getattr(self, "_turn", None)  # None: between two turns, of a body that was just dropped
        let_go = turn is not None and not self.loop.closing and self._goes_on(operation, turn)
        if let_go:
            self._open.undoings().let_go(seq)
        else:
            self._open.remove(seq)
            self._open.inbox.unwait(operation)
        if turn is None or self._recorded is not None or self.loop.closing:
            return
        event = Event.LET_GO if let_go else Event.ABANDONED
        turn.entries.append(Entry(event, seq, operation.op, operation.name, None, self.loop.now))
        if not let_go:
            turn.abandoned.append(operation)
        elif operation.op is Op.CHILD:
            turn.passed_on.append(operation.name)

    def _goes_on(self, operation: Operation, turn: Turn) -> bool:
        """Whether an operation that nobody awaits any more is let go: it has an undo, or is a child that a cancel with undo
        goes down to, and may have begun. Replay goes by what was recorded."""
        undoing = self._open.undoing
        if undoing is None:
            return False
        child = operation.op in _CHILDREN and operation.key is not None and undoing.order is not None
        if operation.undo is None and not child:
            return False
        if self._recorded is not None:
            return operation.seq not in self._recorded.abandoned
        return not turn.issued or operation.seq < turn.issued[0].seq

    # -- issuing ------------------------------------------------------------------------------------------------------

    def _issue(self, op: Op, name: str, payload: bytes | None = None, due: int | None = None) -> Operation:
        if not self._alive():
            return Operation(NO_SEQ, op, name)
        operation = Operation(self._seq, op, name, payload, due)
        operation.since = self.loop.now
        recorded = self._replaying()
        if recorded is None:
            self._turn.issued.append(operation)
            self._turn.entries.append(
                Entry(Event.SCHEDULED, operation.seq, op, name, payload, self.loop.now, operation.due)
            )
        else:
            self._fault = recorded.match(operation)
            if self._fault is not None:
                return Operation(NO_SEQ, op, name)
        self._seq += 1
        return operation

    def _gate(self, operation: Operation, gate: Ask | None) -> None:
        """Whether the step has a gate is for the history to say, once there is one: code that has moved a step into a queue, or
        out of one, does so for steps that come."""
        if operation.seq == NO_SEQ:
            return
        recorded = self._recorded
        if recorded is not None:
            operation.gated = operation.seq in recorded.gated
        elif gate is not None:
            operation.gated = True
            self._turn.entries.append(Entry(Event.GATED, operation.seq, Op.STEP, gate.name, None, self.loop.now))
        if operation.gated and gate is not None:
            operation.gate = gate
            operation.waits = True

    def _replaying(self) -> Recorded | None:
        """The history that what the body does now must fit; None if it is new."""
        if self._recorded is not None and self._recorded.left_behind(self._seq):
            self._recorded = None
        return self._recorded

    def _alive(self) -> bool:
        """False if this turn does not count: the code does not fit, or the instance is being dropped.

        What the body asks for then is no operation and resolves never. (Raising would leave coroutines behind that nobody
        awaits: those in the same `gather(...)` call.)
        """
        return not self.loop.closing and self._fault is None

    def _future(self, operation: Operation, decode: Callable[[bytes], Any]) -> OpFuture[Any]:
        future = self.loop.operation_future(operation.seq)
        operation.target = future
        operation.decode = decode
        self._await(operation)
        return future

    def _await(self, operation: Operation) -> None:
        if operation.seq != NO_SEQ:
            self._open.add(operation)
            if operation.undo is not None:
                self._open.undoings()

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
        if operation.seq != NO_SEQ and self._open.inbox.wait(operation) and operation.key is not None:
            self._deliverable.append(operation.key)
