"""The Store port: where runs live. Every verb is a business transition, atomic and none optional.

Rules that every adapter keeps (each is checked by `perdure.testing.conformance`):

* A batch given to :meth:`Store.write` is applied in order; every write gets its answer at the same position. A write that
  fails for its own data is answered `Unstorable` and leaves nothing behind; the others are applied all the same.
* `TurnCommit` is applied only if the run is RUNNING with that owner, epoch and n. It then: appends the entries; deletes the
  consumed messages; gives back messages that came to a token whose wait is over (see *tokens*); registers waits; starts and
  joins children; cancels children; sends; sets values; and sets status, wake time and `seen`.

  - Ends or continues with an unread cancel, or ends with an unread update (number > seen; `messages.holds_up`): `Refused`,
    nothing applied.
  - Ends: unread token messages go back to their tokens; waits are removed; an awaited run's end becomes a message in its
    parent's inbox (kind CHILD, name `awaited_as`, payload the output, or the error with `failed`), in this order. Where the
    outcome is failed or completed, children that are not awaited go on; cancelled and dead and timed-out runs take everything
    below them along (an `error` of its own: the commit's), unless the commit `spares` it.
  - Continues: its end tells nobody. The successor inherits `parent` and `awaited_as`, and the messages that are still in the
    inbox move to it, in order, but for CHILD messages, which answer operations of the old link. A successor whose id is
    taken: `Unstorable`.
  - Parks (SUSPENDED) with an inbox number above `seen`, counting the messages this very commit caused (a join with
    an ended child, a buffered token message, a child that could not start): applied but for the parking, answered `Moved`
    with all messages above `seen`, status RUNNING.
  - `progress` sets `recoveries` to 0.

* *Children.* A `NewChild` whose id is taken: if that run has this parent (id, incarnation), it is treated as a join; else a
  CHILD message with `failed` and `endings.start_failure(id, taken=...)` goes to the parent's inbox.  A `Join` with a child of
  another parent or a missing child: the same failure. Joining sets `awaited_as` on the last live link of the child's chain.
  The store fills in the parent's id and incarnation of a `NewChild` (a run made by `Create` has no incarnation before).
  One that nobody awaits (no `awaited_as`) and that is there already is left alone.
* *Messages.* A message to a run increments `inbox`; if the run is SUSPENDED and `listening`, also `wake_at = now` (unless it
  is due already: a flood of messages must not push a run back in the line). A control message (kind CANCEL) wakes any SUSPENDED
  run so, listening or not: also one that sleeps, or whose start is ahead. A message to an id that continued goes to the
  last link; to an ended run: `Ended`; to no run: `Missing`. Same `dedup` to the same run (by the id that was addressed, of
  this incarnation) or (namespace, token) again, also after it was consumed or the run has ended: `Applied`, nothing is added.
  A message that a turn or a run's end sends where it cannot go is dropped.
* *Tokens.* Within a namespace, a message to a token goes to the oldest wait for it, which is thereby served (the next message
  goes to the next wait); without one it is kept at the token, first in first out. A new wait takes the oldest kept message.
  A wait that ends (`unwaits`, or the run's end) while its message lies unread in the inbox gives that message back to the
  token, in its place by arrival (ahead of all that came later), or to the next wait. Several are given back by arrival.
* *Events.* `Publish` gives an event to every wait for its name in its namespace whose facets are all among its own
  (`TurnCommit.listens`), starts runs, and feeds runs that collect events. An id that was published before in that namespace
  (and is not forgotten by now) changes nothing and is answered as it was then; under another name it is `Unstorable`.

  - Each wait that fits gets a message of its own (kind EVENT, the event's name, the wait's position as token), by age of the
    wait, and is thereby served: as with a token, it gets no other one, and its run is woken as by any message.
  - A start whose id is taken is passed over. A feed's message goes to the run of that id, following its chain, `Create`d
    before if there is none; where the chain has ended, the run begins as its next link, by which it is continued. A run of
    another workflow under that id: `Unstorable`.
  - An event that reached nobody is kept for `keep`: one copy, which goes to the first wait that fits. A new wait takes the
    oldest copy that fits among the `MOST_CANDIDATES` oldest that have its first facet (without facets: the oldest of all).
    A copy is gone when its time is over.
  - A wait that ends with its event unread gives it back if the event was to be kept, and reached this one wait only: to the
    oldest wait that fits, else it is kept again, in its place by arrival, for as long as it had been. Else it is dropped.
* *Subscriptions* say which events start runs of which workflows, for those who publish; the store only keeps them, one for
  each namespace (or none), workflow and version.
* *Gates.* An `Ask` gives its operation a ticket of the gate, which waits in line; then the gate *admits*: as long as it has a
  slot and its rate lets one through, the next in line holds one, and a message of kind GRANT and the operation's position as
  name goes to its run. An operation that has a ticket gets no other. Next in line is who has the greatest priority; of those,
  in a fair gate, whose fairness key was served longest ago (never: before all others); of those, who came first, or last
  (`lifo`). A window is opened by the first that is admitted in it. A gate takes its rules from the newest declaration
  (`stamp`) that came with an ask or by `Configure`.

  - A release takes the tickets, and what they brought into the inbox and lies there unread; then their gates admit, in order
    of (namespace, name, key). A turn's `releases` come after its `sends`, then its `asks`. All tickets of a run are
    released with its end, after its parent was told: of all runs that end together before any gate admits.
  - A new run with a `gate` (from `Create` or as a child) asks for it as `WHOLE_RUN`. As long as it waits it is SUSPENDED and
    listening, without wake time and deadline; the grant sets its deadline anew. With a `start_at` ahead, or after a requeue,
    it has no ticket before its claimer asks for one (by a turn). `Create` is answered `Full`, and nothing is done, where the
    run would have to wait and `depth` runs or more wait already. With a `turn` (it goes on from elsewhere) it is as with a
    `start_at`. Runs that an event starts have none. What a turn asks for as
    `WHOLE_RUN` becomes the run's `gate` if it has none.
  - A run that continues hands its `gate`, that ticket and its grant to the successor, and releases the others.
  - A gate whose `look_again` has come admits with the next claim of anybody, before that claims; at most `MOST_ADMITTED` at
    one go. A gate that is `forgettable` is forgotten.
* *Streams.* A turn's `chunks` and those of an `Append` go to the end of their streams, in order, and get offsets that are
  greater than all that were given before in the store. Writes to one run's streams are ordered as its turns are: a reader that
  has seen an offset never sees a smaller one later. An `Append` is `Fenced` unless the run is RUNNING with that owner and
  epoch; a chunk that is there already (epoch, seq, attempt, stream, index) is passed over; of data that cannot be stored it is
  `Unstorable` whoever holds the run. A stream is deleted with its run, and with nothing else.
* *Cascade.* Cancelling a run cancels every live run below it (parent links, also below ended ones, tolerant of cycles);
  ended ones are untouched. Cancels of an id that continued go to the last link, like messages. What a turn's `cancels` end
  has the error `endings.cancelled_failure()`.
* *Claim.* Due = `wake_at <= now`, not paused, and PENDING, SUSPENDED, BLOCKED or RUNNING (an orphan: its lease ended), within
  the namespaces and definitions asked for. Greater priority first (absent = 0), then older wake time; at most `limit`; the
  namespaces take turns within a priority. Claiming sets RUNNING, owner, epoch + 1, wake_at = now + lease and `listening`
  False; an orphan's `recoveries` + 1. A claimed BLOCKED run keeps its fingerprint in the answer only.
* *Paused* (`paused_at`) is a run beside its status: it is not claimed, and not blocked for want of somebody to serve it. All
  else goes on: messages come, it can be cancelled, and whoever holds it may commit. The successor of a paused run is paused.
  A requeue that revives a run ends its pause.
* *New runs* are PENDING and due now; with a `start_at` ahead SUSPENDED, not listening, due then. The deadline is the due start
  plus the timeout; a requeue sets it anew. A blank id is `Unstorable`, as are text with lone surrogates and integers beyond
  64 bits, anywhere in a write that is not answered `Fenced`, `Refused` or `Exists` in any case. Text with NUL may be, too: not
  every store can take it.
* *Attributes* are any bytes, kept as they are; a turn that has `attributes` puts its own in their place. A run is found by
  those of them that `perdure.model.attributes.searchable` names, from its creation (or that turn) until it is deleted.
* *The fleet.* A process says with every beat what it is and serves; it is a member until `ttl` after its last beat, or until
  it departs; those that expired are forgotten at the next beat of anybody. A due run that no member serves is blocked by
  `block_unserved`, and `unblock` of whoever serves it makes it due again: its fingerprint is blank, which no code has. A beat
  that is answered before `block_unserved` is called is seen by it, and none slips between its look and its writing: so a
  process that first beats and then unblocks never leaves behind a run that was blocked for want of it.
* *Users' transactions.* A step may be made in a transaction on the store's own database (`Store.partner`). Its row there, by
  incarnation and position, is written with what the user writes: it has the output once that is committed, and whoever
  makes the step again adopts it, if it bears the same name. It is committed only while the run is RUNNING with that owner and
  epoch; a second one who enters waits until the first has committed or rolled back. The rows go when their run is deleted. A
  `Create` without a turn and a `Send` can be written in a user's transaction, too, by the same rules: they are there for
  others if and when he commits. What is refused leaves his transaction as it was.
* `updated_at` is when anything but a renewal last changed the row. The store stamps each entry's `commit`.
* Time is the store's: `now` in all rules is the adapter's clock, never a caller's.

Loop: the async verbs are called from one event loop at a time (the one that called `open`). Threads: only the `Renewer` is
used from another thread. Errors: `StoreUnavailable` where the store cannot be reached or stays busy; `StoreMismatch` from
`open` where the data is not ours or newer than we are.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from typing import Final, Protocol

from msgspec import Struct

from perdure.model.attributes import Condition
from perdure.model.commit import Answer, Write
from perdure.model.events import Subscription
from perdure.model.history import Entry
from perdure.model.messages import Message
from perdure.model.run import Run, RunKey, Status
from perdure.model.stream import StoredChunk
from perdure.ports.databases import Partner
from perdure.ports.fleet import Member, Process, Serves
from perdure.ports.gates import Gate

#: So many runs at most are blocked by one call of `Store.block_unserved`.
MOST_UNSERVED: Final = 200


class ClaimRequest(Struct, frozen=True, kw_only=True):
    owner: str
    #: Only runs of these namespaces; None: of all (an operator).
    namespaces: tuple[str, ...] | None
    serves: tuple[Serves, ...]
    limit: int
    #: Microseconds.
    lease: int
    #: The newest history format this process understands.
    format: int


class Claimed(Struct, frozen=True):
    """A run that now is the claimer's, and its unconsumed messages, oldest first."""

    run: Run
    messages: tuple[Message, ...]
    #: True if it was claimed from a lost owner: local steps may have been cut off in flight.
    orphaned: bool
    #: The status it had before the claim.
    was: Status


