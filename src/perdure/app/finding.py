"""Finding and counting runs."""

from __future__ import annotations

from typing import Any, Literal, TypeAlias, Unpack, overload

from perdure.app.opened import Opened
from perdure.engine.listing import RunFilters, counted, facet, run_query
from perdure.model.errors import UsageError
from perdure.model.run import Run

#: By what `facets` counts.
FacetName: TypeAlias = Literal["status", "workflow", "origin", "tag"]


class Finding(Opened):
    """An app as far as it finds runs: see `Perdure`. What can be asked for: see `RunFilters`."""

    async def runs(self, *, limit: int = 50, before: int | None = None, **filters: Unpack[RunFilters]) -> list[Run]:
        """Runs, newest first. Continue with `before` = the last one's `incarnation`. Raises `UsageError`."""
        query = run_query(filters, self.settings.namespace, limit=limit, before=before)
        return list(await self.engine.reads.runs(query))

    async def count(self, **filters: Unpack[RunFilters]) -> int:
        """How many runs there are like that. Raises `UsageError`."""
        query = run_query(filters, self.settings.namespace)
        [count] = await self.engine.reads.count(query, ())
        return count.runs

    @overload
    async def facets(self, by: FacetName, /, **filters: Unpack[RunFilters]) -> dict[str | None, int]: ...
    @overload
    async def facets(
        self, by: FacetName, and_by: FacetName, /, *more: FacetName, **filters: Unpack[RunFilters]
    ) -> dict[tuple[str | None, ...], int]: ...
    async def facets(self, *by: Any, **filters: Unpack[RunFilters]) -> dict[Any, int]:
        """How many runs there are for each value of `by`; of several, for each combination: `facets("status", "origin")`.

        Of runs without an origin, or without tags, the value is None. By tag, a run counts once for each of its tags. What
        there is none of is not there. Raises `UsageError`.
        """
        if not by:
            raise UsageError('facets needs to know by what: facets("status"), for example')
        facets = tuple(dict.fromkeys(map(facet, by)))
        query = run_query(filters, self.settings.namespace)
        return counted(await self.engine.reads.count(query, facets), facets)


__all__ = ["FacetName", "Finding"]
