"""What an operator does to a run: try it again, or make another one of it."""

from __future__ import annotations

from typing import Any, Self, TypeVar

from perdure.engine import copying, requeueing, steering
from perdure.engine.asked import Asked
from perdure.engine.steering import Redispatched
from perdure.model.commit import Way
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

    async def pause(self, *, at_once: bool = False) -> bool:
        """Have nobody go on with the run until it is unpaused, whatever its status. Returns False if it was paused already.

        A run that is at work goes on until it next waits (for a signal, a timer, a child, a retry). With `at_once` it is taken
        from its process: steps in flight are cut off, and run again after `unpause`. Signals still arrive; the time does not
        count against the run's timeout. Of a chain, the newest link. Raises `RunNotFound`, `RunEnded`.
        """
        paused = await steering.steer(self._engine, self.id, self._incarnation(), Way.PAUSE)
        if at_once:
            await steering.steer(self._engine, self.id, self._incarnation(), Way.REDISPATCH)
        return paused is not None

    async def unpause(self) -> bool:
        """Let the run go on. What fell due meanwhile is due now. Returns False if it was not paused.

        Raises `RunNotFound`, `RunEnded`.
        """
        return await steering.steer(self._engine, self.id, self._incarnation(), Way.UNPAUSE) is not None

    async def redispatch(self) -> Redispatched:
        """Take the run from the process that is at work on it, and have steps in flight tried again: for one that hangs.

        The attempts are counted, and keep their idempotency key; what they still do, nobody stops in a process that hangs, and
        nobody listens to. A run that nobody is at work on is left alone: `steps` is 0. Of a chain, the newest link. Raises
        `RunNotFound`, `RunEnded`.
        """
        return await steering.redispatch(self._engine, self.id, self._incarnation())