class Held(Struct, frozen=True, gc=False):
    """A claim that a process believes to hold."""

    incarnation: int
    epoch: int
    #: The highest inbox number the holder knows.
    inbox: int


class Renewal(Struct, frozen=True):
    """What became of one held run: `lost`, or the messages above the number the holder knew.

    `locked`: it is still held, but somebody else is at its row just now, so that its lease ends when it did before; to be
    renewed the next time. While it is locked, nobody can claim it.
    """

    incarnation: int
    lost: bool
    messages: tuple[Message, ...] = ()
    locked: bool = False


class RunQuery(Struct, frozen=True, kw_only=True):
    """Which runs to list: all conditions hold together. Newest first, by (created_at, incarnation)."""

    statuses: tuple[Status, ...] = ()
    workflow: str | None = None
    namespace: str | None = None
    origin: str | None = None
    #: All must be among the run's.
    tags: tuple[str, ...] = ()
    #: Of its attributes. All must hold.
    where: tuple[Condition, ...] = ()
    parent: RunKey | None = None
    limit: int = 50
    #: Continue below this incarnation (exclusive), for the next page.
    before: int | None = None


class Facet(StrEnum):
    """By what runs are counted."""

    STATUS = "status"
    WORKFLOW = "workflow"
    ORIGIN = "origin"
    TAG = "tag"


