"""What is read without the write lock."""

from __future__ import annotations

import sqlite3
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from typing import Final

import msgspec

from perdure.model.history import Entry
from perdure.model.messages import Message
from perdure.model.run import Run
from perdure.ports.store import Standing
from perdure.stores.sqlite.rows import (
    SELECT_ENTRIES,
    SELECT_MESSAGES,
    SELECT_RUN,
    STATUSES,
    to_entries,
    to_messages,
    to_run,
)
from perdure.stores.sqlite.sized import execute_sized, parts

#: Entries at a time: some 50 MB at the most.
_PAGE: Final = 20_000

_HISTORY: Final = f"""{SELECT_ENTRIES} (
    SELECT * FROM history WHERE (incarnation, n) > (?, ?) AND incarnation IN (@rows) ORDER BY incarnation, n LIMIT {_PAGE}
)"""
#: One row for all: each row that SQLite hands out is a step of its own. The list is an array in JSON, of any length.
_STANDING: Final = """
    SELECT json_group_array(json_array(r.incarnation, r.status, r.wake_at, r.updated_at))
    FROM json_each(?) AS asked CROSS JOIN runs AS r ON r.incarnation = asked.value
"""
_decode_standing = msgspec.json.Decoder(list[tuple[int, int, int | None, int]]).decode
_MESSAGES: Final = SELECT_MESSAGES + " (SELECT * FROM messages WHERE incarnation = ? ORDER BY number)"


@contextmanager
def one_moment(connection: sqlite3.Connection) -> Generator[None]:
    """Several statements that see the same state: large values are read on their own, and their rows may go meanwhile."""
    connection.execute("BEGIN")
    try:
        yield
    finally:
        if connection.in_transaction:
            connection.execute("COMMIT")


def history(connection: sqlite3.Connection, incarnations: Sequence[int]) -> Mapping[int, Sequence[Entry]]:
    found: dict[int, list[Entry]] = {incarnation: [] for incarnation in incarnations}
    with one_moment(connection):
        for part in parts([(incarnation,) for incarnation in found]):
            after, page = (-1, -1), _PAGE
            while page == _PAGE:
                [text] = execute_sized(connection, _HISTORY, 1, part, *after).fetchone()
                rows = to_entries(connection, text)
                for incarnation, _, entry in rows:
                    found[incarnation].append(entry)
                page = len(rows)
                after = rows[-1][:2] if rows else after
    return found


def get(connection: sqlite3.Connection, run_id: str) -> Run | None:
    row = connection.execute(SELECT_RUN + " WHERE id = ?", (run_id,)).fetchone()
    return None if row is None else to_run(row)


def messages(connection: sqlite3.Connection, incarnation: int) -> Sequence[Message]:
    with one_moment(connection):
        [text] = connection.execute(_MESSAGES, (incarnation,)).fetchone()
        return tuple(message for _, message in to_messages(connection, text))


def values(connection: sqlite3.Connection, incarnation: int, keys: Sequence[str]) -> Mapping[str, bytes]:
    found: dict[str, bytes] = {}
    for start in range(0, len(keys), _PAGE):
        part = keys[start : start + _PAGE]
        marks = ", ".join("?" * len(part))
        text = f"SELECT key, payload FROM run_values WHERE incarnation = ? AND key IN ({marks})"
        found.update(connection.execute(text, (incarnation, *part)))
    return found


def standing(connection: sqlite3.Connection, incarnations: Sequence[int]) -> Mapping[int, Standing]:
    [text] = connection.execute(_STANDING, (msgspec.json.encode(list(incarnations)).decode(),)).fetchone()
    return {
        incarnation: Standing(STATUSES[status], wake_at, updated_at)
        for incarnation, status, wake_at, updated_at in _decode_standing(text)
    }
