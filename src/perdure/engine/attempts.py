"""What becomes of a step's attempt: its result, another one, or its failure. The policy decides; the next commit records."""

from __future__ import annotations

import logging
from collections.abc import Callable

from perdure.core.operation import Operation
from perdure.core.turn import StepDone
from perdure.engine.held import REPORTED, Held
from perdure.engine.means import Means
from perdure.model.errors import UsageError
from perdure.model.failure import capture, encode_failure
from perdure.model.history import Entry, Event
from perdure.model.messages import Message, MessageKind

log = logging.getLogger("perdure.engine")


class Attempts:
    """Event loop only. `drive` makes a turn at once, `schedule` soon; `let_go` drops a run."""

    def __init__(
        self,
        means: Means,
        drive: Callable[[Held], None],
        schedule: Callable[[Held], None],
        let_go: Callable[[Held], None],
    ) -> None:
        self._now = means.store.now
        self._chance = means.chance
        self._drive = drive
        self._schedule = schedule
        self._let_go = let_go

    def succeeded(
        self, held: Held, operation: Operation, began: int, payload: bytes, said: bytes | None = None
    ) -> None:
        """The attempt returned. `said`: its log."""
        self._note(held, operation, said)
        held.tasks[operation.seq] = REPORTED
        operation.attempts += 1
        held.arrivals.append(StepDone(operation.seq, payload, False, self._now(), began))
        self._advance(held)

    def failed(
        self, held: Held, operation: Operation, began: int, error: BaseException, said: bytes | None = None
    ) -> None:
        """The attempt raised. `said`: its log."""
        self._note(held, operation, said)
        now = self._now()
        operation.attempts += 1
        operation.failures += 1
        policy = operation.policy
        captured = capture(error)
        failure = encode_failure(captured)
        # Misuse of Perdure will be the same next time.
        final = captured.retryable is False or isinstance(error, UsageError)
        if policy is not None and policy.again(operation.failures, not final):
            held.tasks.pop(operation.seq, None)
            operation.next_at = now + policy.delay(operation.failures, self._chance())
            at = max(now, held.instance.now)
            held.attempts.append(_entry(Event.ATTEMPT_FAILED, operation, failure, at, operation.next_at, began))
        else:
            held.tasks[operation.seq] = REPORTED
            held.arrivals.append(StepDone(operation.seq, failure, True, now, began))
        self._advance(held)

    def _note(self, held: Held, operation: Operation, said: bytes | None) -> None:
        if said is not None:
            at = max(self._now(), held.instance.now)
            held.attempts.append(_entry(Event.LOGGED, operation, said, at, None, None))

    def _advance(self, held: Held) -> None:
        if len(held.tasks) > 1:
            self._schedule(held)  # other steps may end in this very moment: their results share the turn
        else:
            self._drive(held)

    def vanished(self, held: Held, operation: Operation, error: BaseException) -> None:
        """The interpreter is being stopped inside a step. Nothing is recorded: whoever recovers the run makes it again."""
        log.error(
            "perdure: step %r of %s was stopped by %r; the run is let go and will be recovered",
            operation.name,
            held.instance.describe(),
            error,
        )
        self._let_go(held)

    def cut(self, held: Held) -> None:
        """Open steps may have been in flight when their process was lost: that attempt's number is used up."""
        now = self._now()
        granted = {each.name for each in held.arrivals if isinstance(each, Message) and each.kind is MessageKind.GRANT}
        for operation in held.instance.steps.values():
            if operation.waits and str(operation.seq) not in granted:
                continue
            if operation.next_at is None or operation.next_at <= now:
                operation.attempts += 1
                held.attempts.append(_entry(Event.ATTEMPT_CUT, operation, None, held.instance.now, None, None))


def _entry(
    event: Event, operation: Operation, payload: bytes | None, at: int, due: int | None, began: int | None
) -> Entry:
    return Entry(event, operation.seq, operation.op, operation.name, payload, at, due, began)
