"""What the executor tells the world after a commit: lifecycle events, and ends to whoever waits for them."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any

from perdure.authoring.compensation import PREFIX
from perdure.core.operation import Operation
from perdure.core.turn import Turn
from perdure.engine.endings import Endings
from perdure.engine.events import Events, Lifecycle
from perdure.engine.held import Held
from perdure.engine.tails import Tails
from perdure.model.commit import TurnCommit
from perdure.model.failure import decode_failure, summary
from perdure.model.history import Event, Op
from perdure.model.run import Run, RunKey, Status

log = logging.getLogger("perdure.engine")

_KINDS = {
    Status.SUSPENDED: "run.suspended",
    Status.BLOCKED: "run.blocked",
    Status.COMPLETED: "run.completed",
    Status.FAILED: "run.failed",
    Status.CANCELLED: "run.failed",
    Status.DEAD: "run.failed",
}


_STEPS = frozenset({Op.STEP, Op.LOCAL})
_STEP_KINDS = {
    Event.RESOLVED: "step.completed",
    Event.FAILED: "step.failed",
    Event.ATTEMPT_FAILED: "step.retrying",
}


_ATTEMPTS = frozenset({Event.FAILED, Event.ATTEMPT_FAILED})


class Telling:
    """Event loop only."""

    def __init__(self, now: Callable[[], int], events: Events) -> None:
        self._now = now
        #: Whoever waits for runs.
        self.endings = Endings()
        #: Whoever waits for chunks of streams.
        self.tails = Tails()
        #: Whoever subscribed. Events are made only if somebody did.
        self.events = events
        #: Told of the values that became durable.
        self.values: Callable[[RunKey, Sequence[tuple[str, bytes]]], None] = lambda run, values: None

    def said(self, turn: Turn) -> None:
        """The turn is durable: what its body said is said. The user's handlers and filters may raise."""
        for record in turn.said:
            try:
                logging.getLogger(record.name).handle(record)
            except Exception:
                log.exception("perdure: a log handler or filter failed on what a workflow said")

    def turn(self, held: Held, commit: TurnCommit, *, rests: bool) -> None:
        """A turn became durable. `rests` False: it wanted to park, but the run goes on."""
        if commit.values:
            self.values(held.key, commit.values)
        if commit.chunks:
            self.tails.written(held.key.incarnation, commit.chunks)
        if commit.status is Status.DEAD:
            self.events.dead(held.key.id)
        if log.isEnabledFor(logging.INFO) or held.instance.undoing is not None:
            _note(held, commit)
        if not self.events.wanted:
            return
        if commit.started_at is not None:
            self.events.emit(self._event("run.started", held))
        for entry in commit.entries:
            if entry.op in _STEPS and (kind := _STEP_KINDS.get(entry.event)):
                error = None if entry.event is Event.RESOLVED else decode_failure(entry.payload or b"").message
                self.events.emit(self._event(kind, held, step=entry.name, seq=entry.seq, error=error))
        if rests and (kind := _KINDS.get(commit.status)):
            error = None if commit.error is None else decode_failure(commit.error).message
            self.events.emit(self._event(kind, held, status=str(commit.status), error=error))

    def step_started(self, held: Held, operation: Operation) -> None:
        """An attempt begins."""
        if self.events.wanted:
            attempt = operation.attempts + 1
            self.events.emit(self._event("step.started", held, step=operation.name, seq=operation.seq, attempt=attempt))

    def cancelled(self, run: Run) -> None:
        """A run was cancelled from outside."""
        if self.events.wanted:
            error = None if run.error is None else decode_failure(run.error).message
            self.events.emit(
                Lifecycle(
                    "run.failed",
                    run.id,
                    run.incarnation,
                    run.workflow,
                    run.version,
                    run.namespace,
                    self._now(),
                    status=str(run.status),
                    error=error,
                )
            )

    def _event(self, kind: str, held: Held, **facts: Any) -> Lifecycle:
        run = held.instance.run
        return Lifecycle(
            kind, run.id, held.key.incarnation, run.workflow, run.version, run.namespace, self._now(), **facts
        )


def _note(held: Held, commit: TurnCommit) -> None:
    """What went wrong, for whoever reads the log: attempts, and the end of the run."""
    for entry in commit.entries:
        if entry.op in _STEPS and entry.event in _ATTEMPTS:
            what = "failed" if entry.event is Event.FAILED else "failed and will be tried again"
            reason = summary(decode_failure(entry.payload or b""))
            # What is not undone stands in the world, and nobody else says so.
            undo = entry.event is Event.FAILED and entry.name.startswith(PREFIX)
            level = logging.ERROR if undo else logging.INFO
            log.log(level, "perdure: step %r of run %r %s: %s", entry.name, held.key.id, what, reason)
    if commit.error is not None and commit.status is not Status.BLOCKED:  # that is a warning of its own
        log.info("perdure: run %r %s: %s", held.key.id, commit.status, summary(decode_failure(commit.error)))
