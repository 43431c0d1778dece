"""Waiting for a run: its result, its rest, and how it stands."""

from __future__ import annotations

import asyncio
import logging
from datetime import timedelta
from typing import Generic, NoReturn, Self, TypeVar

from perdure.authoring.workflow import WorkflowDefinition
from perdure.engine import door
from perdure.engine.endings import Ending
from perdure.engine.engine import Engine
from perdure.model import values
from perdure.model.durations import micros
from perdure.model.errors import (
    RunCancelled,
    RunDead,
    RunFailed,
    RunNotFound,
    RunTimedOut,
    RunUnsuccessful,
    UsageError,
)
from perdure.model.failure import decode_failure, restore, summary
from perdure.model.run import SETTLED, TERMINAL, Run, RunKey, Status
from perdure.model.shown import shown

R = TypeVar("R")
log = logging.getLogger("perdure.engine")

#: What a run is looked at for while its end is waited for.
_ENDED_OR_BLOCKED = TERMINAL | {Status.BLOCKED}


class Awaited(Generic[R]):
    """A run by its id, as far as one can wait for it and ask how it stands."""

    __slots__ = ("_key", "_opened", "_workflow", "id")

    def __init__(
        self, engine: Engine, run_id: str, workflow: WorkflowDefinition[..., R] | None, key: RunKey | None = None
    ) -> None:
        if workflow is not None and not isinstance(workflow, WorkflowDefinition):
            raise UsageError(f"a handle takes the workflow that its run is of, not {shown(workflow)}")
        #: The run's id.
        self.id = run_id
        self._opened = engine
        self._workflow = workflow
        self._key = key

    def __repr__(self) -> str:
        return f"<run {self.id!r}>"

    @property
    def _engine(self) -> Engine:
        return door.enter(self._opened)

    # -- waiting ------------------------------------------------------------------------------------------------------

    async def result(self, *, timeout: float | timedelta | None = None) -> R:
        """Wait for the run's end (of the whole chain, if it continues as new) and return what it returned.

        Raises `RunFailed`, `RunCancelled`, `RunTimedOut` or `RunDead`; `RunNotFound`; `TimeoutError` after `timeout` (seconds
        or `timedelta`). Giving up the wait, by timeout or cancellation, never touches the run. While the store cannot be
        reached it waits on.
        """
        limit = _limit(timeout)
        try:
            async with limit:
                key, ending = await self._end()
        except TimeoutError:
            if not limit.expired():
                raise
            raise TimeoutError(f"run {self.id!r} has not ended within the timeout of {timeout}; it goes on") from None
        if ending.status is not Status.COMPLETED:
            _raise(key.id, ending)
        if self._workflow is not None:
            restored: R = self._workflow.signature.decode_result(ending.output or b"null")
            return restored
        result: R = values.decode((ending.output or b"null"), what=f"the result of run {key.id!r}")
        return result

    async def wait(self, *, timeout: float | timedelta | None = None) -> Status:
        """Wait until the run is settled: ended, or waiting for the world (suspended or blocked). Returns how it stands.

        Of a chain that continues as new it is this link that is asked, as with `status`; `latest()` has the newest one.

        Raises `RunNotFound`, and `TimeoutError` after `timeout` (seconds or `timedelta`).
        """
        limit = _limit(timeout)
        try:
            async with limit:
                return await self._settled()
        except TimeoutError:
            if not limit.expired():
                raise
            raise TimeoutError(f"run {self.id!r} has not settled within the timeout of {timeout}; it goes on") from None

    async def status(self) -> Status:
        """How the run stands now."""
        return (await self.info()).status

    async def latest(self) -> Self:
        """A handle on the newest link of the chain that continue-as-new makes; on this run where it did not continue.

        Signals and `result` find that link by themselves; status, values and history are those of one link.
        """
        run = await self._last()
        return type(self)(self._engine, run.id, self._workflow, run.key)

    async def info(self) -> Run:
        """The run as the store has it now."""
        return await self._info()

    async def _info(self, *, for_ever: bool = False) -> Run:
        run = await self._engine.reads.get(self.id, for_ever=for_ever)
        if run is None or (self._key is not None and run.incarnation != self._key.incarnation):
            raise RunNotFound(f"there is no run {self.id!r}" + (" any more" if self._key else ""))
        self._key = run.key
        return run

    async def _last(self) -> Run:
        """The newest link of the chain."""
        run = await self.info()
        while run.continued_to is not None:
            run = await self._next_link(run.id, run.continued_to)
        return run

    # -- how it waits -------------------------------------------------------------------------------------------------

    async def _settled(self) -> Status:
        key = await self._identify()
        while True:
            with self._engine.executor.tell.endings.listen(key.incarnation, SETTLED) as waiter:
                run = await self._read(key)
                if run.status in SETTLED and not (run.status is Status.SUSPENDED and self._due(run)):
                    return run.status
                waiter.saw(run)
                await waiter.change

    def _incarnation(self) -> int | None:
        """What this handle was made of: whoever has the id by now is not meant."""
        return None if self._key is None else self._key.incarnation

    async def _identify(self) -> RunKey:
        return self._key or (await self._info(for_ever=True)).key

    async def _end(self) -> tuple[RunKey, Ending]:
        key = await self._identify()
        told: set[str] = set()
        while True:
            ending = await self._ending(key, told)
            if ending is not None and ending.continued_to is None:
                return key, ending
            if ending is not None and ending.continued_to is not None:
                key = (await self._next_link(key.id, ending.continued_to, for_ever=True)).key

    async def _next_link(self, link: str, following: str, *, for_ever: bool = False) -> Run:
        run = await self._engine.reads.get(following, for_ever=for_ever)
        if run is None:
            raise RunNotFound(f"run {link!r} continued as {following!r}, which was deleted")
        return run

    async def _following(self, key: RunKey) -> RunKey | None:
        """The link that continues one that has ended; None: there is none."""
        run = await self._read(key)
        if run.continued_to is None:
            return None
        return (await self._next_link(run.id, run.continued_to, for_ever=True)).key

    async def _ending(self, key: RunKey, told: set[str]) -> Ending | None:
        """The end of this link; None after a change that was not its end. `told`: why it is blocked, as far as logged."""
        executor = self._engine.executor
        known = executor.tell.endings.recent(key.incarnation)
        if known is not None:
            return known
        if key.incarnation in executor.holdings:
            with executor.tell.endings.listen(key.incarnation) as waiter:
                return await waiter.change
        with executor.tell.endings.listen(key.incarnation, _ENDED_OR_BLOCKED) as waiter:
            run = await self._read(key)
            if run.status in TERMINAL:
                return Ending(run.status, run.output, run.error, run.continued_to)
            reason = decode_failure(run.error or b"").message if run.status is Status.BLOCKED else None
            if reason is not None and reason not in told:
                told.add(reason)
                log.warning("perdure: run %r is blocked, waiting on until it can go on: %s", key.id, reason)
            waiter.saw(run)
            return await waiter.change

    async def _read(self, key: RunKey) -> Run:
        """The run now, however long the store cannot be reached: it is the run that is waited for."""
        run = await self._engine.reads.get(key.id, for_ever=True)
        if run is None or run.incarnation != key.incarnation:
            raise RunNotFound(f"there is no run {key.id!r} any more; it was deleted")
        return run

    def _due(self, run: Run) -> bool:
        """True if a suspended run is about to go on: a message or timer woke it already."""
        return run.wake_at is not None and run.wake_at <= self._engine.store.now()


def _limit(timeout: float | timedelta | None) -> asyncio.Timeout:
    return asyncio.timeout(None if timeout is None else micros(timeout, "timeout") / 1_000_000)


_RAISED: dict[str | None, type[RunUnsuccessful]] = {
    "execution_timeout": RunTimedOut,
    "max_recovery_attempts": RunDead,
}


def _raise(run_id: str, ending: Ending) -> NoReturn:
    failure = decode_failure(ending.error or b"")
    if ending.status is Status.FAILED:
        raise RunFailed(f"run {run_id!r} failed: {summary(failure)}", run_id=run_id) from restore(failure)
    kind = _RAISED.get(failure.code, RunDead if ending.status is Status.DEAD else RunCancelled)
    raise kind(f"run {run_id!r}: {failure.message}", run_id=run_id)
