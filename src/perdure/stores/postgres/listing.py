"""The SQL that lists runs, newest first, a page at a time. (Incarnations are given in the order of creation.)

The planner expects what is asked for to be spread evenly over all runs, and would walk through the newest of all until it has
found a page of it. It rarely is: what runs now is new, what is done is old. So where one condition has an index that lists its
runs in their order, that index leads: as a range of it, sorted by all its columns, which no other index can give.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from msgspec.structs import replace

from perdure.model.attributes import Compare, Condition, leading
from perdure.ports.store import Facet, RunQuery
from perdure.stores.postgres.rows import STATUS_CODES

#: The order of what no index has in that order.
_UNSORTED: Final = "lead.incarnation DESC"

#: What runs are counted by.
_FACETS: Final = {
    Facet.STATUS: "r.status",
    Facet.WORKFLOW: "r.workflow",
    Facet.ORIGIN: "r.origin",
    Facet.TAG: "t.tag",
}


def listing(schema: str, query: RunQuery) -> tuple[str, list[Any]]:
    """The statement and its values; it gives rows of the table `runs`. `schema`: quoted."""
    return _Listing(schema, query).statement()


def counting(schema: str, query: RunQuery, by: Sequence[Facet]) -> tuple[str, list[Any]]:
    """The statement and its values; it gives numbers of runs, each followed by the values of the facets."""
    return _Listing(schema, replace(query, before=None)).counts(by)


class _Listing:
    def __init__(self, schema: str, query: RunQuery) -> None:
        self._schema = schema
        self._query = query
        self._values: list[Any] = []
        self._codes = [STATUS_CODES[status] for status in dict.fromkeys(query.statuses)]
        wanted = {
            "workflow": query.workflow,
            "namespace": query.namespace,
            "origin": query.origin,
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

    def counts(self, by: Sequence[Facet]) -> tuple[str, list[Any]]:
        """The order does not matter here: the planner shall find its way."""
        conditions = [*self._plain(), *self._tagged(self._query.tags), *self._compared(self._query.where)]
        source = f"{self._schema}.runs AS r"
        if Facet.TAG in by:
            source += " LEFT JOIN LATERAL (SELECT DISTINCT tag FROM unnest(r.tags) AS u (tag)) AS t ON true"
        columns = [_FACETS[facet] for facet in by]
        grouped = f"GROUP BY {', '.join(columns)}" if columns else ""
        return f"SELECT {', '.join(['count(*)', *columns])} FROM {source} {_where(conditions)} {grouped}", self._values

    def _put(self, value: Any) -> str:
        self._values.append(value)
        return f"${len(self._values)}"

    def _branches(self) -> Sequence[str]:
        query = self._query
        if query.tags:
            first, *tags = query.tags
            return [self._beside("tags", self._range("lead", {"tag": first}), tags, query.where)]
        if lead := leading(query.where):
            others = [each for each in query.where if each.name != lead]
            return [self._beside("attributes", self._led([e for e in query.where if e.name == lead]), (), others)]
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
        # As their indexes say.
        conditions += [f"r.{column} IS NOT NULL" for column in ("origin", "parent") if column in keys]
        return conditions, order

    def _led(self, where: Sequence[Condition]) -> tuple[Sequence[str], str]:
        """As `_range`, of the runs for which all of these hold, which are of one attribute.

        Those of one value lie in their order. Those of a range do not: all of it is read from the index, and sorted.
        """
        equal = next((each for each in where if each.compare is Compare.EQ), None)
        if equal is not None:
            conditions, order = self._range("lead", {"name": equal.name, "value": equal.key})
            return [*conditions, *self._tests("lead", [each for each in where if each is not equal])], order
        conditions = [f"lead.name = {self._put(where[0].name)}", *self._tests("lead", where)]
        if self._query.before is not None:
            conditions.append(f"lead.incarnation < {self._put(self._query.before)}")
        return conditions, _UNSORTED

    def _tests(self, table: str, where: Sequence[Condition]) -> list[str]:
        tests = [test for each in where for test in each.tests()]
        return [f"{table}.value {operator} {self._put(key)}" for operator, key in tests]

    def _of_runs(self, what: tuple[Sequence[str], str]) -> str:
        conditions, order = what
        return f"SELECT r.* FROM {self._schema}.runs AS r {_where(conditions)} ORDER BY {order}"

    def _beside(
        self, table: str, leads: tuple[Sequence[str], str], tags: Sequence[str], where: Sequence[Condition]
    ) -> str:
        """A table beside that of runs leads, and each run is looked up (OFFSET 0: that is not to become another join).

        What does not lie in the order of runs is sorted before they are looked up, not after.
        """
        conditions, order = leads
        looked_up = ["r.incarnation = lead.incarnation", *self._plain(), *self._tagged(tags), *self._compared(where)]
        source = f"{self._schema}.{table} AS lead"
        run = f"(SELECT * FROM {self._schema}.runs AS r {_where(looked_up)} OFFSET 0) AS r"
        if order == _UNSORTED:
            sorted_first = f"(SELECT * FROM {source} {_where(conditions)} ORDER BY {order}) AS lead"
            return f"SELECT r.* FROM {sorted_first} CROSS JOIN LATERAL {run} ORDER BY {order}"
        return f"SELECT r.* FROM {source} CROSS JOIN LATERAL {run} {_where(conditions)} ORDER BY {order}"

    def _plain(self) -> list[str]:
        """What is asked of the run's own row, but for its place."""
        conditions = [f"r.{column} = {self._put(value)}" for column, value in self._equal.items()]
        if self._codes:
            conditions.append(f"r.status IN ({', '.join(map(str, self._codes))})")
        return conditions

    def _tagged(self, tags: Sequence[str]) -> list[str]:
        return [
            f"EXISTS (SELECT 1 FROM {self._schema}.tags AS g WHERE g.tag = {self._put(tag)} "
            "AND g.incarnation = r.incarnation OFFSET 0)"
            for tag in tags
        ]

    def _compared(self, where: Sequence[Condition]) -> list[str]:
        conditions: list[str] = []
        for name in dict.fromkeys(each.name for each in where):
            tests = self._tests("a", [each for each in where if each.name == name])
            # (`|| ''`: by the run, and not by name and value, whatever the planner knows of these.)
            named = f"a.name || '' = {self._put(name)}"
            conditions.append(
                f"EXISTS (SELECT 1 FROM {self._schema}.attributes AS a WHERE a.incarnation = r.incarnation "
                f"AND {' AND '.join([named, *tests])} OFFSET 0)"
            )
        return conditions


def _where(conditions: Sequence[str]) -> str:
    return f"WHERE {' AND '.join(conditions)}" if conditions else ""
