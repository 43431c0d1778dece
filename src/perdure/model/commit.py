"""What stores apply: each `Write` is one business transition, whole or not at all; each gets one `Answer`.

A batch of writes is applied in order in one transaction where the store can; a write that cannot be stored is answered
`Unstorable` on its own and never hurts its neighbours.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TypeAlias

from msgspec import Struct

from perdure.model.events import EventWait, Publish
from perdure.model.gates import Ask, Rules
from perdure.model.history import Entry
from perdure.model.messages import Message, Outgoing
from perdure.model.run import NewRun, Run, RunKey, Status
from perdure.model.stream import NewChunk


class TokenWait(Struct, frozen=True, gc=False):
    """Operation `seq` waits for a message to `token`."""

    seq: int
    token: str


class NewChild(Struct, frozen=True, gc=False):
    """A child to be started by operation `seq`. If its id exists with this same parent, it is joined (see `Join`).

    The store sets the child's `parent` to the committing run and `seq` (a run's first turn does not know its incarnation
    yet), whatever `run.parent` says.
    """

    seq: int
    run: NewRun
    #: As `Join.again`, if it is joined.
    again: bool = False


class Join(Struct, frozen=True, gc=False):
    """Operation `seq` awaits the end of child `child_id`; if it has ended, its result comes at once, as a message."""

    seq: int
    child_id: str
    #: After a requeue of the parent: a failed or dead child is waited for, since it may be requeued too.
    again: bool = False


class TurnCommit(Struct, frozen=True, kw_only=True):
    """Everything one turn writes. Fenced by (incarnation, owner, epoch, n)."""

    run: RunKey
    owner: str
    epoch: int
    #: History rows before this commit; the entries go to positions n, n+1, ...
    n: int
    entries: tuple[Entry, ...]
    #: The status the turn ends in. RUNNING keeps the lease; SUSPENDED and BLOCKED park; the terminal ones end the run.
    status: Status
    #: When parked: the next time somebody must look. While RUNNING: ignored, the lease's end stays as it is.
    wake_at: int | None = None
    listening: bool = False
    #: The highest inbox number the turn has seen. Parking with a higher one in the inbox is answered `Moved`.
    seen: int = 0
    #: Inbox numbers this turn took out of the inbox.
    consumed: tuple[int, ...] = ()
    waits: tuple[TokenWait, ...] = ()
    #: Waits for events.
    listens: tuple[EventWait, ...] = ()
    #: Positions whose wait for a token or event is over, resolved or abandoned.
    unwaits: tuple[int, ...] = ()
    children: tuple[NewChild, ...] = ()
    joins: tuple[Join, ...] = ()
    #: Ids of children to cancel, with all below them. Those that ended, or are not this run's children, are passed over.
    cancels: tuple[str, ...] = ()
    #: The run ends as CANCELLED with undo: what lives below it was told so, too, and goes on until it has undone its own.
    spares: bool = False
    sends: tuple[Outgoing, ...] = ()
    values: tuple[tuple[str, bytes], ...] = ()
    #: The run's attributes from now on; None: as they were.
    attributes: bytes | None = None
    #: Gates to pass, and the positions whose slots (or places in line) are given back. The latter come first.
    asks: tuple[Ask, ...] = ()
    releases: tuple[int, ...] = ()
    #: What the body wrote to streams, in order.
    chunks: tuple[NewChunk, ...] = ()
    #: First turn: the virtual now at which the body began.
    started_at: int | None = None
    output: bytes | None = None
    error: bytes | None = None
    #: Continue-as-new: the next link. Unread messages move to it in the same transaction.
    successor: NewRun | None = None
    #: The code that failed, for a run that is BLOCKED by its code.
    fingerprint: str | None = None
    #: True if the turn got further: resets the recovery count.
    progress: bool = True


class Create(Struct, frozen=True, kw_only=True):
    """Start a run. With `turn`, its first turn is committed too and the run is held by the turn's owner at epoch 1.

    The turn's run key carries incarnation 0 and n 0; the store assigns the incarnation. `turn.wake_at` is the lease's end
    if the turn leaves the run RUNNING. On an existing id nothing is created, the turn is discarded and the answer is
    `Exists`; `messages` are sent in both cases (signal-with-start), to the run that has the id then (`Ended`, if that one
    has ended and one could not be delivered).
    """

    run: NewRun
    turn: TurnCommit | None = None
    messages: tuple[Outgoing, ...] = ()
    #: Microseconds that the turn's owner holds the run if a turn that wants to park is answered `Moved`.
    lease: int = 30_000_000


class Send(Struct, frozen=True):
    """Put a message into an inbox, or keep it at its token."""

    message: Outgoing


class Append(Struct, frozen=True, kw_only=True):
    """Write to streams of a run that is held, while a step of it runs. Fenced by (incarnation, owner, epoch).

    The same chunk again (epoch, seq, attempt, stream, index) is passed over: whoever does not know whether it was written asks
    again.
    """

    run: RunKey
    owner: str
    epoch: int
    chunks: tuple[NewChunk, ...]


class Cancel(Struct, frozen=True):
    """End a live run as cancelled (its body never runs again) with everything below it; tells a waiting parent.

    Bumps the epoch, so that whoever executes it is fenced. `error` is the failure to store on each run.
    """

    run_id: str
    error: bytes
    #: Only if the run still is this incarnation; None: whatever has the id.
    incarnation: int | None = None


class Requeue(Struct, frozen=True):
    """Revive a failed or dead run: pending, due now, no owner, no error, recovery count 0, and a REQUEUED entry.

    A blocked run is tried again as it is: it becomes due now, and nothing else of it changes. Any other status is left as it
    is, byte for byte, and answered `Changed` with no runs. `seen` stays: what is unread in the inbox comes with the next claim.
    """

    run_id: str
    #: As in `Cancel`.
    incarnation: int | None = None


class Way(StrEnum):
    """What an operator does to a live run."""

    #: Nobody claims it, until it is unpaused. Whoever holds it goes on until it parks.
    PAUSE = "pause"
    #: It may be claimed again. Its deadline moves on by the time that it was paused.
    UNPAUSE = "unpause"
    #: Taken from whoever holds it, and due now: pending, no owner, epoch + 1, not counted as a recovery.
    REDISPATCH = "redispatch"


class Steer(Struct, frozen=True):
    """Pause a live run, unpause it, or take it from its holder. Of an id that continued, the last link, as with `Cancel`.

    A run that stands so already (for REDISPATCH: that nobody holds) is left as it is, and answered `Changed` with no runs.
    """

    run_id: str
    way: Way
    #: As in `Cancel`.
    incarnation: int | None = None


class Delete(Struct, frozen=True):
    """Remove a run, its history, inbox, waits, values and everything below it, and the same of the links that continue it.

    Live members are cancelled first.
    """

    run_id: str
    error: bytes
    #: As in `Cancel`.
    incarnation: int | None = None


class Configure(Struct, frozen=True):
    """Declare what the gate of this name lets through: from now on, and for those that wait already."""

    name: str
    rules: Rules
    #: None: in every namespace that has such a gate, and in `default`.
    namespace: str | None = None


Write: TypeAlias = TurnCommit | Create | Send | Publish | Append | Cancel | Requeue | Steer | Delete | Configure


class Applied(Struct, frozen=True):
    """The write is durable."""

    #: Of Create, TurnCommit, Append: the run's key (with its incarnation). Of Send: the run whose inbox it went to, None if it
    #: was there before or is kept at its token.
    key: RunKey | None = None


class Moved(Struct, frozen=True):
    """The turn wanted to park but the inbox had moved: applied, the run stays RUNNING with its lease; go on with these."""

    key: RunKey
    messages: tuple[Message, ...]


class Refused(Struct, frozen=True):
    """The turn wanted to end or continue over unread control messages: not applied; deliver these first."""

    messages: tuple[Message, ...]


class Fenced(Struct, frozen=True):
    """The commit named an old owner, epoch or n, or the run is gone: not applied; the holder must drop the run."""

    #: The run as it stands; None if it is gone.
    run: Run | None


class Exists(Struct, frozen=True):
    """Create met an existing id: nothing was created."""

    run: Run


class Ended(Struct, frozen=True):
    """The write came too late: the run has ended. Nothing was changed."""

    run: Run


class Missing(Struct, frozen=True):
    """There is no such run, or it is not the incarnation that was asked for."""

    run_id: str


class Changed(Struct, frozen=True):
    """Cancel, Requeue, Steer, Delete: these runs were changed (deleted ones as they last stood), the named one first."""

    runs: tuple[Run, ...]


class Published(Struct, frozen=True):
    """The event is durable, as far as anybody is to have it."""

    #: How many waits, new runs and collecting runs it went to. Of an id that was published before: what was answered then.
    reached: int
    #: Those runs, in no order, each once; none if it was published before.
    runs: tuple[RunKey, ...] = ()


class Full(Struct, frozen=True):
    """Create met a gate for which as many runs wait as may: nothing was created."""

    waiting: int


class Unstorable(Struct, frozen=True):
    """The store cannot take this write's data; nothing of it was applied, its neighbours were."""

    reason: str


Answer: TypeAlias = (
    Applied | Moved | Refused | Fenced | Exists | Ended | Missing | Changed | Published | Full | Unstorable
)
