"""Gates and their lines: who holds a slot, who is next, and what becomes of a slot that is given back."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from msgspec.structs import replace

from perdure.model import gates as gating
from perdure.model.commit import Configure
from perdure.model.gates import FAIR_MEMORY, MOST_ADMITTED, WHOLE_RUN, Ask, GateKey, Rules
from perdure.model.messages import Message, MessageKind
from perdure.model.run import DEFAULT_NAMESPACE, Run, Status
from perdure.ports.gates import MOST_GATES, Gate, Ticket
from perdure.stores.memory import inboxes
from perdure.stores.memory.tables import GateRow, Place, Tables


def waiting_if_full(tables: Tables, namespace: str, asked: Ask, now: int) -> int | None:
    """How many wait for a gate that takes no new run; None: it takes one."""
    gate = tables.gates.get(GateKey(namespace, asked.name, asked.key))
    rules = asked.rules if gate is None or asked.rules.stamp > gate.rules.stamp else gate.rules
    gate = gate or GateRow(rules)
    passes = gating.has_slot(rules, len(gate.held)) and gating.in_rate(rules, gate.opened, gate.used, now)
    if rules.depth is None or len(gate.waiting) < rules.depth or (passes and not gate.waiting):
        return None
    return len(gate.waiting)


def ask(tables: Tables, run: Run, asked: Ask, now: int) -> None:
    """Take a place in line, and perhaps a slot at once. Who has a ticket keeps it."""
    tickets = tables.tickets.get(run.incarnation, ())
    if asked.seq in dict(tickets):
        return
    key = GateKey(run.namespace, asked.name, asked.key)
    gate = _with_rules(tables.gates.get(key), asked.rules)
    place = Place(run.incarnation, asked.seq, asked.priority, asked.fairness, tables.next_number(), now)
    tables.put(tables.gates, key, replace(gate, waiting=(*gate.waiting, place)))
    tables.put(tables.tickets, run.incarnation, (*tickets, (asked.seq, key)))
    if asked.seq == WHOLE_RUN:
        tables.put_run(
            replace(run, deadline=None, gate=run.gate or asked)
        )  # It has all of its time when it is admitted.
    admit(tables, key, now)


def ask_for_new(tables: Tables, run: Run, now: int) -> None:
    """A run that was just made asks for its gate, if it has one and is due."""
    if run.gate is None or run.status is not Status.PENDING:
        return
    tables.put_run(replace(run, status=Status.SUSPENDED, listening=True, wake_at=None))
    ask(tables, tables.actors[run.incarnation].run, run.gate, now)
    granted = tables.actors[run.incarnation].run
    if granted.wake_at is not None:
        tables.put_run(replace(granted, status=Status.PENDING, listening=False))


def release(tables: Tables, incarnations: Iterable[int], seqs: Sequence[int] | None, now: int) -> None:
    """Give tickets back: those of these positions, or all. Then whoever is next is admitted."""
    touched: set[GateKey] = set()
    for incarnation in incarnations:
        for seq, key in tables.tickets.get(incarnation, ()):
            if seqs is None or seq in seqs:
                _leave(tables, key, incarnation, seq)
                touched.add(key)
    for key in sorted(touched, key=_order):
        admit(tables, key, now)


def _leave(tables: Tables, key: GateKey, incarnation: int, seq: int) -> None:
    gate = tables.gates[key]
    tables.put(
        tables.gates,
        key,
        replace(
            gate,
            held=tuple(each for each in gate.held if (each.incarnation, each.seq) != (incarnation, seq)),
            waiting=tuple(each for each in gate.waiting if (each.incarnation, each.seq) != (incarnation, seq)),
        ),
    )
    _put_tickets(tables, incarnation, tuple(each for each in tables.tickets[incarnation] if each[0] != seq))
    inboxes.take_back(tables, incarnation, MessageKind.GRANT, str(seq))


def _put_tickets(tables: Tables, incarnation: int, tickets: tuple[tuple[int, GateKey], ...]) -> None:
    if tickets:
        tables.put(tables.tickets, incarnation, tickets)
    else:
        tables.drop(tables.tickets, incarnation)


def hand_over(tables: Tables, old: int, new: int, now: int) -> None:
    """The next link of a chain has the slot that the old one held as a whole; the old one's other tickets are given back."""
    gate = tables.actors[old].run.gate
    tables.put_run(replace(tables.actors[new].run, gate=gate))
    for seq, key in tables.tickets.get(old, ()):
        if seq == WHOLE_RUN:
            row = tables.gates[key]
            held, waiting = _handed(row.held, old, new), _handed(row.waiting, old, new)
            tables.put(tables.gates, key, replace(row, held=held, waiting=waiting))
            tables.put(tables.tickets, new, ((seq, key),))
            _put_tickets(tables, old, tuple(each for each in tables.tickets[old] if each[0] != seq))
    release(tables, [old], None, now)


