"""The Store port over dicts."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import product
from threading import Lock

from msgspec.structs import replace

from perdure.model.attributes import matches
from perdure.model.commit import Answer, Unstorable, Write
from perdure.model.endings import unserved_failure
from perdure.model.errors import UsageError
from perdure.model.events import Subscription
from perdure.model.history import Entry
from perdure.model.messages import Message
from perdure.model.run import Run, Status
from perdure.model.stream import StoredChunk
from perdure.ports.clock import Clock
from perdure.ports.databases import Partner
from perdure.ports.fleet import Member, Process, Serves
from perdure.ports.gates import Gate
from perdure.ports.store import (
    MOST_UNSERVED,
    Claimed,
    ClaimRequest,
    Count,
    Facet,
    Finding,
    Held,
    Renewal,
    RunQuery,
    Standing,
)
from perdure.stores.memory import gates, inboxes, rules, writes
from perdure.stores.memory.tables import Tables


class MemoryStore:
    """Runs in dicts, lost with the process. All times come from `clock`.

    Several engines of one process may share it, or each take a `view`. Any thread may call any verb: one lock guards the
    data. Every verb completes without yielding to the event loop.

    `fault` is a seam for tests: it is called with "before write" and "after write" (likewise claim, renew, release,
    unblock, audit, beat, depart, block_unserved, subscribe) around each verb that changes something, and may
    raise: before, nothing was applied; after, everything was, as if the process had died before it got the answer.
    """

    def __init__(self, clock: Clock, *, fault: Callable[[str], None] | None = None) -> None:
        self.fault = fault
        self._clock = clock
        self._tables = Tables()
        self._lock = Lock()
        self._listeners: list[Callable[[], None]] = []

    def view(self) -> MemoryStore:
        """Another store over the same data, with a `fault` of its own: what a second process would open."""
        other = MemoryStore(self._clock)
        other._tables, other._lock, other._listeners = self._tables, self._lock, self._listeners
        return other

    async def open(self, *, migrate: bool = True) -> None:
        """Nothing to connect to."""

    async def close(self) -> None:
        """The data stays, for other views and for opening again."""

    def now(self) -> int:
        return self._clock.now()

    # ------------------------------------------------------------ writing

    async def write(self, batch: Sequence[Write]) -> Sequence[Answer]:
        with self._changing("write") as tables:
            now = self.now()
            return [_apply(tables, each, now) for each in batch]

    async def partner(self) -> Partner:
        raise UsageError(
            "the memory store has no database that a transaction could be on; use a plain step, or a store on SQLite or "
            "PostgreSQL"
        )

    async def claim(self, request: ClaimRequest) -> Sequence[Claimed]:
        with self._changing("claim", hint=False) as tables:
            now = self.now()
            for key in gates.due(tables, now):
                gates.admit(tables, key, now)
            due = [run for run in _waking(tables) if rules.can_claim(run, request, now)]
            return [_claim(tables, run, request, now) for run in rules.claim_order(due)[: request.limit]]

    async def release(self, owner: str, held: Sequence[Held]) -> None:
        self._release(owner, held)

    def renewer(self) -> MemoryRenewer:
        return MemoryRenewer(self._renew, self._release, self._beat, self._depart)

    async def unblock(self, serves: Sequence[Serves]) -> int:
        with self._changing("unblock") as tables:
            now = self.now()
            runs = [actor.run for actor in tables.actors.values() if rules.failed_on_other_code(actor.run, serves)]
            for run in runs:
                tables.put_run(rules.due_now(run, now))
            return len(runs)

    async def audit(self, *, heal: bool = True) -> Sequence[Finding]:
        with self._changing("audit") as tables:
            now = self.now()
            findings: list[Finding] = []
            for actor in sorted(tables.actors.values(), key=lambda actor: actor.run.incarnation):
                run = actor.run
                what = rules.impossible(run, bool(inboxes.unseen(tables, run.incarnation, run.seen)))
                if what is not None:
                    findings.append(Finding(run.key, what))
                    if heal:
                        tables.put_run(rules.due_now(run, now))
            return findings

    async def subscribe(self, subscriptions: Sequence[Subscription]) -> None:
        with self._changing("subscribe", hint=False) as tables:
            for each in subscriptions:
                tables.put(tables.subscriptions, (each.namespace, each.workflow, each.version), each)

    async def block_unserved(self, grace: int) -> Sequence[Finding]:
        with self._changing("block_unserved") as tables:
            now = self.now()
            members = [member for member in tables.members.values() if member.expires_at > now]
            found = sorted(
                (run for run in _waking(tables) if rules.unserved(run, members, now - grace)),
                key=lambda run: run.incarnation,
            )[:MOST_UNSERVED]
            for run in found:
                tables.put_run(rules.blocked_unserved(run, now))
            return [Finding(run.key, unserved_failure(run.workflow, run.version).message) for run in found]

    def _beat(self, process: Process, ttl: int) -> None:
        with self._changing("beat", hint=False) as tables:
            now = self.now()
            _forget_expired(tables, now)
            tables.put(tables.members, process.owner, Member(process, now, now + ttl))

    def _depart(self, owner: str) -> None:
        with self._changing("depart", hint=False) as tables:
            tables.drop(tables.members, owner)

    def _renew(self, owner: str, lease: int, held: Sequence[Held]) -> Sequence[Renewal]:
        with self._changing("renew", hint=False) as tables:
            now = self.now()
            return [_renew_one(tables, owner, now + lease, each) for each in held]

    def _release(self, owner: str, held: Sequence[Held]) -> None:
        with self._changing("release") as tables:
            now = self.now()
            for each in held:
                run = _held_run(tables, owner, each)
                if run is not None:
                    tables.put_run(rules.released(run, now))

    @contextmanager
    def _changing(self, verb: str, *, hint: bool = True) -> Generator[Tables]:
        """A transaction: committed at the end, rolled back by an error. With `hint`, listeners hear of it afterwards."""
        if self.fault is not None:
            self.fault(f"before {verb}")
        with self._lock:
            try:
                yield self._tables
            except BaseException:
                self._tables.rollback()
                raise
            self._tables.commit()
        if self.fault is not None:
            self.fault(f"after {verb}")
        if hint:
            for listener in tuple(self._listeners):
                listener()

    # ------------------------------------------------------------ reading

    async def next_wake(self, request: ClaimRequest) -> int | None:
        with self._lock:
            times = (run.wake_at for run in _waking(self._tables) if rules.can_claim(run, request, None))
            found = [when for when in (*times, gates.next_look(self._tables)) if when is not None]
            return min(found, default=None)

    async def history(self, incarnations: Sequence[int]) -> Mapping[int, Sequence[Entry]]:
        with self._lock:
            return {incarnation: _history(self._tables, incarnation) for incarnation in incarnations}

    async def get(self, run_id: str) -> Run | None:
        with self._lock:
            return self._tables.find(run_id)

    async def standing(self, incarnations: Sequence[int]) -> Mapping[int, Standing]:
        with self._lock:
            actors = self._tables.actors
            runs = (actors[incarnation].run for incarnation in incarnations if incarnation in actors)
            return {run.incarnation: Standing(run.status, run.wake_at, run.updated_at) for run in runs}

    async def runs(self, query: RunQuery) -> Sequence[Run]:
        with self._lock:
            found = [
                run for run in _matching(self._tables, query) if query.before is None or run.incarnation < query.before
            ]
        found.sort(key=lambda run: (run.created_at, run.incarnation), reverse=True)
        return found[: query.limit]

    async def count(self, query: RunQuery, by: Sequence[Facet]) -> Sequence[Count]:
        with self._lock:
            found = Counter(values for run in _matching(self._tables, query) for values in _values(run, by))
        if not by:
            found[()] += 0
        return [Count(values, runs) for values, runs in found.items()]

    async def messages(self, incarnation: int) -> Sequence[Message]:
        with self._lock:
            return _messages(self._tables, incarnation)

    async def values(self, incarnation: int, keys: Sequence[str]) -> Mapping[str, bytes]:
        with self._lock:
            actor = self._tables.actors.get(incarnation)
            there = {} if actor is None else dict(actor.values)
            return {key: there[key] for key in keys if key in there}

    async def subscriptions(self) -> Sequence[Subscription]:
        with self._lock:
            return list(self._tables.subscriptions.values())

    async def gates(self, *, namespace: str | None = None, name: str | None = None, limit: int = 20) -> Sequence[Gate]:
        with self._lock:
            return gates.listed(self._tables, namespace, name, limit)

    async def chunks(self, incarnation: int, stream: str, after: int, limit: int) -> Sequence[StoredChunk]:
        with self._lock:
            found = self._tables.streams.get((incarnation, stream), ())
            start = bisect_right(found, after, key=lambda chunk: chunk.offset)
            return list(found[start : start + limit])

    async def heads(self, asked: Sequence[tuple[int, str]]) -> Sequence[int]:
        with self._lock:
            streams = self._tables.streams
            return [streams[each][-1].offset if each in streams else 0 for each in asked]

    async def fleet(self) -> Sequence[Member]:
        with self._lock:
            members = [each for each in self._tables.members.values() if each.expires_at > self.now()]
        return sorted(members, key=lambda each: (each.process.started_at, each.process.owner))

    def on_change(self, callback: Callable[[], None]) -> Callable[[], None]:
        """`callback` also hears of this process's own writes: engines that share a store wake each other so."""
        self._listeners.append(callback)

        def unsubscribe() -> None:
            if callback in self._listeners:
                self._listeners.remove(callback)

        return unsubscribe


