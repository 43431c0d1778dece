"""Random things that can happen to a store, drawn from a seed and from what the oracle holds at that moment."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Any

from msgspec.structs import replace

from perdure.model.commit import (
    Append,
    Cancel,
    Configure,
    Create,
    Delete,
    Join,
    NewChild,
    Requeue,
    Send,
    Steer,
    TokenWait,
    TurnCommit,
    Way,
    Write,
)
from perdure.model.events import EventWait, Feed, Publish
from perdure.model.gates import Ask, Rules
from perdure.model.messages import MessageKind, Outgoing
from perdure.model.run import FORMAT, NewRun, Run, RunKey, Status
from perdure.model.stream import NewChunk
from perdure.ports.fleet import Process, Serves
from perdure.ports.store import ClaimRequest, Held
from perdure.testing.conformance.kit import SECOND, new, request, resolved, scheduled

GATES = ("g", "h")
OWNERS = ("ada", "bob")
TOKENS = ("t", "u")
NAMESPACES = ("default", "red")
PRINTS = ("print-a", "print-b")
ATTRIBUTES = (None, b'{"size":1,"name":"x"}', b'{"size": 2}', b'{"size":3.5}', b'{"size":[2]}', b"2")
VALUES = ("k", "l")
STREAMS = ("s", "t")
#: Few, so that ids conflict, are used again, and belong to somebody else.
RUN_IDS = tuple("abcdef")
TO_RUNS = (*[MessageKind.SIGNAL] * 6, *[MessageKind.UPDATE] * 2, *[MessageKind.CANCEL] * 2)
EVENTS = ("e", "f")
#: Of payloads and matches, more of the one than of the other.
FACETS = ("1", "2", "3")
DEDUPS = (None, None, "x", "y", "z")
ENDS = (Status.COMPLETED, Status.COMPLETED, Status.FAILED, Status.CANCELLED, Status.DEAD)


class Script:
    """Draws what happens next. `runs` are the oracle's rows, newest first, and `unread` the numbers in their inboxes."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.now = 0
        self.runs: Sequence[Run] = ()
        self.unread: dict[int, list[int]] = {}
        # A position waits once.
        self._seq = 0
        #: A source of its own, and only with odd seeds: what even ones draw stays what it was.
        self._gating = Random(f"gates {seed}") if seed % 2 else None

    def next_seq(self) -> int:
        self._seq += 1
        return self._seq

    def chance(self, of_ten: int) -> bool:
        return self.random.randrange(10) < of_ten

    def some(self, items: Sequence[Any], most: int = 2) -> tuple[Any, ...]:
        """A few of them, often none."""
        if not items or self.chance(6):
            return ()
        return tuple(self.random.sample(items, min(len(items), self.random.randint(1, most))))

    # ------------------------------------------------------------ verbs

    def step(self) -> float:
        """Seconds until the next thing happens."""
        return self.random.choice((0, 0, 0, 0.001, 0.5, 3, 31))

    def batch(self) -> tuple[Write, ...]:
        return tuple(self._write() for _ in range(self.random.choice((1, 1, 1, 2, 3, 5))))

    def request(self) -> ClaimRequest:
        namespaces = self.random.choice((None, None, ("red",), NAMESPACES))
        served = tuple(
            Serves("work", version, self.random.choice(PRINTS)) for version in self.random.choice(("1", "12"))
        )
        return request(
            self.random.choice(OWNERS),
            namespaces=namespaces,
            serves=served,
            limit=self.random.choice((1, 2, 5, 100)),
            lease=self.random.choice((1, 30)) * SECOND,
            format=self.random.choice((FORMAT, FORMAT, FORMAT + 1)),
        )

    def held(self) -> tuple[str, tuple[Held, ...]]:
        """An owner, and what it believes to hold; some of it wrongly."""
        owner = self.random.choice(OWNERS)
        believed = self.some([run for run in self.runs if run.status is Status.RUNNING], 4)
        return owner, tuple(
            Held(run.incarnation, run.epoch - self.chance(2), self.random.randint(0, run.inbox)) for run in believed
        )

    def serves(self) -> tuple[Serves, ...]:
        return tuple(Serves("work", version, self.random.choice(PRINTS)) for version in "12")

    def process(self) -> Process:
        return Process(
            owner=self.random.choice(OWNERS),
            host="host",
            pid=self.random.randrange(100),
            perdure="1",
            namespaces=self.random.choice((None, ("red",), NAMESPACES)),
            serves=tuple(Serves("work", version, "print-a") for version in self.random.choice(("1", "12", "2"))),
            held=self.random.randrange(9),
            limit=9,
            lag=self.random.randrange(9),
            started_at=self.random.randrange(3),
            draining=self.chance(3),
        )

    # ------------------------------------------------------------ writes

    def _write(self) -> Write:
        if self._gating is not None and self._gating.randrange(20) == 0:
            return Configure(
                self._gating.choice(GATES), self._rules(self._gating), self._gating.choice((None, "red", "default"))
            )
        draw = self.random.randrange(100)
        if draw < 50 and (held := [run for run in self.runs if run.status is Status.RUNNING]):
            return self._turn(self.random.choice(held))
        if draw < 62:
            return self._create()
        if draw < 74:
            return Send(self._message())
        if draw < 79:
            return self._publish()
        if draw < 82 and self.runs:
            return self._append(self.random.choice(self.runs))
        if draw < 84:
            return Cancel(self._id(), b'"stop"', self._incarnation())
        if draw < 89:
            return Requeue(self._id(), self._incarnation())
        if draw < 92:
            return Steer(self._id(), self.random.choice(list(Way)), self._incarnation())
        if draw < 95:
            return Delete(self._id(), b'"gone"', self._incarnation())
        return self._stale() if self.runs else self._create()

    def _rules(self, draw: Random) -> Rules:
        rate = draw.choice((None, None, 1, 3))
        return Rules(
            limit=draw.choice((1, 1, 2, None)),
            rate=rate,
            window=0 if rate is None else draw.choice((1, 30)) * SECOND,
            lifo=draw.random() < 0.3,
            fair=draw.random() < 0.4,
            depth=draw.choice((None, 0, 1)),
            lasting=draw.random() < 0.7,
            stamp=draw.randrange(8),
        )

    def _ask(self, seq: int) -> Ask:
        draw = self._gating or self.random
        return Ask(
            seq=seq,
            name=draw.choice(GATES),
            key=draw.choice(("", "", "k")),
            rules=self._rules(draw),
            priority=draw.choice((0, 0, 5)),
            fairness=draw.choice("xyz"),
        )

    def _asks(self) -> tuple[Ask, ...]:
        if self._gating is None or self._gating.random() < 0.4:
            return ()
        seqs = [-1] * (self._gating.random() < 0.2) + [self.next_seq() for _ in range(self._gating.randrange(3))]
        return tuple(map(self._ask, seqs))

    def _releases(self) -> tuple[int, ...]:
        if self._gating is None or self._gating.random() < 0.5:
            return ()
        return tuple(self._gating.sample(range(max(0, self._seq - 30), self._seq + 1), min(15, self._seq)))

    def _append(self, run: Run) -> Append:
        owner = run.owner or self.random.choice(OWNERS)
        chunks = tuple(self._chunk(self.random.randrange(3)) for _ in range(self.random.randrange(4)))
        return Append(run=run.key, owner=owner, epoch=run.epoch - self.chance(1), chunks=chunks)

    def _chunk(self, seq: int) -> NewChunk:
        index = 2**63 if self.random.randrange(40) == 0 else self.random.randrange(5)
        return NewChunk(self.random.choice(STREAMS), str(self.next_seq()).encode(), seq, int(self.chance(5)), index)

    def _id(self) -> str:
        """An id that there is, or perhaps is not."""
        if self.runs and self.chance(8):
            return self.random.choice(self.runs).id
        return self.random.choice(RUN_IDS)

    def _incarnation(self) -> int | None:
        return self.random.choice(self.runs).incarnation if self.runs and self.chance(1) else None

    def _message(self) -> Outgoing:
        to_token = self.chance(5)
        return Outgoing(
            kind=MessageKind.SIGNAL if to_token else self.random.choice(TO_RUNS),
            run_id=None if to_token else self._id(),
            incarnation=None if to_token else self._incarnation(),
            token=self.random.choice(TOKENS) if to_token else None,
            name="" if to_token else "go",
            payload=self.random.choice((None, b"", str(self.next_seq()).encode())),
            dedup=self.random.choice(DEDUPS),
            namespace=self.random.choice(NAMESPACES),
        )

    def _new_run(self, run_id: str, **fields: Any) -> NewRun:
        return new(
            run_id,
            version=self.random.choice(("1", "1", "2")),
            namespace=self.random.choice(NAMESPACES),
            priority=self.random.choice((None, None, 0, 3, -1)),
            tags=self.some(("x", "y")),
            attributes=self.random.choice(ATTRIBUTES),
            origin=self.random.choice((None, "web")),
            start_at=self.now + self.random.randint(-5, 20) * SECOND if self.chance(2) else None,
            timeout=60 * SECOND if self.chance(2) else None,
            format=FORMAT + self.chance(1),
            gate=self._ask(-1) if self._gating is not None and self._gating.random() < 0.3 else None,
            **fields,
        )

    def _create(self) -> Create:
        run = self._new_run(self.random.choice(RUN_IDS))
        first: TurnCommit | None = None
        if self.chance(4) and (run.gate is None or self.chance(1)):
            shell = RunKey(run.id, 0)
            first = self._commit(shell, self.random.choice(OWNERS), 1, 0, 0, [])
            if first.status is Status.RUNNING:
                first = replace(first, wake_at=self.now + 30 * SECOND)
        to_itself = replace(self._message(), run_id=run.id, token=None)
        return Create(run=run, turn=first, messages=self.some((to_itself, self._message())))

    def _turn(self, run: Run) -> TurnCommit:
        unread = self.unread.get(run.incarnation, [])
        seen = self.random.choice((run.seen, run.inbox))
        return self._commit(run.key, run.owner or "", run.epoch, run.n, seen, unread)

    def _stale(self) -> TurnCommit:
        """A turn of one who does not hold the run, or does not know how far it is."""
        run = self.random.choice(self.runs)
        commit = self._turn(run)
        draw = self.random.randrange(3)
        if draw == 0:
            return replace(commit, epoch=run.epoch - 1)
        return replace(commit, owner="eve") if draw == 1 else replace(commit, n=run.n + 1)

    def _commit(self, key: RunKey, owner: str, epoch: int, n: int, seen: int, unread: list[int]) -> TurnCommit:
        status = self._status()
        ends = status in ENDS
        entries = tuple(scheduled(self.next_seq(), at=self.now) for _ in range(self.random.randrange(3)))
        if self.chance(1):
            entries = (*entries, resolved(2**63 if self.chance(5) else 1))
        return TurnCommit(
            run=key,
            owner=owner,
            epoch=epoch,
            n=n,
            entries=entries,
            status=status,
            wake_at=self.now + self.random.randint(0, 20) * SECOND if self.chance(4) else None,
            listening=self.chance(7),
            seen=seen,
            consumed=self.some(unread, 3),
            waits=tuple(TokenWait(self.next_seq(), token) for token in self.some(TOKENS)),
            listens=tuple(self._listen() for _ in self.some(EVENTS)),
            unwaits=self.some(range(max(0, self._seq - 30), self._seq + 1), 20),
            children=tuple(self._child(run_id) for run_id in self.some(RUN_IDS)),
            joins=tuple(Join(self.next_seq(), run_id) for run_id in self.some(RUN_IDS, 1)),
            cancels=self.some(RUN_IDS) if self.chance(4) else (),
            spares=self.chance(3),
            sends=self.some((self._message(), self._message())),
            values=tuple((value, str(self.next_seq()).encode()) for value in self.some(VALUES)),
            attributes=self.random.choice(ATTRIBUTES) if self.chance(2) else None,
            asks=self._asks(),
            releases=self._releases(),
            chunks=tuple(NewChunk(stream, b"x", self.next_seq(), 0, 0) for stream in self.some(STREAMS)),
            started_at=self.now if self.chance(3) else None,
            output=b'"done"' if status is Status.COMPLETED else None,
            error=b'"bad"' if ends or status is Status.BLOCKED else None,
            successor=self._new_run(f"{key.id}~1") if status is Status.COMPLETED and self.chance(4) else None,
            fingerprint=self.random.choice((None, *PRINTS)) if status is Status.BLOCKED else None,
            progress=self.chance(7),
        )

    def _listen(self) -> EventWait:
        return EventWait(self.next_seq(), self.random.choice(EVENTS), self.some(FACETS))

    def _publish(self) -> Publish:
        return Publish(
            name=self.random.choice(EVENTS),
            namespace=self.random.choice(NAMESPACES),
            id=self.random.choice(("x", "y", "z", f"id {self.next_seq()}", f"id {self.next_seq()}")),
            payload=str(self.next_seq()).encode(),
            facets=tuple(self.random.sample(FACETS, self.random.randrange(4))),
            starts=tuple(self._new_run(run_id) for run_id in self.some(RUN_IDS)),
            feeds=tuple(self._feed(run_id) for run_id in self.some(RUN_IDS)) if self.chance(2) else (),
            keep=self.random.choice((None, 5 * SECOND, 600 * SECOND)),
            remember=self.random.choice((None, 20 * SECOND)),
        )

    def _feed(self, run_id: str) -> Feed:
        return Feed(self._new_run(run_id), replace(self._message(), run_id=run_id, token=None, incarnation=None))

    def _status(self) -> Status:
        draw = self.random.randrange(10)
        if draw < 3:
            return Status.RUNNING
        if draw < 7:
            return Status.SUSPENDED
        return Status.BLOCKED if draw == 7 else self.random.choice(ENDS)

    def _child(self, run_id: str) -> NewChild:
        return NewChild(self.next_seq(), self._new_run(run_id, awaited_as=run_id if self.chance(6) else None, depth=1))
