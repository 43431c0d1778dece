"""What is read without a lock."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from perdure.model.bounds import out_of_bounds
from perdure.model.history import Entry
from perdure.model.messages import Message
from perdure.model.run import Run
from perdure.ports.store import RunQuery, Standing
from perdure.stores.postgres.connections import Connections
from perdure.stores.postgres.place import Place
from perdure.stores.postgres.rows import STATUS_CODES, STATUSES, Row, to_entry, to_message, to_run


class Reads:
    """Answers from the last committed state."""

    def __init__(self, place: Place, connections: Connections) -> None:
        self._schema = place.quoted
        self._connections = connections

    async def fetch(self, text: str, *parameters: Any) -> Sequence[Row]:
        return await self._connections.fetch(text, *parameters, again=True)

    async def history(self, incarnations: Sequence[int]) -> Mapping[int, Sequence[Entry]]:
        found: dict[int, list[Entry]] = {incarnation: [] for incarnation in incarnations}
        rows = await self.fetch(
            f"SELECT * FROM {self._schema}.history WHERE incarnation = ANY ($1) ORDER BY incarnation, n", [*found]
        )
        for row in rows:
            found[row[0]].append(to_entry(row))
        return found

    async def get(self, run_id: str) -> Run | None:
        if out_of_bounds(run_id):
            return None
        rows = await self.fetch(f"SELECT * FROM {self._schema}.runs WHERE id = $1", run_id)
        return to_run(rows[0]) if rows else None

    async def messages(self, incarnation: int) -> Sequence[Message]:
        text = f"SELECT * FROM {self._schema}.messages WHERE incarnation = $1 ORDER BY number"
        return list(map(to_message, await self.fetch(text, incarnation)))

    async def value(self, incarnation: int, key: str) -> bytes | None:
        if out_of_bounds(key):
            return None
        text = f"SELECT payload FROM {self._schema}.run_values WHERE incarnation = $1 AND key = $2"
        rows = await self.fetch(text, incarnation, key)
        return rows[0][0] if rows else None

    async def standing(self, incarnations: Sequence[int]) -> Mapping[int, Standing]:
        text = f"SELECT incarnation, status, wake_at, updated_at FROM {self._schema}.runs WHERE incarnation = ANY ($1)"
        rows = await self.fetch(text, list(incarnations))
        return {
            incarnation: Standing(STATUSES[int(code)], wake_at, updated_at)
            for incarnation, code, wake_at, updated_at in rows
        }

    async def runs(self, query: RunQuery) -> Sequence[Run]:
        """Newest first. One range of an index for each status asked for, each cut at the limit, then merged.

        (Incarnations are given in the order of creation, so that they alone give the order.)
        """
        if out_of_bounds((query.workflow, query.namespace, query.tag, query.before, query.attributes)):
            return []
        source, lead, conditions, values = self._conditions(query)
        codes: Sequence[int | None] = [STATUS_CODES[status] for status in dict.fromkeys(query.statuses)] or [None]
        values.append(query.limit)
        limit = f"LIMIT ${len(values)}"
        branches: list[str] = []
        for code in codes:
            where = [*conditions, *([] if code is None else [f"r.status = {code}"])]
            condition = f"WHERE {' AND '.join(where)}" if where else ""
            branches.append(f"(SELECT r.* FROM {source} {condition} ORDER BY {lead}.incarnation DESC {limit})")
        text = f"SELECT * FROM ({' UNION ALL '.join(branches)}) AS found ORDER BY incarnation DESC {limit}"
        return list(map(to_run, await self.fetch(text, *values)))

    def _conditions(self, query: RunQuery) -> tuple[str, str, list[str], list[Any]]:
        """Tables, the one that leads, conditions and their values.

        A tag or attribute leads, if there is one: its index lists its runs in their order. Others are looked up run by run
        (OFFSET 0: they are not to become a join, for which all that have the attribute would be sorted).
        """
        source, lead, conditions, values = f"{self._schema}.runs AS r", "r", list[str](), list[Any]()
        for number, pair in enumerate(query.attributes):
            if number or query.tag is not None:
                conditions.append(
                    f"EXISTS (SELECT 1 FROM {self._schema}.attributes AS a WHERE a.name = ${len(values) + 1} "
                    f"AND a.value = ${len(values) + 2} AND a.incarnation = r.incarnation OFFSET 0)"
                )
            else:
                source += f" JOIN {self._schema}.attributes AS f ON f.incarnation = r.incarnation"
                conditions.append(f"f.name = ${len(values) + 1} AND f.value = ${len(values) + 2}")
                lead = "f"
            values += pair
        if query.tag is not None:
            source += f" JOIN {self._schema}.tags AS t ON t.incarnation = r.incarnation"
            lead = "t"
        for column, wanted in (
            ("t.tag =", query.tag),
            ("r.workflow =", query.workflow),
            ("r.namespace =", query.namespace),
            ("r.parent =", None if query.parent is None else query.parent.incarnation),
            (f"{lead}.incarnation <", query.before),
        ):
            if wanted is not None:
                values.append(wanted)
                conditions.append(f"{column} ${len(values)}")
        return source, lead, conditions, values
