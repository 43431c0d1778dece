"""What goes into a turn and what comes out of it."""

from __future__ import annotations

import logging
from collections.abc import Coroutine
from typing import Any, Protocol, TypeAlias

from msgspec import Struct

from perdure.core.operation import Operation
from perdure.model.errors import PerdureError
from perdure.model.failure import Failure
from perdure.model.history import Entry
from perdure.model.messages import Message
from perdure.model.run import NewRun


class Body(Protocol):
    """A workflow definition as the core sees it."""

    def start(self, instance: Any, /) -> Coroutine[Any, Any, Any]:
        """Make the body's coroutine. Called inside the instance's loop; may raise what the body may raise."""
        ...

    def encode_result(self, value: Any, /) -> bytes:
        """The stored form of what the body returned; may raise."""
        ...


class StepDone(Struct, frozen=True, gc=False):
    """A step's final result: the value's bytes, or with `failed` the failure's."""

    seq: int
    payload: bytes
    failed: bool
    #: When it came, by the store's clock.
    at: int
    #: When its last attempt began.
    began: int | None = None


#: What the world brings to a turn. (Due timers are found by the turn itself.)
Arrival: TypeAlias = StepDone | Message


class Completed(Struct, frozen=True):
    output: bytes


class Failed(Struct, frozen=True):
    failure: Failure


class Cancelled(Struct, frozen=True):
    """A cancel was delivered to the body, and it has finished cleaning up."""

    reason: str = "cancelled"


class Continued(Struct, frozen=True):
    """The run goes on as `successor`."""

    successor: NewRun


class Blocked(Struct, frozen=True):
    """A fault of the code, not of the business."""

    error: PerdureError


#: How a turn left the body; None: waiting.
Outcome: TypeAlias = Completed | Failed | Cancelled | Continued | Blocked


class Turn:
    """The result of one `advance`: what to write, what to start, what to stop."""

    __slots__ = ("abandoned", "consumed", "entries", "issued", "outcome", "passed_on", "reopened", "resolved", "said")

    def __init__(self) -> None:
        #: New history, in order.
        self.entries: list[Entry] = []
        #: New operations, in order. One may be abandoned in the same turn.
        self.issued: list[Operation] = []
        self.abandoned: list[Operation] = []
        #: After a requeue: open operations whose wait the store has dropped with the run's end.
        self.reopened: list[Operation] = []
        self.resolved: list[Operation] = []
        #: Numbers of the messages taken out of the inbox.
        self.consumed: list[int] = []
        #: What the body said with `perdure.log`: for when the turn is committed.
        self.said: list[logging.LogRecord] = []
        #: Children that are to be cancelled with undo, as this run was.
        self.passed_on: list[str] = []
        self.outcome: Outcome | None = None
