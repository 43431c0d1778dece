"""From claims to held runs: each gets an instance, out of the cache, replayed from its history, or new."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from perdure.authoring.gated import gated
from perdure.authoring.options import StartOptions
from perdure.authoring.workflow import WorkflowDefinition
from perdure.core.instance import Instance
from perdure.core.turn import Blocked
from perdure.engine.executor import Executor
from perdure.engine.gating import Entrance, admitted, take_grants
from perdure.engine.held import Held
from perdure.engine.means import Means
from perdure.engine.pauses import pauses
from perdure.model.cancelling import CancelOrder, order_of
from perdure.model.endings import cancelled_failure, dead_failure
from perdure.model.errors import PerdureError, StoreError
from perdure.model.gates import Ask
from perdure.model.history import Entry, Event
from perdure.model.messages import Message, MessageKind
from perdure.model.run import NewRun, Run, Status
from perdure.model.shown import shown
from perdure.ports.store import Claimed
from perdure.ports.store import Held as Claim

log = logging.getLogger("perdure.engine")

#: So many replays without giving the loop to others.
_CHUNK = 20


class Loading:
    """Event loop only."""

    def __init__(self, means: Means, executor: Executor) -> None:
        self._means = means
        self._executor = executor
        self._entrance = Entrance(means, executor.submit, executor.rest, executor.refused, self.give_back)
        #: Set when histories that could not be read are to be tried again.
        self._retry = asyncio.Event()

    def hurry(self) -> None:
        """The app is being closed: no pause any more, and no further try once `Holdings.closed` is set."""
        self._retry.set()

    async def take(self, claims: Sequence[Claimed]) -> None:
        """Go on with runs that were just claimed. Returns when all are on their way in."""
        holdings = self._executor.holdings
        holdings.coming += len(claims)
        waiting = len(claims)
        parked: dict[int, Instance] = {}
        try:
            parked.update(self._parked(claims))
            try:
                histories = await self._histories(claims, parked)
            except StoreError as error:
                await self.give_back(claims)
                claims = [claimed for claimed in claims if claimed.orphaned]
                holdings.coming -= waiting - len(claims)
                waiting = len(claims)
                histories = await self._histories_of_lost(claims, parked, error)
                self._executor.on_room(0)  # those that were given back are due
            for position, claimed in enumerate(claims):
                if position % _CHUNK == _CHUNK - 1:
                    await asyncio.sleep(0)
                waiting -= 1
                incarnation = claimed.run.incarnation
                # In a callback of its own: bodies are the user's, and must not be able to end the task that claims.
                self._means.loop.call_soon(
                    self._take_safely, claimed, parked.pop(incarnation, None), histories.get(incarnation, ())
                )
            await asyncio.sleep(0)
        finally:
            holdings.coming -= waiting
            for instance in parked.values():
                instance.close()

    def _parked(self, claims: Sequence[Claimed]) -> Iterator[tuple[int, Instance]]:
        """The instances that were kept, by incarnation. Out of the cache: it may forget them while histories are read."""
        for run in (claimed.run for claimed in claims):
            definition = self._means.registry.workflow(run.workflow, run.version)
            instance = self._executor.cache.take(run.incarnation, run.n, definition.fingerprint)
            if instance is not None:
                yield run.incarnation, instance

    async def _histories_of_lost(
        self, claims: Sequence[Claimed], parked: Mapping[int, Instance], error: StoreError
    ) -> dict[int, Sequence[Entry]]:
        """As `_histories`, of runs that could not be given back: dropped, each outage would count against them (FAULTS F1).

        Tried for half their lease, which nobody renews yet; then raises what the store raised last, `error` at first.
        """
        clock, until = self._means.clock, self._means.clock.now() + self._means.settings.lease // 2
        for pause in pauses():
            now = clock.now()
            if not claims or self._executor.holdings.closed or now >= until:
                break
            log.warning("perdure: cannot read %d histories, trying again: %s", len(claims), error)
            alarm = clock.call_at(min(now + pause, until), self._retry.set)
            await self._retry.wait()
            alarm.cancel()
            self._retry.clear()
            try:
                return await self._histories(claims, parked)
            except StoreError as again:
                error = again
        raise error

    async def _histories(self, claims: Sequence[Claimed], parked: Mapping[int, Instance]) -> dict[int, Sequence[Entry]]:
        """By incarnation, of those that are not parked here. One that cannot be read is not among them."""
        cold = [claimed.run for claimed in claims if claimed.run.incarnation not in parked]
        wanted = [run.incarnation for run in cold if run.n]
        if not wanted:
            return {}
        try:
            return dict(await self._means.store.history(wanted))
        except StoreError:
            raise
        except Exception:
            log.exception("perdure: the store cannot read some of %d histories; reading them one by one", len(wanted))
        found: dict[int, Sequence[Entry]] = {}
        for incarnation in wanted:
            try:
                found.update(await self._means.store.history([incarnation]))
            except StoreError:
                raise
            except Exception as error:
                log.error("perdure: the history of incarnation %d cannot be read: %r", incarnation, error)
        return found

    async def give_back(self, claims: Sequence[Claimed]) -> None:
        """If the store takes them back, they need not wait for their leases to end, nor count as lost.

        But for those that were lost before: steps may have been in flight, which whoever claims them next must know.
        """
        back = [claimed.run for claimed in claims if not claimed.orphaned]
        held = [Claim(run.incarnation, run.epoch, 0) for run in back]
        try:
            await self._means.store.release(self._means.owner, held)
        except StoreError as error:
            log.warning("perdure: could not give back %d runs; their leases will run out: %s", len(held), error)

    def _take_safely(self, claimed: Claimed, instance: Instance | None, history: Sequence[Entry]) -> None:
        holdings = self._executor.holdings
        holdings.coming -= 1
        holdings.driving = claimed.run.incarnation
        try:
            self._take(claimed, instance, history)
        except Exception as error:
            # One odd row must not keep the others of its batch from starting (FAULTS F10), nor be claimed for ever.
            run = claimed.run
            log.exception("perdure: cannot go on with run %r; this is a fault in Perdure", run.id)
            held = holdings.get(run.incarnation)
            if held is not None and held.commit is None:
                self._executor.block(
                    held, PerdureError(f"run {run.id!r} cannot go on from what is stored: {shown(error)}")
                )
        except BaseException as error:
            log.critical("perdure: run %r raised %r, which stops this process", claimed.run.id, error)
            held = holdings.get(claimed.run.incarnation)
            if held is not None:
                holdings.drop(held)  # in the middle of a turn: the instance is lost, the run will be recovered
            raise
        finally:
            holdings.driving = None

    def _take(self, claimed: Claimed, instance: Instance | None, history: Sequence[Entry]) -> None:
        executor, run = self._executor, claimed.run
        definition = self._means.registry.workflow(run.workflow, run.version)
        fresh = instance is None
        too_often = run.recoveries > self._means.settings.max_recoveries
        if instance is None:
            if len(history) > run.n and not too_often:
                log.info("perdure: run %r went on elsewhere before it was loaded; its lease must have run out", run.id)
                return
            instance = executor.instance(definition, as_new(run))
        held = Held(run.key, definition, instance, run.epoch, run.n, run.deadline)
        held.until = run.wake_at or 0
        held.arrivals.extend(claimed.messages)
        if not executor.hold(held):
            return
        if too_often:
            executor.end(held, Status.DEAD, dead_failure(run.recoveries))
        elif executor.out_of_time(held):
            return
        elif fresh and len(history) < run.n:
            executor.block(held, PerdureError(f"{len(history)} of the {run.n} entries of its history can be read"))
        elif run.started_at is None and (order := _cancelled(run, claimed.messages)) is not None:
            # One that has not begun has nothing to undo.
            executor.end(held, Status.CANCELLED, cancelled_failure(order.reason))
        elif (gate := self._gate(definition, run)) is not None and not admitted(claimed.messages):
            self._entrance.ask(held, claimed, gate, lambda held, now: self._go_on(held, now, fresh, history))
        else:
            self._go_on(held, claimed, fresh, history)

    def _gate(self, definition: WorkflowDefinition[Any, Any], run: Run) -> Ask | None:
        """The gate that a run has to pass; of one that was started where its code is not known, as the code has it."""
        if run.gate is not None or definition.singleton is None or run.started_at is not None:
            return run.gate
        return gated(as_new(run), self._means.registry, definition, StartOptions()).gate

    def _go_on(self, held: Held, claimed: Claimed, fresh: bool, history: Sequence[Entry]) -> None:
        executor, run, instance = self._executor, claimed.run, held.instance
        if run.started_at is None:
            take_grants(held)
            executor.begin(held)
        elif fresh and (fault := _fault(instance, claimed, history)) is not None:
            executor.block(held, fault)
        else:
            requeued = claimed.was is Status.PENDING and bool(history) and history[-1].event is Event.REQUEUED
            if claimed.was is not Status.SUSPENDED and not requeued:  # else no step was in flight
                executor.attempts.cut(held)
            executor.drive(held)


def _cancelled(run: Run, messages: Sequence[Message]) -> CancelOrder | None:
    orders = [order_of(message.payload) for message in messages if message.kind is MessageKind.CANCEL]
    return next((order for order in orders if order.meant_for(run.parent)), None)


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
        carrier=run.carrier,
        parent=run.parent,
        awaited_as=run.awaited_as,
        depth=run.depth,
        timeout=run.timeout,
        format=run.format,
        gate=run.gate,
    )
