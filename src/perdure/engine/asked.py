"""Asking a run: queries, which read, and updates, which it answers."""

from __future__ import annotations

from datetime import timedelta
from typing import Any, Literal, TypeVar, overload

import msgspec

from perdure.authoring.hooks import TaskEnd
from perdure.engine import places, queries, updates
from perdure.engine.awaited import Awaited
from perdure.model import values
from perdure.model.errors import UsageError
from perdure.model.ids import check_name
from perdure.model.shown import shown, told
from perdure.model.updates import Accepted, Outcome, Rejected

R = TypeVar("R")
T = TypeVar("T")


class Asked(Awaited[R]):
    """A run by its id, as far as it can be asked, and told what it waits for."""

    __slots__ = ()

    async def resume(self, label: str | None = None) -> bool:
        """Let the run go on from `ctx.breakpoint(label)`; without a label from the one that it came to first.

        False, and nothing is written, if it stands at none (yet, or any more). Of a chain it is the newest link. Raises
        `RunNotFound`.
        """
        if label is not None:
            check_name(label, "the label of a breakpoint")
        return await places.resume(self._engine, await self._last(), label)

    async def complete_task(self, name: str, result: Any = None) -> bool:
        """Tell the run that `ctx.task(name, ...)` is done. Of several tasks of that name it is the oldest that is open.

        False, and nothing is written, if it waits for none (yet, or any more: told twice it counts once). Of a chain it is the
        newest link. Raises `RunNotFound` and `InvalidValue`.
        """
        check_name(name, "a task's name")
        data = values.encode(result, what=f"the result of task {name!r} of run {self.id!r}")
        return await places.end_task(self._engine, await self._last(), name, TaskEnd(msgspec.Raw(data)))

    async def fail_task(
        self, name: str, error: str | BaseException, *, code: str | None = None, details: Any = None
    ) -> bool:
        """As `complete_task`, but the task has failed: the workflow gets a `FatalError` with this message, code and details."""
        check_name(name, "a task's name")
        if not isinstance(error, str | BaseException) or not (code is None or isinstance(code, str)):
            raise UsageError(f"task {name!r} fails with a text or an error, and a text as code, not {shown(error)}")
        what = f"the details of the failure of task {name!r} of run {self.id!r}"
        kept = msgspec.json.decode(values.encode(details, what=what))
        message = error if isinstance(error, str) else told(error)
        end = TaskEnd(error=message.encode(errors="backslashreplace").decode(), code=code, details=kept)
        return await places.end_task(self._engine, await self._last(), name, end)

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
