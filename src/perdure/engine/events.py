"""Lifecycle events: what happened, told after it became durable, in this process, to whoever subscribed."""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Callable
from typing import Any

from msgspec import Struct

from perdure.model.errors import UsageError
from perdure.model.shown import shown

log = logging.getLogger("perdure.engine")


class Lifecycle(Struct, frozen=True):
    """Something that happened to a run or one of its steps.

    `kind`: `run.started`, `run.suspended`, `run.blocked`, `run.completed`, `run.failed` (also for cancelled, timed out and
    dead runs: see `status`), `step.started`, `step.completed`, `step.failed`, `step.retrying`.
    """

    kind: str
    run_id: str
    incarnation: int
    workflow: str
    version: str
    namespace: str
    #: Microseconds, the store's clock.
    at: int
    #: Of runs.
    status: str | None = None
    #: Of steps.
    step: str | None = None
    seq: int | None = None
    attempt: int | None = None
    error: str | None = None


Listener = Callable[[Lifecycle], None]


class Events:
    """The subscribers of one app, whether or not it is open. Event loop only, once it is."""

    def __init__(self) -> None:
        self._listeners: list[Listener] = []
        self._on_dead: list[Callable[[str], None]] = []

    @property
    def wanted(self) -> bool:
        """False if nobody listens: then no event need be made."""
        return bool(self._listeners)

    def subscribe(self, listener: Listener) -> Callable[[], None]:
        """Call `listener` with every event, on the loop; returns the unsubscriber. What it raises is logged and ignored."""
        return _add(self._listeners, listener)

    def on_dead(self, listener: Callable[[str], None]) -> Callable[[], None]:
        """As `subscribe`, for the ids of runs that are given up as dead."""
        return _add(self._on_dead, listener)

    def emit(self, event: Lifecycle) -> None:
        for listener in list(self._listeners):
            call(listener, event)

    def dead(self, run_id: str) -> None:
        for listener in list(self._on_dead):
            call(listener, run_id)


def _add(listeners: list[Any], listener: Any) -> Callable[[], None]:
    check_listener(listener)
    listeners.append(listener)

    def remove() -> None:
        if listener in listeners:
            listeners.remove(listener)

    return remove


def call(listener: Callable[[Any], Any], argument: Any) -> None:
    """Call a user's listener; what it raises is its own business."""
    try:
        listener(argument)
    except (Exception, asyncio.CancelledError):
        log.exception("perdure: a subscriber raised")


def check_listener(listener: object) -> None:
    """Raise `UsageError` for what cannot be called as a listener: plain functions are, on the loop, and not awaited."""
    if not callable(listener) or inspect.iscoroutinefunction(listener):
        raise UsageError(
            f"a subscriber must be a plain function, not {shown(listener)}; it may start a task if it has to await"
        )
