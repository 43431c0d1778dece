"""The SQL that lists and counts runs."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from typing import Any, Final

import msgspec

from perdure.model.attributes import Condition, leading
from perdure.model.run import Run
from perdure.ports.store import Count, Facet, RunQuery
from perdure.stores.sqlite.reads import one_moment
from perdure.stores.sqlite.rows import SELECT_RUNS, STATUS_CODES, STATUSES, to_runs

#: What runs are counted by. (Of a run without tags, `json_each` gives nothing.)
_FACETS: Final = {
    Facet.STATUS: "runs.status",
    Facet.WORKFLOW: "runs.workflow",
    Facet.ORIGIN: "runs.origin",
    Facet.TAG: "each_tag.value",
}

_decode_counts = msgspec.json.Decoder(list[list[str | int | None]]).decode


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
        branches.append(
            f"SELECT * FROM (SELECT runs.incarnation AS i FROM {source} {_where(where)} ORDER BY i DESC LIMIT ?)"
        )
        bound += [*([] if code is None else [code]), *values, query.limit]
    chosen = " UNION ALL ".join(branches)
    wanted = f"SELECT * FROM runs WHERE incarnation IN ({chosen}) ORDER BY incarnation DESC LIMIT ?"
    with one_moment(connection):
        [text] = connection.execute(f"{SELECT_RUNS} ({wanted}) AS found", [*bound, query.limit]).fetchone()
        return to_runs(connection, text)


def count(connection: sqlite3.Connection, query: RunQuery, by: Sequence[Facet]) -> Sequence[Count]:
    """One row for all: each row that SQLite hands out is a step of its own."""
    source, conditions, values = _conditions(msgspec.structs.replace(query, before=None))
    if query.statuses:
        codes = sorted({STATUS_CODES[status] for status in query.statuses})
        conditions.append(f"runs.status IN ({', '.join(map(str, codes))})")
    if Facet.TAG in by:
        source += " LEFT JOIN json_each(runs.tags) AS each_tag"
    names = [f"c{place}" for place in range(len(by))]
    columns = [f"{_FACETS[facet]} AS {name}" for facet, name in zip(by, names, strict=True)]
    grouped = f"GROUP BY {', '.join(names)}" if by else ""
    numbers = ", ".join(["count(DISTINCT runs.incarnation) AS number", *columns])
    counted = f"SELECT {numbers} FROM {source} {_where(conditions)} {grouped}"
    packed = f"SELECT json_group_array(json_array({', '.join(['number', *names])})) FROM ({counted}) AS found"
    [text] = connection.execute(packed, values).fetchone()
    return [Count(tuple(map(_value, by, row)), int(number or 0)) for number, *row in _decode_counts(text)]


def _value(facet: Facet, cell: str | int | None) -> str | None:
    if facet is Facet.STATUS and isinstance(cell, int):
        return STATUSES[cell].value
    return None if cell is None else str(cell)


def _where(conditions: Sequence[str]) -> str:
    return f"WHERE {' AND '.join(conditions)}" if conditions else ""


def _conditions(query: RunQuery) -> tuple[str, list[str], list[Any]]:
    """Tables, conditions and their values.

    One tag or attribute leads, if there is one: its index lists its runs, and those of one tag or value in their order. The
    others are looked up run by run.
    """
    source, conditions, values = "runs", list[str](), list[Any]()
    first, *tags = query.tags or (None,)
    where = list(query.where)
    if first is not None:
        source = "tags CROSS JOIN runs USING (incarnation)"
        conditions.append("tags.tag = ?")
        values.append(first)
    elif lead := leading(where):
        source = "attributes CROSS JOIN runs USING (incarnation)"
        _compare("attributes", [each for each in where if each.name == lead], conditions, values)
        where = [each for each in where if each.name != lead]
    for tag in tags:
        conditions.append("EXISTS (SELECT 1 FROM tags AS t WHERE t.tag = ? AND t.incarnation = runs.incarnation)")
        values.append(tag)
    for name in dict.fromkeys(each.name for each in where):
        inner = ["a.incarnation = runs.incarnation"]
        _compare("a", [each for each in where if each.name == name], inner, values)
        conditions.append(f"EXISTS (SELECT 1 FROM attributes AS a WHERE {' AND '.join(inner)})")
    for column, wanted in (
        ("runs.workflow =", query.workflow),
        ("runs.namespace =", query.namespace),
        ("runs.origin =", query.origin),
        ("runs.parent =", None if query.parent is None else query.parent.incarnation),
        ("runs.incarnation <", query.before),
    ):
        if wanted is not None:
            conditions.append(f"{column} ?")
            values.append(wanted)
    return source, conditions, values


def _compare(table: str, where: Sequence[Condition], conditions: list[str], values: list[Any]) -> None:
    """Add what is asked of one attribute, in a row of `table`."""
    conditions.append(f"{table}.name = ?")
    values.append(where[0].name)
    for operator, key in (test for each in where for test in each.tests()):
        conditions.append(f"{table}.value {operator} ?")
        values.append(key)
