"""A small, seeded world: what a store and the workers do for one run, one commit a turn.

It keeps the history, the inbox, tokens and children by the rules of `perdure.ports.store`, and decides what happens next:
results in any order and in batches, failed attempts, messages too early and too late, duplicates, outages, a cancel.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from random import Random

from perdure.core.instance import Instance
from perdure.core.issuing import NO_SEQ
from perdure.core.operation import Operation
from perdure.core.settle import Standing, settle
from perdure.core.turn import Arrival, StepDone, Turn
from perdure.model import values
from perdure.model.commit import TurnCommit
from perdure.model.endings import cancelled_failure
from perdure.model.errors import FatalError
from perdure.model.events import payload_facets
from perdure.model.failure import capture, encode_failure
from perdure.model.history import Entry, Event
from perdure.model.messages import Message, MessageKind
from perdure.model.run import RunKey, Status

SECOND = 1_000_000
START = 1_700_000_000 * SECOND

STANDING = Standing(RunKey("p", 1), "me", 1, 0, None, "code")


class Unknown(Exception):
    """An error whose class the workflow's process does not know."""


Unknown.__module__ = "elsewhere"

ERRORS = (
    ValueError("no good"),
    KeyError("missing"),
    TimeoutError("slow"),
    StopIteration(3),
    FatalError("never again", "fatal_code", {"why": [1, 2]}),
    ExceptionGroup("many", [ValueError("one"), ExceptionGroup("inner", [KeyError("two")])]),
    Unknown("who knows"),
)
FAILURES = tuple(encode_failure(capture(error)) for error in ERRORS)


@dataclass(frozen=True)
class Round:
    """What one turn is given."""

    arrivals: tuple[Arrival, ...]
    now: int
    #: Attempts that failed since the last turn: (seq, when the next one is due).
    attempts: tuple[tuple[int, int], ...] = ()


def note_attempts(instance: Instance, round: Round) -> list[Entry]:
    """What the engine does with failed attempts that are tried again: counts them, and has entries for the next commit."""
    entries: list[Entry] = []
    for seq, next_at in round.attempts:
        operation = instance.steps[seq]
        operation.attempts += 1
        operation.failures += 1
        operation.next_at = next_at
        entries.append(Entry(Event.ATTEMPT_FAILED, seq, operation.op, operation.name, FAILURES[0], round.now, next_at))
    return entries


def play(instance: Instance, round: Round) -> tuple[Turn, TurnCommit]:
    """One turn and what it writes."""
    attempts = note_attempts(instance, round)
    turn = instance.advance(round.arrivals, round.now)
    return turn, settle(STANDING, instance, turn, attempts)


@dataclass
class Child:
    """A child run as its parent's store sees it."""

    awaited: bool
    #: Its end: (payload, failed). None while it runs.
    end: tuple[bytes, bool] | None = None
    #: True if it ended cancelled: nobody can requeue it.
    cancelled: bool = False


