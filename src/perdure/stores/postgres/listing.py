"""The SQL that lists runs, newest first, a page at a time. (Incarnations are given in the order of creation.)

The planner expects what is asked for to be spread evenly over all runs, and would walk through the newest of all until it has
found a page of it. It rarely is: what runs now is new, what is done is old. So where one condition has an index that lists its
runs in their order, that index leads: as a range of it, sorted by all its columns, which no other index can give.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from perdure.ports.store import RunQuery
from perdure.stores.postgres.rows import STATUS_CODES


def listing(schema: str, query: RunQuery) -> tuple[str, list[Any]]:
    """The statement and its values; it gives rows of the table `runs`. `schema`: quoted."""
    return _Listing(schema, query).statement()


class _Listing:
    def __init__(self, schema: str, query: RunQuery) -> None:
        self._schema = schema
        self._query = query
        self._values: list[Any] = []
        self._codes = [STATUS_CODES[status] for status in dict.fromkeys(query.statuses)]
        wanted = {
            "workflow": query.workflow,
            "namespace": query.namespace,
            "parent": None if query.parent is None else query.parent.incarnation,
        }
        self._equal = {column: value for column, value in wanted.items() if value is not None}

    def statement(self) -> tuple[str, list[Any]]:
        limit = f"LIMIT {self._put(self._query.limit)}"
        branches = [f"({branch} {limit})" for branch in self._branches()]
        if len(branches) == 1:
            return branches[0], self._values
        text = f"SELECT * FROM ({' UNION ALL '.join(branches)}) AS found ORDER BY incarnation DESC {limit}"
        return text, self._values

    def _put(self, value: Any) -> str:
        self._values.append(value)
        return f"${len(self._values)}"

    def _branches(self) -> Sequence[str]:
        query = self._query
        if query.tag is not None:
            return [self._beside("tags", {"tag": query.tag}, query.attributes)]
        if query.attributes:
            name, value = query.attributes[0]
            return [self._beside("attributes", {"name": name, "value": value}, query.attributes[1:])]
        if self._codes and not self._equal:
            return [self._of_runs(self._range("r", {"status": code})) for code in self._codes]
        if len(self._equal) == 1 and not self._codes:
            return [self._of_runs(self._range("r", self._equal))]
        # Several: the planner has to know which is the rarer. One range for each status, to be merged.
        conditions = [f"r.{column} = {self._put(value)}" for column, value in self._equal.items()]
        if query.before is not None:
            conditions.append(f"r.incarnation < {self._put(query.before)}")
        order = "r.incarnation DESC"
        statuses = [[f"r.status = {code}"] for code in self._codes] or [[]]
        return [self._of_runs(([*conditions, *status], order)) for status in statuses]

    def _range(self, table: str, keys: dict[str, Any]) -> tuple[Sequence[str], str]:
        """Conditions and order: the part of the index by these columns and the incarnation that has these values."""
        *fixed, last = keys
        conditions = [f"{table}.{column} = {self._put(keys[column])}" for column in fixed]
        value = self._put(keys[last])
        conditions.append(f"{table}.{last} >= {value}")
        if self._query.before is None:
            conditions.append(f"{table}.{last} <= {value}")
        else:
            conditions.append(f"({table}.{last}, {table}.incarnation) < ({value}, {self._put(self._query.before)})")
        order = f"{table}.{last} DESC, {table}.incarnation DESC"
        if "parent" in keys:
            conditions.append("r.parent IS NOT NULL")  # as its index says
        return conditions, order

    def _of_runs(self, what: tuple[Sequence[str], str]) -> str:
        conditions, order = what
        where = f"WHERE {' AND '.join(conditions)}" if conditions else ""
        return f"SELECT r.* FROM {self._schema}.runs AS r {where} ORDER BY {order}"

    def _beside(self, table: str, keys: dict[str, Any], attributes: Sequence[tuple[str, str]]) -> str:
        """A table beside that of runs leads, and each run is looked up (OFFSET 0: that is not to become another join)."""
        leads, order = self._range("lead", keys)
        conditions = [f"r.{column} = {self._put(value)}" for column, value in self._equal.items()]
        if self._codes:
            conditions.append(f"r.status IN ({', '.join(map(str, self._codes))})")
        for name, value in attributes:
            conditions.append(
                f"EXISTS (SELECT 1 FROM {self._schema}.attributes AS a WHERE a.name = {self._put(name)} "
                f"AND a.value = {self._put(value)} AND a.incarnation = r.incarnation OFFSET 0)"
            )
        looked_up = " AND ".join(["r.incarnation = lead.incarnation", *conditions])
        return (
            f"SELECT r.* FROM {self._schema}.{table} AS lead CROSS JOIN LATERAL "
            f"(SELECT * FROM {self._schema}.runs AS r WHERE {looked_up} OFFSET 0) AS r "
            f"WHERE {' AND '.join(leads)} ORDER BY {order}"
        )
