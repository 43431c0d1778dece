"""Asking a run: queries, which read, and updates, which it answers."""

from __future__ import annotations

from datetime import timedelta
from typing import Any, Literal, TypeVar, overload

from perdure.engine import queries, updates
from perdure.engine.awaited import Awaited
from perdure.model.updates import Accepted, Outcome, Rejected

R = TypeVar("R")
T = TypeVar("T")


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

    @overload
    async def update(
        self,
        name: str,
        arg: Any = ...,
        *,
        wait: Literal["answered"],
        type: type[T],
        id: str | None = ...,
        timeout: float | timedelta | None = ...,
        unvalidated: bool = ...,
    ) -> Accepted[T] | Rejected: ...
    @overload
    async def update(
        self,
        name: str,
        arg: Any = ...,
        *,
        wait: updates.Wait = ...,
        type: Any = ...,
        id: str | None = ...,
        timeout: float | timedelta | None = ...,
        unvalidated: bool = ...,
    ) -> Accepted[Any] | Rejected: ...
    async def update(
        self,
        name: str,
        arg: Any = None,
        *,
        wait: updates.Wait = "accepted",
        type: Any = Any,
        id: str | None = None,
        timeout: float | timedelta | None = None,
        unvalidated: bool = False,
    ) -> Outcome:
        """Ask something of the run: `Accepted` once that is durable, `Rejected` with a reason if it was not let pass.

        First the workflow's validator for `name` (see `app.update_validator`), if there is one, looks at the argument, in this
        process: what it rejects was never sent. With `wait="answered"` this waits for what the body answers to what
        `ctx.wait_for_update(name)` gave it: `Accepted.answer`, restored by `type`, or `Rejected`. The same `id` again asks
        once, and gives the same answer.

        Raises `RunNotFound`; `RunEnded`, also if the run ends without an answer; `InvalidValue`; `NotRegistered` where the code
        is not here, which could not validate, unless `unvalidated`; `TimeoutError` after `timeout` (seconds or `timedelta`) of
        waiting: the update stays, and can be asked for again by its `id`.
        """
        asking = updates.Asking(
            name=name, arg=arg, id=id, wait=wait, type=type, timeout=timeout, unvalidated=unvalidated
        )
        asking.check()
        return await updates.update(self._engine, await self.info(), asking)
