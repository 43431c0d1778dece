"""What the cases about gates share: asking, passing, waiting, and looking at who does."""

from __future__ import annotations

from typing import Any

from perdure.model.commit import (
    Moved,
)
from perdure.model.gates import WHOLE_RUN, Ask, Rules
from perdure.model.messages import Message, MessageKind
from perdure.model.run import Run
from perdure.ports.gates import Gate
from perdure.testing.conformance.kit import (
    Kit,
    park,
    to_run,
)

ONE = Rules(limit=1)


def ask(seq: int = 0, rules: Rules = ONE, **fields: Any) -> Ask:
    usual: dict[str, Any] = {"seq": seq, "name": "g", "rules": rules}
    return Ask(**usual | fields)


def whole(rules: Rules = ONE, **fields: Any) -> Ask:
    return ask(WHOLE_RUN, rules, **fields)


def grant(number: int, seq: int, at: int) -> Message:
    return Message(number, MessageKind.GRANT, str(seq), None, None, False, at)


async def held(kit: Kit, **which: Any) -> list[str]:
    """The ids of the runs that hold the one gate, oldest first."""
    return [ticket.run.id for ticket in (await gate(kit, **which)).tickets if ticket.held]


async def waiting(kit: Kit, **which: Any) -> list[str]:
    return [ticket.run.id for ticket in (await gate(kit, **which)).tickets if not ticket.held]


async def gate(kit: Kit, **which: Any) -> Gate:
    [found] = await kit.store.gates(**which)
    assert found.held == sum(ticket.held for ticket in found.tickets)
    assert found.held + found.waiting == len(found.tickets)
    return found


async def parked(kit: Kit, run_id: str, *asks: Ask, **fields: Any) -> Run:
    """A run that asked, and is parked, or goes on with what it was granted."""
    run = await kit.hold(run_id, **fields)
    answer = await kit.one(park(run, asks=asks or (ask(),)))
    if isinstance(answer, Moved):
        await kit.apply(park(run, seen=len(answer.messages)))
    return await kit.run(run_id)


async def take(kit: Kit, run: Run) -> Run:
    """The run, held again for a turn: it is sent something, so that it is due."""
    await kit.apply(to_run(run.id))
    return await kit.take(run.id)


async def over(kit: Kit, run: Run, *seqs: int) -> None:
    """Another turn, which gives back what the run has."""
    run = await take(kit, run)
    await kit.apply(park(run, seen=run.inbox, releases=seqs or (0,)))


async def line(kit: Kit, *asks: Ask, rules: Rules) -> list[str]:
    """The order in which runs that ask so are served, one at a time; named 0, 1 and so on."""
    first = await parked(kit, "first", ask(rules=rules, fairness="first"))
    for number, asked in enumerate(asks):
        await parked(kit, str(number), asked)
    await over(kit, first)
    order: list[str] = []
    while served := await held(kit):
        order += served
        run = await kit.take(served[0])
        await kit.apply(park(run, seen=run.inbox, releases=(0,)))
    return order
