"""A turn's commit, statement by statement, with all that a turn may do. (`bulk` has the short way for the plain ones.)"""

from __future__ import annotations

from typing import Final

from perdure.model.commit import Answer, Applied, Fenced, Moved, Refused, TurnCommit
from perdure.model.endings import cancelled_failure
from perdure.model.failure import encode_failure
from perdure.model.messages import holds_up
from perdure.model.run import TERMINAL, NewRun, Parent, Run, RunKey, Status
from perdure.stores.sqlite import events, families, gates, inboxes, newruns, streams, waits
from perdure.stores.sqlite.newruns import insert_run
from perdure.stores.sqlite.rows import STATUS_CODES
from perdure.stores.sqlite.transaction import Transaction

_ADVANCE: Final = """
    UPDATE runs SET n = n + ?, seen = ?, recoveries = CASE ? WHEN 1 THEN 0 ELSE recoveries END,
        started_at = coalesce(started_at, ?), updated_at = ?, output = NULL, error = NULL, fingerprint = NULL
    WHERE incarnation = ?
"""
_PARK: Final = """
    UPDATE runs SET status = ?, owner = NULL, wake_at = ?, listening = ?, output = ?, error = ?, fingerprint = ?
    WHERE incarnation = ?
"""
_END: Final = """
    UPDATE runs SET status = ?, owner = NULL, wake_at = NULL, listening = 0, output = ?, error = ?, ended_at = ?
    WHERE incarnation = ?
"""

_PARKED: Final = (Status.SUSPENDED, Status.BLOCKED)


def holds(run: Run, turn: TurnCommit) -> bool:
    """The fence."""
    return run.status is Status.RUNNING and run.owner == turn.owner and run.epoch == turn.epoch and run.n == turn.n


def commit_turn(tx: Transaction, turn: TurnCommit) -> Answer:
    run = tx.run(turn.run.incarnation)
    if run is None or not holds(run, turn):
        return Fenced(run)
    return advance(tx, run.key, run.namespace, turn)


def advance(tx: Transaction, key: RunKey, namespace: str, turn: TurnCommit) -> Answer:
    """Apply a turn of the one who holds the run."""
    incarnation = key.incarnation
    if turn.status in TERMINAL:
        consumed = frozenset(turn.consumed)
        fresh = tuple(each for each in inboxes.unseen(tx, incarnation, turn.seen) if each.number not in consumed)
        if holds_up((each.kind for each in fresh), continues=turn.successor is not None):
            return Refused(fresh)
    _record(tx, incarnation, turn)
    _reach_out(tx, key, namespace, turn)
    if turn.status in _PARKED:
        return _park(tx, key, turn)
    tx.execute(
        "SELECT ?, ?", (turn.wake_at, turn.fingerprint)
    )  # Refuses what could not be stored, though it is ignored.
    if turn.status in TERMINAL:
        _end(tx, key, turn)
    return Applied(key)


def _park(tx: Transaction, key: RunKey, turn: TurnCommit) -> Answer:
    values = (
        STATUS_CODES[turn.status],
        turn.wake_at,
        turn.listening,
        turn.output,
        turn.error,
        turn.fingerprint,
        key.incarnation,
    )
    moved = inboxes.unseen(tx, key.incarnation, turn.seen)
    if moved and turn.status is Status.SUSPENDED:
        tx.execute("SELECT ?, ?, ?, ?, ?, ?, ?", values)  # Refuses what could not be stored, as parking would.
        return Moved(key, moved)
    tx.execute(_PARK, values)
    return Applied(key)


def _record(tx: Transaction, incarnation: int, turn: TurnCommit) -> None:
    """What concerns the run alone: history, inbox, values."""
    tx.touched.add(incarnation)
    tx.append(incarnation, turn.n, turn.entries)
    values = (len(turn.entries), turn.seen, turn.progress, turn.started_at, tx.now, incarnation)
    tx.execute(_ADVANCE, values)
    inboxes.consume(tx, [(incarnation, number) for number in turn.consumed])
    for key, payload in turn.values:
        tx.execute(
            "INSERT INTO run_values VALUES (?, ?, ?) "
            "ON CONFLICT (incarnation, key) DO UPDATE SET payload = excluded.payload",
            (incarnation, key, payload),
        )
    if turn.attributes is not None:
        newruns.change_attributes(tx, incarnation, turn.attributes)
    streams.write(tx, incarnation, turn.epoch, turn.chunks)


def _reach_out(tx: Transaction, key: RunKey, namespace: str, turn: TurnCommit) -> None:
    """What concerns others: tokens, children, messages."""
    if turn.unwaits:
        waits.end_waits(tx, [key.incarnation], turn.unwaits)
    for wait in turn.waits:
        inboxes.wait(tx, key.incarnation, namespace, wait)
    for listen in turn.listens:
        events.wait(tx, key.incarnation, namespace, listen)
    for child in turn.children:
        families.start_child(tx, key, child)
    for join in turn.joins:
        families.join(tx, key, join)
    for run_id in turn.cancels:
        _cancel_child(tx, key, run_id)
    for message in turn.sends:
        inboxes.send(tx, message)
    if turn.releases:
        gates.release(tx, [key.incarnation], turn.releases)
    for asked in turn.asks:
        gates.ask(tx, key.incarnation, namespace, asked)


def _cancel_child(tx: Transaction, parent: RunKey, run_id: str) -> None:
    child = tx.execute("SELECT incarnation, parent FROM runs WHERE id = ?", (run_id,)).fetchone()
    if child is not None and child[1] == parent.incarnation:
        families.cancel_tree(tx, tx.last_link(child[0]), encode_failure(cancelled_failure()))


def _end(tx: Transaction, key: RunKey, turn: TurnCommit) -> None:
    """A turn ends its run, or continues it as a new one."""
    incarnation = key.incarnation
    below: list[int] = []
    if turn.status in (Status.CANCELLED, Status.DEAD) and turn.successor is None and not turn.spares:
        below = [each for each, live in families.tree(tx, incarnation) if live and each != incarnation]
    tx.execute(_END, (STATUS_CODES[turn.status], turn.output, turn.error, tx.now, incarnation))
    if turn.successor is not None:
        waits.end_waits(tx, [incarnation])
        _continue(tx, incarnation, turn.successor)
        return
    families.mark_cancelled(tx, below, turn.error)
    families.close(tx, [incarnation, *below])


def _continue(tx: Transaction, incarnation: int, successor: NewRun) -> None:
    """Start the next link: with the old one's place in its family, and its unread messages."""
    if tx.execute("SELECT 1 FROM runs WHERE id = ?", (successor.id,)).fetchone() is not None:
        raise ValueError(f"the run cannot continue as {successor.id!r}: another run has that id")
    parent_id, parent, seq, awaited_as, paused_at = tx.execute(
        "SELECT parent_id, parent, parent_seq, awaited_as, paused_at FROM runs WHERE incarnation = ?", (incarnation,)
    ).fetchone()
    link = None if parent is None else Parent(parent_id, parent, seq)
    new = insert_run(tx, successor, link)  # its gate is the old one's
    tx.execute("UPDATE runs SET awaited_as = ?, paused_at = ? WHERE incarnation = ?", (awaited_as, paused_at, new))
    tx.execute(
        "UPDATE runs SET continued_to = ?, successor = ? WHERE incarnation = ?", (successor.id, new, incarnation)
    )
    inboxes.move_unread(tx, incarnation, new)
    gates.hand_over(tx, incarnation, new)
