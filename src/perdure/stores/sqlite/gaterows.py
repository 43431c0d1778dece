"""The rows of gates, as values and as a page shows them."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from perdure.model.gates import GateKey, Rules, has_slot, in_rate
from perdure.model.run import RunKey
from perdure.ports.gates import MOST_GATES, Gate, Ticket

_GATE_COLUMNS: Final = (
    "id, namespace, name, key, slots, rate, window, lifo, fair, depth, lasting, stamp, held, waiting, opened, used, services, "
    "wake_at"
)
SELECT_GATE: Final = f"SELECT {_GATE_COLUMNS} FROM gates"
_LISTED: Final = """
    SELECT r.id, r.incarnation, r.workflow, t.seq, t.urgency, t.fairness, t.since
    FROM tickets AS t CROSS JOIN runs AS r USING (incarnation) WHERE t.gate = ? AND t.held = {held} ORDER BY {order} LIMIT ?
"""
_HELD: Final = _LISTED.format(held=1, order="t.since, t.arrival")
_WAITING: Final = _LISTED.format(held=0, order="t.urgency DESC, t.arrival")


@dataclass
class GateRow:
    """A gate's row while a transaction works on it."""

    number: int
    key: GateKey
    rules: Rules
    held: int
    waiting: int
    opened: int
    used: int
    services: int
    wake_at: int | None

    def open(self, now: int) -> bool:
        return has_slot(self.rules, self.held) and in_rate(self.rules, self.opened, self.used, now)

    def lane(self, fairness: str) -> str:
        return fairness if self.rules.fair else ""

    def rank(self, arrival: int) -> int:
        return -arrival if self.rules.lifo else arrival


def rule_cells(rules: Rules) -> tuple[int | None, ...]:
    return (
        rules.limit,
        rules.rate,
        rules.window,
        rules.lifo,
        rules.fair,
        rules.depth,
        rules.lasting,
        rules.stamp,
    )


def to_gate(row: Sequence[Any]) -> GateRow:
    number, namespace, name, key, slots, rate, window, lifo, fair, depth, lasting, stamp, *counts = row
    rules = Rules(
        limit=slots,
        rate=rate,
        window=window,
        lifo=lifo == 1,
        fair=fair == 1,
        depth=depth,
        lasting=lasting == 1,
        stamp=stamp,
    )
    return GateRow(number, GateKey(namespace, name, key), rules, *counts)


def find(connection: sqlite3.Connection, key: GateKey) -> GateRow | None:
    values = (key.namespace, key.name, key.key)
    row = connection.execute(SELECT_GATE + " WHERE namespace = ? AND name = ? AND key = ?", values).fetchone()
    return None if row is None else to_gate(row)


def order(gate: GateRow) -> tuple[str, str, str]:
    return (gate.key.namespace, gate.key.name, gate.key.key)


def next_look(connection: sqlite3.Connection) -> int | None:
    row = connection.execute("SELECT min(wake_at) FROM gates INDEXED BY gates_due WHERE wake_at IS NOT NULL").fetchone()
    found: int | None = row[0]
    return found


def listed(connection: sqlite3.Connection, namespace: str | None, name: str | None, limit: int) -> list[Gate]:
    conditions = [f"{column} = ?" for column, value in (("namespace", namespace), ("name", name)) if value is not None]
    values = [value for value in (namespace, name) if value is not None]
    where = f" WHERE {' AND '.join(conditions)}" if conditions else ""
    connection.execute("BEGIN")
    try:
        rows = connection.execute(
            f"{SELECT_GATE}{where} ORDER BY namespace, name, key LIMIT {MOST_GATES}", values
        ).fetchall()
        return [_listed(connection, to_gate(row), limit) for row in rows]
    finally:
        connection.execute("COMMIT")


def _listed(connection: sqlite3.Connection, gate: GateRow, limit: int) -> Gate:
    return Gate(
        key=gate.key,
        rules=gate.rules,
        held=gate.held,
        waiting=gate.waiting,
        wake_at=gate.wake_at,
        tickets=(
            *_tickets(connection.execute(_HELD, (gate.number, limit)), held=True),
            *_tickets(connection.execute(_WAITING, (gate.number, limit)), held=False),
        ),
    )


def _tickets(rows: Iterable[tuple[str, int, str, int, int, str, int]], *, held: bool) -> Iterable[Ticket]:
    for run_id, incarnation, workflow, seq, priority, fairness, since in rows:
        yield Ticket(
            run=RunKey(run_id, incarnation),
            workflow=workflow,
            seq=seq,
            held=held,
            priority=priority,
            fairness=fairness,
            since=since,
        )