class Count(Struct, frozen=True):
    """How many runs have these values, in the order of the facets asked for. None: no origin, or no tag."""

    values: tuple[str | None, ...]
    runs: int


class Standing(Struct, frozen=True, gc=False):
    """How a run stands, in short: for whoever waits until it stands otherwise."""

    status: Status
    wake_at: int | None
    updated_at: int


class Finding(Struct, frozen=True):
    """A run that somebody must hear of, and why: what must not exist (see `Store.audit`), or what nobody serves."""

    run: RunKey
    what: str


class Renewer(Protocol):
    """Says from a thread of its own, on a connection of its own, that its process lives. Every method blocks."""

    def renew(self, owner: str, lease: int, held: Sequence[Held]) -> Sequence[Renewal]:
        """Set `wake_at = now + lease` on all that are still held at that epoch; answer for each, in order.

        One that is locked by somebody else costs none of the others; a store that knows no such locks has none.
        """
        ...

    def release(self, owner: str, held: Sequence[Held]) -> None:
        """Give runs back, due now: PENDING, no owner, epoch + 1, not counted as a recovery. Those lost are passed over.

        One that somebody else has locked keeps none of the others from being given back.
        """
        ...

    def beat(self, process: Process, ttl: int) -> None:
        """The process is a member from now until `now + ttl`; what it said before is replaced."""
        ...

    def depart(self, owner: str) -> None:
        """Forget a member. One that is not there is passed over."""
        ...

    def close(self) -> None: ...


