"""A run: one execution of a workflow, and what the store keeps of it.

All times are integer microseconds since the Unix epoch, by the store's clock. All durations are integer microseconds.
Values (input, output, attributes) are JSON bytes; errors are the JSON of :class:`perdure.model.failure.Failure`.
"""

from __future__ import annotations

from enum import StrEnum

from msgspec import Struct

from perdure.model.failure import decode_failure, summary
from perdure.model.gates import Ask

#: The number of the history format that this code writes. Older processes leave runs of a newer format alone.
FORMAT = 1

#: The namespace of runs that were started without one.
DEFAULT_NAMESPACE = "default"


class Status(StrEnum):
    """Where a run stands. See :data:`TERMINAL` and :data:`SETTLED` for the two families that callers wait for."""

    PENDING = "pending"
    RUNNING = "running"
    SUSPENDED = "suspended"
    BLOCKED = "blocked"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"
    DEAD = "dead"


#: A run in one of these never runs again, unless an operator requeues it.
TERMINAL = frozenset({Status.COMPLETED, Status.FAILED, Status.CANCELLED, Status.DEAD})

#: Nothing happens to a run in one of these until the world does something: all but pending and running.
SETTLED = TERMINAL | {Status.SUSPENDED, Status.BLOCKED}

#: Only a run in one of these can be requeued.
REQUEUABLE = frozenset({Status.FAILED, Status.DEAD})


class RunKey(Struct, frozen=True, gc=False):
    """Names one run for ever: an id may be used again after deletion, an incarnation (assigned by the store) never is."""

    id: str
    incarnation: int


class Parent(Struct, frozen=True, gc=False):
    """The run that started this one, and the position of the operation that did."""

    id: str
    incarnation: int
    seq: int


class NewRun(Struct, frozen=True, kw_only=True):
    """Everything a caller decides about a run before it exists."""

    id: str
    workflow: str
    version: str
    input: bytes
    seed: int
    namespace: str = DEFAULT_NAMESPACE
    priority: int | None = None
    tags: tuple[str, ...] = ()
    attributes: bytes | None = None
    origin: str | None = None
    #: Texts that go with it, its children and its next links, as JSON: see `perdure.model.carrier`.
    carrier: bytes | None = None
    parent: Parent | None = None
    #: The id under which the parent awaits this run: its end becomes a CHILD message of that name in the parent's inbox.
    #: (The next link of a chain keeps it, so that a parent that waits for `ship` hears the end of `ship~3`.) None: nobody.
    awaited_as: str | None = None
    depth: int = 0
    #: Not before this time. None: at once.
    start_at: int | None = None
    #: How long each link of the run may take from its due start; None: for ever.
    timeout: int | None = None
    format: int = FORMAT
    #: The gate that the whole run has to pass before its body begins. (The next link of a chain keeps the slot.)
    gate: Ask | None = None


class Run(Struct, frozen=True, kw_only=True):
    """A run as the store has it now."""

    id: str
    incarnation: int
    workflow: str
    version: str
    namespace: str
    status: Status
    input: bytes
    seed: int
    output: bytes | None
    error: bytes | None
    #: Who holds the run's lease (only while running).
    owner: str | None
    #: The fence: raised by every claim and cancel. A commit that names an older epoch is refused.
    epoch: int
    #: How many history rows there are.
    n: int
    #: How many messages the run was ever sent; :attr:`seen` is how many of them its last commit had seen.
    inbox: int
    seen: int
    #: When somebody must look at the run next; None: only a message can wake it. While running: the lease's end.
    wake_at: int | None
    #: True if a message makes the run due (it is parked on messages).
    listening: bool
    #: When the run times out as a whole; None: never.
    deadline: int | None
    timeout: int | None
    priority: int | None
    tags: tuple[str, ...]
    attributes: bytes | None
    origin: str | None
    carrier: bytes | None
    #: Since when nobody takes it, whatever its status; None: it is not paused.
    paused_at: int | None = None
    parent: Parent | None
    awaited_as: str | None
    depth: int
    format: int
    #: Claims of the orphaned run since it last made progress.
    recoveries: int
    #: The code that failed, if the run is blocked for its code.
    fingerprint: str | None
    created_at: int
    #: When the body first began; the workflow's first `now`.
    started_at: int | None
    updated_at: int
    ended_at: int | None
    #: The next link of a chain made by continue-as-new.
    continued_to: str | None
    #: The gate that it passes as a whole: it holds a slot of it from before its body begins to its end.
    gate: Ask | None = None

    @property
    def key(self) -> RunKey:
        return RunKey(self.id, self.incarnation)

    @property
    def reason(self) -> str | None:
        """Why the run is blocked, or did not complete, in words; None if there is nothing to say."""
        return None if self.error is None else summary(decode_failure(self.error))
