"""Gates and their lines: who holds a slot, who is next, and what becomes of a slot that is given back.

A ticket that waits stands in a *lane* of its gate: one for each priority, in a fair gate one for each priority and fairness
key. A lane knows the `rank` of its first ticket (by arrival; negative where who came last goes first) and when its key was
served last. So the next in line is one seek among the lanes and one among the tickets, however long the line is.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from perdure.model.commit import Configure
from perdure.model.gates import (
    FAIR_MEMORY,
    MOST_ADMITTED,
    WHOLE_RUN,
    Ask,
    GateKey,
    Rules,
    encode_ask,
    forgettable,
    look_again,
    window_over,
)
from perdure.model.messages import MessageKind
from perdure.model.run import DEFAULT_NAMESPACE
from perdure.stores.sqlite import inboxes
from perdure.stores.sqlite.gaterows import SELECT_GATE, GateRow, find, order, rule_cells, to_gate
from perdure.stores.sqlite.rows import PENDING, SUSPENDED, Letter
from perdure.stores.sqlite.sized import execute_sized, parts
from perdure.stores.sqlite.transaction import Transaction

_GRANT: Final = MessageKind.GRANT.value

_INSERT_GATE: Final = """
    INSERT INTO gates (namespace, name, key, slots, rate, window, lifo, fair, depth, lasting, stamp,
        held, waiting, opened, used, services) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, 0, 0, 0, 0, 0)
"""
_UPDATE_GATE: Final = """
    UPDATE gates SET slots = ?, rate = ?, window = ?, lifo = ?, fair = ?, depth = ?, lasting = ?, stamp = ?, held = ?,
        waiting = ?, opened = ?, used = ?, services = ?, wake_at = ? WHERE id = ?
"""
#: A ticket that waits joins its lane.
_JOIN_LANE: Final = """
    INSERT INTO lanes (gate, urgency, lane, head, served) VALUES (?, ?, ?, ?, coalesce(
        (SELECT service FROM services WHERE gate = ? AND lane = ?), 0))
    ON CONFLICT (gate, urgency, lane) DO UPDATE SET head = min(head, excluded.head)
"""
_NEXT_LANE: Final = """
    SELECT urgency, lane, head FROM lanes INDEXED BY lanes_next WHERE gate = ?
    ORDER BY urgency DESC, served, head LIMIT 1
"""
_FIRST_IN_LANE: Final = """
    SELECT rank FROM tickets INDEXED BY tickets_in_line
    WHERE gate = ? AND urgency = ? AND lane = ? AND held = 0 ORDER BY rank LIMIT 1
"""
_AT_RANK: Final = """
    SELECT arrival, incarnation, seq FROM tickets INDEXED BY tickets_in_line
    WHERE gate = ? AND urgency = ? AND lane = ? AND held = 0 AND rank = ?
"""
_TICKETS_OF: Final = """
    SELECT arrival, gate, incarnation, seq, held, urgency, lane, rank FROM tickets
    WHERE incarnation IN (SELECT incarnation FROM runs WHERE incarnation IN (@rows) AND tickets > 0)
