"""The data of a memory store: dicts of frozen values, with a journal that takes back what a failed write did."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import TypeVar

from msgspec import Struct
from msgspec.structs import replace

from perdure.model.events import Subscription
from perdure.model.gates import GateKey, Rules
from perdure.model.history import Entry
from perdure.model.messages import Message
from perdure.model.run import Run
from perdure.model.stream import NewChunk, StoredChunk
from perdure.ports.fleet import Member

K = TypeVar("K")
V = TypeVar("V")

#: A token within its namespace.
Token = tuple[str, str]


class Wait(Struct, frozen=True):
    """Operation `seq` of a run waits for a message to a token."""

    incarnation: int
    seq: int
    token: Token
    #: Of a wait for an event: its age among all, the event, and what it asks of its payload.
    place: int = 0
    event: str | None = None
    facets: tuple[str, ...] = ()


class KeptEvent(Struct, frozen=True):
    """An event that reached nobody."""

    namespace: str
    event: str
    payload: bytes
    facets: tuple[str, ...]
    arrival: int
    at: int
    expires_at: int


class PublishedId(Struct, frozen=True):
    """An event's id that was used."""

    event: str
    reached: int
    forget_at: int | None


class Letter(Struct, frozen=True):
    """A message in an inbox, or (with number 0) kept at its token."""

    message: Message
    #: Messages to one token keep this order for ever, also where they are given back.
    arrival: int
    #: The wait it was given to, for one that came by token.
    wait: Wait | None = None
    #: Of an event that reached this one wait only, and would have been kept: what is given back.
    back: KeptEvent | None = None


class Line(Struct, frozen=True):
    """Who waits at a token, and what is kept there; never both. Oldest first. (Of events: who waits with one first facet.)"""

    waits: tuple[Wait, ...] = ()
    kept: tuple[Letter, ...] = ()


class Place(Struct, frozen=True):
    """A ticket: a slot of a gate, or a place in its line."""

    incarnation: int
    seq: int
    priority: int
    fairness: str
    #: The order in which they came.
    arrival: int
    since: int


class GateRow(Struct, frozen=True):
    """A gate with its tickets, by arrival."""

    rules: Rules
    held: tuple[Place, ...] = ()
    waiting: tuple[Place, ...] = ()
    #: The window: when it was opened, and how many were admitted in it.
    opened: int = 0
    used: int = 0
    #: Fairness: how many were served ever, and the newest service of each key.
    services: int = 0
    served: tuple[tuple[str, int], ...] = ()
    #: When somebody must look at it though nobody releases it.
    wake_at: int | None = None


class Actor(Struct, frozen=True):
    """A run with all that hangs on it but its history."""

    run: Run
    #: Unconsumed messages, oldest first.
    inbox: tuple[Letter, ...] = ()
    #: Waits, for tokens and events, that no message has come for yet.
    waits: tuple[Wait, ...] = ()
    values: tuple[tuple[str, bytes], ...] = ()
    #: The incarnation that continues it. (`run.continued_to` is an id, which a stranger may have by now.)
    successor: int | None = None


