"""Two deeds at once on PostgreSQL, stopped everywhere; what comes out must be what one after the other comes to.

The memory store is the judge: it does the two in every order (batches may be interleaved write by write: a store may cut them),
and what PostgreSQL answered and holds afterwards must be equal to one of these outcomes.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import Any, NamedTuple, cast

from perdure.model.commit import Changed, Unstorable, Write
from perdure.model.run import Run, RunKey
from perdure.ports.store import ClaimRequest, Held, RunQuery, Store
from perdure.stores.memory import MemoryStore
from perdure.stores.postgres import PostgresStore
from perdure.testing import ManualClock
from perdure.testing.conformance.kit import LEASE, Kit, request
from perdure.testing.conformance.oracle import exchanged
from tests.races.stops import Gate
from tests.servers.databases import Schema

EVERYTHING = RunQuery(limit=1_000)

#: What a deed acts on: the runs that the preparation made, by name.
Actors = dict[str, Run]
Step = Callable[[Store], Awaitable[Any]]


class Batch(NamedTuple):
    """Writes in one batch."""

    writes: Callable[[Actors], Sequence[Write]]

    async def at_once(self, store: Store, actors: Actors) -> list[Any]:
        return list(await store.write(self.writes(actors)))

    def steps(self, actors: Actors) -> list[Step]:
        return [_writing(write) for write in self.writes(actors)]


class Verb(NamedTuple):
    """Another verb of the store. `skips`: it may pass over what others hold locked, as if it had not been asked."""

    call: Callable[[Store, Actors], Awaitable[Any]]
    skips: bool = False

    async def at_once(self, store: Store, actors: Actors) -> list[Any]:
        return [await self.call(store, actors)]

    def steps(self, actors: Actors) -> list[Step]:
        return [lambda store: self.call(store, actors)]


Deed = Batch | Verb


def _writing(write: Write) -> Step:
    async def step(store: Store) -> Any:
        [answer] = await store.write([write])
        return answer

    return step


class Race(NamedTuple):
    """Two deeds that meet. `prepare` makes what they act on.

    `anew`: they want the same new id, which nobody can lock beforehand: one of them may have to begin anew.
    """

    prepare: Callable[[Kit], Awaitable[Actors]]
    one: Deed
    two: Deed
    anew: bool = False


def claiming(owner: str, **fields: Any) -> Verb:
    asked: ClaimRequest = request(owner, **fields)

    async def call(store: Store, actors: Actors) -> Any:
        return list(await store.claim(asked))

    return Verb(call, skips=True)


def renewing(owner: str, name: str) -> Verb:
    async def call(store: Store, actors: Actors) -> Any:
        run = actors[name]

        def renew() -> Any:
            renewer = store.renewer()
            try:
                return list(renewer.renew(owner, LEASE, [Held(run.incarnation, run.epoch, run.inbox)]))
            finally:
                renewer.close()

        return await asyncio.to_thread(renew)

    return Verb(call)


def releasing(owner: str, name: str) -> Verb:
    async def call(store: Store, actors: Actors) -> Any:
        await store.release(owner, [Held(actors[name].incarnation, actors[name].epoch, actors[name].inbox)])

    return Verb(call)


# ---------------------------------------------------------------- the judge


async def outcomes(race: Race) -> list[Any]:
    """All that one after the other can come to."""
    clock = ManualClock()
    actors = await race.prepare(_kit(clock))
    found: list[Any] = []
    for order in _orders(race, len(race.one.steps(actors)), len(race.two.steps(actors))):
        clock = ManualClock()
        kit = _kit(clock)
        actors = await race.prepare(kit)
        labels = _labelled(await kit.store.runs(EVERYTHING), {})
        answers: tuple[list[Any], list[Any]] = ([], [])
        steps = [iter(race.one.steps(actors)), iter(race.two.steps(actors))]
        for who in order:
            answers[who % 2].append([] if who > 1 else await next(steps[who])(kit.store))
        assert isinstance(kit.store, MemoryStore)
        outcome = await outcome_of(kit.store, answers, labels, beside_in_memory(kit.store))
        if outcome not in found:
            found.append(outcome)
    return found


def _kit(clock: ManualClock) -> Kit:
    return Kit(cast("Any", None), clock, MemoryStore(clock))


def _orders(race: Race, ones: int, twos: int) -> Iterator[tuple[int, ...]]:
    """Who takes the next step: 0 or 1; 2 or 3 if that one's step is passed over."""
    yield from _merged(ones, twos)
    if isinstance(race.one, Verb) and race.one.skips:
        yield (*(1,) * twos, 2)
    if isinstance(race.two, Verb) and race.two.skips:
        yield (*(0,) * ones, 3)


def _merged(ones: int, twos: int) -> Iterator[tuple[int, ...]]:
    if not ones or not twos:
        yield (0,) * ones + (1,) * twos
        return
    for rest in _merged(ones - 1, twos):
        yield (0, *rest)
    for rest in _merged(ones, twos - 1):
        yield (1, *rest)


# ---------------------------------------------------------------- what came out


