"""What runs write to streams: appended in a write transaction, read without one."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from typing import Final

from perdure.model.bounds import out_of_bounds
from perdure.model.commit import Answer, Append, Applied, Fenced
from perdure.model.run import Status
from perdure.model.stream import NewChunk, StoredChunk
from perdure.stores.sqlite.transaction import Transaction

_WRITE: Final = """
    INSERT INTO chunks (incarnation, stream, payload, epoch, seq, attempt, number, at) VALUES (?, ?, ?, ?, ?, ?, ?, ?)
    ON CONFLICT (incarnation, epoch, seq, attempt, stream, number) DO NOTHING
"""
_READ: Final = """
    SELECT place, payload, seq, attempt, number, at FROM chunks
    WHERE incarnation = ? AND stream = ? AND place > ? ORDER BY place LIMIT ?
"""
_HEAD: Final = "SELECT place FROM chunks WHERE incarnation = ? AND stream = ? ORDER BY place DESC LIMIT 1"


def write(tx: Transaction, incarnation: int, epoch: int, chunks: Sequence[NewChunk]) -> None:
    """Put chunks at the end of their streams, each once."""
    for new in chunks:
        row = (incarnation, new.stream, new.payload, epoch, new.seq, new.attempt, new.index, tx.now)
        tx.execute(_WRITE, row)


def append(tx: Transaction, asked: Append) -> Answer:
    """Of a step that runs."""
    fault = out_of_bounds(asked)
    if fault is not None:
        raise ValueError(fault)
    run = tx.run(asked.run.incarnation)
    if run is None or run.status is not Status.RUNNING or (run.owner, run.epoch) != (asked.owner, asked.epoch):
        return Fenced(run)
    write(tx, run.incarnation, run.epoch, asked.chunks)
    return Applied(run.key)


def chunks(
    connection: sqlite3.Connection, incarnation: int, stream: str, after: int, limit: int
) -> Sequence[StoredChunk]:
    return [StoredChunk(*row) for row in connection.execute(_READ, (incarnation, stream, after, limit))]


def heads(connection: sqlite3.Connection, asked: Sequence[tuple[int, str]]) -> Sequence[int]:
    rows = (connection.execute(_HEAD, each).fetchone() for each in asked)
    return [0 if row is None else row[0] for row in rows]