class MemoryRenewer:
    """The Renewer port: the store's own verbs, which any thread may call."""

    def __init__(
        self,
        renew: Callable[[str, int, Sequence[Held]], Sequence[Renewal]],
        release: Callable[[str, Sequence[Held]], None],
        beat: Callable[[Process, int], None],
        depart: Callable[[str], None],
    ) -> None:
        self._renew = renew
        self._release = release
        self._beat = beat
        self._depart = depart

    def renew(self, owner: str, lease: int, held: Sequence[Held]) -> Sequence[Renewal]:
        return self._renew(owner, lease, held)

    def release(self, owner: str, held: Sequence[Held]) -> None:
        self._release(owner, held)

    def beat(self, process: Process, ttl: int) -> None:
        self._beat(process, ttl)

    def depart(self, owner: str) -> None:
        self._depart(owner)

    def close(self) -> None:
        """There is no connection to close."""


def _apply(tables: Tables, write: Write, now: int) -> Answer:
    mark = tables.mark()
    try:
        return writes.apply(tables, write, now)
    except rules.DataRefused as refusal:
        tables.rollback(mark)
        return Unstorable(str(refusal))


def _forget_expired(tables: Tables, now: int) -> None:
    for owner in [owner for owner, member in tables.members.items() if member.expires_at <= now]:
        tables.drop(tables.members, owner)


