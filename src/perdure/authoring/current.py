"""Which step is running: what a step may ask about itself."""

from __future__ import annotations

from collections.abc import Mapping
from contextvars import ContextVar
from types import MappingProxyType
from typing import Final

from msgspec import Struct

from perdure.model.carrier import traceparent
from perdure.model.errors import UsageError

_NOTHING: Final[Mapping[str, str]] = MappingProxyType({})


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
    workflow: str = ""
    version: str = ""
    namespace: str = ""
    #: True for a closure of the body (`ctx.local_step`), False for a step that was declared.
    local: bool = False
    #: What goes with the run from whoever started it.
    carrier: Mapping[str, str] = _NOTHING

    @property
    def traceparent(self) -> str | None:
        """The trace that the run belongs to (W3C), if it was given one."""
        return traceparent(self.carrier)


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
