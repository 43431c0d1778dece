"""From claims to held runs: each gets an instance, out of the cache, replayed from its history, or new."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence

from perdure.core.instance import Instance
from perdure.core.turn import Blocked
from perdure.engine.executor import Executor
from perdure.engine.held import Held
from perdure.engine.means import Means
from perdure.model.endings import dead_failure
from perdure.model.errors import PerdureError, StoreError
from perdure.model.history import Entry
from perdure.model.run import NewRun, Run, Status
from perdure.ports.store import Claimed

log = logging.getLogger("perdure.engine")

#: So many replays without giving the loop to others.
_CHUNK = 20


class Loading:
    """Event loop only."""

    def __init__(self, means: Means, executor: Executor) -> None:
        self._means = means
        self._executor = executor

    async def take(self, claims: Sequence[Claimed]) -> None:
        """Go on with runs that were just claimed. Returns when all are held (or ended, or passed over)."""
        holdings = self._executor.holdings
        holdings.coming += len(claims)
        waiting = len(claims)
        try:
            histories = await self._histories(claims)
            for position, claimed in enumerate(claims):
                if position % _CHUNK == _CHUNK - 1:
                    await asyncio.sleep(0)
                holdings.coming -= 1
                waiting -= 1
                self._take_safely(claimed, histories.get(claimed.run.incarnation, ()))
        finally:
            holdings.coming -= waiting

    async def _histories(self, claims: Sequence[Claimed]) -> dict[int, Sequence[Entry]]:
        cache = self._executor.cache
        cold = [c.run.incarnation for c in claims if c.run.n and not cache.has(c.run.incarnation, c.run.n)]
        return dict(await self._means.store.history(cold)) if cold else {}

    def _take_safely(self, claimed: Claimed, history: Sequence[Entry]) -> None:
        try:
            self._take(claimed, history)
        except StoreError:
            raise
        except Exception:
            # One odd row must not keep the others of its batch from starting (FAULTS F10). Its lease runs out.
            log.exception("perdure: cannot go on with run %r; this is a fault in Perdure", claimed.run.id)

    def _take(self, claimed: Claimed, history: Sequence[Entry]) -> None:
        executor, run = self._executor, claimed.run
        definition = self._means.registry.workflow(run.workflow, run.version)
        instance = executor.cache.take(run.incarnation, run.n, definition.fingerprint)
        fresh = instance is None
        if instance is None:
            instance = executor.instance(definition, as_new(run))
        held = Held(run.key, definition, instance, run.epoch, run.n, run.deadline)
        held.arrivals.extend(claimed.messages)
        executor.holdings.add(held)
        if run.recoveries > self._means.settings.max_recoveries:
            executor.end(held, Status.DEAD, dead_failure(run.recoveries))
        elif executor.out_of_time(held):
            return
        elif run.started_at is None:
            executor.begin(held)
        elif fresh and (fault := _fault(instance, claimed, history)) is not None:
            executor.block(held, fault)
        else:
            if claimed.was in (Status.RUNNING, Status.PENDING):
                executor.attempts.cut(held)
            executor.drive(held)


def _fault(instance: Instance, claimed: Claimed, history: Sequence[Entry]) -> PerdureError | None:
    """Replay the run; what keeps its code from going on."""
    assert claimed.run.started_at is not None
    turn = instance.replay(history, claimed.run.started_at, seen=claimed.run.seen, unread=claimed.messages)
    return turn.outcome.error if isinstance(turn.outcome, Blocked) else None


def as_new(run: Run) -> NewRun:
    """The facts of a run as its instance needs them."""
    return NewRun(
        id=run.id,
        workflow=run.workflow,
        version=run.version,
        input=run.input,
        seed=run.seed,
        namespace=run.namespace,
        priority=run.priority,
        tags=run.tags,
        attributes=run.attributes,
        origin=run.origin,
        parent=run.parent,
        awaited_as=run.awaited_as,
        depth=run.depth,
        timeout=run.timeout,
        format=run.format,
    )