class Store(Protocol):
    """See the head of this module for the rules."""

    async def open(self, *, migrate: bool = True) -> None:
        """Connect and bring the schema up to date (with `migrate` False: raise `StoreMismatch` if it is not)."""
        ...

    async def close(self) -> None:
        """Finish what was accepted, then let go of everything. Idempotent.

        A store that was opened several times, by apps that share it, is closed by the last of as many closes.
        """
        ...

    def now(self) -> int:
        """The store's time now."""
        ...

    async def write(self, batch: Sequence[Write]) -> Sequence[Answer]:
        """Apply the batch in order, durably; one answer a write."""
        ...

    async def partner(self) -> Partner:
        """What works within users' transactions on this store. Raises `UsageError` where there is no database for that."""
        ...

    async def claim(self, request: ClaimRequest) -> Sequence[Claimed]: ...

    async def next_wake(self, request: ClaimRequest) -> int | None:
        """The earliest `wake_at` among runs that `request` could claim, due or not, and all gates; None if there is none."""
        ...

    async def release(self, owner: str, held: Sequence[Held]) -> None:
        """As :meth:`Renewer.release`."""
        ...

    def renewer(self) -> Renewer:
        """A new renewer. Call from the loop's thread; use from any one thread."""
        ...

    async def unblock(self, serves: Sequence[Serves]) -> int:
        """Make due every BLOCKED run of these definitions that failed on another fingerprint; returns how many."""
        ...

    async def fleet(self) -> Sequence[Member]:
        """The members that have not expired (`expires_at > now`), by (started_at, owner)."""
        ...

    async def subscribe(self, subscriptions: Sequence[Subscription]) -> None:
        """Keep them, each in place of what was there for its namespace, workflow and version."""
        ...

    async def subscriptions(self) -> Sequence[Subscription]:
        """All, in no order."""
        ...

    async def block_unserved(self, grace: int) -> Sequence[Finding]:
        """Block runs that are due and that no process can take.

        Those that are PENDING, SUSPENDED or orphaned, with `wake_at <= now - grace` microseconds, whose (workflow, version)
        no member serves within its namespaces; a member that drains still counts. They become BLOCKED: no owner, no wake
        time, not listening, `error` = `endings.unserved_failure`, `fingerprint` "", and of an orphan epoch + 1. At most
        `MOST_UNSERVED`, by incarnation; `what` is the error's message.
        """
        ...

    async def history(self, incarnations: Sequence[int]) -> Mapping[int, Sequence[Entry]]:
        """The whole histories, in order, of these runs (an empty one for a run that is gone)."""
        ...

    async def get(self, run_id: str) -> Run | None: ...

    async def standing(self, incarnations: Sequence[int]) -> Mapping[int, Standing]:
        """How these runs stand now, however many they are; those that are gone are not among them. Light: no payloads."""
        ...

    async def runs(self, query: RunQuery) -> Sequence[Run]: ...

    async def count(self, query: RunQuery, by: Sequence[Facet]) -> Sequence[Count]:
        """How many runs match, whatever the query's `limit` and `before`: for each combination of values that there is.

        By nothing: one count, which may be 0. By tag, a run counts once for each of its tags.
        """
        ...

    async def messages(self, incarnation: int) -> Sequence[Message]:
        """The unconsumed messages of a run, oldest first."""
        ...

    async def values(self, incarnation: int, keys: Sequence[str]) -> Mapping[str, bytes]:
        """The newest value that the run published under each of these keys, however many; those without one are not in it."""
        ...

    async def gates(self, *, namespace: str | None = None, name: str | None = None, limit: int = 20) -> Sequence[Gate]:
        """How gates stand (None: of all namespaces, of all names), by (namespace, name, key); at most `MOST_GATES`.

        Each with at most `limit` of those that hold it, and as many of those that wait.
        """
        ...

    async def chunks(self, incarnation: int, stream: str, after: int, limit: int) -> Sequence[StoredChunk]:
        """The first chunks of a stream of the run with an offset above `after`, at most `limit`."""
        ...

    async def heads(self, asked: Sequence[tuple[int, str]]) -> Sequence[int]:
        """For each (incarnation, stream), in order, the offset of its last chunk; 0 where there is none. Light."""
        ...

    async def audit(self, *, heal: bool = True) -> Sequence[Finding]:
        """Look for what must not exist, and (with `heal`) make those runs due.

        A SUSPENDED, listening run with a message above what it has seen and no wake time; a PENDING run, or a RUNNING run,
        without a wake time; a SUSPENDED run that is not listening and has no wake time.
        """
        ...

    def on_change(self, callback: Callable[[], None]) -> Callable[[], None]:
        """Call `callback` (any thread) when another process may have written; returns an unsubscriber. Only ever a hint."""
        ...
