"""A store against the memory store: the same random verbs to both, and all that can be seen must be the same.

The two number their runs differently, and may leave gaps. So each keeps a table from its own incarnations to labels, given
in the order the runs are first seen, and values are compared with labels in place of incarnations.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from typing import Any, cast

from msgspec import Struct
from msgspec.structs import replace

from perdure.model.commit import Changed, Create, Published, TokenWait, Unstorable, Write
from perdure.model.conditions import attr
from perdure.model.events import EventWait
from perdure.model.run import Run
from perdure.model.stream import StoredChunk
from perdure.ports.fleet import Process, Serves
from perdure.ports.store import ClaimRequest, Facet, Finding, Held, Renewal, RunQuery, Standing, Store
from perdure.stores.memory import MemoryStore
from perdure.testing.clock import ManualClock
from perdure.testing.conformance.kit import LEASE, SECOND, StoreFactory, new, request, turn
from perdure.testing.conformance.script import EVENTS, NAMESPACES, STREAMS, TOKENS, VALUES, Script

EVERYTHING = RunQuery(limit=1_000_000)
QUERIES = (
    RunQuery(tags=("x",), limit=3),
    RunQuery(namespace="red", limit=1_000),
    RunQuery(limit=2),
    RunQuery(where=(attr("size") == 2,)),
    RunQuery(where=(attr("size") == 1, attr("name") == "x"), tags=("x",), limit=3),
    RunQuery(where=(attr("size") > 1, attr("size") != 3), limit=3),
    RunQuery(origin="web", tags=("x", "y")),
)
FACETS = ((), (Facet.STATUS, Facet.ORIGIN), (Facet.TAG, Facet.WORKFLOW))
#: More than one script keeps at one token.
WAITS = 60


def run_oracle(seed: int, factory: StoreFactory, steps: int = 120) -> None:
    """Play `steps` random verbs to a new store and to the memory store. Raises `AssertionError` where they differ."""
    asyncio.run(_play(seed, factory, steps))


async def _play(seed: int, factory: StoreFactory, steps: int) -> None:
    clock = ManualClock()
    script = Script(seed)
    oracle = Side(MemoryStore(clock))
    tested = Side(await factory.make(clock))
    duel = Duel(oracle, tested, [])
    try:
        for step in range(steps):
            clock.advance(script.step())
            await duel.look(script, clock.now())
            if script.random.randrange(40) == 0:
                tested.store = await factory.reopen(tested.store)
            else:
                await _act(duel, script)
            await duel.compare_all(f"seed {seed}, step {step}")
        await duel.drain_tokens(clock)
        await duel.drain_events(clock)
    finally:
        await factory.dispose(tested.store)


async def _act(duel: Duel, script: Script) -> None:
    draw = script.random.randrange(100)
    if draw < 55:
        await duel.write(script.batch())
    elif draw < 85:
        await duel.claim(script.request())
    elif draw < 90:
        await duel.renew(*script.held())
    elif draw < 93:
        await duel.release(*script.held())
    elif draw < 95:
        await duel.unblock(script.serves())
    elif draw < 97:
        await duel.audit(heal=script.chance(8))
    elif draw < 99:
        await duel.beat(script.process(), 60 * SECOND, leaves=script.chance(2))
    else:
        await duel.block_unserved(20 * SECOND)


class Side:
    """One of the two stores, with its labels."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.labels: dict[int, int] = {}

    def labelled(self, value: Any) -> Any:
        """With labels for incarnations; 0 for a run that came and went within one verb."""

        def label(incarnation: int) -> int:
            return self.labels.get(incarnation, 0)

        return exchanged(value, label)


