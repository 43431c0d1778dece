"""What clients do in a simulation: each scenario starts a run (or several), does things to it, and knows how it must end.

A client asks any process that is up; if that one is gone before it answers, it asks another one. So everything is done at
least once, and some things twice: ids make it once.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from random import Random
from typing import Any

from perdure import Perdure, RunCancelled, RunEnded, RunFailed, RunNotFound, RunTimedOut
from perdure.model.history import Event, Op
from perdure.model.run import TERMINAL
from perdure.ports.store import RunQuery
from perdure.stores.memory import MemoryStore
from tests.simulation import programs
from tests.simulation.fleet import Fleet

Scenario = Callable[[Fleet, str, Random, list[str]], Awaitable[None]]


async def end_of(fleet: Fleet, run_id: str) -> Any:
    """A run's result, or the class of the error."""

    async def result(app: Perdure) -> Any:
        return await app.get_run(run_id).result()

    try:
        return await fleet.do(result)
    except (RunFailed, RunCancelled, RunTimedOut) as error:
        return type(error)


async def start(fleet: Fleet, workflow: Any, *inputs: Any, **options: Any) -> None:
    async def begin(app: Perdure) -> None:
        await app.start(workflow, *inputs, **options)

    await fleet.do(begin)


async def signal_with_start(fleet: Fleet, run_id: str, number: int, wanted: int) -> None:
    async def act(app: Perdure) -> None:
        await app.signal_with_start(
            programs.mailbox, [], wanted, id=run_id, signal="letter", payload=number, signal_id=f"{number}"
        )

    await fleet.do(act)


async def signal(fleet: Fleet, run_id: str, name: str, payload: Any, rng: Random) -> None:
    """Once, though it may be sent several times."""

    async def send(app: Perdure) -> None:
        await app.get_run(run_id).signal(name, payload, id=name if name != "letter" else f"{payload}")

    for _ in range(rng.choice([1, 1, 2])):
        await fleet.do(send)


async def plain(fleet: Fleet, run_id: str, rng: Random, tokens: list[str]) -> None:
    """A random program; its signals come in any order, before, while or after it waits for them."""
    tree = programs.generate(rng, rng.randrange(3, 25), tokens)
    options: dict[str, Any] = {"priority": rng.randrange(-2, 3)}
    if rng.random() < 0.2:
        options["delay"] = rng.uniform(0.0, 5.0)
    await start(fleet, programs.program, tree, id=run_id, **options)
    names = programs.signals(tree)
    rng.shuffle(names)
    for name in names:
        await asyncio.sleep(rng.uniform(0.0, 5.0))
        try:
            await signal(fleet, run_id, name, int(name.partition(":")[2]), rng)
        except RunEnded:
            break  # it did not wait for ever, or not at all
    for token in tokens:
        for number in range(programs.waits(tree, token)):
            await _to_token(fleet, token, f"{run_id}:{number}", rng)
    end = await end_of(fleet, run_id)
    wrong = programs.check(tree, end)
    if wrong is not None:
        fleet.trouble(f"{run_id}: {wrong}")


async def _to_token(fleet: Fleet, token: str, key: str, rng: Random) -> None:
    payload = rng.getrandbits(60)

    async def send(app: Perdure) -> None:
        await app.signal("token", payload, token=token, id=key)

    await asyncio.sleep(rng.uniform(0.0, 3.0))
    for _ in range(rng.choice([1, 1, 2])):
        await fleet.do(send)
    fleet.sent.append((token, payload))


async def letters(fleet: Fleet, run_id: str, rng: Random, tokens: list[str]) -> None:
    """A chain of runs gets every letter once, in order."""
    count = rng.randrange(1, 9)
    await start(fleet, programs.mailbox, [], count, id=run_id)
    for number in range(count):
        await asyncio.sleep(rng.uniform(0.0, 1.0) if rng.random() < 0.5 else 0)
        await signal(fleet, run_id, "letter", number, rng)
    expect(fleet, run_id, await end_of(fleet, run_id), list(range(count)))


async def flood(fleet: Fleet, run_id: str, rng: Random, tokens: list[str]) -> None:
    """START-16: several clients start it with their signal at once; all signals arrive."""
    count = rng.randrange(2, 6)
    await asyncio.gather(*(signal_with_start(fleet, run_id, number, count) for number in range(count)))
    end = await end_of(fleet, run_id)
    expect(fleet, run_id, sorted(end) if isinstance(end, list) else end, list(range(count)))


async def stubborn(fleet: Fleet, run_id: str, rng: Random, tokens: list[str]) -> None:
    """Fails until it is requeued."""
    n = rng.randrange(10)
    await start(fleet, programs.revived, n, id=run_id)
    while (end := await end_of(fleet, run_id)) is RunFailed:
        await asyncio.sleep(rng.uniform(0.0, 2.0))
        await fleet.do(lambda app: app.get_run(run_id).requeue())
    expect(fleet, run_id, end, 3 * n)


async def stopped(fleet: Fleet, run_id: str, rng: Random, tokens: list[str]) -> None:
    """Cancelled at any time, with everything below it."""
    await start(fleet, programs.endless, rng.randrange(3), id=run_id)
    await asyncio.sleep(rng.choice([0.0, rng.uniform(0.0, 1.0), rng.uniform(0.0, 20.0)]))
    await fleet.do(lambda app: app.get_run(run_id).cancel("enough"))
    expect(fleet, run_id, await end_of(fleet, run_id), RunCancelled)


async def late(fleet: Fleet, run_id: str, rng: Random, tokens: list[str]) -> None:
    """Runs out of time, with everything below it."""
    await start(fleet, programs.endless, rng.randrange(3), id=run_id, timeout=rng.uniform(0.1, 20.0))
    expect(fleet, run_id, await end_of(fleet, run_id), RunTimedOut)