@dataclass
class World:
    """Mutable; one run's surroundings."""

    rng: Random
    now: int = START
    history: list[Entry] = field(default_factory=list)
    #: The unconsumed messages by number, those that the run has not heard of, and whose wait a token's message serves.
    unread: dict[int, Message] = field(default_factory=dict)
    untold: list[Message] = field(default_factory=list)
    served: dict[int, int] = field(default_factory=dict)
    waits: dict[int, str] = field(default_factory=dict)
    kept: dict[str, deque[bytes]] = field(default_factory=dict)
    #: Waits for the event, and whom none of its copies reached yet: the oldest first.
    listens: dict[int, frozenset[str]] = field(default_factory=dict)
    events: list[bytes] = field(default_factory=list)
    children: dict[str, Child] = field(default_factory=dict)
    #: Tickets of gates: whether they were granted.
    tickets: dict[int, bool] = field(default_factory=dict)
    number: int = 0
    cancelled: bool = False
    ended: bool = False
    revived: bool = False
    past: list[Arrival] = field(default_factory=list)

    # -- the store ----------------------------------------------------------------------------------------------------

    def apply(self, commit: TurnCommit) -> None:
        """Store a turn."""
        self.history += commit.entries
        for number in commit.consumed:
            del self.unread[number]
            self.served.pop(number, None)
        for seq in commit.unwaits:
            self._unwait(seq)
        for wait in commit.waits:
            self.waits[wait.seq] = wait.token
            self._serve(wait.token)
        for listen in commit.listens:
            self.listens[listen.seq] = frozenset(listen.facets)
            self._offer()
        for seq in commit.releases:
            self._give_back(seq)
        for asked in commit.asks:
            self.tickets.setdefault(asked.seq, False)
        for born in commit.children:
            awaited = born.run.awaited_as is not None or any(
                entry.seq == born.seq and entry.op == "child" for entry in commit.entries
            )
            if born.run.id not in self.children:
                self.children[born.run.id] = Child(awaited)
            elif awaited:
                self._join(born.run.id)
        for join in commit.joins:
            self._join(join.child_id, again=join.again)
        if is_over(commit):
            self.ended = True
            for seq in [*self.waits, *self.listens]:
                self._unwait(seq)
            if commit.status is not Status.BLOCKED:
                for seq in list(self.tickets):
                    self._give_back(seq)
        for id in commit.cancels:
            child = self.children.get(id)  # one that could not start is not there
            if child is not None and child.end is None:
                child.cancelled = True
                self._end(id, encode_failure(cancelled_failure()), failed=True)

    def requeue(self) -> None:
        """Revive the run, and perhaps the children it failed by."""
        self.ended = False
        self.revived = True
        self.untold = list(self.unread.values())  # as a claim brings them
        self.history.append(Entry(Event.REQUEUED, NO_SEQ, None, "", None, self.now))
        for child in self.children.values():
            if child.end is not None and child.end[1] and not child.cancelled and self.rng.random() < 0.7:
                child.end = None

    def _join(self, id: str, *, again: bool = False) -> None:
        child = self.children.get(id)
        if child is None:
            missing = encode_failure(capture(FatalError("no such child", "child_start_failed")))
            self._put(MessageKind.CHILD, id, None, missing, failed=True)
        elif child.end is None or (again and child.end[1] and not child.cancelled):
            child.awaited = True
        else:
            self._put(MessageKind.CHILD, id, None, child.end[0], failed=child.end[1])

    def _end(self, id: str, payload: bytes, *, failed: bool) -> None:
        child = self.children[id]
        child.end = (payload, failed)
        if child.awaited:
            self._put(MessageKind.CHILD, id, None, payload, failed=failed)

    def _give_back(self, seq: int) -> None:
        """A ticket goes, with the grant that was not read."""
        self.tickets.pop(seq, None)
        for number, message in list(self.unread.items()):
            if message.kind is MessageKind.GRANT and message.name == str(seq):
                del self.unread[number]
                self.untold = [other for other in self.untold if other.number != number]

    def _unwait(self, seq: int) -> None:
        if self.listens.pop(seq, None) is not None:
            self._unlisten(seq)
            return
        token = self.waits.pop(seq, None)
        for number, server in list(self.served.items()):
            if server == seq and number in self.unread:  # its message lies unread: back to the token
                message = self.unread.pop(number)
                del self.served[number]
                assert message.token is not None
                assert token == message.token
                self.untold = [other for other in self.untold if other.number != number]
                self.kept.setdefault(message.token, deque()).appendleft(message.payload or b"")
                self._serve(message.token)

    def _serve(self, token: str) -> None:
        """Give a token's oldest message to its oldest wait."""
        line = self.kept.get(token)
        waiting = [seq for seq, waited in self.waits.items() if waited == token and seq not in self.served.values()]
        if line and waiting and not self.ended:
            self.served[self.number + 1] = min(waiting)
            self._put(MessageKind.SIGNAL, "c", token, line.popleft())

    def _unlisten(self, seq: int) -> None:
        for number, server in list(self.served.items()):
            if server == seq and number in self.unread:
                message = self.unread.pop(number)
                del self.served[number]
                assert (message.kind, message.token) == (MessageKind.EVENT, str(seq))
                self.untold = [other for other in self.untold if other.number != number]
                self.events.insert(0, message.payload or b"")
                self._offer()

    def _offer(self) -> None:
        """Give each event to the oldest wait that it fits: one copy, so that it can come back."""
        for payload in list(self.events):
            facets = set(payload_facets(payload))
            waiting = [s for s, asked in self.listens.items() if asked <= facets and s not in self.served.values()]
            if waiting and not self.ended:
                self.events.remove(payload)
                self.served[self.number + 1] = min(waiting)
                self._put(MessageKind.EVENT, "e", str(min(waiting)), payload)

    def _put(
        self, kind: MessageKind, name: str, token: str | None, payload: bytes | None, *, failed: bool = False
    ) -> None:
        if self.ended:
            return  # it comes too late
        self.number += 1
        message = Message(self.number, kind, name, token, payload, failed, self.now)
        self.unread[self.number] = message
        self.untold.append(message)

    # -- what happens next --------------------------------------------------------------------------------------------

    def next(self, instance: Instance) -> Round | None:
        """What the next turn is given; None if nothing can happen any more."""
        rng = self.rng
        if self.revived:  # what the body asked for by itself must be durable before any of it begins
            self.revived = False
            return Round(tuple(self._told()), self._later())
        before = self.now
        due = instance.next_due()
        results: list[StepDone] = []
        failed: list[tuple[int, int]] = []
        for attempt in range(20):
            results, failed = self._results(instance, before)
            self._children_end()
            self._grants()
            self._messages(instance, urgent=attempt > 3)
            if rng.random() < 0.012 and not self.cancelled:
                self.cancelled = True
                self._put(MessageKind.CANCEL, "", None, None)
            if results or failed or self.untold:
                break
            if due is not None and rng.random() < 0.5:
                self.now = max(self.now, due)
                break
        else:
            if due is None:
                return None
            self.now = max(self.now, due)
        arrivals: list[Arrival] = [*results, *self._told()]
        if self.past and rng.random() < 0.1:
            arrivals.append(rng.choice(self.past))  # a duplicate, or a result that comes too late
        self.past += arrivals
        rng.shuffle(arrivals)
        return Round(tuple(arrivals), self._later(), tuple(failed))

    def _told(self) -> list[Message]:
        told, self.untold = self.untold, []
        return told

    def _later(self) -> int:
        """Time passes: mostly little, sometimes an outage of hours."""
        self.now += self.rng.choice((0, 1, 1000, 300_000, SECOND, 5 * SECOND, 40 * SECOND))
        if self.rng.random() < 0.03:
            self.now += self.rng.randint(1, 48) * 3600 * SECOND
        return self.now

    def _results(self, instance: Instance, before: int) -> tuple[list[StepDone], list[tuple[int, int]]]:
        rng = self.rng
        results: list[StepDone] = []
        failed: list[tuple[int, int]] = []
        eager = rng.random()
        for operation in instance.steps.values():
            if (
                operation.waits
                or rng.random() > eager
                or (operation.next_at is not None and operation.next_at > self.now)
            ):
                continue
            self.now += rng.choice((0, 0, 1, 250_000))
            if rng.random() < 0.1 and operation.failures < 2:
                failed.append((operation.seq, self.now + rng.randint(0, 3) * SECOND))
            elif rng.random() < 0.2:
                results.append(StepDone(operation.seq, rng.choice(FAILURES), True, self.now, before))
            else:
                results.append(StepDone(operation.seq, b"%d" % rng.randint(0, 99), False, self.now, before))
        return results, failed

    def _children_end(self) -> None:
        rng = self.rng
        for id, child in self.children.items():
            if child.end is None and rng.random() < 0.3:
                self.now += rng.choice((0, 1))
                if rng.random() < 0.25:
                    self._end(id, rng.choice(FAILURES), failed=True)
                else:
                    self._end(id, b"%d" % rng.randint(0, 99), failed=False)

    def _grants(self) -> None:
        for seq, granted in self.tickets.items():
            if not granted and self.rng.random() < 0.3:
                self.tickets[seq] = True
                self._put(MessageKind.GRANT, str(seq), None, None)

    def _messages(self, instance: Instance, *, urgent: bool) -> None:
        rng = self.rng
        wanted: list[Operation] = [o for o in instance.pending.values() if o.op in ("signal", "update")]
        if wanted and (urgent or rng.random() < 0.4):
            operation = rng.choice(wanted)
            token = None if operation.payload is None else operation.payload.decode()
            self._send(operation.name, token, MessageKind(operation.op))
        if any(o.op == "event" for o in instance.pending.values()) and (urgent or rng.random() < 0.4):
            self.events.append(b'{"x":%d,"y":%d}' % (rng.randint(0, 2), rng.randint(0, 99)))
            self._offer()
        while rng.random() < 0.1:  # some that nobody waits for yet, or ever
            if rng.random() < 0.5:
                self._send(rng.choice("ab"), None, rng.choice((MessageKind.SIGNAL, MessageKind.UPDATE)))
            else:
                self._send("c", f"token{rng.randint(0, 2)}")

    def _send(self, name: str, token: str | None, kind: MessageKind = MessageKind.SIGNAL) -> None:
        payload = values.encode(self.rng.randint(0, 99), what="signal")
        if token is None:
            self._put(kind, name, None, payload)
        else:
            self.kept.setdefault(token, deque()).append(payload)
            self._serve(token)


def is_over(commit: TurnCommit) -> bool:
    """True if the run has ended, or is blocked."""
    return commit.status not in (Status.RUNNING, Status.SUSPENDED)
