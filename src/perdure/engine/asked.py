"""Asking a run: what it is, seen from a handle, that answers while it goes on."""

from __future__ import annotations

from typing import Any, TypeVar

from perdure.engine import queries
from perdure.engine.awaited import Awaited

R = TypeVar("R")


class Asked(Awaited[R]):
    """A run by its id, as far as it can be asked."""

    __slots__ = ()

    async def query(self, name: str, *args: Any, type: Any = queries.AS_HINTED) -> Any:
        """What the run's body answers to `ctx.on_query(name, ...)`, on its last committed state; of a chain, the newest link's.

        Changes nothing, and works on runs that have ended, too. Where the run is not in this process's memory it is replayed
        from its history, so its code must be here. `type` restores the answer; without it the hint of the query's function.
        Raises `UnknownQuery`, `RunNotFound`, `NotRegistered`, `NonDeterminismError`, `InvalidArguments`, and what the query
        itself raises.
        """
        return await queries.query(self._engine, await self._last(), name, args, type)
