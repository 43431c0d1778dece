"""The errors of runs that did not end by themselves, or cannot go on: cancelled, out of time, dead, never begun, unserved."""

from __future__ import annotations

from typing import Final

from perdure.model.failure import Failure

#: The code of the error of a run that no process can take.
UNSERVED: Final = "unserved"


def cancelled_failure(message: str = "cancelled") -> Failure:
    """The error of a cancelled run."""
    return Failure(type="perdure.model.errors:RunCancelled", message=message, code="cancelled", retryable=False)


def timeout_failure(seconds: float) -> Failure:
    """The error of a run that is out of time."""
    return Failure(
        type="perdure.model.errors:RunTimedOut",
        message=f"execution timeout: the run took longer than its {seconds:g} seconds",
        code="execution_timeout",
        retryable=False,
    )


def dead_failure(recoveries: int) -> Failure:
    """The error of a run that was recovered too often."""
    return Failure(
        type="perdure.model.errors:RunDead",
        message=f"recovered {recoveries} times without progress; its process was lost each time. Look in its log for a "
        "step or body that crashes it or calls sys.exit, then requeue the run",
        code="max_recovery_attempts",
        retryable=False,
    )


def start_failure(child_id: str, *, taken: bool) -> Failure:
    """What a parent hears of a child that cannot be started or joined: another run has its id (`taken`), or none has."""
    why = (
        f"the id {child_id!r} belongs to a run that this one did not start; give the child an id of its own"
        if taken
        else f"there is no run {child_id!r}; it was deleted, or never started"
    )
    return Failure(type="perdure.model.errors:ChildFailed", message=why, code="child_start_failed", retryable=False)


def unserved_failure(workflow: str, version: str) -> Failure:
    """Why a run is blocked that no process can take."""
    return Failure(
        type="perdure.model.errors:NotRegistered",
        message=f"no process serves workflow {workflow!r} version {version!r}; start one that does, for example with "
        "`perdure worker module:app`, and the run goes on",
        code=UNSERVED,
        retryable=False,
    )
