"""How each run held here goes from turn to commit to effects.

One run's life: claimed (see `loading`) or started -> *drive*: advance over what has arrived, settle, submit -> *answered*:
applied? then tell, start the steps it asked for, and drive again if something has arrived; parked? then into the cache; ended?
then told and closed; fenced? then dropped. The body is ahead of the log by at most one turn, and no step begins before the
commit that asked for it is durable.

Event loop only.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from perdure.authoring.body import WorkflowBody
from perdure.authoring.workflow import WorkflowDefinition
from perdure.core.instance import Instance
from perdure.core.issuing import NO_SEQ
from perdure.core.operation import Operation
from perdure.core.settle import Standing, ask, kill, next_look, settle
from perdure.core.turn import Blocked, Turn
from perdure.engine.attempts import Attempts
from perdure.engine.cache import Cache
from perdure.engine.committer import Committer, Outcome
from perdure.engine.endings import Ending
from perdure.engine.gating import Gating, passes_gates
from perdure.engine.held import Held
from perdure.engine.holdings import Holdings
from perdure.engine.means import Means
from perdure.engine.nudges import Nudges
from perdure.engine.outlet import Outlets
from perdure.engine.rereading import reread
from perdure.engine.steps import Steps
from perdure.engine.telling import Telling
from perdure.model.commit import Applied, Create, Exists, Fenced, Moved, Refused, TurnCommit, Unstorable
from perdure.model.endings import timeout_failure
from perdure.model.errors import PerdureError
from perdure.model.failure import Failure, decode_failure
from perdure.model.history import Event
from perdure.model.messages import Message, Outgoing
from perdure.model.run import TERMINAL, NewRun, Run, RunKey, Status
from perdure.model.shown import shown

log = logging.getLogger("perdure.engine")

_ATTEMPTS = frozenset({Event.ATTEMPT_FAILED, Event.ATTEMPT_CUT, Event.LOGGED})

#: Seconds that cancelled steps get when the process stops.
_LAST_MOMENT = 1.0

#: Told the answer of a start.
Done = Callable[[Outcome], None]


class Executor:
    """See the head of this module."""

    def __init__(self, means: Means, committer: Committer) -> None:
        self._means = means
        self.committer = committer
        self.holdings = Holdings(means.settings.max_runs)
        self.cache = Cache(means.settings.cache)
        self.tell = Telling(means.store.now, means.hooks.events)
        self.nudges = Nudges(means, self.holdings, self._schedule, self._doubt)
        self.nudges.missed = lambda: self.on_room(0)
        self.gating = Gating(means, self.holdings, self.nudges)
        self.attempts = Attempts(means, self.drive, self._schedule, self._let_go)
        #: Called when a held run was let go: there is room again. With a time: some run wants to be looked at then.
        self.on_room: Callable[[int | None], None] = lambda wake_at: None
        self._bodies: dict[WorkflowDefinition[Any, Any], WorkflowBody] = {}
        self.steps = Steps(means, self.attempts, self.nudges.sure, Outlets(means, committer, self.tell.tails))

    def instance(self, definition: WorkflowDefinition[Any, Any], run: NewRun) -> Instance:
        """A new instance of a run."""
        body = self._bodies.get(definition)
        if body is None:
            body = self._bodies[definition] = WorkflowBody(
                definition, self._means.registry, self._means.settings.links()
            )
        return Instance(run, body)

    # -- how a run comes in -------------------------------------------------------------------------------------------

    def start(
        self, definition: WorkflowDefinition[Any, Any], new: NewRun, messages: tuple[Outgoing, ...], done: Done
    ) -> Create:
        """Create a run and its first turn in one commit, and hold it. Returns what was submitted."""
        now = self._means.store.now()
        deadline = None if new.timeout is None else now + new.timeout
        held = Held(RunKey(new.id, 0), definition, self.instance(definition, new), 1, 0, deadline)
        held.until = now + self._means.settings.lease
        turn = held.instance.begin(now)
        commit = settle(self._standing(held), held.instance, turn)
        wake_at = now + self._means.settings.lease if commit.status is Status.RUNNING else commit.wake_at
        held.turn = turn
        held.commit = msgspec.structs.replace(commit, started_at=now, wake_at=wake_at)
        self.holdings.coming += 1
        create = Create(run=new, turn=held.commit, messages=messages, lease=self._means.settings.lease)
        self.committer.submit(create, self._created, (held, done))
        return create

    def _created(self, argument: tuple[Held, Done], answer: Outcome) -> None:
        held, done = argument
        self.holdings.coming -= 1
        if isinstance(answer, Applied | Moved) and answer.key is not None:
            held.key = answer.key
            if self.hold(held):
                self._answered(held, answer)
        else:
            held.instance.close()
        done(answer)

    def hold(self, held: Held) -> bool:
        """It is ours; False if it is not. If it was before, that lease ran out behind our back: only the newer one counts."""
        older = self.holdings.get(held.key.incarnation)
        if older is not None and older.epoch > held.epoch:
            held.gone = True
            held.instance.close()
            return False
        if older is not None:
            self._let_go(older)
        self.holdings.add(held)
        return True

    def begin(self, held: Held) -> None:
        """Drive a run for the first time."""
        now = self._means.store.now()
        turn = held.instance.begin(now)
        self._submit(held, turn, msgspec.structs.replace(self._settle(held, turn), started_at=now))

    def block(self, held: Held, error: PerdureError) -> None:
        """The run cannot go on with this code."""
        turn = Turn()
        turn.outcome = Blocked(error)
        self._submit(held, turn, self._settle(held, turn))

    def end(self, held: Held, status: Status, failure: Failure) -> None:
        """End a run whose body is not asked any more."""
        now = max(held.instance.now, self._means.store.now())
        seen = max([held.instance.inbox.seen, *(a.number for a in held.arrivals if isinstance(a, Message))])
        self._submit(held, Turn(), kill(self._standing(held), status, failure, now, seen))

    def out_of_time(self, held: Held) -> bool:
        """True if the run's deadline has passed; then it is being ended."""
        if held.deadline is None or self._means.store.now() < held.deadline:
            return False
        self.end(held, Status.CANCELLED, timeout_failure((held.instance.run.timeout or 0) / 1_000_000))
        return True

    # -- turns --------------------------------------------------------------------------------------------------------

    def drive(self, held: Held) -> None:
        """One turn over all that has arrived."""
        held.scheduled = False
        if held.gone or held.commit is not None or NO_SEQ in held.tasks or self.out_of_time(held):
            return
        held.taken, held.arrivals = held.arrivals, []
        self.holdings.driving = held.key.incarnation
        try:
            turn = held.instance.advance(held.taken, self._means.store.now())
            commit = self._settle(held, turn)
        except Exception as error:
            log.exception("perdure: a turn of %s failed; this is a fault in Perdure", held.instance.describe())
            fault = PerdureError(f"a turn of {held.instance.describe()} failed inside Perdure: {shown(error)}")
            self.block(held, fault)
            return
        except BaseException as error:
            log.critical("perdure: %s raised %r, which stops this process", held.instance.describe(), error)
            self._let_go(held)  # in the middle of a turn: the instance is lost, the run will be recovered
            raise
        finally:
            self.holdings.driving = None
        if commit.status is Status.RUNNING and not (commit.entries or commit.consumed or turn.reopened):
            self._go_on(held)
        else:
            self._submit(held, turn, commit)

    def _schedule(self, held: Held) -> None:
        if not held.scheduled and held.commit is None and not held.gone and NO_SEQ not in held.tasks:
            held.scheduled = True
            self._means.loop.call_soon(self.drive, held)

    def _settle(self, held: Held, turn: Turn) -> TurnCommit:
        attempts, held.attempts = held.attempts, []
        return settle(self._standing(held), held.instance, turn, attempts)

    def _standing(self, held: Held) -> Standing:
        return held.standing(self._means.owner, self._means.settings.on_nondeterminism == "block")

    def _submit(self, held: Held, turn: Turn, commit: TurnCommit) -> None:
        held.turn = turn
        held.commit = commit
        self.committer.submit(commit, self._answered, held)

    def submit(self, held: Held, turn: Turn, commit: TurnCommit, done: Callable[[Held, Outcome], None]) -> None:
        """As for a turn, of a run whose body has not begun here; `done` is told the answer if it still is ours."""
        held.turn = turn
        held.commit = commit

        def answered(held: Held, answer: Outcome) -> None:
            held.commit = held.turn = None
            if not held.gone:
                if isinstance(answer, Applied | Moved):
                    self.gating.committed(held, commit)
                done(held, answer)

        self.committer.submit(commit, answered, held)

    def rest(self, held: Held) -> None:
        """A run that was not begun here is parked."""
        self.holdings.drop(held)
        held.instance.close()
        self.tell.endings.touched(held.key)
        self.on_room(0 if held.arrivals else None)

    def refused(self, held: Held, answer: Outcome) -> None:
        """A run that was not begun here could not be parked."""
        if isinstance(answer, Unstorable):
            self.block(held, PerdureError(f"{held.instance.describe()} cannot ask for its gate: {answer.reason}"))
        else:
            self._lost(held, answer.run if isinstance(answer, Fenced | Exists) else None)

    # -- answers ------------------------------------------------------------------------------------------------------

    def _answered(self, held: Held, answer: Outcome) -> None:
        commit, turn = held.commit, held.turn
        assert commit is not None
        assert turn is not None
        held.commit = held.turn = None
        if held.gone:
            return
        if isinstance(answer, Applied | Moved):
            held.n += len(commit.entries)
            held.taken = []
            self.tell.said(turn)
            if commit.unwaits:
                held.doubt_tokens()
                self.nudges.run(held.key.incarnation)
            self._announce(held, commit, rests=isinstance(answer, Applied))
            if isinstance(answer, Moved):
                held.arrivals.extend(answer.messages)
                if not answer.messages:
                    self.nudges.run(held.key.incarnation)  # the answer was lost, and with it what they were
            elif commit.status is not Status.RUNNING:
                self._rest(held, commit)
                return
            self._effects(held, turn)
        elif isinstance(answer, Refused):
            self._rewind(held, commit, answer.messages)
        elif isinstance(answer, Unstorable):
            self.block(held, PerdureError(f"a turn of {held.instance.describe()} cannot be stored: {answer.reason}"))
        else:
            self._lost(held, answer.run if isinstance(answer, Fenced | Exists) else None)

    def _announce(self, held: Held, commit: TurnCommit, *, rests: bool) -> None:
        """What became durable is told; other runs may have become due by it: children, successor, a parent that waits."""
        self.tell.turn(held, commit, rests=rests)
        if passes_gates(held):
            self.gating.committed(held, commit)
        parent = held.instance.run.parent if commit.status in TERMINAL else None
        if parent is not None:
            self.nudges.run(parent.incarnation)
        for message in commit.sends:
            if message.token is not None:
                self.nudges.token(message.token)
        if parent is not None or commit.children or commit.cancels or commit.sends or commit.successor is not None:
            self.on_room(0)
        if commit.cancels or commit.status in (Status.CANCELLED, Status.DEAD):
            self.nudges.renew()  # runs below it were cancelled, and some of them may be held here

    def _effects(self, held: Held, turn: Turn) -> None:
        """What became durable may begin; what nobody awaits any more is stopped."""
        if self.holdings.stopped:
            return
        for operation in turn.resolved:
            held.tasks.pop(operation.seq, None)
        for operation in turn.abandoned:
            task = held.tasks.pop(operation.seq, None)
            if task is not None:
                task.cancel()
        steps = held.instance.steps
        for operation in turn.issued:
            if operation.seq in steps and not operation.waits:
                self._attempt(held, operation)
        self._go_on(held)

    def _attempt(self, held: Held, operation: Operation) -> None:
        if self.nudges.sure(held):
            self.tell.step_started(held, operation)
            self.steps.start(held, operation)

    def _go_on(self, held: Held) -> None:
        """The run stays ours: see to its retries and timers, and to what has arrived meanwhile."""
        instance = held.instance
        # What is known of earlier attempts must be durable before the next one: else a crash would use its number twice.
        if len(instance.steps) != len(held.tasks) and not held.attempts:
            now = self._means.store.now()
            for operation in list(instance.steps.values()):
                if (
                    operation.seq not in held.tasks
                    and not operation.waits
                    and (operation.next_at is None or operation.next_at <= now)
                ):
                    operation.next_at = None
                    self._attempt(held, operation)
        if held.arrivals or held.attempts:
            self._schedule(held)
        if held.alarm is not None:
            held.alarm.cancel()
            held.alarm = None
        look = next_look(self._standing(held), instance)
        if look is not None:
            held.alarm = self._means.clock.call_at(look, lambda: self._schedule(held))

    def _rest(self, held: Held, commit: TurnCommit) -> None:
        """Parked, blocked or ended: not ours any more."""
        self.holdings.drop(held)
        if commit.status is Status.SUSPENDED:
            self.cache.put(held.key.incarnation, held.n, held.definition.fingerprint, held.instance)
            self.tell.endings.touched(held.key)
            # What it was sent meanwhile made it due; whoever sent it left it to us.
            self.on_room(0 if held.arrivals else commit.wake_at)
            return
        held.instance.close()
        if commit.status in TERMINAL:
            successor = None if commit.successor is None else commit.successor.id
            self.tell.endings.ended(held.key, Ending(commit.status, commit.output, commit.error, successor))
        else:
            reason = decode_failure(commit.error or b"").message
            log.warning("perdure: %s is blocked: %s", held.instance.describe(), reason)
            self.tell.endings.touched(held.key)
        self.on_room(None)

    # -- how a run is lost --------------------------------------------------------------------------------------------

    def cancelled(self, runs: Sequence[Run]) -> None:
        """These runs were cancelled by this process."""
        for run in runs:
            self.tell.cancelled(run)
        self.changed(runs)

    def changed(self, runs: Sequence[Run]) -> None:
        """These runs were cancelled or deleted by this process: what runs for them here is stopped."""
        for run in runs:
            held = self.holdings.get(run.incarnation)
            if held is not None:
                self._let_go(held)
            else:
                self.tell.endings.touched(run.key)
            if run.parent is not None:
                self.nudges.run(run.parent.incarnation)
        self.gating.moved()

    def _doubt(self, held: Held) -> None:
        """The lease is said to be lost: stop what runs, and ask the fence what became of the run."""
        for task in held.tasks.values():
            task.cancel()
        held.tasks.clear()
        self._submit(held, Turn(), ask(self._standing(held), held.instance))

    def _lost(self, held: Held, run: Run | None) -> None:
        """Somebody else has the run, or it was cancelled or deleted elsewhere: what we did since is void."""
        self._let_go(held)
        if run is None or run.key != held.key or run.status not in TERMINAL:
            log.info("perdure: lost the lease of %s", held.instance.describe())
            return
        self.tell.endings.ended(held.key, Ending(run.status, run.output, run.error, run.continued_to))
        if run.status is Status.CANCELLED:
            self.tell.cancelled(run)

    def _let_go(self, held: Held) -> None:
        if not held.gone:
            self.holdings.drop(held)
            held.instance.close()
            self.tell.endings.touched(held.key)
            self.on_room(None)

    def _rewind(self, held: Held, commit: TurnCommit, messages: Sequence[Message]) -> None:
        """The turn ended the run over unread control messages: go back to the log and take them in first."""
        held.arrivals = [*held.taken, *messages, *held.arrivals]
        held.attempts = [entry for entry in commit.entries if entry.event in _ATTEMPTS] + held.attempts
        held.instance.close()
        held.tasks[NO_SEQ] = self._means.loop.create_task(self._reload(held))

    async def _reload(self, held: Held) -> None:
        stored = await reread(self._means.store, self._means.clock, held.key)
        if stored is None or held.gone:
            self._let_go(held)
            return
        held.instance = self.instance(held.definition, held.instance.run)
        held.instance.replay(stored.history, stored.started_at, seen=stored.seen, unread=stored.unread)
        del held.tasks[NO_SEQ]
        self._schedule(held)
