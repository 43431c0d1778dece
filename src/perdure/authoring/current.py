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


class Stop:
    """Whether anybody still wants what an attempt does. Any thread may ask."""

    __slots__ = ("asked",)

    def __init__(self) -> None:
        self.asked = False


running: ContextVar[CurrentStep | None] = ContextVar("perdure_step", default=None)
stop: ContextVar[Stop | None] = ContextVar("perdure_stop", default=None)


def current_step() -> CurrentStep:
    """The step that is running here. Raises `UsageError` outside a step."""
    step = running.get()
    if step is None:
        raise UsageError("current_step() only works inside a step that a workflow runs")
    return step


def cancelled() -> bool:
    """True once nobody wants what the step that is running here does: its run was cancelled or ended, has gone to another
    process, gave up waiting for the step, or the attempt took longer than its timeout.

    For sync steps: a thread cannot be stopped from outside, so a long one asks now and then, and returns or raises. What it
    does after that counts for nothing, either way. Raises `UsageError` outside a step.
    """
    found = stop.get()
    if found is None:
        raise UsageError("cancelled() only works inside a step that a workflow runs")
    return found.asked
