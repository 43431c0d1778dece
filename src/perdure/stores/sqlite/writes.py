"""Applies one write. Whatever these functions raise for a write's data leaves it to the caller to roll back."""

from __future__ import annotations

from typing import Final

from perdure.model.bounds import out_of_bounds
from perdure.model.commit import (
    Answer,
    Append,
    Applied,
    Cancel,
    Changed,
    Configure,
    Create,
    Delete,
    Ended,
    Exists,
    Full,
    Missing,
    Requeue,
    Send,
    Steer,
    TurnCommit,
    Way,
    Write,
)
from perdure.model.events import Publish
from perdure.model.gates import Ask, encode_ask
from perdure.model.history import Entry, Event
from perdure.model.run import REQUEUABLE, RunKey, Status
from perdure.stores.sqlite import events, families, gates, inboxes, streams, turns
from perdure.stores.sqlite.newruns import insert_run
from perdure.stores.sqlite.rows import RUNNING
from perdure.stores.sqlite.transaction import Transaction


def apply(tx: Transaction, write: Write) -> Answer:
    match write:
        case TurnCommit():
            return turns.commit_turn(tx, write)
        case Create():
            return _create(tx, write)
        case Send():
            return inboxes.send(tx, write.message)
        case Publish():
            return events.publish(tx, write)
        case Append():
            return streams.append(tx, write)
        case Cancel():
            return _cancel(tx, write)
        case Requeue():
            return _requeue(tx, write)
        case Steer():
            return _steer(tx, write)
        case Delete():
            return _delete(tx, write)
        case Configure():
            gates.configure(tx, write)
            return Applied()


def _create(tx: Transaction, create: Create) -> Answer:
    existing = tx.execute("SELECT incarnation FROM runs WHERE id = ?", (create.run.id,)).fetchone()
    answer = _begin(tx, create) if existing is None else None
    if isinstance(answer, Full):
        return answer
    sent = [inboxes.send(tx, message) for message in create.messages]
    if answer is not None:
        return answer
    for late in sent:
        if isinstance(late, Ended):
            return late
    run = tx.run_by_id(create.run.id)
    return Missing(create.run.id) if run is None else Exists(run)


def _begin(tx: Transaction, create: Create) -> Answer:
    new, turn = create.run, create.turn
    if new.gate is not None and turn is None:
        return _begin_gated(tx, create, new.gate)
    key = RunKey(new.id, insert_run(tx, new, new.parent))
    if new.gate is not None:
        tx.execute("UPDATE runs SET gate = ? WHERE incarnation = ?", (encode_ask(new.gate).decode(), key.incarnation))
    if turn is None:
        return Applied(key)
    # A new run whose first turn was made before it was created: held by that turn's owner.
    wake_at = turn.wake_at if turn.status is Status.RUNNING else tx.now + create.lease
    tx.execute(
        "UPDATE runs SET status = 1, owner = ?, epoch = 1, wake_at = ? WHERE incarnation = ?",
        (turn.owner, wake_at, key.incarnation),
    )
    return turns.advance(tx, key, new.namespace, turn)


def _begin_gated(tx: Transaction, create: Create, asked: Ask) -> Answer:
    new = create.run
    fault = out_of_bounds(create)  # Also where the gate is full, and nothing would be inserted.
    if fault is not None or not new.id.strip():
        raise ValueError(fault or "a run's id is blank")
    if new.start_at is None or new.start_at <= tx.now:
        waiting = gates.full(tx, new.namespace, asked)
        if waiting is not None:
            return Full(waiting)
    key = RunKey(new.id, insert_run(tx, new, new.parent))
    gates.ask_for_new(tx, key.incarnation, new.namespace, asked)
    return Applied(key)


def _named(tx: Transaction, write: Cancel | Steer | Delete) -> int | None:
    row = tx.execute(
        "SELECT incarnation FROM runs WHERE id = ? AND incarnation = coalesce(?, incarnation)",
        (write.run_id, write.incarnation),
    ).fetchone()
    return None if row is None else int(row[0])


def _cancel(tx: Transaction, cancel: Cancel) -> Answer:
    incarnation = _named(tx, cancel)
    if incarnation is None:
        return Missing(cancel.run_id)
    last = tx.last_link(incarnation)
    if not tx.is_live(last):
        run = tx.run(last)
        return Missing(cancel.run_id) if run is None else Ended(run)
    return Changed(families.cancel_tree(tx, last, cancel.error))


def _requeue(tx: Transaction, requeue: Requeue) -> Answer:
    run = tx.run_by_id(requeue.run_id)
    if run is None or requeue.incarnation not in (None, run.incarnation):
        return Missing(requeue.run_id)
    if run.status is Status.BLOCKED:
        tx.touched.add(run.incarnation)
        tx.execute(
            "UPDATE runs SET wake_at = min(coalesce(wake_at, ?), ?), updated_at = ? WHERE incarnation = ?",
            (tx.now, tx.now, tx.now, run.incarnation),
        )
        return Changed(families.runs_of(tx, [run.incarnation]))
    if run.status not in REQUEUABLE:
        return Changed(())
    tx.touched.add(run.incarnation)
    deadline = None if run.timeout is None else tx.now + run.timeout
    tx.execute(
        "UPDATE runs SET status = 0, owner = NULL, wake_at = ?, listening = 0, output = NULL, error = NULL, deadline = ?, "
        "recoveries = 0, paused_at = NULL, updated_at = ?, ended_at = NULL, n = n + 1 WHERE incarnation = ?",
        (tx.now, deadline, tx.now, run.incarnation),
    )
    tx.append(run.incarnation, run.n, (Entry(Event.REQUEUED, -1, None, "", None, tx.now),))
    return Changed(families.runs_of(tx, [run.incarnation]))


#: None where the run stands so already.
_STEER: Final = {
    Way.PAUSE: "UPDATE runs SET paused_at = :now, updated_at = :now WHERE incarnation = :run AND paused_at IS NULL",
    Way.UNPAUSE: (
        "UPDATE runs SET deadline = deadline + :now - paused_at, paused_at = NULL, updated_at = :now "
        "WHERE incarnation = :run AND paused_at IS NOT NULL"
    ),
    Way.REDISPATCH: (
        "UPDATE runs SET status = 0, owner = NULL, epoch = epoch + 1, wake_at = :now, updated_at = :now "
        f"WHERE incarnation = :run AND status = {RUNNING}"
    ),
}


def _steer(tx: Transaction, steer: Steer) -> Answer:
    incarnation = _named(tx, steer)
    if incarnation is None:
        return Missing(steer.run_id)
    last = tx.last_link(incarnation)
    if not tx.is_live(last):
        run = tx.run(last)
        return Missing(steer.run_id) if run is None else Ended(run)
    tx.touched.add(last)
    changed = tx.connection.execute(_STEER[steer.way], {"now": tx.now, "run": last}).rowcount
    return Changed(families.runs_of(tx, [last]) if changed else ())


def _delete(tx: Transaction, delete: Delete) -> Answer:
    incarnation = _named(tx, delete)
    if incarnation is None:
        return Missing(delete.run_id)
    return Changed(families.delete_tree(tx, incarnation, delete.error))
