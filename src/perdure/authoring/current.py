"""Which step is running: what a step may ask about itself."""

from __future__ import annotations

from contextvars import ContextVar

from msgspec import Struct

from perdure.model.errors import UsageError


class CurrentStep(Struct, frozen=True):
    """One attempt of a step."""

    #: The idempotency key: the same for every attempt (also after a crash or a requeue), never again for another step.
    key: str
    run_id: str
    name: str
    #: The step's position in its run.
    seq: int
    #: 1 for the first; numbers are never used twice.
    attempt: int


running: ContextVar[CurrentStep | None] = ContextVar("perdure_step", default=None)


def current_step() -> CurrentStep:
    """The step that is running here. Raises `UsageError` outside a step."""
    step = running.get()
    if step is None:
        raise UsageError("current_step() only works inside a step that a workflow runs")
    return step