"""


def full(tx: Transaction, namespace: str, asked: Ask) -> int | None:
    """How many wait for a gate that takes no new run; None: it takes one."""
    gate = find(tx.connection, GateKey(namespace, asked.name, asked.key))
    rules = asked.rules if gate is None or asked.rules.stamp > gate.rules.stamp else gate.rules
    if gate is None:
        gate = GateRow(0, GateKey("", ""), rules, 0, 0, 0, 0, 0, None)
    gate.rules = rules
    if rules.depth is None or gate.waiting < rules.depth or (not gate.waiting and gate.open(tx.now)):
        return None
    return gate.waiting


def ask(tx: Transaction, incarnation: int, namespace: str, asked: Ask) -> None:
    """Take a place in line, and perhaps a slot at once. Who has a ticket keeps it."""
    there = tx.execute("SELECT 1 FROM tickets WHERE incarnation = ? AND seq = ?", (incarnation, asked.seq)).fetchone()
    if there is not None:
        return
    gate = _declared(tx, GateKey(namespace, asked.name, asked.key), asked.rules)
    lane = gate.lane(asked.fairness)
    arrival = tx.execute(
        "INSERT INTO tickets (gate, incarnation, seq, held, urgency, fairness, lane, rank, since) "
        "VALUES (?, ?, ?, 0, ?, ?, ?, 0, ?)",
        (gate.number, incarnation, asked.seq, asked.priority, asked.fairness, lane, tx.now),
    ).lastrowid
    assert arrival is not None  # an INSERT has one
    rank = gate.rank(arrival)
    tx.execute("UPDATE tickets SET rank = ? WHERE arrival = ?", (rank, arrival))
    tx.touched.add(incarnation)
    whole = asked.seq == WHOLE_RUN
    tx.execute(
        "UPDATE runs SET tickets = tickets + 1, deadline = CASE WHEN ? THEN NULL ELSE deadline END, gate = coalesce(gate, ?) "
        "WHERE incarnation = ?",
        (whole, encode_ask(asked).decode() if whole else None, incarnation),
    )
    gate.waiting += 1
    if gate.waiting == 1 and gate.open(tx.now):
        _grant(tx, gate, arrival, incarnation, asked.seq, lane)
    else:
        tx.execute(_JOIN_LANE, (gate.number, asked.priority, lane, rank, gate.number, lane))
    _admit(tx, gate)


def ask_for_new(tx: Transaction, incarnation: int, namespace: str, asked: Ask) -> None:
    """A run that was just made asks for its gate, if it is due."""
    tx.execute("UPDATE runs SET gate = ? WHERE incarnation = ?", (encode_ask(asked).decode(), incarnation))
    due = tx.execute(
        "UPDATE runs SET status = ?, listening = 1, wake_at = NULL WHERE incarnation = ? AND status = ?",
        (SUSPENDED, incarnation, PENDING),
    )
    if due.rowcount:
        ask(tx, incarnation, namespace, asked)
        tx.execute(
            "UPDATE runs SET status = ?, listening = 0 WHERE incarnation = ? AND wake_at IS NOT NULL",
            (PENDING, incarnation),
        )


def release(tx: Transaction, incarnations: Sequence[int], seqs: Sequence[int] | None = None) -> None:
    """Give tickets back: those of these positions, or all. Then whoever is next is admitted."""
    gates: dict[int, GateRow] = {}
    for part in parts([(incarnation,) for incarnation in incarnations]):
        for row in execute_sized(tx.connection, _TICKETS_OF, 1, part).fetchall():
            if seqs is None or row[3] in seqs:
                number = row[1]
                if number not in gates:
                    gates[number] = _by_number(tx, number)
                _leave(tx, gates[number], row)
    for gate in sorted(gates.values(), key=order):
        _admit(tx, gate)


def _leave(tx: Transaction, gate: GateRow, row: tuple[int, int, int, int, int, int, str, int]) -> None:
    arrival, _, incarnation, seq, held, urgency, lane, rank = row
    tx.execute("DELETE FROM tickets WHERE arrival = ?", (arrival,))
    tx.touched.add(incarnation)
    tx.execute("UPDATE runs SET tickets = tickets - 1 WHERE incarnation = ?", (incarnation,))
    tx.execute("DELETE FROM messages WHERE incarnation = ? AND kind = ? AND name = ?", (incarnation, _GRANT, str(seq)))
    if held:
        gate.held -= 1
    else:
        gate.waiting -= 1
        _left_lane(tx, gate, urgency, lane, rank)


def _left_lane(tx: Transaction, gate: GateRow, urgency: int, lane: str, rank: int) -> None:
    """A ticket of that rank has left its lane: another may be its first now, or none."""
    where = (gate.number, urgency, lane)
    first = tx.execute(_FIRST_IN_LANE, where).fetchone()
    if first is None:
        tx.execute("DELETE FROM lanes WHERE gate = ? AND urgency = ? AND lane = ?", where)
    elif first[0] > rank:
        tx.execute("UPDATE lanes SET head = ? WHERE gate = ? AND urgency = ? AND lane = ?", (first[0], *where))


def hand_over(tx: Transaction, old: int, new: int) -> None:
    """The next link of a chain has the slot that the old one held as a whole; the old one's other tickets are given back."""
    gate, tickets = tx.execute("SELECT gate, tickets FROM runs WHERE incarnation = ?", (old,)).fetchone()
    if gate is not None:
        tx.execute("UPDATE runs SET gate = ? WHERE incarnation = ?", (gate, new))
    if not tickets:
        return
    moved = tx.execute(
        "UPDATE tickets SET incarnation = ? WHERE incarnation = ? AND seq = ?", (new, old, WHOLE_RUN)
    ).rowcount
    tx.execute("UPDATE runs SET tickets = tickets - ? WHERE incarnation = ?", (moved, old))
    tx.execute("UPDATE runs SET tickets = tickets + ? WHERE incarnation = ?", (moved, new))
    release(tx, [old])


def configure(tx: Transaction, write: Configure) -> None:
    keys = {GateKey(write.namespace or DEFAULT_NAMESPACE, write.name)}
    if write.namespace is None:
        keys |= {to_gate(row).key for row in tx.execute(SELECT_GATE + " WHERE name = ?", (write.name,)).fetchall()}
    for key in sorted(keys, key=lambda key: (key.namespace, key.name, key.key)):
        _admit(tx, _declared(tx, key, write.rules))


def admit_due(tx: Transaction) -> None:
    """Look at the gates that somebody must look at now, though nobody releases them."""
    due = tx.execute(SELECT_GATE + " INDEXED BY gates_due WHERE wake_at <= ?", (tx.now,)).fetchall()
    for gate in sorted(map(to_gate, due), key=order):
        _admit(tx, gate)


