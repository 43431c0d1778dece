"""How gates stand."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from perdure.model.gates import GateKey, Rules
from perdure.model.run import RunKey
from perdure.ports.gates import MOST_GATES, Gate, Ticket
from perdure.stores.postgres.rows import Row


def parameters(namespace: str | None, name: str | None, limit: int) -> tuple[str | None, str | None, int, int]:
    """Of the SQL function `gates_1`."""
    return namespace, name, MOST_GATES, limit


def to_gates(rows: Sequence[Row]) -> Sequence[Gate]:
    """From the rows of `gates_1`: each gate's, followed by those of its tickets."""
    gates: list[Gate] = []
    tickets: list[Ticket] = []
    for gate, *ticket in reversed(rows):
        if gate is None:
            tickets.append(_ticket(ticket))
        else:
            gates.append(replace(_gate(gate), tickets=tuple(reversed(tickets))))
            tickets.clear()
    gates.reverse()
    return gates


def _ticket(row: Row) -> Ticket:
    run_id, incarnation, workflow, seq, held, priority, fairness, since = row
    return Ticket(
        run=RunKey(run_id, incarnation),
        workflow=workflow,
        seq=seq,
        held=held,
        priority=priority,
        fairness=fairness,
        since=since,
    )


def _gate(row: Row) -> Gate:
    _, namespace, name, key, slots, rate, span, lifo, fair, depth, lasting, stamp, held, waiting, *_, wake_at = row
    rules = Rules(limit=slots, rate=rate, window=span, lifo=lifo, fair=fair, depth=depth, lasting=lasting, stamp=stamp)
    return Gate(key=GateKey(namespace, name, key), rules=rules, held=held, waiting=waiting, wake_at=wake_at, tickets=())
