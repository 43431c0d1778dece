"""Rows and values: how runs, messages and entries lie in the tables, and how they are read back.

The codes below are stored: append, never renumber.
"""

from __future__ import annotations

from typing import Any, Final, TypeAlias

from perdure.model.gates import decode_ask
from perdure.model.history import Entry, Event, Op
from perdure.model.messages import Message, MessageKind
from perdure.model.run import Parent, Run, Status

#: A row as asyncpg hands it out, or a composite value in one; cells by position.
Row: TypeAlias = Any

#: A status is stored as a number.
STATUSES: Final = [
    Status.PENDING,
    Status.RUNNING,
    Status.SUSPENDED,
    Status.BLOCKED,
    Status.COMPLETED,
    Status.FAILED,
    Status.CANCELLED,
    Status.DEAD,
]
STATUS_CODES: Final = {status: code for code, status in enumerate(STATUSES)}

_EVENTS: Final = {int(event): event for event in Event}
_OPS: Final = {op.value: op for op in Op}
_KINDS: Final = {kind.value: kind for kind in MessageKind}


def to_run(row: Row) -> Run:
    """From a row of the table `runs`."""
    parent, tags = row[24], row[20]
    return Run(
        id=row[0],
        incarnation=row[1],
        workflow=row[2],
        version=row[3],
        namespace=row[4],
        status=STATUSES[int(row[5])],
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
        listening=row[16],
        deadline=row[17],
        timeout=row[18],
        priority=row[19],
        tags=tuple(tags) if tags else (),
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
        carrier=row[39],
        paused_at=row[40],
        gate=None if row[41] is None else decode_ask(row[41]),
    )


def to_message(row: Row) -> Message:
    """From a row of the table `messages`."""
    _, number, kind, name, token, payload, failed, at, *_ = row
    if kind not in _KINDS:
        # One odd row must not keep all others from being read: this one is a signal that nobody waits for.
        kind, name, token = MessageKind.SIGNAL.value, f"(a message of kind {kind!r:.40})", None
    return Message(number, _KINDS[kind], name, token, payload, failed, at)


def to_entry(row: Row) -> Entry:
    """From a row of the table `history`."""
    _, _, event, seq, op, name, payload, at, due, began, commit = row
    if event not in _EVENTS or (op is not None and op not in _OPS):
        # Nor must this one. No code fits it, so that its run will be blocked, and say why.
        event, op, name = int(Event.SCHEDULED), None, f"(an entry of kind {event!r:.40} {op!r:.40})"
    return Entry(_EVENTS[event], seq, None if op is None else _OPS[op], name, payload, at, due, began, commit)
