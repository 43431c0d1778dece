"""`perdure queues`: what goes through queues and singletons: who holds a slot, who waits, and since when."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from typing import Any

import click
from rich.console import Group, RenderableType
from rich.text import Text

from perdure.cli.client import client
from perdure.cli.options import json_option, store_option
from perdure.cli.output import output, table
from perdure.cli.text import duration, iso, relative, styled
from perdure.model.gates import WHOLE_RUN
from perdure.ports.gates import Gate, Ticket


@click.command()
@click.argument("name", required=False)
@click.option("--namespace", metavar="NAME", help="Only those of this namespace.")
@click.option("--limit", type=click.IntRange(1, 1000), default=20, show_default=True, help="So many tickets of each.")
@store_option
@json_option
def queues(name: str | None, namespace: str | None, limit: int, store: str) -> None:
    """List queues and singletons. With NAME: who holds it, who waits, and since when."""

    async def look() -> tuple[Sequence[Gate], int]:
        async with client(store) as app:
            return await app.queues(name, namespace=namespace, limit=limit), app.engine.store.now()

    gates, now = asyncio.run(look())
    answer = {"queues": [_document(gate) for gate in gates]}
    output().answer(answer, lambda: _list(gates, now) if name is None else _show(gates, name, now))


def _document(gate: Gate) -> dict[str, Any]:
    rules = gate.rules
    return {
        "name": gate.key.name,
        "key": gate.key.key,
        "namespace": gate.key.namespace,
        "concurrency": rules.limit,
        "rate": None if rules.rate is None else {"count": rules.rate, "seconds": rules.window / 1_000_000},
        "order": "lifo" if rules.lifo else "fifo",
        "fairness": "key" if rules.fair else None,
        "held": gate.held,
        "waiting": gate.waiting,
        "next_at": None if gate.wake_at is None else iso(gate.wake_at),
        "holders": [_ticket(ticket) for ticket in gate.tickets if ticket.held],
        "waiters": [_ticket(ticket) for ticket in gate.tickets if not ticket.held],
    }


def _ticket(ticket: Ticket) -> dict[str, Any]:
    return {
        "run": ticket.run.id,
        "workflow": ticket.workflow,
        "step": None if ticket.seq == WHOLE_RUN else ticket.seq,
        "priority": ticket.priority,
        "key": ticket.fairness,
        "since": iso(ticket.since),
    }


def _list(gates: Sequence[Gate], now: int) -> RenderableType:
    if not gates:
        return Text("no queue is declared, and no singleton runs")
    listed = table("queue", "key", "namespace", "held", "waiting", "longest held", numbers=("held", "waiting"))
    for gate in gates:
        holder = next((ticket for ticket in gate.tickets if ticket.held), None)
        listed.add_row(
            styled(gate.key.name),
            styled(gate.key.key),
            styled(gate.key.namespace),
            f"{gate.held}/{'-' if gate.rules.limit is None else gate.rules.limit}",
            str(gate.waiting),
            Text() if holder is None else Text.assemble(styled(holder.run.id), f", {relative(holder.since, now)}"),
        )
    return listed


def _show(gates: Sequence[Gate], name: str, now: int) -> RenderableType:
    if not gates:
        return Text(
            f"there is no queue {name!r}; a singleton's is called singleton:WORKFLOW, and there only while one runs"
        )
    return Group(*(part for gate in gates for part in _portrait(gate, now)))


def _portrait(gate: Gate, now: int) -> Iterable[RenderableType]:
    rules = gate.rules
    limits = [] if rules.limit is None else [f"{rules.limit} at once"]
    if rules.rate is not None:
        limits.append(f"{rules.rate} in {duration(rules.window)}")
    where = " ".join(part for part in (gate.key.name, gate.key.key, f"({gate.key.namespace})") if part)
    yield styled(f"{where}: {', '.join(limits) or 'no limit'}; {gate.held} held, {gate.waiting} waiting")
    if gate.wake_at is not None:
        yield Text(f"the next may begin {relative(gate.wake_at, now)}")
    if gate.tickets:
        listed = table("run", "workflow", "step", "state", "priority", "key", "since", numbers=("step", "priority"))
        for ticket in gate.tickets:
            listed.add_row(
                styled(ticket.run.id),
                styled(ticket.workflow),
                "" if ticket.seq == WHOLE_RUN else str(ticket.seq),
                Text("held", "green") if ticket.held else Text("waiting", "yellow"),
                str(ticket.priority),
                styled(ticket.fairness),
                relative(ticket.since, now),
            )
        yield listed
