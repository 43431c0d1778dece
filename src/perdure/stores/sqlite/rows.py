"""Rows and values: how runs, messages and entries lie in the tables, and how they are read back.

The codes below are stored: append, never renumber.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, TypeAlias

import msgspec

from perdure.model.history import Entry, Event, Op
from perdure.model.messages import Message, MessageKind, Outgoing
from perdure.model.run import Parent, Run, Status

Row: TypeAlias = tuple[Any, ...]

#: A status is stored as a number.
STATUSES: Final = {
    0: Status.PENDING,
    1: Status.RUNNING,
    2: Status.SUSPENDED,
    3: Status.BLOCKED,
    4: Status.COMPLETED,
    5: Status.FAILED,
    6: Status.CANCELLED,
    7: Status.DEAD,
}
STATUS_CODES: Final = {status: code for code, status in STATUSES.items()}
PENDING, RUNNING, SUSPENDED, BLOCKED = range(4)
#: This code and all above are terminal.
FIRST_TERMINAL: Final = STATUS_CODES[Status.COMPLETED]

# Bound as plain int and str: sqlite3 takes a slow path through its adapters for their subclasses.
EVENT_CODES: Final = {event: int(event) for event in Event}
_EVENTS: Final = {int(event): event for event in Event}
OP_TEXTS: Final = {op: str(op.value) for op in Op}
_OPS: Final = {op.value: op for op in Op}
_KINDS: Final = {kind.value: kind for kind in MessageKind}

#: Bytes. A longer input lies in the table `inputs`.
LARGE_INPUT: Final = 512

_RUN_FIELDS: Final = (
    "id, incarnation, workflow, version, namespace, status, "
    "coalesce(input, (SELECT i.input FROM inputs AS i WHERE i.incarnation = runs.incarnation)), "
    "seed, output, error, owner, epoch, n, inbox, seen, wake_at, listening, deadline, timeout, priority, tags, attributes, "
    "origin, parent_id, parent, parent_seq, awaited_as, depth, format, recoveries, fingerprint, created_at, started_at, "
    "updated_at, ended_at, continued_to"
)
#: Followed by a condition; gives rows for :func:`to_run`.
SELECT_RUN: Final = f"SELECT {_RUN_FIELDS} FROM runs"

_decode_tags = msgspec.json.Decoder(tuple[str, ...]).decode


def to_run(row: Row) -> Run:
    """From a row of `SELECT_RUN`."""
    parent, tags = row[24], row[20]
    return Run(
        id=row[0],
        incarnation=row[1],
        workflow=row[2],
        version=row[3],
        namespace=row[4],
        status=STATUSES[row[5]],
        input=row[6],
        seed=row[7],
        output=row[8],
        error=row[9],
        owner=row[10],
        epoch=row[11],
        n=row[12],
        inbox=row[13],
        seen=row[14],
        wake_at=row[15],
        listening=row[16] == 1,
        deadline=row[17],
        timeout=row[18],
        priority=row[19],
        tags=_decode_tags(tags) if tags else (),
        attributes=row[21],
        origin=row[22],
        parent=None if parent is None else Parent(row[23], parent, row[25]),
        awaited_as=row[26],
        depth=row[27],
        format=row[28],
        recoveries=row[29],
        fingerprint=row[30],
        created_at=row[31],
        started_at=row[32],
        updated_at=row[33],
        ended_at=row[34],
        continued_to=row[35],
    )


#: Followed by a condition; gives rows for :func:`to_message`.
SELECT_MESSAGE: Final = "SELECT number, kind, name, token, payload, failed, at FROM messages"


def to_message(row: Row) -> Message:
    """From a row of `SELECT_MESSAGE`."""
    number, kind, name, token, payload, failed, at = row
    return Message(number, _KINDS[kind], name, token, payload, failed == 1, at)


#: In the order of :func:`entry_row`.
HISTORY_COLUMNS: Final = 11


def entry_row(incarnation: int, n: int, entry: Entry, commit: int) -> Row:
    """`n` is the entry's own position, `commit` that at which its commit began."""
    op = entry.op
    return (
        incarnation,
        n,
        EVENT_CODES[entry.event],
        entry.seq,
        None if op is None else OP_TEXTS[op],
        entry.name,
        entry.payload,
        entry.at,
        entry.due,
        entry.began,
        commit,
    )


#: Followed by a condition; gives rows for :func:`to_entry`.
SELECT_ENTRY: Final = "SELECT incarnation, event, seq, op, name, payload, at, due, began, commit_n FROM history"


def to_entry(row: Row) -> Entry:
    """From a row of `SELECT_ENTRY`."""
    _, event, seq, op, name, payload, at, due, began, commit = row
    return Entry(_EVENTS[event], seq, None if op is None else _OPS[op], name, payload, at, due, began, commit)


class Letter(msgspec.Struct, frozen=True, gc=False):
    """A message before it has a number."""

    kind: str
    name: str
    token: str | None
    payload: bytes | None
    failed: bool
    at: int
    #: Of a message by token: its place among all that ever came to the token.
    arrival: int | None = None


def letter_of(message: Outgoing, at: int, arrival: int | None = None) -> Letter:
    return Letter(message.kind.value, message.name, message.token, message.payload, message.failed, at, arrival)


def encode_tags(tags: Sequence[str]) -> str | None:
    return msgspec.json.encode(tags).decode() if tags else None
