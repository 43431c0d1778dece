"""What is read without a lock."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from perdure.model.bounds import out_of_bounds
from perdure.model.history import Entry
from perdure.model.messages import Message
from perdure.model.run import Run
from perdure.model.stream import StoredChunk
from perdure.ports.gates import Gate
from perdure.ports.store import Count, Facet, RunQuery, Standing
from perdure.stores.postgres.connections import Connections
from perdure.stores.postgres.gates import parameters, to_gates
from perdure.stores.postgres.listing import counting, listing
from perdure.stores.postgres.place import Place
from perdure.stores.postgres.rows import STATUSES, Row, to_entry, to_message, to_run


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

    async def values(self, incarnation: int, keys: Sequence[str]) -> Mapping[str, bytes]:
        text = f"SELECT key, payload FROM {self._schema}.run_values WHERE incarnation = $1 AND key = ANY ($2)"
        rows = await self.fetch(text, incarnation, [key for key in keys if not out_of_bounds(key)])
        return {row[0]: row[1] for row in rows}

    async def gates(self, namespace: str | None, name: str | None, limit: int) -> Sequence[Gate]:
        text = f"SELECT * FROM {self._schema}.gates_1($1, $2, $3, $4)"
        return to_gates(await self.fetch(text, *parameters(namespace, name, limit)))

    async def chunks(self, incarnation: int, stream: str, after: int, limit: int) -> Sequence[StoredChunk]:
        if out_of_bounds(stream):
            return []
        text = (
            f"SELECT place, payload, seq, attempt, number, at FROM {self._schema}.chunks "
            "WHERE incarnation = $1 AND stream = $2 AND place > $3 ORDER BY place LIMIT $4"
        )
        return [StoredChunk(*row) for row in await self.fetch(text, incarnation, stream, after, limit)]

    async def heads(self, asked: Sequence[tuple[int, str]]) -> Sequence[int]:
        # A name that no store could take names nothing: so may any other that is not there.
        streams = ["" if out_of_bounds(stream) else stream for _, stream in asked]
        text = f"SELECT * FROM {self._schema}.heads_1($1, $2)"
        return [row[0] for row in await self.fetch(text, [incarnation for incarnation, _ in asked], streams)]

    async def standing(self, incarnations: Sequence[int]) -> Mapping[int, Standing]:
        text = f"SELECT incarnation, status, wake_at, updated_at FROM {self._schema}.runs WHERE incarnation = ANY ($1)"
        rows = await self.fetch(text, list(incarnations))
        return {
            incarnation: Standing(STATUSES[int(code)], wake_at, updated_at)
            for incarnation, code, wake_at, updated_at in rows
        }

    async def runs(self, query: RunQuery) -> Sequence[Run]:
        if _unanswerable(query):
            return []
        text, values = listing(self._schema, query)
        return list(map(to_run, await self.fetch(text, *values)))

    async def count(self, query: RunQuery, by: Sequence[Facet]) -> Sequence[Count]:
        if _unanswerable(query):
            return [] if by else [Count((), 0)]
        text, values = counting(self._schema, query, by)
        rows = await self.fetch(text, *values)
        return [Count(tuple(map(_facet_value, by, row)), number) for number, *row in rows]


def _unanswerable(query: RunQuery) -> bool:
    """No run has what the query asks for: PostgreSQL cannot even be asked."""
    asked = (query.workflow, query.namespace, query.origin, query.tags, query.before, query.limit, query.where)
    return out_of_bounds(asked) is not None


def _facet_value(facet: Facet, cell: str | int | None) -> str | None:
    if facet is Facet.STATUS and isinstance(cell, int):
        return STATUSES[cell].value
    return None if cell is None else str(cell)
