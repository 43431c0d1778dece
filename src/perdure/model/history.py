"""History: a run's memory, an append-only list of entries. A reader folds it by `seq` into steps (`perdure.model.steps`).

The n-th entry of a run has position n (0-based). Entries that share `commit` (the n at which their commit began) became
durable together; replay compares the operations issued up to each such boundary.
"""

from __future__ import annotations

from enum import IntEnum, StrEnum

from msgspec import Struct


class Event(IntEnum):
    """What an entry says. The numbers are stored: never renumber."""

    SCHEDULED = 0  # the body issued operation `seq`
    ATTEMPT_FAILED = 1  # an attempt of a step failed and will be retried at `due`
    ATTEMPT_CUT = 2  # an attempt was in flight when its process was lost; it runs again
    RESOLVED = 3  # operation `seq` has the result `payload`
    FAILED = 4  # operation `seq` raised the failure `payload`
    ABANDONED = 5  # nobody awaits operation `seq` any more (its await was cancelled)
    MARKER = 6  # a patch marker called `name`
    CANCEL = 7  # a cancel with undo was delivered to the body (`payload`: a `model.cancelling.CancelOrder`)
    END = 8  # the run ended with status `name`
    REQUEUED = 9  # an operator revived the run: failed operations up to here are tried afresh
    LOGGED = 10  # what an attempt of step `seq` said (see `perdure.model.steplog`), just before what came of it
    # nobody awaits operation `seq` any more, but it goes on: it has an undo, or is a child that is being undone
    LET_GO = 11
    # What is before is a copy of the history of run `name`, up to where it issued operation `seq`. The last `payload` entries
    # of it are results that came later, to operations before that one: they are delivered first, and all else is new.
    FORKED = 12
    GATED = 13  # step `seq` has to pass the queue `name` before it begins


class Op(StrEnum):
    """The kinds of operation a body can issue. An operation takes the next position (`seq`) of its run."""

    STEP = "step"  # a registered step: may run anywhere that serves its name
    LOCAL = "local"  # a closure of the body: runs where the body runs
    TIMER = "timer"
    SIGNAL = "signal"  # wait for a message by name or token, perhaps until `due`
    EVENT = "event"  # wait for an event whose payload fits the match `payload`, perhaps until `due`
    CHILD = "child"  # start (or join) a child run and wait for its end
    SPAWN = "spawn"  # start a child run; resolves never
    JOIN = "join"  # wait for the end of a child started before
    UPDATE = "update"  # wait for an update by name, perhaps until `due`
    SEND = "send"  # send a signal to a token; resolves never
    VALUE = "value"  # publish a value under a key; resolves never
    ATTRIBUTES = "attributes"  # put attributes over the run's; resolves never
    STREAM = "stream"  # write to a stream; resolves never. What was written is there, and not in the history


#: Operations that nobody waits for: they are done once they are written.
MOMENTS = frozenset({Op.SPAWN, Op.SEND, Op.VALUE, Op.ATTRIBUTES, Op.STREAM})


class Entry(Struct, frozen=True, gc=False):
    """One row of history."""

    event: Event
    seq: int  # -1 where the entry belongs to no operation
    op: Op | None
    name: str
    payload: bytes | None
    #: The run's virtual now at which it happened.
    at: int
    #: A timer's or bounded wait's deadline; of a failed attempt: when the next one starts.
    due: int | None = None
    #: When the attempt this entry reports began, by the store's clock.
    began: int | None = None
    #: The n at which the commit that wrote this entry began.
    commit: int = 0
