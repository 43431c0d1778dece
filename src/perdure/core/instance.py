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
from collections.abc import Coroutine, Sequence
from typing import Any, NoReturn

from perdure.core.arriving import in_order
from perdure.core.ending import ContinueAsNew, ending
from perdure.core.explain import child_failure, raisable, signal_timeout, unfit
from perdure.core.inbox import Key, message_key
from perdure.core.issuing import NO_SEQ, Issuing
from perdure.core.loop import Spin, Task, TimerHandle
from perdure.core.operation import Operation
from perdure.core.replay import Recorded, note_attempt, revive
from perdure.core.turn import Arrival, Blocked, Body, Cancelled, Failed, Outcome, StepDone, Turn
from perdure.core.undoing import Undoing
from perdure.model.cancelling import NAME, order_of
from perdure.model.errors import DeadlockError, ForbiddenInWorkflow
from perdure.model.failure import capture, decode_failure, encode_failure, restore
from perdure.model.history import Entry, Event, Op
from perdure.model.messages import Message, MessageKind
from perdure.model.run import NewRun

#: So often what is left of an ended body may leave something behind itself.
_GENERATIONS = 100


class Instance(Issuing):
    """The body of one run, its loop, its open operations and its unread messages. One thread at a time."""

    def __init__(self, run: NewRun, body: Body, *, handles: int | None = None) -> None:
        super().__init__(run, handles)
        #: What the authoring layer hangs on its instance: the user's context object.
        self.context: Any = None
        self._body = body
        self._main: Task[Any] | None = None
        #: The tasks of an ended body that were cancelled last.
        self._left: Sequence[Task[Any]] = ()
        self._successor: NewRun | None = None
        #: What the body awaited when it was cancelled, until it has heard of it.
        self._told: Any = None

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
        if not hasattr(self, "_turn"):  # else a replay has begun it
            self._turn = Turn()
        self.loop.now = max(self.loop.now, now)
        with self.loop.enter():
            if self._deliverable:
                self._settle_down()
            for event in in_order(arrivals, self._open, self.loop.now):
                if self._over():
                    break
                self._take(event)
        return self._finish()

    def replay(
        self, entries: Sequence[Entry], started_at: int, *, seen: int = 0, unread: Sequence[Message] = ()
    ) -> Turn:
        """Bring a new instance to where its history left it. The turn's outcome is Blocked if the code does not fit.

        `seen`: the run's, as its last commit left it; `unread`: its unconsumed messages, oldest first. Those above `seen` are
        for `advance`, which may be given all of them.

        A history with an END entry comes back with the outcome the body reached. A requeued or forked body,
        or one whose first turn was lost, may get further than its history: what is new then is in the turn, and goes on in that
        of the next `advance`.
        """
        entries, again = revive(entries)
        recorded = self._recorded = Recorded(self.run.id, entries)
        self.loop.now = started_at
        with self.loop.enter():
            self._start()
            self._drain()
            for entry in entries:
                if entry.event in _DELIVERED and not self._replay_one(entry, recorded):
                    break
                note_attempt(self.pending.get(entry.seq), entry)
            if self._fault is None and self._replaying() is not None:
                open_now = self.pending.keys()
                self._fault = recorded.check_complete(self._seq, open_now, self._over(), self._main_error())
            for entry in again:
                self._deliver_again(entry)
        self._refill(seen, unread)
        turn = self._finish()
        self._recorded = None
        if entries and entries[-1].event in (Event.REQUEUED, Event.FORKED):
            turn.reopened = [operation for operation in self.pending.values() if operation not in turn.issued]
        if turn.entries or turn.reopened:
            self._turn = turn
        return turn

    @property
    def undoing(self) -> Undoing | None:
        """What there is to be undone; None if nothing ever came up."""
        return self._open.undoing

    def next_due(self) -> int | None:
        """When the earliest open timer or bounded wait is due (microseconds); None without one."""
        return self._open.next_due()

    def listening(self) -> bool:
        """True if a message could resolve an open operation, or let a step begin."""
        return self.inbox.waiting() or self._open.waits()

    def close(self) -> None:
        """Drop the instance. Nothing that a dying frame awaits runs; its plain `finally` lines do."""
        self.loop.close()
        self._open.clear()
        self._main = None
        self._left = ()
        self.context = None

    def continue_as_new(self, successor: NewRun) -> NoReturn:
        """End this run and go on as `successor`. Never returns."""
        if not self._alive():
            raise ContinueAsNew
        if self._in_subtask():
            raise ForbiddenInWorkflow(
                f"continue_as_new was called in a task of {self.describe()}; call it in the workflow function itself"
            )
        self._successor = successor
        raise ContinueAsNew

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
            if self._told is not None and self._main is not None and _awaited(self._main) is not self._told:
                # It has been told. Whoever cancels also uncancels, or timeouts and task groups would take each later
                # cancel of their own for this one.
                self._told = None
                self._main.uncancel()
            if self._main is not None and self._main.done():
                self._cancel_left()
            if self._open.undoing is not None:
                self._undo()
        except Spin:
            self._fault = DeadlockError(
                f"{self.describe()} ran on without ever waiting; a loop in its body does not end or only awaits sleep(0)"
            )

    def _cancel_left(self) -> None:
        """Cancel once what an ended body left behind; when that has ended, what it left behind in turn, and so on."""
        for _ in range(_GENERATIONS):
            if self._fault is not None or not all(task.done() for task in self._left):
                return
            self._left = self.loop.live_tasks()
            if not self._left:
                return
            for task in self._left:
                task.cancel()
            self.loop.drain(self._stopped)
        raise Spin

    def _undo(self) -> None:
        """Issue the undos whose time has come; see `undoing`."""
        undoing, main = self._open.undoing, self._main
        if undoing is None or main is None or self._fault is not None:
            return
        if main.done() and not self.loop.live_tasks():
            for seq in [seq for seq in self.pending if not undoing.keeps(seq)]:
                self.abandon(seq)
            undoing.unwinding = undoing.unwinding or isinstance(self._outcome(main), Failed | Cancelled)
        while self._fault is None and (due := undoing.next()) is not None:
            operation, output = due
            assert operation.undo is not None
            undoing.begun(operation.undo(operation.payload, output).seq)

    def _stopped(self) -> bool:
        return self._fault is not None

    def _over(self) -> bool:
        """True if nothing more can happen: it is blocked, or its body has ended with all its tasks and undos."""
        main = self._main
        if self._fault is not None:
            return True
        undoing = self._open.undoing
        return main is not None and main.done() and not self.loop.live_tasks() and not (undoing and undoing.busy)

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
            self._deliver(operation, Event.FAILED, encode_failure(child_failure(message)))
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
        self._open.remove(operation.seq)
        if self._open.undoing is not None:
            self._open.undoing.ended(operation, (payload or b"null") if event is Event.RESOLVED else None)
        target, operation.target = operation.target, None
        if isinstance(target, TimerHandle):
            self.loop.fire(target)
        elif target is not None and not target.done():
            if event is Event.FAILED:
                target.set_exception(raisable(restore(decode_failure(payload or b"")), operation))
                return
            assert operation.decode is not None
            try:
                value = operation.decode(payload or b"null")
            except Exception as error:  # restoring a value may run checks of the user's own
                target.set_exception(unfit(error, operation, self.describe()))
            else:
                target.set_result(value)

    # -- taking in ----------------------------------------------------------------------------------------------------

    def _take(self, event: Arrival | Operation) -> None:
        if isinstance(event, Operation):
            if event.seq in self.pending:
                self._fire(event)
        elif isinstance(event, StepDone):
            operation = self.pending.get(event.seq)
            if operation is not None:
                self._deliver(operation, Event.FAILED if event.failed else Event.RESOLVED, event.payload, event.began)
        else:
            self._receive(event)
        self._settle_down()

    def _fire(self, operation: Operation) -> None:
        if operation.op is Op.TIMER:
            self._deliver(operation, Event.RESOLVED, None)
            return
        self.inbox.unwait(operation)
        self._deliver(operation, Event.FAILED, encode_failure(capture(signal_timeout(operation, self.describe()))))

    def _refill(self, seen: int, unread: Sequence[Message]) -> None:
        """Have the inbox as it was after the last commit."""
        for message in unread:
            if message.kind is MessageKind.CANCEL:  # seen by a turn that was lost: it is still to be delivered
                seen = min(seen, message.number - 1)
            if message.number <= seen:
                self._receive(message)
        self.inbox.seen = seen

    def _receive(self, message: Message) -> None:
        if message.kind is MessageKind.CANCEL:
            self._turn.consumed.append(message.number)
            if order_of(message.payload).meant_for(self.run.parent):
                entry = Entry(Event.CANCEL, NO_SEQ, None, NAME, message.payload, self.loop.now)
                self._turn.entries.append(entry)
                self._turn.passed_on += self._open.undoings().detached
                self._cancel_body(message.payload)
        elif message.kind is MessageKind.GRANT:
            self._open.grant(int(message.name))  # it stays unread: the store takes it back with the slot
        else:
            self.inbox.put(message)
            self._deliverable.append(message_key(message))

    def _cancel_body(self, payload: bytes | None) -> None:
        """The one cancel of a body's life: once, at the main task."""
        undoing = self._open.undoings()
        if undoing.order is None and self._main is not None:
            undoing.order = order_of(payload)
            self._main.cancel()
            self._told = _awaited(self._main)

    # -- replaying ----------------------------------------------------------------------------------------------------

    def _replay_one(self, entry: Entry, recorded: Recorded) -> bool:
        """Deliver one recorded result; False once the code has shown that it does not fit."""
        self._fault = self._fault or recorded.check(self._seq, self._main_error())
        if self._fault is not None:
            return False
        self.loop.now = max(self.loop.now, entry.at)
        if entry.event is Event.CANCEL:
            self._cancel_body(entry.payload)
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

    def _deliver_again(self, entry: Entry) -> None:
        """A result that a requeue makes new."""
        operation = self.pending.get(entry.seq)
        if operation is not None and not self._over():
            self._recorded = None
            self.inbox.unwait(operation)
            self._deliver(operation, entry.event, entry.payload, entry.began)
            self._settle_down()

    def _main_error(self) -> BaseException | None:
        main = self._main
        return main.exception() if main is not None and main.done() and not main.cancelled() else None

    # -- the end of a turn --------------------------------------------------------------------------------------------

    def _finish(self) -> Turn:
        turn = self._turn
        main = self._main
        assert main is not None
        if not self.pending and not self._over():
            self._fault = DeadlockError(
                f"{self.describe()} waits for something inside itself that can never happen; it is blocked"
            )
        if self._fault is not None:
            turn.outcome = Blocked(self._fault)
        elif self._over():
            self._end(turn, main)
        del self._turn  # a parked run keeps nothing of it in memory; the next turn brings its own
        return turn

    def _end(self, turn: Turn, main: Task[Any]) -> None:
        for seq in list(self.pending):
            self.abandon(seq)
        turn.outcome = self._outcome(main)
        self.loop.let_go()

    def _outcome(self, main: Task[Any]) -> Outcome:
        order = None if self.undoing is None else self.undoing.order
        return ending(
            main,
            self._successor,
            cancelled=None if order is None else order.reason,
            run=self.describe(),
            encode=self._body.encode_result,
        )


async def _run(body: Body, instance: Instance) -> Any:
    coroutine: Coroutine[Any, Any, Any] = body.start(instance)
    return await coroutine


def _awaited(task: Task[Any]) -> object:
    return getattr(task, "_fut_waiter", None)


_DELIVERED = frozenset({Event.RESOLVED, Event.FAILED, Event.CANCEL})
