"""The rows of runs that begin."""

from __future__ import annotations

from typing import Final

from perdure.model.attributes import searchable
from perdure.model.commit import TurnCommit
from perdure.model.run import NewRun, Parent, Status
from perdure.stores.sqlite.rows import (
    FIRST_TERMINAL,
    LARGE_INPUT,
    PENDING,
    RUNNING,
    STATUS_CODES,
    SUSPENDED,
    Row,
    encode_tags,
)
from perdure.stores.sqlite.transaction import Transaction

_COLUMNS: Final = (
    "id, status, owner, epoch, n, inbox, seen, wake_at, listening, recoveries, updated_at, started_at, ended_at, created_at, "
    "deadline, timeout, workflow, version, namespace, priority, urgency, format, seed, depth, tags, origin, carrier, "
    "parent_id, parent, parent_seq, awaited_as, fingerprint, attributes, input, output, error"
)
COLUMNS: Final = _COLUMNS.count(",") + 1

#: For `execute_sized`.
INSERT_RUNS: Final = f"""
    INSERT INTO runs ({_COLUMNS}) SELECT * FROM (VALUES @rows) WHERE column1 IS NOT NULL ON CONFLICT (id) DO NOTHING
"""
_INSERT_RUN: Final = f"INSERT INTO runs ({_COLUMNS}) VALUES ({','.join('?' * COLUMNS)})"


def new_row(run: NewRun, now: int, parent: Parent | None, turn: TurnCommit | None = None) -> Row:
    """The row of a run that begins now, or at `start_at` if that lies ahead; with `turn`, as that turn leaves it.

    Such a turn must be one that needs nothing beside this row, its history and perhaps `add_large_input`.
    """
    if not run.id or run.id.isspace():
        raise ValueError("a run's id is blank")
    due = now if run.start_at is None or run.start_at < now else run.start_at
    if turn is None:
        status = PENDING if due <= now else SUSPENDED
        state: Row = (status, None, 0, 0, 0, 0, due, 0, 0, now, None, None)
        ends: Row = (None, None, None)
    else:
        state = _begun(turn, now)
        ends = (turn.fingerprint, turn.output, turn.error) if turn.status is not Status.RUNNING else (None, None, None)
    fingerprint, output, error = ends
    parent_id, incarnation, seq = (None, None, None) if parent is None else (parent.id, parent.incarnation, parent.seq)
    data = run.input
    return (
        run.id,
        *state,
        now,
        None if run.timeout is None else due + run.timeout,
        run.timeout,
        run.workflow,
        run.version,
        run.namespace,
        run.priority,
        run.priority or 0,
        run.format,
        run.seed,
        run.depth,
        encode_tags(run.tags),
        run.origin,
        run.carrier,
        parent_id,
        incarnation,
        seq,
        run.awaited_as,
        fingerprint,
        run.attributes,
        data if len(data) <= LARGE_INPUT else None,
        output,
        error,
    )


def _begun(turn: TurnCommit, now: int) -> Row:
    """From `status` to `ended_at`, after the first turn."""
    code = STATUS_CODES[turn.status]
    ended = code >= FIRST_TERMINAL
    return (
        code,
        turn.owner if code == RUNNING else None,
        1,
        len(turn.entries),
        0,
        turn.seen,
        None if ended else turn.wake_at,
        turn.listening and not ended and code != RUNNING,
        0,
        now,
        turn.started_at,
        now if ended else None,
    )


def add_beside(tx: Transaction, incarnation: int, run: NewRun) -> None:
    """What of a new run does not lie in its row."""
    if len(run.input) > LARGE_INPUT:
        tx.execute("INSERT INTO inputs VALUES (?, ?)", (incarnation, run.input))
    for tag in run.tags:
        tx.execute("INSERT INTO tags VALUES (?, ?) ON CONFLICT DO NOTHING", (tag, incarnation))
    _add_attributes(tx, incarnation, run.attributes)


def change_attributes(tx: Transaction, incarnation: int, attributes: bytes) -> None:
    tx.execute("UPDATE runs SET attributes = ? WHERE incarnation = ?", (attributes, incarnation))
    tx.execute("DELETE FROM attributes WHERE incarnation = ?", (incarnation,))
    _add_attributes(tx, incarnation, attributes)


def _add_attributes(tx: Transaction, incarnation: int, attributes: bytes | None) -> None:
    for name, key in searchable(attributes):
        tx.execute("INSERT INTO attributes VALUES (?, ?, ?)", (name, key, incarnation))


def insert_run(tx: Transaction, run: NewRun, parent: Parent | None) -> int:
    """Returns the incarnation. Raises `sqlite3.IntegrityError` where the id is taken."""
    cursor = tx.execute(_INSERT_RUN, new_row(run, tx.now, parent))
    incarnation = cursor.lastrowid
    assert incarnation is not None  # an INSERT has one
    tx.touched.add(incarnation)
    add_beside(tx, incarnation, run)
    return incarnation