class Duel:
    """Does everything twice."""

    def __init__(self, oracle: Side, tested: Side, log: list[str]) -> None:
        self.oracle = oracle
        self.tested = tested
        self.log = log

    # ------------------------------------------------------------ verbs

    async def write(self, batch: Sequence[Write]) -> None:
        self.log.append("\n    ".join(["write", *map(repr, batch)]))
        expected = await self.oracle.store.write(batch)
        found = await self.tested.store.write(self._theirs(batch))
        await self._learn()
        self._same("the answers", [*map(_comparable, expected)], [*map(_comparable, found)])

    async def claim(self, asked: ClaimRequest) -> None:
        self.log.append(f"claim {asked!r}")
        self._same("the wake time", await self.oracle.store.next_wake(asked), await self.tested.store.next_wake(asked))
        expected = await self.oracle.store.claim(asked)
        self._same("what is claimed", list(expected), list(await self.tested.store.claim(asked)))

    async def renew(self, owner: str, held: Sequence[Held]) -> None:
        self.log.append(f"renew {owner} {held!r}")
        ours, theirs = self.oracle.store.renewer(), self.tested.store.renewer()
        expected: Sequence[Renewal] = ours.renew(owner, LEASE, held)
        found: Sequence[Renewal] = theirs.renew(owner, LEASE, self._theirs(held))
        ours.close()
        theirs.close()
        self._same("the renewals", list(expected), list(found))

    async def release(self, owner: str, held: Sequence[Held]) -> None:
        self.log.append(f"release {owner} {held!r}")
        await self.oracle.store.release(owner, held)
        await self.tested.store.release(owner, self._theirs(held))

    async def unblock(self, serves: Sequence[Serves]) -> None:
        self.log.append(f"unblock {serves!r}")
        self._same("the count", await self.oracle.store.unblock(serves), await self.tested.store.unblock(serves))

    async def audit(self, heal: bool) -> None:
        self.log.append(f"audit {heal=}")
        expected: Sequence[Finding] = await self.oracle.store.audit(heal=heal)
        found: Sequence[Finding] = await self.tested.store.audit(heal=heal)
        self._same(
            "the findings",
            sorted(self.oracle.labelled(finding.run).incarnation for finding in expected),
            sorted(self.tested.labelled(finding.run).incarnation for finding in found),
        )

    async def beat(self, process: Process, ttl: int, *, leaves: bool) -> None:
        self.log.append(f"beat {process!r} {leaves=}")
        for side in (self.oracle, self.tested):
            renewer = side.store.renewer()
            renewer.beat(process, ttl)
            if leaves:
                renewer.depart(process.owner)
            renewer.close()

    async def block_unserved(self, grace: int) -> None:
        self.log.append(f"block_unserved {grace=}")
        expected = await self.oracle.store.block_unserved(grace)
        self._same("what nobody serves", list(expected), list(await self.tested.store.block_unserved(grace)))
        ours, theirs = await self.oracle.store.fleet(), await self.tested.store.fleet()
        self._same("the fleet", list(ours), list(theirs))

    async def drain_tokens(self, clock: ManualClock) -> None:
        """Bring to light what is kept at the tokens, behind whoever waits there: by messages first, then by waits."""
        clock.advance(1)
        for namespace in NAMESPACES:
            name = f"probe {namespace}"
            await self.write([Create(run=new(name, namespace=namespace, priority=1_000_000))])
            await self.claim(request("probe", namespaces=(namespace,), limit=1))
            run = await self.oracle.store.get(name)
            assert run is not None
            waits = tuple(TokenWait(seq, TOKENS[seq % len(TOKENS)]) for seq in range(WAITS))
            await self.write([turn(run, waits=waits)])
            await self.compare_all(f"at the tokens of {namespace}")

    async def drain_events(self, clock: ManualClock) -> None:
        """The same for what is kept of events."""
        clock.advance(1)
        for namespace in NAMESPACES:
            name = f"events {namespace}"
            await self.write([Create(run=new(name, namespace=namespace, priority=1_000_000))])
            await self.claim(request("probe", namespaces=(namespace,), limit=1))
            run = await self.oracle.store.get(name)
            assert run is not None
            matches = ((), (), ("1",), ("2", "1"), ("3",), ())
            listens = [EventWait(seq, EVENTS[seq % len(EVENTS)], matches[seq % len(matches)]) for seq in range(WAITS)]
            await self.write([turn(run, listens=tuple(listens))])
            await self.compare_all(f"of the events of {namespace}")

    # ------------------------------------------------------------ looking

    async def look(self, script: Script, now: int) -> None:
        """Show the script what there is to act on."""
        script.now = now
        script.runs = await self.oracle.store.runs(EVERYTHING)
        script.unread = {
            run.incarnation: [message.number for message in await self.oracle.store.messages(run.incarnation)]
            for run in script.runs
        }

    async def compare_all(self, where: str) -> None:
        """Every row, history, inbox and value, and some questions about them."""
        self.log.append(where)
        await self._learn()
        ours, theirs = await self._rows()
        self._same("the rows", ours, theirs)
        for one, two in zip(ours, theirs, strict=True):
            await self._compare_run(one, two)
        self._same("how all stand", await self._standing(self.oracle, ours), await self._standing(self.tested, theirs))
        await self._compare_gates()
        for query in QUERIES:
            ours, theirs = await self.oracle.store.runs(query), await self.tested.store.runs(query)
            self._same(f"{query!r}", list(ours), list(theirs))
            for by in FACETS:
                mine, other = await self.oracle.store.count(query, by), await self.tested.store.count(query, by)
                self._same(f"the counts of {query!r}", sorted(map(repr, mine)), sorted(map(repr, other)))

    async def _compare_gates(self) -> None:
        questions: tuple[dict[str, Any], ...] = (
            {"limit": 1_000},
            {"namespace": "red", "limit": 2},
            {"name": "g", "limit": 1},
        )
        for asked in questions:
            ours, theirs = await self.oracle.store.gates(**asked), await self.tested.store.gates(**asked)
            self._same(f"the gates {asked}", list(ours), list(theirs))

    async def _compare_run(self, one: Run, two: Run) -> None:
        ours, theirs = self.oracle.store, self.tested.store
        self._same(f"the row of {one.id}", await ours.get(one.id), await theirs.get(one.id))
        mine, other = one.incarnation, two.incarnation
        history = (await ours.history([mine]))[mine]
        self._same(f"the history of {one.id}", list(history), list((await theirs.history([other]))[other]))
        self._same(f"the inbox of {one.id}", list(await ours.messages(mine)), list(await theirs.messages(other)))
        for stream in STREAMS:
            self._same(f"{stream} of {one.id}", await _stream(ours, mine, stream), await _stream(theirs, other, stream))
        for key in VALUES:
            self._same(f"the value {key} of {one.id}", await _value(ours, mine, key), await _value(theirs, other, key))

    async def _standing(self, side: Side, runs: Sequence[Run]) -> list[Standing | None]:
        """In this order; and of no others."""
        found = await side.store.standing([run.incarnation for run in runs])
        assert len(found) == len(runs)
        return [found.get(run.incarnation) for run in runs]

    async def _rows(self) -> tuple[Sequence[Run], Sequence[Run]]:
        return list(await self.oracle.store.runs(EVERYTHING)), list(await self.tested.store.runs(EVERYTHING))

    async def _learn(self) -> None:
        """Label runs that are new."""
        ours, theirs = await self._rows()
        self._same("the ids", [run.id for run in ours], [run.id for run in theirs])
        for one, two in zip(reversed(ours), reversed(theirs), strict=True):
            if one.incarnation not in self.oracle.labels:
                label = len(self.oracle.labels) + 1
                self.oracle.labels[one.incarnation] = self.tested.labels[two.incarnation] = label

    def _theirs(self, value: Any) -> Any:
        """What was drawn from the oracle, for the tested store."""
        back = {label: incarnation for incarnation, label in self.tested.labels.items()}

        def incarnation(ours: int) -> int:
            return back.get(self.oracle.labels.get(ours, 0), ours)

        return exchanged(value, incarnation)

    def _same(self, what: str, expected: Any, found: Any) -> None:
        expected, found = self.oracle.labelled(expected), self.tested.labelled(found)
        if expected == found:
            return
        expected, found = _first_difference(expected, found)
        log = "\n".join(self.log[-12:])
        raise AssertionError(f"{log}\n{what} differ:\n  expected {expected!r}\n  found    {found!r}")