def _waking(tables: Tables) -> Iterator[Run]:
    return (tables.actors[incarnation].run for incarnation in tables.waking)


def _claim(tables: Tables, run: Run, request: ClaimRequest, now: int) -> Claimed:
    taken = rules.claimed(run, request, now)
    tables.put_run(taken)
    return Claimed(
        run=replace(taken, fingerprint=run.fingerprint),
        messages=_messages(tables, run.incarnation),
        orphaned=run.status is Status.RUNNING,
        was=run.status,
    )


def _held_run(tables: Tables, owner: str, held: Held) -> Run | None:
    """The run, if that owner still holds it at that epoch."""
    actor = tables.actors.get(held.incarnation)
    if actor is None:
        return None
    run = actor.run
    ours = run.status is Status.RUNNING and run.owner == owner and run.epoch == held.epoch
    return run if ours else None


def _renew_one(tables: Tables, owner: str, lease_end: int, held: Held) -> Renewal:
    run = _held_run(tables, owner, held)
    if run is None:
        return Renewal(held.incarnation, lost=True)
    tables.put_run(replace(run, wake_at=lease_end))
    return Renewal(held.incarnation, lost=False, messages=inboxes.unseen(tables, run.incarnation, held.inbox))


def _messages(tables: Tables, incarnation: int) -> tuple[Message, ...]:
    actor = tables.actors.get(incarnation)
    return () if actor is None else tuple(letter.message for letter in actor.inbox)


def _history(tables: Tables, incarnation: int) -> list[Entry]:
    actor = tables.actors.get(incarnation)
    return [tables.entries[incarnation, position] for position in range(actor.run.n)] if actor else []


def _matching(tables: Tables, query: RunQuery) -> Iterator[Run]:
    return (actor.run for actor in tables.actors.values() if _matches(actor.run, query))


def _values(run: Run, by: Sequence[Facet]) -> Iterator[tuple[str | None, ...]]:
    """What a run counts for: one value of each facet, in all combinations."""
    each: dict[Facet, Iterable[str | None]] = {
        Facet.STATUS: (run.status.value,),
        Facet.WORKFLOW: (run.workflow,),
        Facet.ORIGIN: (run.origin,),
        Facet.TAG: set(run.tags) or (None,),
    }
    return product(*(each[facet] for facet in by))


def _matches(run: Run, query: RunQuery) -> bool:
    return (
        (not query.statuses or run.status in query.statuses)
        and (query.workflow is None or run.workflow == query.workflow)
        and (query.namespace is None or run.namespace == query.namespace)
        and (query.origin is None or query.origin == run.origin)
        and set(query.tags) <= set(run.tags)
        and (not query.where or matches(query.where, run.attributes))
        and (query.parent is None or (run.parent is not None and run.parent.incarnation == query.parent.incarnation))
    )
