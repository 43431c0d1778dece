"""Rows and values: how runs, messages and entries lie in the tables, and how they are read back.

The codes below are stored: append, never renumber.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from typing import Any, Final, TypeAlias

import msgspec

from perdure.model.gates import decode_ask
from perdure.model.history import Entry, Event, Op
from perdure.model.messages import Message, MessageKind, Outgoing
from perdure.model.run import Parent, Run, Status
from perdure.stores.sqlite.packed import LARGEST, LEFT_OUT, packed, unpack

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
LARGE_INPUT: Final = LARGEST

_INPUT: Final = "coalesce(input, (SELECT i.input FROM inputs AS i WHERE i.incarnation = runs.incarnation))"
_RUN_TEXT: Final = (
    "id, incarnation, workflow, version, namespace, status, input, seed, output, error, owner, epoch, n, inbox, seen, "
    "wake_at, listening, deadline, timeout, priority, tags, attributes, origin, parent_id, parent, parent_seq, awaited_as, "
    "depth, format, recoveries, fingerprint, created_at, started_at, updated_at, ended_at, continued_to, carrier, "
    "paused_at, gate"
)
_RUN_COLUMNS: Final = _RUN_TEXT.split(", ")
_RUN_BLOBS: Final = ("input", "output", "error", "attributes", "carrier")
_RUN_BLOB_CELLS: Final = tuple(map(_RUN_COLUMNS.index, _RUN_BLOBS))

#: Followed by a condition; gives rows for :func:`to_run`.
SELECT_RUN: Final = f"SELECT {_RUN_TEXT.replace(' input,', f' {_INPUT},')} FROM runs"
#: Followed by a source of rows of `runs`; gives one row for :func:`to_runs`.
SELECT_RUNS: Final = f"SELECT {packed(_RUN_COLUMNS, _RUN_BLOBS)} FROM"


_decode_tags = msgspec.json.Decoder(tuple[str, ...]).decode


def to_runs(connection: sqlite3.Connection, text: str) -> list[Run]:
    """From the row of `SELECT_RUNS`. On the same connection, in the same transaction."""
    runs: list[Run] = []
    for row in unpack(text, _RUN_BLOB_CELLS):
        if row[6] is None or any(row[cell] == LEFT_OUT for cell in _RUN_BLOB_CELLS):
            row = connection.execute(SELECT_RUN + " WHERE incarnation = ?", (row[1],)).fetchone()
        runs.append(to_run(row))
    return runs


def _tags(text: str) -> tuple[str, ...]:
    try:
        return _decode_tags(text)
    except (msgspec.DecodeError, UnicodeError):
        return (f"(unreadable tags: {text!r:.40})",)


def to_run(row: Sequence[Any]) -> Run:
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
        tags=_tags(tags) if tags else (),
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
        carrier=row[36],
        paused_at=row[37],
        gate=None if row[38] is None else decode_ask(row[38]),
    )


_MESSAGE_COLUMNS: Final = ("incarnation", "number", "kind", "name", "token", "payload", "failed", "at")

#: Followed by a source of rows of `messages`; gives one row for :func:`to_messages`.
SELECT_MESSAGES: Final = f"SELECT {packed(_MESSAGE_COLUMNS, ['payload'])} FROM"


def to_messages(connection: sqlite3.Connection, text: str) -> list[tuple[int, Message]]:
    """From the row of `SELECT_MESSAGES`: whose they are, and the messages. On the same connection, in the same transaction."""
    messages: list[tuple[int, Message]] = []
    for incarnation, number, kind, name, token, payload, failed, at in unpack(text, [5]):
        if payload == LEFT_OUT:
            [payload] = connection.execute(
                "SELECT payload FROM messages WHERE incarnation = ? AND number = ?", (incarnation, number)
            ).fetchone()
        if kind not in _KINDS:
            # One odd row must not keep all others from being read: this one is a signal that nobody waits for.
            kind, name, token = MessageKind.SIGNAL, f"(a message of kind {kind!r:.40})", None
        messages.append((incarnation, Message(number, _KINDS[kind], name, token, payload, failed == 1, at)))
    return messages


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


_ENTRY_COLUMNS: Final = (
    "incarnation",
    "n",
    "event",
    "seq",
    "op",
    "name",
    "payload",
    "at",
    "due",
    "began",
    "commit_n",
)
#: Followed by a source of rows of `history`; gives one row for :func:`to_entries`.
SELECT_ENTRIES: Final = f"SELECT {packed(_ENTRY_COLUMNS, ['payload'])} FROM"


def to_entries(connection: sqlite3.Connection, text: str) -> list[tuple[int, int, Entry]]:
    """From the row of `SELECT_ENTRIES`: whose they are, their n, and the entries. On the same connection."""
    entries: list[tuple[int, int, Entry]] = []
    for incarnation, n, event, seq, op, name, payload, at, due, began, commit in unpack(text, [6]):
        if payload == LEFT_OUT:
            [payload] = connection.execute(
                "SELECT payload FROM history WHERE incarnation = ? AND n = ?", (incarnation, n)
            ).fetchone()
        if event not in _EVENTS or (op is not None and op not in _OPS):
            # Nor must this one. No code fits it, so that its run will be blocked, and say why.
            event, op, name = int(Event.SCHEDULED), None, f"(an entry of kind {event!r:.40} {op!r:.40})"
        entry = Entry(_EVENTS[event], seq, None if op is None else _OPS[op], name, payload, at, due, began, commit)
        entries.append((incarnation, n, entry))
    return entries


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
