"""What is read without the write lock."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping, Sequence
from typing import Any, Final

from perdure.model.history import Entry
from perdure.model.messages import Message
from perdure.model.run import Run
from perdure.ports.store import RunQuery
from perdure.stores.sqlite.rows import (
    SELECT_ENTRY,
    SELECT_MESSAGE,
    SELECT_RUN,
    STATUS_CODES,
    to_entry,
    to_message,
    to_run,
)
from perdure.stores.sqlite.sized import execute_sized, parts

_HISTORY: Final = SELECT_ENTRY + " WHERE incarnation IN (@rows) ORDER BY incarnation, n"


def history(connection: sqlite3.Connection, incarnations: Sequence[int]) -> Mapping[int, Sequence[Entry]]:
    found: dict[int, list[Entry]] = {incarnation: [] for incarnation in incarnations}
    for part in parts([(incarnation,) for incarnation in found]):
        for row in execute_sized(connection, _HISTORY, 1, part).fetchall():
            found[row[0]].append(to_entry(row))
    return found


def get(connection: sqlite3.Connection, run_id: str) -> Run | None:
    row = connection.execute(SELECT_RUN + " WHERE id = ?", (run_id,)).fetchone()
    return None if row is None else to_run(row)


def messages(connection: sqlite3.Connection, incarnation: int) -> Sequence[Message]:
    rows = connection.execute(SELECT_MESSAGE + " WHERE incarnation = ? ORDER BY number", (incarnation,)).fetchall()
    return tuple(to_message(row) for row in rows)


def value(connection: sqlite3.Connection, incarnation: int, key: str) -> bytes | None:
    row = connection.execute(
        "SELECT payload FROM run_values WHERE incarnation = ? AND key = ?", (incarnation, key)
    ).fetchone()
    return None if row is None else row[0]


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
    rows = connection.execute(
        f"{SELECT_RUN} WHERE incarnation IN ({chosen}) ORDER BY incarnation DESC LIMIT ?", [*bound, query.limit]
    ).fetchall()
    return [to_run(row) for row in rows]


def _conditions(query: RunQuery) -> tuple[str, list[str], list[Any]]:
    """Tables, conditions and their values."""
    source, conditions, values = "runs", list[str](), list[Any]()
    if query.tag is not None:
        source = "tags CROSS JOIN runs USING (incarnation)"
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