class Tables:
    """All writing goes through `put` and `drop`, so that `rollback` can take it back. Not locked: its owner is."""

    def __init__(self) -> None:
        self.actors: dict[int, Actor] = {}
        self.ids: dict[str, int] = {}
        self.entries: dict[tuple[int, int], Entry] = {}
        self.lines: dict[Token, Line] = {}
        #: (the incarnation or token that was addressed, the message's own id), of all messages ever accepted.
        self.dedups: dict[tuple[int | Token, str], None] = {}
        #: Index: a parent's incarnation to those of its children, in the order they were started.
        self.children: dict[int, tuple[int, ...]] = {}
        #: Index: incarnation to wake time, of the runs that have one.
        self.waking: dict[int, int] = {}
        #: By namespace and event, oldest first.
        self.kept_events: dict[Token, tuple[KeptEvent, ...]] = {}
        #: By namespace and id.
        self.published: dict[Token, PublishedId] = {}
        #: By namespace, workflow and version.
        self.subscriptions: dict[tuple[str | None, str, str], Subscription] = {}
        self.gates: dict[GateKey, GateRow] = {}
        #: Index: a run's tickets, the gate of each position.
        self.tickets: dict[int, tuple[tuple[int, GateKey], ...]] = {}
        #: By incarnation and name.
        self.streams: dict[tuple[int, str], tuple[StoredChunk, ...]] = {}
        #: What tells chunks of a run apart: who wrote them, and which of theirs they are.
        self.chunks: dict[tuple[int, int, int, int, str, int], None] = {}
        #: By owner.
        self.members: dict[str, Member] = {}
        # Never taken back: a gap does no harm, a number that is used twice does.
        self._last = 0
        self._undo: list[Callable[[], object]] = []

    def next_number(self) -> int:
        """A number that was never given before: an incarnation, or an arrival."""
        self._last += 1
        return self._last

    def put(self, table: dict[K, V], key: K, value: V) -> None:
        self._remember(table, key)
        table[key] = value

    def drop(self, table: dict[K, V], key: K) -> None:
        self._remember(table, key)
        table.pop(key, None)

    def _remember(self, table: dict[K, V], key: K) -> None:
        if key in table:
            self._undo.append(partial(table.__setitem__, key, table[key]))
        else:
            self._undo.append(partial(table.pop, key, None))

    def mark(self) -> int:
        """Where the journal stands, for `rollback`."""
        return len(self._undo)

    def rollback(self, mark: int = 0) -> None:
        """Take back everything since `mark`."""
        while len(self._undo) > mark:
            self._undo.pop()()

    def commit(self) -> None:
        self._undo.clear()

    # ------------------------------------------------------------ rows

    def put_actor(self, actor: Actor) -> None:
        incarnation, wake_at = actor.run.incarnation, actor.run.wake_at
        self.put(self.actors, incarnation, actor)
        if wake_at is None:
            self.drop(self.waking, incarnation)
        else:
            self.put(self.waking, incarnation, wake_at)

    def put_run(self, run: Run) -> None:
        self.put_actor(replace(self.actors[run.incarnation], run=run))

    def add_actor(self, actor: Actor) -> None:
        """A run that is new."""
        run = actor.run
        self.put_actor(actor)
        self.put(self.ids, run.id, run.incarnation)
        if run.parent:
            parent = run.parent.incarnation
            self.put(self.children, parent, (*self.children.get(parent, ()), run.incarnation))

    def drop_actor(self, incarnation: int) -> None:
        """Forget a run and everything that hangs on it."""
        run = self.actors[incarnation].run
        for position in range(run.n):
            self.drop(self.entries, (incarnation, position))
        for key in [key for key in self.dedups if key[0] == incarnation]:
            self.drop(self.dedups, key)
        for name in [key for key in self.streams if key[0] == incarnation]:
            self.drop(self.streams, name)
        for chunk in [key for key in self.chunks if key[0] == incarnation]:
            self.drop(self.chunks, chunk)
        self.drop(self.actors, incarnation)
        self.drop(self.waking, incarnation)
        self.drop(self.ids, run.id)
        self.drop(self.children, incarnation)
        if run.parent:
            parent = run.parent.incarnation
            left = tuple(child for child in self.children.get(parent, ()) if child != incarnation)
            if left:
                self.put(self.children, parent, left)
            else:
                self.drop(self.children, parent)

    def append(self, incarnation: int, entries: tuple[Entry, ...]) -> None:
        """Write history rows, all of one commit. Raises the run's n."""
        run = self.actors[incarnation].run
        for position, entry in enumerate(entries, start=run.n):
            self.put(self.entries, (incarnation, position), replace(entry, commit=run.n))
        self.put_run(replace(run, n=run.n + len(entries)))

    def write_chunks(self, incarnation: int, epoch: int, chunks: tuple[NewChunk, ...], now: int) -> None:
        """Put chunks at the end of their streams, each once."""
        for new in chunks:
            key = (incarnation, epoch, new.seq, new.attempt, new.stream, new.index)
            if key not in self.chunks:
                self.put(self.chunks, key, None)
                stored = StoredChunk(self.next_number(), new.payload, new.seq, new.attempt, new.index, now)
                stream = (incarnation, new.stream)
                self.put(self.streams, stream, (*self.streams.get(stream, ()), stored))

    def put_line(self, token: Token, line: Line) -> None:
        if line.waits or line.kept:
            self.put(self.lines, token, line)
        else:
            self.drop(self.lines, token)

    # ------------------------------------------------------------ relations

    def find(self, run_id: str) -> Run | None:
        incarnation = self.ids.get(run_id)
        return None if incarnation is None else self.actors[incarnation].run

    def last_link(self, incarnation: int) -> Run:
        """The end of the chain of continued runs that begins at a run."""
        return self.actors[self.chain(incarnation)[-1]].run

    def chain(self, incarnation: int) -> list[int]:
        """The chain of continued runs that begins at a run, as far as it still exists."""
        links: list[int] = []
        following: int | None = incarnation
        while following is not None and following in self.actors:
            links.append(following)
            following = self.actors[following].successor
        return links

    def tree(self, incarnation: int) -> Iterator[Run]:
        """A run and everything below it, depth first, parents before children; each once, also in a cycle."""
        met: set[int] = set()
        stack = [incarnation]
        while stack:
            top = stack.pop()
            if top in met or top not in self.actors:
                continue
            met.add(top)
            yield self.actors[top].run
            stack.extend(reversed(self.children.get(top, ())))