def _handed(places: tuple[Place, ...], old: int, new: int) -> tuple[Place, ...]:
    return tuple(
        replace(each, incarnation=new) if (each.incarnation, each.seq) == (old, WHOLE_RUN) else each for each in places
    )


def admit(tables: Tables, key: GateKey, now: int) -> None:
    """Let through whom the rules let through now."""
    gate = tables.gates[key]
    for _ in range(MOST_ADMITTED):
        rules = gate.rules
        free = gating.has_slot(rules, len(gate.held)) and gating.in_rate(rules, gate.opened, gate.used, now)
        if not gate.waiting or not free:
            break
        place = _next(gate)
        gate = _granted(gate, place, now)
        tables.put(tables.gates, key, gate)
        _tell(tables, place, now)
    if gating.forgettable(gate.rules, len(gate.held), len(gate.waiting), gate.opened, now):
        tables.drop(tables.gates, key)
        return
    wake_at = gating.look_again(gate.rules, len(gate.held), len(gate.waiting), gate.opened, gate.used, now)
    tables.put(tables.gates, key, replace(gate, wake_at=wake_at))


def _next(gate: GateRow) -> Place:
    served = dict(gate.served) if gate.rules.fair else {}
    sign = -1 if gate.rules.lifo else 1
    return min(gate.waiting, key=lambda each: (-each.priority, served.get(each.fairness, 0), sign * each.arrival))


def _granted(gate: GateRow, place: Place, now: int) -> GateRow:
    again = gating.window_over(gate.rules, gate.opened, now)
    gate = replace(
        gate,
        held=tuple(sorted((*gate.held, replace(place, since=now)), key=lambda each: each.arrival)),
        waiting=tuple(each for each in gate.waiting if each != place),
        opened=now if again else gate.opened,
        used=1 if again else gate.used + 1,
    )
    if not gate.rules.fair:
        return gate
    services = gate.services + 1
    served = dict(gate.served) | {place.fairness: services}
    wanted = {each.fairness for each in gate.waiting}
    kept = {key: at for key, at in served.items() if at > services - FAIR_MEMORY or key in wanted}
    return replace(gate, services=services, served=tuple(kept.items()))


def _tell(tables: Tables, place: Place, now: int) -> None:
    run = tables.actors[place.incarnation].run
    if place.seq == WHOLE_RUN:
        tables.put_run(replace(run, deadline=None if run.timeout is None else now + run.timeout))
    message = Message(0, MessageKind.GRANT, str(place.seq), None, None, False, now)
    inboxes.deliver_notice(tables, place.incarnation, message, now)


def _with_rules(gate: GateRow | None, rules: Rules) -> GateRow:
    if gate is None:
        return GateRow(rules)
    return replace(gate, rules=rules) if rules.stamp > gate.rules.stamp else gate


def configure(tables: Tables, write: Configure, now: int) -> None:
    named = {GateKey(write.namespace or DEFAULT_NAMESPACE, write.name)}
    if write.namespace is None:
        named |= {key for key in tables.gates if key.name == write.name}
    for key in sorted(named, key=_order):
        tables.put(tables.gates, key, _with_rules(tables.gates.get(key), write.rules))
        admit(tables, key, now)


# ---------------------------------------------------------------- looking


def due(tables: Tables, now: int) -> list[GateKey]:
    """Gates that somebody must look at now, though nobody releases them."""
    found = (key for key, gate in tables.gates.items() if gate.wake_at is not None and gate.wake_at <= now)
    return sorted(found, key=_order)


def next_look(tables: Tables) -> int | None:
    return min((gate.wake_at for gate in tables.gates.values() if gate.wake_at is not None), default=None)


def listed(tables: Tables, namespace: str | None, name: str | None, limit: int) -> list[Gate]:
    wanted = [
        key
        for key in tables.gates
        if (namespace is None or key.namespace == namespace) and (name is None or key.name == name)
    ]
    return [_listed(tables, key, limit) for key in sorted(wanted, key=_order)[:MOST_GATES]]


def _listed(tables: Tables, key: GateKey, limit: int) -> Gate:
    gate = tables.gates[key]
    held = sorted(gate.held, key=lambda each: (each.since, each.arrival))[:limit]
    waiting = sorted(gate.waiting, key=lambda each: (-each.priority, each.arrival))[:limit]
    tickets = [_ticket(tables, each, held=True) for each in held]
    return Gate(
        key=key,
        rules=gate.rules,
        held=len(gate.held),
        waiting=len(gate.waiting),
        wake_at=gate.wake_at,
        tickets=(*tickets, *(_ticket(tables, each, held=False) for each in waiting)),
    )


def _ticket(tables: Tables, place: Place, *, held: bool) -> Ticket:
    run = tables.actors[place.incarnation].run
    return Ticket(
        run=run.key,
        workflow=run.workflow,
        seq=place.seq,
        held=held,
        priority=place.priority,
        fairness=place.fairness,
        since=place.since,
    )


def _order(key: GateKey) -> tuple[str, str, str]:
    return (key.namespace, key.name, key.key)
