"""From a turn to the one value that stores apply. Pure: everything a turn writes is decided here and nowhere else."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from msgspec import Struct

from perdure.core.inbox import GIVEN_BACK
from perdure.core.instance import Instance
from perdure.core.issuing import NO_SEQ
from perdure.core.operation import Operation
from perdure.core.turn import Blocked, Cancelled, Completed, Continued, Failed, Turn
from perdure.model.commit import Join, NewChild, TokenWait, TurnCommit
from perdure.model.endings import cancelled_failure
from perdure.model.events import EventWait, match_facets
from perdure.model.failure import Failure, capture, encode_failure
from perdure.model.history import Entry, Event, Op
from perdure.model.messages import MessageKind, Outgoing
from perdure.model.run import RunKey, Status
from perdure.model.stream import NewChunk

_CHILDREN = frozenset({Op.CHILD, Op.SPAWN})
_MATTERS = frozenset({Op.CHILD, Op.SPAWN, Op.JOIN, Op.SIGNAL, Op.EVENT, Op.VALUE, Op.ATTRIBUTES, Op.SEND, Op.STREAM})


class Standing(Struct, frozen=True, gc=False):
    """How a run stands at its owner: what fences its next commit, and what bounds it."""

    key: RunKey
    owner: str
    epoch: int
    n: int
    deadline: int | None
    fingerprint: str
    #: True if code that does not fit the history blocks the run; False: it fails the run.
    block: bool = True


def settle(standing: Standing, instance: Instance, turn: Turn, attempts: Sequence[Entry] = ()) -> TurnCommit:
    """What to write after `turn`. `attempts`: entries about steps' attempts, which come before the turn's own."""
    outcome = turn.outcome
    if outcome is None:
        return _waiting(standing, instance, turn, attempts)
    if isinstance(outcome, Blocked):
        return _faulty(standing, instance, outcome, attempts)
    return _ended(standing, instance, turn, attempts)


def kill(standing: Standing, status: Status, failure: Failure, now: int, seen: int) -> TurnCommit:
    """End a run whose body is not asked any more: dead, or out of time."""
    return TurnCommit(
        run=standing.key,
        owner=standing.owner,
        epoch=standing.epoch,
        n=standing.n,
        entries=(_end(status, now),),
        status=status,
        seen=seen,
        error=encode_failure(failure),
        progress=False,
    )


def ask(standing: Standing, instance: Instance) -> TurnCommit:
    """A commit of nothing: its answer tells whether the run is still ours, and if not, what became of it."""
    return TurnCommit(
        run=standing.key,
        owner=standing.owner,
        epoch=standing.epoch,
        n=standing.n,
        entries=(),
        status=Status.RUNNING,
        seen=instance.inbox.seen,
        progress=False,
    )


def busy(instance: Instance) -> bool:
    """True if a step is running or to be run now: the run cannot park."""
    now = instance.now
    return any(
        not operation.waits and (operation.next_at is None or operation.next_at <= now)
        for operation in instance.steps.values()
    )


def next_look(standing: Standing, instance: Instance) -> int | None:
    """When somebody must look at the run next: its earliest timer, retry or deadline."""
    times = [operation.next_at for operation in instance.steps.values() if operation.next_at is not None]
    due = instance.next_due()
    if due is not None:
        times.append(due)
    if standing.deadline is not None:
        times.append(standing.deadline)
    return min(times) if times else None


def _waiting(standing: Standing, instance: Instance, turn: Turn, attempts: Sequence[Entry]) -> TurnCommit:
    running = busy(instance)
    return TurnCommit(
        run=standing.key,
        owner=standing.owner,
        epoch=standing.epoch,
        n=standing.n,
        entries=(*attempts, *turn.entries),
        status=Status.RUNNING if running else Status.SUSPENDED,
        wake_at=None if running else next_look(standing, instance),
        listening=not running and instance.listening(),
        seen=instance.inbox.seen,
        consumed=tuple(turn.consumed),
        progress=bool(turn.entries) or any(entry.event is Event.ATTEMPT_FAILED for entry in attempts),
        **_effects(standing, instance, turn),
    )


def _ended(standing: Standing, instance: Instance, turn: Turn, attempts: Sequence[Entry]) -> TurnCommit:
    outcome = turn.outcome
    status, output, error, successor = Status.COMPLETED, None, None, None
    if isinstance(outcome, Completed):
        output = outcome.output
    elif isinstance(outcome, Failed):
        status, error = Status.FAILED, encode_failure(outcome.failure)
    elif isinstance(outcome, Cancelled):
        status, error = Status.CANCELLED, encode_failure(cancelled_failure(outcome.reason))
    elif isinstance(outcome, Continued):
        successor = outcome.successor
    return TurnCommit(
        run=standing.key,
        owner=standing.owner,
        epoch=standing.epoch,
        n=standing.n,
        entries=(*attempts, *turn.entries, _end(status, instance.now)),
        status=status,
        seen=instance.inbox.seen,
        consumed=tuple(turn.consumed),
        output=output,
        error=error,
        successor=successor,
        spares=isinstance(outcome, Cancelled),
        **_effects(standing, instance, turn),
    )


def _faulty(standing: Standing, instance: Instance, outcome: Blocked, attempts: Sequence[Entry]) -> TurnCommit:
    """The turn is lost: nothing of it is written, so that fitting code finds everything as it was."""
    failure = capture(outcome.error)
    if not standing.block:
        return kill(standing, Status.FAILED, failure, instance.now, instance.inbox.seen)
    return TurnCommit(
        run=standing.key,
        owner=standing.owner,
        epoch=standing.epoch,
        n=standing.n,
        entries=tuple(attempts),
        status=Status.BLOCKED,
        wake_at=standing.deadline,
        seen=instance.inbox.seen,
        error=encode_failure(failure),
        fingerprint=standing.fingerprint,
        progress=False,
    )


def _end(status: Status, now: int) -> Entry:
    return Entry(Event.END, NO_SEQ, None, status, None, now)


def _effects(standing: Standing, instance: Instance, turn: Turn) -> dict[str, Any]:
    """Children, waits, cancels, sends, values and attributes of a turn. Most turns only run steps and have none."""
    issued = [operation for operation in turn.issued if operation.op in _MATTERS]
    closed = {operation.seq for operation in (*turn.abandoned, *turn.resolved) if operation.op in _MATTERS}
    reopened = [o for o in turn.reopened if o.op in _MATTERS and o.seq not in closed]
    gates = _gates(turn)
    if not issued and not closed and not reopened and not turn.passed_on:
        return gates
    new = {operation.seq for operation in issued}
    return gates | {
        "waits": tuple(_token_waits((*issued, *reopened), closed)),
        "listens": tuple(_listens((*issued, *reopened), closed)),
        # A reopened wait may stand in the store already: this replaces it.
        "unwaits": tuple(seq for seq in _given_back((*turn.abandoned, *turn.resolved, *reopened)) if seq not in new),
        "children": tuple(_new_children(issued, reopened, closed)),
        "joins": tuple(_joins(issued, reopened, closed)),
        "cancels": tuple(o.name for o in turn.abandoned if o.op is Op.CHILD and o.seq not in new and o.key is not None),
        "sends": (*_passed_on(standing, instance, turn), *_sent(instance, issued)),
        "values": tuple((o.name, o.payload) for o in issued if o.op is Op.VALUE),
        "attributes": instance.run.attributes if any(o.op is Op.ATTRIBUTES for o in issued) else None,
        "chunks": tuple(NewChunk(o.name, o.payload or b"null", o.seq, 0, 0) for o in issued if o.op is Op.STREAM),
    }


def _passed_on(standing: Standing, instance: Instance, turn: Turn) -> Iterable[Outgoing]:
    """The cancel with undo that this run was given, for its children."""
    order = None if instance.undoing is None else instance.undoing.order
    if order is not None:
        mine = order.passed_on(standing.key)
        for child_id in dict.fromkeys(turn.passed_on):
            yield mine.message(child_id)


def _gates(turn: Turn) -> dict[str, Any]:
    """What a turn asks of gates and gives back to them. (The end of a run gives back all by itself.)"""
    over = [operation.seq for operation in (*turn.abandoned, *turn.resolved) if operation.gated]
    asking = [o for o in (*turn.issued, *turn.reopened) if o.gate is not None and o.seq not in over]
    if not over and not asking:
        return {}
    new = {operation.seq for operation in turn.issued}
    return {
        "asks": tuple(operation.gate for operation in asking),
        "releases": tuple(seq for seq in over if seq not in new),
    }


def _sent(instance: Instance, issued: Iterable[Operation]) -> Iterable[Outgoing]:
    """What the body sends to tokens."""
    space = instance.run.namespace
    for operation in issued:
        if operation.op is Op.SEND:
            yield Outgoing(kind=MessageKind.SIGNAL, token=operation.name, payload=operation.payload, namespace=space)


def _token_waits(issued: Iterable[Operation], closed: set[int]) -> Iterable[TokenWait]:
    for operation in issued:
        if operation.seq not in closed and operation.key is not None and operation.key[0] == "token":
            yield TokenWait(operation.seq, operation.key[1])


def _given_back(operations: Iterable[Operation]) -> Iterable[int]:
    return (o.seq for o in operations if o.key is not None and o.key[0] in GIVEN_BACK)


def _listens(issued: Iterable[Operation], closed: set[int]) -> Iterable[EventWait]:
    for operation in issued:
        if operation.op is Op.EVENT and operation.seq not in closed:
            yield EventWait(operation.seq, operation.name, match_facets(operation.payload))


def _joins(issued: Iterable[Operation], reopened: Iterable[Operation], closed: set[int]) -> Iterable[Join]:
    for operation in issued:
        if operation.op is Op.JOIN and operation.key is not None and operation.seq not in closed:
            yield Join(operation.seq, operation.name)
    for operation in reopened:
        joins = operation.op is Op.JOIN or (operation.op is Op.CHILD and operation.child is None)
        if joins and operation.seq not in closed:
            yield Join(operation.seq, operation.name, again=True)


def _new_children(issued: Iterable[Operation], reopened: Iterable[Operation], closed: set[int]) -> Iterable[NewChild]:
    # A child whose await was cancelled in the very turn that asked for it need not be born.
    for operation in issued:
        if operation.op in _CHILDREN and operation.child is not None and operation.seq not in closed:
            yield NewChild(operation.seq, operation.child)
    # One that could not start before may do so now; one that exists is joined.
    for operation in reopened:
        if operation.op is Op.CHILD and operation.child is not None and operation.seq not in closed:
            yield NewChild(operation.seq, operation.child, again=True)
