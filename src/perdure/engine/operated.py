"""What an operator does to a run: try it again, or make another one of it."""

from __future__ import annotations

from typing import Any, Self, TypeVar

from perdure.engine import copying, requeueing
from perdure.engine.asked import Asked
from perdure.model.run import Status

R = TypeVar("R")


class Operated(Asked[R]):
    """A run by its id, as far as it can be operated."""

    __slots__ = ()

    async def requeue(self, *, children: bool = False) -> Status:
        """Revive a failed or dead run: what failed last is tried afresh. A blocked one is tried again as it is, at once.

        A run that failed because a child did waits for that child again, which may be requeued as well. `children=True` does
        that, all the way down: it requeues the children that the run waits for, and those that they wait for. (Children
        whose failure the body caught and went on from are left alone.) Any other run is left alone. Returns how the run stands
        then. Raises `RunNotFound`.
        """
        return await requeueing.requeue(self._engine, self.id, self._incarnation(), children=children)

    async def retry_with_input(self, *inputs: Any, **fields: Any) -> Self:
        """Start a new run of the same workflow and version with this input, as `workflow.start(...)` takes it.

        Its id is this run's with `~retry~` and eight hex digits; it has the same namespace, tags, attributes, priority,
        origin and timeout, and no parent. This run stays as it is. Raises `RunNotFound`, `NotRegistered`,
        `InvalidArguments`, `InvalidValue`.
        """
        run = await self.info()
        key = await copying.retry_with_input(self._engine, run, inputs, fields)
        return type(self)(self._engine, key.id, self._workflow, key)

    async def fork(self, from_step: int) -> Self:
        """Start a new run that goes on from where this one issued operation `from_step` (the `seq` of a step).

        It begins with a copy of the history up to there: steps before are not run again, and `ctx.random` and `ctx.uuid4` give
        the same. Operation `from_step` and all after it are new. Its id is this run's with `~fork~` and eight hex digits;
        all else is as with `retry_with_input`. This run stays as it is, whatever its status. Raises `RunNotFound`,
        `UsageError`.
        """
        run = await self.info()
        key = await copying.fork(self._engine, run, from_step)
        return type(self)(self._engine, key.id, self._workflow, key)