async def outcome_of(
    store: Store, answers: tuple[list[Any], list[Any]], labels: dict[int, str], beside: Sequence[Any]
) -> Any:
    """Everything that can be seen, and what lies `beside`; comparable between stores: a run's label in place of its number."""
    runs = await store.runs(EVERYTHING)
    labels = _labelled(runs, labels)
    incarnations = [run.incarnation for run in runs]
    histories = await store.history(incarnations)
    seen: list[Any] = [*map(_comparable, answers[0]), "|", *map(_comparable, answers[1])]
    for run in sorted(runs, key=lambda run: labels[run.incarnation]):
        inbox = await store.messages(run.incarnation) if run.inbox else ()
        seen += ["run", run, histories[run.incarnation], inbox]
    seen += ["gates", await store.gates(limit=1_000)]
    seen += ["astray", await store.audit(heal=False), *beside]
    return exchanged(_tuples(seen), lambda incarnation: labels.get(incarnation, "one that came and went"))


def beside_in_memory(store: MemoryStore) -> list[Any]:
    """What no verb shows at once: who waits at each token, what is kept there, and values."""
    tables = store._tables
    found: list[Any] = []
    for (_, token), line in sorted(tables.lines.items()):
        found += [("waits", token, RunKey("", wait.incarnation), wait.seq, None) for wait in line.waits]
        found += [("kept", token, None, letter.message.at, letter.message.payload) for letter in line.kept]
    for (_, event), kept in sorted(tables.kept_events.items()):
        found += [("kept event", event, None, each.at, each.payload) for each in kept]
    for actor in tables.actors.values():
        found += [("value", key, RunKey("", actor.run.incarnation), None, value) for key, value in actor.values]
    return found


BESIDE = """
    SELECT 'waits', name, incarnation, seq, NULL::bytea FROM (
        SELECT *, token || coalesce(chr(31) || probe, '') AS name FROM {0}.waits WHERE served IS NULL ORDER BY name, place) AS w
    UNION ALL SELECT 'kept', token, NULL, at, payload FROM (SELECT * FROM {0}.kept ORDER BY token, arrival) AS k
    UNION ALL SELECT 'kept event', event, NULL, at, payload FROM (
        SELECT * FROM {0}.kept_events ORDER BY event, arrival) AS e
    UNION ALL SELECT 'value', key, incarnation, NULL, payload FROM {0}.run_values
"""


async def beside_in_postgres(gate: Gate, schema: Schema) -> list[Any]:
    return [
        (what, name, None if incarnation is None else RunKey("", incarnation), number, payload)
        for what, name, incarnation, number, payload in await gate.rows(BESIDE.format(f'"{schema.name}"'))
    ]


def _labelled(runs: Sequence[Run], known: dict[int, str]) -> dict[int, str]:
    """A name for each incarnation (the newest comes first). A second one of the same id has another name."""
    labels = dict(known)
    for run in reversed(runs):
        if run.incarnation not in labels:
            again = sum(name.partition("#")[0] == run.id for name in labels.values())
            labels[run.incarnation] = f"{run.id}#{again}"
    return labels


def _comparable(answer: Any) -> Any:
    """Without what the contract leaves open: an error's words, the order of what a cascade changed or a claim found."""
    if isinstance(answer, Unstorable):
        return Unstorable("")
    if isinstance(answer, Changed):
        return Changed((*answer.runs[:1], *sorted(answer.runs[1:], key=lambda run: run.id)))
    return answer


def _tuples(value: Any) -> Any:
    return tuple(_tuples(each) for each in value) if isinstance(value, list | tuple) else value


# ---------------------------------------------------------------- the race


class Course:
    """One schema with stops, emptied before each round."""

    def __init__(
        self, schema: Schema, gate: Gate, stores: tuple[PostgresStore, PostgresStore], clock: ManualClock
    ) -> None:
        self.schema = schema
        self.gate = gate
        self.stores = stores
        self.clock = clock

    async def run(self, race: Race, expected: Sequence[Any]) -> Tally:
        """Stop the first deed at each of its stops in turn. Raises `AssertionError` where what comes out is not expected."""
        tally = Tally(0, 0, 0)
        for number in itertools.count(1):
            stood, waited, found = await self._round(race, number)
            if found not in expected:
                raise AssertionError(_difference(number, expected, found))
            tally = Tally(
                tally.stops + stood, tally.waits + waited, self.stores[0].begun_anew + self.stores[1].begun_anew
            )
            if not stood:
                return tally
        raise AssertionError

    async def _round(self, race: Race, number: int) -> tuple[bool, bool, Any]:
        await self.gate.empty()
        self.clock.set(ManualClock().now())
        kit = Kit(cast("Any", None), self.clock, self.stores[0])
        actors = await race.prepare(kit)
        labels = _labelled(await kit.store.runs(EVERYTHING), {})
        await self.gate.shut(number)
        try:
            one = asyncio.create_task(race.one.at_once(self.stores[0], actors))
            stood = await self.gate.stands(one)
            two = asyncio.create_task(race.two.at_once(self.stores[1], actors))
            waited = stood and await self.gate.as_far_as_it_can(two)
        finally:
            await self.gate.open()
        answers = (await one, await two)
        beside = await beside_in_postgres(self.gate, self.schema)
        return stood, waited, await outcome_of(kit.store, answers, labels, beside)


class Tally(NamedTuple):
    """At how many stops the first deed stood, at how many of them the second waited for it, how often one began anew."""

    stops: int
    waits: int
    anew: int


def _difference(number: int, expected: Sequence[Any], found: Any) -> str:
    lines = [f"stopped at {number}: this is none of the {len(expected)} outcomes of one after the other"]
    for which, outcome in enumerate(expected):
        lines.append(f"against outcome {which}:")
        for ours, theirs in itertools.zip_longest(outcome, found):
            if ours != theirs:
                lines += [f"  expected {ours!r}", f"  found    {theirs!r}"]
    return "\n".join(lines)
