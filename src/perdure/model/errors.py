"""Every error a user can meet, one tree. Codes are stable; messages say what happened, to whom, and what to do next.

PerdureError
├── UsageError                 you misused us; nothing was written
│   ├── InvalidValue           a value cannot be stored (also a TypeError's cousin: says the path to it)
│   │   └── ValueTooLarge
│   ├── InvalidId              an empty, blank, over-long or unprintable id
│   ├── InvalidArguments       arguments that do not fit the workflow's or step's parameters
│   ├── NotRegistered          unknown workflow, version or step
│   ├── UnknownQuery           the run has no query of that name
│   ├── NameTaken              two definitions under one name
│   ├── NotInWorkflow          an operation that only works inside a workflow body
│   └── ForbiddenInWorkflow    something that would do I/O or break replay inside a workflow body
├── RunNotFound
├── QueueFull                  a singleton has as many runs in line as may be; nothing was started
├── RunEnded                   the message or verb came after the run's end
├── RunUnsuccessful            what `run.result()` raises
│   ├── RunFailed
│   ├── RunCancelled
│   ├── RunTimedOut
│   └── RunDead
├── FatalError                 raise it in a step: no more attempts
├── StepFailed                 a step's error whose own class is not known here
│   └── StepTimeout            an attempt ran longer than its timeout
│       └── CompensationTimeout    an undo's, which had none of its own
├── ChildFailed                a child run did not complete, seen by its parent
├── GatherError                some of `ctx.all`'s children did not complete
├── SignalTimeout              a wait for a signal or an update ran out (also a TimeoutError)
│   └── EventTimeout           a wait for an event ran out
├── NonDeterminismError        the code does not fit the recorded history; the run is blocked
├── DeadlockError              nothing is ready, nothing is pending, the body has not finished; the run is blocked
└── StoreError
    ├── StoreUnavailable       cannot be reached, or stays busy
    └── StoreMismatch          not a Perdure store, or one of a newer Perdure
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


class PerdureError(Exception):
    """Something in Perdure went wrong."""

    #: Stable, for machines.
    code: str = "perdure_error"


class UsageError(PerdureError):
    """Perdure was used in a way that cannot work; nothing was written."""

    code = "usage"


class InvalidValue(UsageError):
    """A value cannot be stored."""

    code = "invalid_value"


class ValueTooLarge(InvalidValue):
    """A value is larger than the limit."""

    code = "value_too_large"


class InvalidId(UsageError):
    """An id or name is empty, too long, or holds characters that cannot be stored."""

    code = "invalid_id"


class InvalidArguments(UsageError):
    """The arguments do not fit the function."""

    code = "invalid_arguments"


class NotRegistered(UsageError):
    """No such workflow or step is registered."""

    code = "not_registered"


class UnknownQuery(UsageError):
    """The run has no query of that name."""

    code = "unknown_query"


class NameTaken(UsageError):
    """Two definitions have the same name."""

    code = "name_taken"


class NotInWorkflow(UsageError):
    """This only works inside a workflow body."""

    code = "not_in_workflow"


class ForbiddenInWorkflow(UsageError):
    """This would break replay inside a workflow body; put it in a step."""

    code = "forbidden_in_workflow"


class RunNotFound(PerdureError):
    """There is no such run."""

    code = "run_not_found"


class QueueFull(PerdureError):
    """A start found as many runs in line as may be; nothing was started. `depth` is how many wait."""

    code = "queue_full"

    def __init__(self, message: str, *, workflow: str = "", key: str = "", depth: int = 0) -> None:
        super().__init__(message)
        self.workflow = workflow
        self.key = key
        self.depth = depth


class RunEnded(PerdureError):
    """The run has ended."""

    code = "run_ended"


class RunUnsuccessful(PerdureError):
    """The run did not complete."""

    code = "run_unsuccessful"

    def __init__(self, message: str, *, run_id: str = "") -> None:
        super().__init__(message)
        self.run_id = run_id


class RunFailed(RunUnsuccessful):
    """The run's body raised. `__cause__` is its error, as its own class where that class is imported here."""

    code = "run_failed"


class RunCancelled(RunUnsuccessful):
    """The run was cancelled."""

    code = "run_cancelled"


class RunTimedOut(RunUnsuccessful):
    """The run took longer than its execution timeout."""

    code = "execution_timeout"


class RunDead(RunUnsuccessful):
    """The run was recovered too often without progress."""

    code = "max_recovery_attempts"


class FatalError(PerdureError):
    """Raise this in a step to fail it without more attempts. `code` and `details` travel with it."""

    code = "fatal"

    def __init__(self, message: str = "", code: str | None = None, details: Any = None) -> None:
        super().__init__(message)
        if code is not None:
            self.code = code
        self.details = details
        self.retryable = False


class StepFailed(PerdureError):
    """A step failed with an error whose class is not imported here. `type` names it; `details` and `traceback` came along."""

    code = "step_failed"

    def __init__(
        self,
        message: str,
        *,
        type: str = "",
        code: str | None = None,
        details: Any = None,
        traceback: str | None = None,
    ) -> None:
        super().__init__(message)
        self.type = type
        if code is not None:
            self.code = code
        self.details = details
        self.traceback = traceback


class StepTimeout(StepFailed, TimeoutError):
    """An attempt of a step ran longer than its timeout."""

    code = "step_timeout"


class CompensationTimeout(StepTimeout):
    """An attempt of an undo without a timeout of its own took longer than the app's `compensation_timeout`."""

    code = "compensation_timeout"


class ChildFailed(PerdureError):
    """A child run did not complete. `__cause__` is its error; `status` is how it ended (or "not started")."""

    code = "child_failed"

    def __init__(self, message: str, *, child_id: str = "", status: str = "") -> None:
        super().__init__(message)
        self.child_id = child_id
        self.status = status
        self.retryable = False


class GatherError(PerdureError):
    """Some children of `ctx.all` did not complete. `failures` lists (index, child id, error); `results` the others."""

    code = "gather_failed"

    def __init__(
        self, message: str, failures: Sequence[tuple[int, str, BaseException]] = (), results: Sequence[Any] = ()
    ) -> None:
        super().__init__(message)
        self.failures = list(failures)
        self.results = list(results)


class SignalTimeout(PerdureError, TimeoutError):
    """A wait for a signal or an update ran out. `signal` is its name, `timeout` the seconds."""

    code = "signal_timeout"

    def __init__(self, message: str, *, signal: str = "", timeout: float = 0.0) -> None:
        super().__init__(message)
        self.signal = signal
        self.timeout = timeout  # seconds


class EventTimeout(SignalTimeout):
    """A wait for an event ran out; `signal` is the event's name."""

    code = "event_timeout"


class NonDeterminismError(PerdureError):
    """The code does not fit the history it is replayed against."""

    code = "non_determinism"

    def __init__(self, message: str, *, run_id: str = "", seq: int = -1, recorded: str = "", issued: str = "") -> None:
        super().__init__(message)
        self.run_id = run_id
        self.seq = seq
        self.recorded = recorded
        self.issued = issued


class DeadlockError(PerdureError):
    """Nothing is ready, nothing is pending, and the body has not finished: it would wait for ever."""

    code = "deadlock"


class StoreError(PerdureError):
    """The store said no."""

    code = "store_error"


class StoreUnavailable(StoreError):
    """The store cannot be reached, or stayed busy for too long. What was asked may have been done all the same."""

    code = "store_unavailable"


class StoreMismatch(StoreError):
    """The data is not a Perdure store, or belongs to a newer Perdure."""

    code = "store_mismatch"