# ---------------------------------------------------------------- admission


def _admit(tx: Transaction, gate: GateRow) -> None:
    """Let through whom the rules let through now, and write the gate's row."""
    admitted = 0
    while gate.waiting and admitted < MOST_ADMITTED and gate.open(tx.now):
        urgency, lane, head = tx.execute(_NEXT_LANE, (gate.number,)).fetchone()
        where = (gate.number, urgency, lane)
        arrival, incarnation, seq = tx.execute(_AT_RANK, (*where, head)).fetchone()
        _grant(tx, gate, arrival, incarnation, seq, lane)
        _left_lane(tx, gate, urgency, lane, head)
        admitted += 1
    if forgettable(gate.rules, gate.held, gate.waiting, gate.opened, tx.now):
        for table, column in (("services", "gate"), ("gates", "id")):
            tx.execute(f"DELETE FROM {table} WHERE {column} = ?", (gate.number,))
        return
    rules = gate.rules
    gate.wake_at = look_again(rules, gate.held, gate.waiting, gate.opened, gate.used, tx.now)
    tx.execute(
        _UPDATE_GATE,
        (
            *rule_cells(rules),
            gate.held,
            gate.waiting,
            gate.opened,
            gate.used,
            gate.services,
            gate.wake_at,
            gate.number,
        ),
    )


def _grant(tx: Transaction, gate: GateRow, arrival: int, incarnation: int, seq: int, lane: str) -> None:
    tx.execute("UPDATE tickets SET held = 1, since = ? WHERE arrival = ?", (tx.now, arrival))
    again = window_over(gate.rules, gate.opened, tx.now)
    gate.opened, gate.used = (tx.now, 1) if again else (gate.opened, gate.used + 1)
    gate.held += 1
    gate.waiting -= 1
    if gate.rules.fair:
        _note_service(tx, gate, lane)
    if seq == WHOLE_RUN:
        tx.execute("UPDATE runs SET deadline = ? + timeout WHERE incarnation = ?", (tx.now, incarnation))
    inboxes.deliver(tx, incarnation, Letter(_GRANT, str(seq), None, None, False, tx.now))


def _note_service(tx: Transaction, gate: GateRow, lane: str) -> None:
    gate.services += 1
    tx.execute(
        "INSERT INTO services VALUES (?, ?, ?) ON CONFLICT (gate, lane) DO UPDATE SET service = excluded.service",
        (gate.number, lane, gate.services),
    )
    tx.execute("UPDATE lanes SET served = ? WHERE gate = ? AND lane = ?", (gate.services, gate.number, lane))
    tx.execute(
        "DELETE FROM services WHERE gate = ? AND service <= ? "
        "AND NOT EXISTS (SELECT 1 FROM lanes AS l WHERE l.gate = services.gate AND l.lane = services.lane)",
        (gate.number, gate.services - FAIR_MEMORY),
    )


# ---------------------------------------------------------------- rows


def _declared(tx: Transaction, key: GateKey, rules: Rules) -> GateRow:
    """The gate, by the newer of these rules and its own; it is made if there is none."""
    gate = find(tx.connection, key)
    if gate is None:
        cells = (key.namespace, key.name, key.key, *rule_cells(rules))
        number = tx.execute(_INSERT_GATE, cells).lastrowid
        assert number is not None  # an INSERT has one
        return GateRow(number, key, rules, 0, 0, 0, 0, 0, None)
    if rules.stamp > gate.rules.stamp:
        reordered = (rules.lifo, rules.fair) != (gate.rules.lifo, gate.rules.fair)
        gate.rules = rules
        if reordered and gate.waiting:
            _reorder(tx, gate)
    return gate


def _reorder(tx: Transaction, gate: GateRow) -> None:
    """All that wait take their places anew."""
    tx.execute("DELETE FROM lanes WHERE gate = ?", (gate.number,))
    tx.execute(
        "UPDATE tickets SET lane = CASE WHEN ? THEN fairness ELSE '' END, rank = CASE WHEN ? THEN -arrival ELSE arrival END "
        "WHERE gate = ? AND held = 0",
        (gate.rules.fair, gate.rules.lifo, gate.number),
    )
    tx.execute(
        "INSERT INTO lanes SELECT t.gate, t.urgency, t.lane, min(t.rank), coalesce(s.service, 0) FROM tickets AS t "
        "LEFT JOIN services AS s ON s.gate = t.gate AND s.lane = t.lane AND ? WHERE t.gate = ? AND t.held = 0 "
        "GROUP BY t.gate, t.urgency, t.lane",
        (gate.rules.fair, gate.number),
    )


def _by_number(tx: Transaction, number: int) -> GateRow:
    return to_gate(tx.execute(SELECT_GATE + " WHERE id = ?", (number,)).fetchone())
