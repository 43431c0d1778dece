"""The runs that this process holds, and how each goes from turn to commit to effects.

One run's life here: claimed (or started) -> instance (new, cached, or replayed) -> *drive*: advance over what has arrived,
settle, submit -> *answered*: applied? then tell, start the steps it asked for, and drive again if something has arrived; parked?
then into the cache; ended? then told and closed; fenced? then dropped. The body is ahead of the log by at most one turn, and no
step begins before the commit that asked for it is durable.

Event loop only; every turn runs from a plain callback of the loop, never inside somebody's task.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from perdure.authoring.body import WorkflowBody
from perdure.authoring.registry import Registry
from perdure.authoring.workflow import WorkflowDefinition
from perdure.core.inbox import token_key
from perdure.core.instance import Instance
from perdure.core.operation import Operation
from perdure.core.settle import busy, kill, next_look, settle
from perdure.core.turn import Blocked, StepDone, Turn
from perdure.engine.cache import Cache
from perdure.engine.committer import Committer
from perdure.engine.endings import Ending, Endings
from perdure.engine.events import Events
from perdure.engine.held import Held
from perdure.engine.settings import Settings
from perdure.engine.steps import Steps, is_final
from perdure.engine.telling import Telling
from perdure.model.commit import Answer, Applied, Create, Exists, Fenced, Moved, Refused, TurnCommit, Unstorable
from perdure.model.endings import dead_failure, timeout_failure
from perdure.model.errors import PerdureError, StoreError
from perdure.model.failure import capture, encode_failure
from perdure.model.history import Entry, Event
from perdure.model.messages import Message, Outgoing
from perdure.model.run import TERMINAL, NewRun, Run, RunKey, Status
from perdure.ports.clock import Clock
from perdure.ports.store import Claimed, Held as HeldClaim, Renewal, Store

log = logging.getLogger("perdure.engine")


class Executor:
    """See the head of this module."""

    def __init__(
        self,
        store: Store,
        clock: Clock,
        registry: Registry,
        committer: Committer,
        settings: Settings,
        owner: str,
        chance: Callable[[], float],
    ) -> None:
        self.owner = owner
        self.held: dict[int, Held] = {}
        self.cache = Cache(settings.cache)
        self.endings = Endings()
        self.events = Events()
        self.tell = Telling(self.events, store.now)
        self.draining = False
        #: Called when a held run was let go: there is room again. With a time: some run wants to be looked at then.
        self.on_room: Callable[[int | None], None] = lambda wake_at: None
        self._starting = 0
        self._store = store
        self._clock = clock
        self._registry = registry
        self._committer = committer
        self._settings = settings
        self._chance = chance
        self._bodies: dict[WorkflowDefinition[Any, Any], WorkflowBody] = {}
        self._steps = Steps(
            registry,
            self,
            store.now,
            max_steps=settings.max_steps,
            max_threads=settings.max_threads,
            max_value=settings.max_value,
        )
        self._idle = asyncio.Event()
        self._driving: int | None = None
        self._nudged: set[int] = set()
        self._nudging: asyncio.Task[None] | None = None

    # -- starting and taking ------------------------------------------------------------------------------------------

    def room(self) -> int:
        """How many more runs this process may hold."""
        return 0 if self.draining else max(0, self._settings.max_runs - len(self.held) - self._starting)

    def start(
        self,
        definition: WorkflowDefinition[Any, Any],
        new: NewRun,
        messages: tuple[Outgoing, ...],
        done: Callable[[Answer], None],
    ) -> None:
        """Create a run and its first turn in one commit, and hold it. From a plain callback of the loop."""
        instance = Instance(new, self._body(definition))
        now = self._store.now()
        deadline = None if new.timeout is None else now + new.timeout
        held = Held(RunKey(new.id, 0), definition, instance, 1, 0, deadline)
        turn = instance.begin(now)
        commit = settle(held.standing(self.owner, self._block), instance, turn)
        held.turn = turn
        held.commit = msgspec.structs.replace(
            commit,
            started_at=now,
            wake_at=now + self._settings.lease if commit.status is Status.RUNNING else commit.wake_at,
        )
        self._starting += 1
        create = Create(run=new, turn=held.commit, messages=messages)
        self._committer.submit(create, self._created, (held, done))

    def _created(self, argument: tuple[Held, Callable[[Answer], None]], answer: Answer) -> None:
        held, done = argument
        self._starting -= 1
        if isinstance(answer, Applied | Moved) and answer.key is not None:
            held.key = answer.key
            self.held[held.key.incarnation] = held
            self._answered(held, answer)
        else:
            held.instance.close()
        done(answer)

    def _body(self, definition: WorkflowDefinition[Any, Any]) -> WorkflowBody:
        body = self._bodies.get(definition)
        if body is None:
            body = self._bodies[definition] = WorkflowBody(definition, self._registry)
        return body

    async def take(self, claims: Sequence[Claimed]) -> None:
        """Go on with runs that were just claimed."""
        histories = await self._histories(claims)
        for position, claimed in enumerate(claims):
            if position % 20 == 19:
                await asyncio.sleep(0)  # replays are work; let others have the loop
            asyncio.get_running_loop().call_soon(self._take, claimed, histories.get(claimed.run.incarnation, ()))
            self._starting += 1
        await asyncio.sleep(0)

    async def _histories(self, claims: Sequence[Claimed]) -> dict[int, Sequence[Entry]]:
        cold = [c.run.incarnation for c in claims if c.run.n and not self.cache.has(c.run.incarnation, c.run.n)]
        if not cold:
            return {}
        try:
            return dict(await self._store.history(cold))
        except StoreError:
            # Nothing was begun: the leases run out, and somebody (perhaps we) claims the runs again.
            log.exception("perdure: cannot load the histories of %d claimed runs", len(cold))
            return dict.fromkeys(cold, ())

    def _take(self, claimed: Claimed, history: Sequence[Entry]) -> None:
        self._starting -= 1
        run = claimed.run
        definition = self._registry.workflow(run.workflow, run.version)
        instance = self.cache.take(run.incarnation, run.n, definition.fingerprint)
        fresh = instance is None
        if instance is None:
            if run.n and not history:
                return
            instance = Instance(_as_new(claimed), self._body(definition))
        held = Held(run.key, definition, instance, run.epoch, run.n, run.deadline)
        self.held[run.incarnation] = held
        held.arrivals.extend(claimed.messages)
        if run.recoveries > self._settings.max_recoveries:
            self._kill(held, Status.DEAD, dead_failure(run.recoveries))
            return
        if run.deadline is not None and self._store.now() >= run.deadline:
            self._time_out(held)
            return
        if not fresh:
            self._drive(held)
        elif run.started_at is None:
            self._begin(held)
        else:
            self._resume(held, instance.replay(history, run.started_at), claimed)

    def _begin(self, held: Held) -> None:
        now = self._store.now()
        turn = held.instance.begin(now)
        commit = settle(held.standing(self.owner, self._block), held.instance, turn)
        self._submit(held, turn, msgspec.structs.replace(commit, started_at=now))

    def _resume(self, held: Held, turn: Turn, claimed: Claimed) -> None:
        if isinstance(turn.outcome, Blocked):
            self._submit(held, turn, settle(held.standing(self.owner, self._block), held.instance, turn))
            return
        if claimed.was in (Status.RUNNING, Status.PENDING):
            self._note_cuts(held)
        self._drive(held)

    def _note_cuts(self, held: Held) -> None:
        """Steps that may have been in flight when their process was lost: their attempt's number is used up."""
        now = self._store.now()
        for operation in held.instance.steps.values():
            if operation.next_at is None or operation.next_at <= now:
                operation.attempts += 1
                held.attempts.append(
                    Entry(Event.ATTEMPT_CUT, operation.seq, operation.op, operation.name, None, held.instance.now)
                )

    # -- turns --------------------------------------------------------------------------------------------------------

    @property
    def _block(self) -> bool:
        return self._settings.on_nondeterminism == "block"

    def _schedule(self, held: Held) -> None:
        if not held.scheduled and held.commit is None and not held.gone:
            held.scheduled = True
            asyncio.get_running_loop().call_soon(self._drive, held)

    def _drive(self, held: Held) -> None:
        held.scheduled = False
        if held.gone or held.commit is not None:
            return
        now = self._store.now()
        if held.deadline is not None and now >= held.deadline:
            self._time_out(held)
            return
        held.taken, held.arrivals = held.arrivals, []
        attempts, held.attempts = held.attempts, []
        self._driving = held.key.incarnation
        try:
            turn = held.instance.advance(held.taken, now)
            commit = settle(held.standing(self.owner, self._block), held.instance, turn, attempts)
        except Exception as error:
            self._broken(held, error)
            return
        finally:
            self._driving = None
        if commit.status is Status.RUNNING and not commit.entries and not commit.consumed:
            self._go_on(held)
        else:
            self._submit(held, turn, commit)

    def _broken(self, held: Held, error: Exception) -> None:
        log.exception("perdure: a turn of %s failed; this is a fault in Perdure", held.instance.describe())
        turn = Turn()
        turn.outcome = Blocked(PerdureError(f"a turn of {held.instance.describe()} failed inside Perdure: {error!r}"))
        self._submit(held, turn, settle(held.standing(self.owner, True), held.instance, turn))

    def _submit(self, held: Held, turn: Turn, commit: TurnCommit) -> None:
        held.turn = turn
        held.commit = commit
        self._committer.submit(commit, self._answered, held)

    def _time_out(self, held: Held) -> None:
        self._kill(held, Status.CANCELLED, timeout_failure((held.instance.run.timeout or 0) / 1_000_000))

    def _kill(self, held: Held, status: Status, failure: Any) -> None:
        instance = held.instance
        now = max(instance.now, self._store.now())
        seen = max([instance.inbox.seen, *(a.number for a in held.arrivals if isinstance(a, Message))])
        self._submit(held, Turn(), kill(held.standing(self.owner, True), status, failure, now, seen))

    # -- answers ------------------------------------------------------------------------------------------------------

    def _answered(self, held: Held, answer: Answer) -> None:
        commit, turn = held.commit, held.turn
        assert commit is not None and turn is not None
        held.commit = held.turn = None
        if held.gone:
            return
        if isinstance(answer, Applied | Moved):
            held.n += len(commit.entries)
            held.taken = []
            self.tell.turn(held, commit)
            self._announce(held, commit)
            if isinstance(answer, Moved):
                held.arrivals.extend(answer.messages)
                self._effects(held, turn)
            elif commit.status is Status.RUNNING:
                self._effects(held, turn)
            else:
                self._rest(held, commit)
        elif isinstance(answer, Refused):
            self._rewind(held, answer.messages)
        elif isinstance(answer, Unstorable):
            self._unstorable(held, answer.reason)
        else:
            self._lost(held, answer)

    def _effects(self, held: Held, turn: Turn) -> None:
        """What became durable may begin; what nobody awaits any more is stopped."""
        for operation in turn.abandoned:
            task = held.tasks.pop(operation.seq, None)
            if task is not None:
                task.cancel()
        steps = held.instance.steps
        for operation in turn.issued:
            if operation.seq in steps:
                self._attempt(held, operation)
        self._go_on(held)

    def _attempt(self, held: Held, operation: Operation) -> None:
        self.tell.step_started(held, operation)
        self._steps.start(held, operation)

    def _go_on(self, held: Held) -> None:
        """The run stays ours: see to its retries and timers, and to what has arrived meanwhile."""
        instance = held.instance
        if len(instance.steps) != len(held.tasks):
            now = self._store.now()
            for operation in list(instance.steps.values()):
                if operation.seq not in held.tasks and (operation.next_at is None or operation.next_at <= now):
                    operation.next_at = None
                    self._attempt(held, operation)
        if held.arrivals or held.attempts:
            self._schedule(held)
        if held.alarm is not None:
            held.alarm.cancel()
            held.alarm = None
        look = next_look(held.standing(self.owner, True), instance)
        if look is not None:
            held.alarm = self._clock.call_at(look, lambda: self._schedule(held))

    def _rest(self, held: Held, commit: TurnCommit) -> None:
        """Parked, blocked or ended: not ours any more."""
        self._drop(held)
        if commit.status is Status.SUSPENDED:
            self.cache.put(held.key.incarnation, held.n, held.definition.fingerprint, held.instance)
            self.endings.touched(held.key)
            self.on_room(commit.wake_at)
            return
        held.instance.close()
        if commit.status in TERMINAL:
            successor = None if commit.successor is None else commit.successor.id
            self.endings.ended(held.key, Ending(commit.status, commit.output, commit.error, successor))
        else:
            self.endings.touched(held.key)
        self.on_room(None)

    def _announce(self, held: Held, commit: TurnCommit) -> None:
        """Other runs have become due by this commit: its children, its successor, or the parent that hears of its end."""
        parent = held.instance.run.parent if commit.status in TERMINAL else None
        if parent is not None:
            self.nudge(parent.incarnation)
        if parent is not None or commit.children or commit.cancels or commit.sends or commit.successor is not None:
            self.on_room(0)

    def _drop(self, held: Held) -> None:
        held.let_go()
        self.held.pop(held.key.incarnation, None)
        if not self.held:
            self._idle.set()

    def _lost(self, held: Held, answer: Answer) -> None:
        """Somebody else has the run, or it was cancelled or deleted: what we did since is void."""
        self._drop(held)
        held.instance.close()
        run = answer.run if isinstance(answer, Fenced | Exists) else None
        if run is not None and run.status in TERMINAL:
            self.endings.ended(held.key, Ending(run.status, run.output, run.error, run.continued_to))
        else:
            log.info("perdure: lost the lease of %s", held.instance.describe())
            self.endings.touched(held.key)
        self.on_room(None)

    def _unstorable(self, held: Held, reason: str) -> None:
        turn = Turn()
        turn.outcome = Blocked(PerdureError(f"a turn of {held.instance.describe()} cannot be stored: {reason}"))
        self._submit(held, turn, settle(held.standing(self.owner, True), held.instance, turn))

    def _rewind(self, held: Held, messages: Sequence[Message]) -> None:
        """The turn ended the run over unread control messages: go back to the log and take them in first."""
        arrivals = [*held.taken, *messages, *held.arrivals]
        held.instance.close()

        async def reload() -> None:
            history = (await self._store.history([held.key.incarnation]))[held.key.incarnation]
            run = await self._store.get(held.key.id)
            if run is None or run.key != held.key or run.started_at is None or held.gone:
                return
            held.instance = Instance(held.instance.run, self._body(held.definition))
            held.instance.replay(history, run.started_at)
            held.arrivals = arrivals
            self._schedule(held)

        self._reload = asyncio.get_running_loop().create_task(reload())

    # -- what steps report --------------------------------------------------------------------------------------------

    def succeeded(self, held: Held, operation: Operation, began: int, payload: bytes) -> None:
        held.tasks.pop(operation.seq, None)
        operation.attempts += 1
        held.arrivals.append(StepDone(operation.seq, payload, False, self._store.now(), began))
        self._schedule(held)

    def failed(self, held: Held, operation: Operation, began: int, error: BaseException) -> None:
        held.tasks.pop(operation.seq, None)
        now = self._store.now()
        operation.attempts += 1
        operation.failures += 1
        policy = operation.policy
        failure = encode_failure(capture(error))
        if policy is not None and policy.again(operation.failures, not is_final(error)):
            operation.next_at = now + policy.delay(operation.failures, self._chance())
            held.attempts.append(
                Entry(
                    Event.ATTEMPT_FAILED,
                    operation.seq,
                    operation.op,
                    operation.name,
                    failure,
                    max(now, held.instance.now),
                    operation.next_at,
                    began,
                )
            )
        else:
            held.arrivals.append(StepDone(operation.seq, failure, True, now, began))
        self._schedule(held)

    def vanished(self, held: Held, operation: Operation, error: BaseException) -> None:
        """The interpreter is being stopped inside a step. Nothing is recorded: whoever recovers the run makes it again."""
        log.error(
            "perdure: step %r of %s was stopped by %r; the run is let go and will be recovered",
            operation.name,
            held.instance.describe(),
            error,
        )
        if not held.gone:
            self._drop(held)
            held.instance.close()

    # -- messages for runs held here -----------------------------------------------------------------------------------

    def nudge(self, incarnation: int) -> None:
        """A message was put into a run's inbox by this process: if the run is held here, it hears of it at once."""
        held = self.held.get(incarnation)
        if held is None or held.gone:
            return
        self._nudged.add(incarnation)
        if self._nudging is None:
            self._nudging = asyncio.get_running_loop().create_task(self._fetch())

    async def _fetch(self) -> None:
        try:
            while self._nudged:
                incarnation = self._nudged.pop()
                messages = await self._store.messages(incarnation)
                held = self.held.get(incarnation)
                if held is not None:
                    self._deliver(held, messages)
        except StoreError as error:
            log.warning("perdure: cannot read an inbox; the renewal will bring its messages: %s", error)
        finally:
            self._nudging = None

    def _deliver(self, held: Held, messages: Sequence[Message]) -> None:
        known = {a.number for a in (*held.arrivals, *held.taken) if isinstance(a, Message)}
        fresh = [m for m in messages if m.number > held.instance.inbox.seen and m.number not in known]
        if fresh:
            held.arrivals.extend(fresh)
            self._schedule(held)

    def nudge_token(self, token: str) -> None:
        """As `nudge`, of a message sent to a token."""
        for held in list(self.held.values()):
            if held.instance.inbox.waits_for(token_key(token)):
                self.nudge(held.key.incarnation)

    # -- leases and stopping ------------------------------------------------------------------------------------------

    def claims(self) -> list[HeldClaim]:
        """What to renew. Any thread: `dict.copy` is atomic."""
        return [HeldClaim(h.key.incarnation, h.epoch, h.instance.inbox.seen) for h in self.held.copy().values()]

    def running_on(self, loop: asyncio.AbstractEventLoop) -> int | None:
        """The run whose turn or step has the loop now. Any thread, for the watchdog: a guess is good enough."""
        if self._driving is not None:
            return self._driving
        task = asyncio.current_task(loop)
        for held in self.held.copy().values():
            if task is not None and task in held.tasks.copy().values():
                return held.key.incarnation
        return None

    def changed(self, runs: Sequence[Run]) -> None:
        """These runs were cancelled or deleted by this process: what runs for them here is stopped."""
        for run in runs:
            held = self.held.get(run.incarnation)
            if held is not None:
                self._lost(held, Fenced(run))
            else:
                self.endings.touched(run.key)
            if run.parent is not None:
                self.nudge(run.parent.incarnation)
        self.on_room(0)

    def renewed(self, renewals: Sequence[Renewal]) -> None:
        """What the store said of the leases."""
        for renewal in renewals:
            held = self.held.get(renewal.incarnation)
            if held is None:
                continue
            if renewal.lost:
                if held.commit is None:  # else the commit's own answer says it, and what became of the run
                    self._drop(held)
                    held.instance.close()
                    self.endings.touched(held.key)
            else:
                self._deliver(held, renewal.messages)

    async def settled(self) -> None:
        """Wait until this process holds no run."""
        while self.held or self._starting:
            self._idle.clear()
            if not self.held:
                await self._committer.idle()
                continue
            await self._idle.wait()

    async def stop(self) -> None:
        """Give back what is still held, and drop everything."""
        held = list(self.held.values())
        claims = self.claims()
        for run in held:
            self._drop(run)
        await self._committer.idle()
        if claims:
            await self._store.release(self.owner, claims)
        for run in held:
            run.instance.close()
        self.cache.clear()
        self._steps.close()


def _as_new(claimed: Claimed) -> NewRun:
    """The facts of a run as its instance needs them."""
    run = claimed.run
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


__all__ = ["Executor", "busy"]
