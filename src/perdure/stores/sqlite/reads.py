"""What is read without the write lock."""

from __future__ import annotations

import sqlite3
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final

import msgspec

from perdure.model.history import Entry
from perdure.model.messages import Message
from perdure.model.run import Run
from perdure.ports.store import RunQuery, Standing
from perdure.stores.sqlite.rows import (
    SELECT_ENTRIES,
    SELECT_MESSAGES,
    SELECT_RUN,
    SELECT_RUNS,
    STATUS_CODES,
    STATUSES,
    to_entries,
    to_messages,
    to_run,
    to_runs,
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
def _one_moment(connection: sqlite3.Connection) -> Generator[None]:
    """Several statements that see the same state: large values are read on their own, and their rows may go meanwhile."""
    connection.execute("BEGIN")
    try:
        yield
    finally:
        if connection.in_transaction:
            connection.execute("COMMIT")


def history(connection: sqlite3.Connection, incarnations: Sequence[int]) -> Mapping[int, Sequence[Entry]]:
    found: dict[int, list[Entry]] = {incarnation: [] for incarnation in incarnations}
    with _one_moment(connection):
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
    with _one_moment(connection):
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


def runs(connection: sqlite3.Connection, query: RunQuery) -> Sequence[Run]:
    """Newest first. One range of an index for each status asked for, each cut at the limit, then merged.

    (Incarnations are given in the order of creation, so that they alone give the order.)
    """
    source, conditions, values = _conditions(query)
    codes: Sequence[int | None] = [STATUS_CODES[status] for status in dict.fromkeys(query.statuses)] or [None]
    branches: list[str] = []
    bound: list[Any] = []
    for code in codes:
        where = conditions if code is None else ["runs.status = ?", *conditions]
        condition = f"WHERE {' AND '.join(where)} " if where else ""
        branches.append(
            f"SELECT * FROM (SELECT runs.incarnation AS i FROM {source} {condition} ORDER BY i DESC LIMIT ?)"
        )
        bound += [*([] if code is None else [code]), *values, query.limit]
    chosen = " UNION ALL ".join(branches)
    wanted = f"SELECT * FROM runs WHERE incarnation IN ({chosen}) ORDER BY incarnation DESC LIMIT ?"
    with _one_moment(connection):
        [text] = connection.execute(f"{SELECT_RUNS} ({wanted}) AS found", [*bound, query.limit]).fetchone()
        return to_runs(connection, text)


def _conditions(query: RunQuery) -> tuple[str, list[str], list[Any]]:
    """Tables, conditions and their values.

    One tag or attribute leads, if there is one: its index lists its runs in their order. The others are looked up run by run.
    """
    source, conditions, values = "runs", list[str](), list[Any]()
    attributes = query.attributes
    if query.tag is not None:
        source = "tags CROSS JOIN runs USING (incarnation)"
    elif attributes:
        source = "attributes CROSS JOIN runs USING (incarnation)"
        conditions.append("attributes.name = ? AND attributes.value = ?")
        values += attributes[0]
        attributes = attributes[1:]
    for name, value in attributes:
        conditions.append(
            "EXISTS (SELECT 1 FROM attributes AS a WHERE a.name = ? AND a.value = ? AND a.incarnation = runs.incarnation)"
        )
        values += (name, value)
    for column, wanted in (
        ("tags.tag =", query.tag),
        ("runs.workflow =", query.workflow),
        ("runs.namespace =", query.namespace),
        ("runs.parent =", None if query.parent is None else query.parent.incarnation),
        ("runs.incarnation <", query.before),
    ):
        if wanted is not None:
            conditions.append(f"{column} ?")
            values.append(wanted)
    return source, conditions, values