def _first_difference(expected: Any, found: Any) -> tuple[Any, Any]:
    """Of two lists, the first items that are not the same; else both as they are."""
    if isinstance(expected, list) and isinstance(found, list):
        for pair in zip(cast(Iterable[Any], expected), cast(Iterable[Any], found), strict=False):
            if pair[0] != pair[1]:
                return pair
    return cast(Any, expected), cast(Any, found)


def exchanged(value: Any, other: Callable[[int], Any]) -> Any:
    """The value with each incarnation in it exchanged for another number (or what else stands for it)."""
    if isinstance(value, tuple):
        return tuple(exchanged(item, other) for item in cast(Iterable[Any], value))
    if isinstance(value, list):
        return [exchanged(item, other) for item in cast(Iterable[Any], value)]
    if not isinstance(value, Struct):
        return value
    changes: dict[str, Any] = {}
    for field in value.__struct_fields__:
        item = getattr(value, field)
        if field == "incarnation" and item is not None:
            changes[field] = other(item)
        elif isinstance(item, Struct | tuple):
            changes[field] = exchanged(item, other)
    return replace(value, **changes) if changes else value


def _comparable(answer: Any) -> Any:
    """Without what the contract leaves open: the reason's words, the order of what a cascade changed."""
    if isinstance(answer, Unstorable):
        return Unstorable("")
    if isinstance(answer, Published):
        return Published(answer.reached, tuple(sorted(answer.runs, key=lambda key: key.id)))
    if isinstance(answer, Changed):
        first, rest = answer.runs[:1], answer.runs[1:]
        return Changed((*first, *sorted(rest, key=lambda run: run.incarnation)))
    return answer


async def _stream(store: Store, incarnation: int, stream: str) -> list[StoredChunk]:
    """Offsets are a store's own; but they grow, and the last is the head."""
    found = await store.chunks(incarnation, stream, 0, 1000)
    offsets = [0, *(chunk.offset for chunk in found)]
    assert offsets == sorted(set(offsets))
    assert list(await store.heads([(incarnation, stream)])) == offsets[-1:]
    return [replace(chunk, offset=0) for chunk in found]


async def _value(store: Store, incarnation: int, key: str) -> bytes | None:
    return (await store.values(incarnation, [key])).get(key)