async def forgotten(fleet: Fleet, run_id: str, rng: Random, tokens: list[str]) -> None:
    """Deleted at any time: then nobody knows it, and its id is free."""
    await start(fleet, programs.endless, 1, id=run_id)
    await asyncio.sleep(rng.uniform(0.0, 5.0))
    await fleet.do(lambda app: app.get_run(run_id).delete())
    try:
        expect(fleet, run_id, await end_of(fleet, run_id), RunNotFound)
    except RunNotFound:
        pass
    await start(fleet, programs.revived, 0, id=run_id)
    while (end := await end_of(fleet, run_id)) is RunFailed:
        await fleet.do(lambda app: app.get_run(run_id).requeue())
    expect(fleet, run_id, end, 0)


def expect(fleet: Fleet, run_id: str, got: Any, expected: Any) -> None:
    """Note it as a problem if a run ended otherwise."""
    if got != expected:
        fleet.trouble(f"{run_id} ended with {got!r}, not {expected!r}")


SCENARIOS: dict[str, tuple[Scenario, int]] = {
    "plain": (plain, 8),
    "letters": (letters, 2),
    "flood": (flood, 1),
    "stubborn": (stubborn, 2),
    "stopped": (stopped, 2),
    "late": (late, 1),
    "forgotten": (forgotten, 1),
}


async def story(fleet: Fleet, rng: Random, count: int) -> None:
    """So many scenarios, begun one after another, some at once; told when all have ended and nothing is left to do."""
    names = [name for name, (_, weight) in SCENARIOS.items() for _ in range(weight)]
    tokens = ["red", "blue"] if rng.random() < 0.7 else []
    told: list[asyncio.Task[None]] = []
    for number in range(count):
        name = rng.choice(names)
        told.append(
            asyncio.create_task(_told(SCENARIOS[name][0], fleet, f"{name}{number}", Random(rng.random()), tokens))
        )
        await asyncio.sleep(rng.choice([0.0, 0.0, rng.uniform(0.0, 10.0)]))
    await asyncio.gather(*told)
    await _all_have_ended(fleet)


async def to_the_end(fleet: Fleet, story: Callable[[Fleet], Awaitable[None]]) -> None:
    """One story, told when nothing is left to do."""
    await story(fleet)
    await _all_have_ended(fleet)


async def _all_have_ended(fleet: Fleet) -> None:
    while live := [run.id for run in await _all(fleet.store) if run.status not in TERMINAL]:
        await asyncio.sleep(1.0)  # children that were left alone end in their time
        if fleet.seconds() > 12 * 3600:
            fleet.trouble(f"these never end: {live}")
            return


async def _told(scenario: Scenario, fleet: Fleet, run_id: str, rng: Random, tokens: list[str]) -> None:
    try:
        await scenario(fleet, run_id, rng, tokens)
    except Exception as error:
        fleet.trouble(f"{run_id}: {error!r}")


async def _all(store: MemoryStore) -> list[Any]:
    return list(await store.runs(RunQuery(limit=1_000_000)))


async def verify(fleet: Fleet) -> None:
    """What the store must look like when every story is told."""
    store = fleet.store
    for finding in await store.audit(heal=False):
        fleet.trouble(f"the audit found: {finding.run.id} {finding.what}")
    runs = await _all(store)
    histories = await store.history([run.incarnation for run in runs])
    got: list[tuple[str, int]] = []
    for run in runs:
        history = histories[run.incarnation]
        ends = [entry for entry in history if entry.event is Event.END]
        requeues = sum(entry.event is Event.REQUEUED for entry in history)
        if ends and (history[-1].event is not Event.END or history[-1].name != run.status):
            fleet.trouble(f"{run.id} is {run.status}, but its history ends with {history[-1]}")
        if len(ends) != requeues + 1 and not (run.status == "cancelled" and not ends):
            fleet.trouble(f"{run.id} is {run.status} and has {len(ends)} ends and {requeues} requeues")
        resolved = [entry.seq for entry in history if entry.event is Event.RESOLVED]
        if len(resolved) != len(set(resolved)):
            fleet.trouble(f"{run.id} has two results of one operation")
        got += _from_tokens(history)
        parent = (
            None if run.parent is None else next((r for r in runs if r.incarnation == run.parent.incarnation), None)
        )
        if run.parent is not None and parent is None:
            fleet.trouble(f"{run.id} is left of a deleted parent")
    _messages_are_all_there(fleet, got)


def _from_tokens(history: Any) -> list[tuple[str, int]]:
    tokens = {
        entry.seq: entry.payload.decode()
        for entry in history
        if entry.event is Event.SCHEDULED and entry.op is Op.SIGNAL and entry.payload is not None
    }
    return [
        (tokens[entry.seq], json.loads(entry.payload))
        for entry in history
        if entry.event is Event.RESOLVED and entry.seq in tokens
    ]


def _messages_are_all_there(fleet: Fleet, got: list[tuple[str, int]]) -> None:
    kept = [
        (token, json.loads(letter.message.payload or b"null"))
        for (_, token), line in fleet.store._tables.lines.items()
        for letter in line.kept
    ]
    if sorted(got + kept) != sorted(fleet.sent):
        fleet.trouble(f"tokens: sent {sorted(fleet.sent)}, received {sorted(got)}, kept {sorted(kept)}")
    waiting = [wait for line in fleet.store._tables.lines.values() for wait in line.waits]
    if waiting:
        fleet.trouble(f"waits of ended runs are left: {waiting}")
