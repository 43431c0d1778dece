"""Doing the same to many runs: those that a query finds, page by page.

The pages are read as they are come to, newest first, so that what is changed, deleted or started meanwhile neither repeats nor
skips a run. Each run is acted on by itself: what is cut short leaves the rest as it was, and asking again goes on with it.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from enum import StrEnum
from typing import Final, NamedTuple, TypeAlias

from msgspec.structs import replace

from perdure.engine.engine import Engine
from perdure.engine.listing import RunFilters, every, run_query
from perdure.model.errors import RunEnded, RunNotFound, UsageError
from perdure.model.run import Run
from perdure.ports.store import RunQuery

#: Runs at a time.
PAGE: Final = 500


#: Whether there is something to do to a run, by its row.
Wants: TypeAlias = Callable[[Run], bool]
#: Does it; False where there turned out to be nothing to do.
One: TypeAlias = Callable[[Run], Awaitable[bool]]


class Outcome(StrEnum):
    """What became of one run."""

    #: It was done, or with `dry_run` would have been.
    DONE = "done"
    #: There was nothing to do: the run stands so already, or has ended.
    UNCHANGED = "unchanged"
    #: It was deleted meanwhile, perhaps with its parent.
    GONE = "gone"


class Item(NamedTuple):
    """One run that was found, and what became of it."""

    id: str
    outcome: Outcome


async def walk(engine: Engine, query: RunQuery) -> AsyncIterator[Run]:
    """All runs that a query finds, newest first."""
    before, page = None, PAGE
    while True:
        found = await engine.reads.runs(replace(query, limit=page, before=before))
        for run in found:
            yield run
        if len(found) < page:
            return
        before = found[-1].incarnation


async def act(
    engine: Engine,
    filters: RunFilters,
    namespace: str | None,
    verb: str,
    *,
    dry_run: bool,
    wants: Wants,
    one: One,
) -> list[Item]:
    """Do `one` to each run that the filters find and that `wants` it.

    Raises `UsageError` for wrong filters, and for none: `verb` names the call then.
    """
    query = run_query(filters, namespace)
    if every(query, namespace):
        raise UsageError(f"{verb} needs at least one filter, like status=..., workflow=... or where=[...]")
    items: list[Item] = []
    async for run in walk(engine, query):
        try:
            done = wants(run) and (dry_run or await one(run))
            items.append(Item(run.id, Outcome.DONE if done else Outcome.UNCHANGED))
        except RunEnded:
            items.append(Item(run.id, Outcome.UNCHANGED))
        except RunNotFound:
            items.append(Item(run.id, Outcome.GONE))
    return items
