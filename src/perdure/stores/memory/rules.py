"""What a store decides, as pure functions: rows in, rows out. No data is touched here."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence

from msgspec.structs import replace

from perdure.model.bounds import out_of_bounds
from perdure.model.commit import TurnCommit, Way
from perdure.model.endings import unserved_failure
from perdure.model.failure import encode_failure
from perdure.model.messages import Message, MessageKind, holds_up
from perdure.model.run import REQUEUABLE, TERMINAL, NewRun, Parent, Run, Status
from perdure.ports.fleet import Member, Process, Serves
from perdure.ports.store import ClaimRequest


class DataRefused(Exception):
    """A write's data cannot be stored; the write is answered `Unstorable`. Never leaves the adapter."""


# ---------------------------------------------------------------- what can be stored


def check_storable(value: object) -> None:
    """Raise `DataRefused` for what not every store could take."""
    fault = out_of_bounds(value)
    if fault is not None:
        raise DataRefused(fault)


# ---------------------------------------------------------------- a run's life


def new_run(new: NewRun, incarnation: int, now: int, parent: Parent | None) -> Run:
    """The row of a run that begins now, or at `start_at` if that lies ahead."""
    if not new.id.strip():
        raise DataRefused("a run's id is blank")
    due = now if new.start_at is None else max(now, new.start_at)
    run = Run(
        id=new.id,
        incarnation=incarnation,
        workflow=new.workflow,
        version=new.version,
        namespace=new.namespace,
        status=Status.SUSPENDED if due > now else Status.PENDING,
        input=new.input,
        seed=new.seed,
        output=None,
        error=None,
        owner=None,
        epoch=0,
        n=0,
        inbox=0,
        seen=0,
        wake_at=due,
        listening=False,
        deadline=None if new.timeout is None else due + new.timeout,
        timeout=new.timeout,
        priority=new.priority,
        tags=new.tags,
        attributes=new.attributes,
        origin=new.origin,
        carrier=new.carrier,
        parent=parent,
        awaited_as=new.awaited_as,
        depth=new.depth,
        format=new.format,
        recoveries=0,
        fingerprint=None,
        created_at=now,
        started_at=None,
        updated_at=now,
        ended_at=None,
        continued_to=None,
        gate=new.gate,
    )
    check_storable(run)  # The deadline is a sum, which may be too large where its parts are not.
    return run


def begun_by(run: Run, turn: TurnCommit, lease_end: int) -> Run:
    """A new run whose first turn was made before it was created: held by that turn's owner."""
    wake_at = turn.wake_at if turn.status is Status.RUNNING else lease_end
    return replace(run, status=Status.RUNNING, owner=turn.owner, epoch=1, wake_at=wake_at)


def holds(run: Run, commit: TurnCommit) -> bool:
    """The fence."""
    return (
        run.status is Status.RUNNING and run.owner == commit.owner and run.epoch == commit.epoch and run.n == commit.n
    )


def advanced(run: Run, commit: TurnCommit, now: int) -> Run:
    """After a turn that keeps its run, whatever the turn wanted: the lease stays."""
    return replace(
        run,
        attributes=run.attributes if commit.attributes is None else commit.attributes,
        seen=commit.seen,
        recoveries=0 if commit.progress else run.recoveries,
        started_at=commit.started_at if run.started_at is None else run.started_at,
        output=None,
        error=None,
        fingerprint=None,
        updated_at=now,
    )


def parked(run: Run, commit: TurnCommit) -> Run:
    return replace(
        run,
        status=commit.status,
        owner=None,
        wake_at=commit.wake_at,
        listening=commit.listening,
        output=commit.output,
        error=commit.error,
        fingerprint=commit.fingerprint,
    )


def ended(run: Run, status: Status, now: int, *, output: bytes | None = None, error: bytes | None = None) -> Run:
    return replace(
        run,
        status=status,
        owner=None,
        wake_at=None,
        listening=False,
        output=output,
        error=error,
        fingerprint=None,
        updated_at=now,
        ended_at=now,
    )


def cancelled(run: Run, now: int, error: bytes | None) -> Run:
    """Ended from outside: the epoch rises, so that whoever executes the run is fenced."""
    return replace(ended(run, Status.CANCELLED, now, error=error), epoch=run.epoch + 1)


def requeued(run: Run, now: int) -> Run | None:
    """Revived, or None for a run that cannot be."""
    if run.status not in REQUEUABLE:
        return None
    return replace(
        run,
        status=Status.PENDING,
        owner=None,
        wake_at=now,
        listening=False,
        output=None,
        error=None,
        deadline=None if run.timeout is None else now + run.timeout,
        recoveries=0,
        paused_at=None,
        updated_at=now,
        ended_at=None,
    )


def steered(run: Run, way: Way, now: int) -> Run | None:
    """A live run as an operator wants it; None where it stands so already."""
    match way:
        case Way.PAUSE:
            return None if run.paused_at is not None else replace(run, paused_at=now, updated_at=now)
        case Way.UNPAUSE:
            if run.paused_at is None:
                return None
            deadline = None if run.deadline is None else run.deadline + now - run.paused_at
            return replace(run, paused_at=None, deadline=deadline, updated_at=now)
        case Way.REDISPATCH:
            return released(run, now) if run.status is Status.RUNNING else None


def due_now(run: Run, now: int) -> Run:
    """Due, or due since longer: who waits already keeps the place in the line."""
    wake_at = now if run.wake_at is None else min(run.wake_at, now)
    return replace(run, wake_at=wake_at, updated_at=now)


def addressed(run: Run, kind: MessageKind, now: int) -> Run:
    """After one more message came into its inbox."""
    if run.status is Status.SUSPENDED and (run.listening or kind is MessageKind.CANCEL):
        run = due_now(run, now)
    return replace(run, inbox=run.inbox + 1, updated_at=now)


# ---------------------------------------------------------------- messages


def held_up(messages: Iterable[Message], commit: TurnCommit) -> bool:
    return holds_up((message.kind for message in messages), continues=commit.successor is not None)


# ---------------------------------------------------------------- claims


def can_claim(run: Run, request: ClaimRequest, now: int | None) -> bool:
    """Whether a request is for this run; with `now`, only if it is due."""
    return (
        run.wake_at is not None
        and run.paused_at is None
        and (now is None or run.wake_at <= now)
        and run.status not in TERMINAL
        and run.format <= request.format
        and (request.namespaces is None or run.namespace in request.namespaces)
        and any(run.workflow == served.workflow and run.version == served.version for served in request.serves)
    )


def claim_order(due: Iterable[Run]) -> list[Run]:
    """Greater priority first; within one, the oldest of each namespace, then the second oldest of each, and so on."""

    def age(run: Run) -> tuple[int, int]:
        return run.wake_at or 0, run.incarnation

    taken: defaultdict[tuple[int, str], int] = defaultdict(int)
    ranked: list[tuple[tuple[int, int, tuple[int, int]], Run]] = []
    for run in sorted(due, key=age):
        priority = run.priority or 0
        ranked.append(((-priority, taken[priority, run.namespace], age(run)), run))
        taken[priority, run.namespace] += 1
    return [run for _, run in sorted(ranked, key=lambda pair: pair[0])]


def claimed(run: Run, request: ClaimRequest, now: int) -> Run:
    return replace(
        run,
        status=Status.RUNNING,
        owner=request.owner,
        epoch=run.epoch + 1,
        wake_at=now + request.lease,
        listening=False,
        recoveries=run.recoveries + (run.status is Status.RUNNING),
        fingerprint=None,
        updated_at=now,
    )


def released(run: Run, now: int) -> Run:
    return replace(run, status=Status.PENDING, owner=None, epoch=run.epoch + 1, wake_at=now, updated_at=now)


def failed_on_other_code(run: Run, serves: Sequence[Serves]) -> bool:
    return run.status is Status.BLOCKED and any(
        run.workflow == served.workflow and run.version == served.version and run.fingerprint != served.fingerprint
        for served in serves
        if run.fingerprint is not None
    )


# ---------------------------------------------------------------- the fleet


def unserved(run: Run, members: Iterable[Member], until: int) -> bool:
    """Whether a run has been due since `until`, and no member can take it."""
    return (
        run.status in (Status.PENDING, Status.SUSPENDED, Status.RUNNING)
        and run.wake_at is not None
        and run.paused_at is None
        and run.wake_at <= until
        and not any(serves(member.process, run) for member in members)
    )


def serves(process: Process, run: Run) -> bool:
    return (process.namespaces is None or run.namespace in process.namespaces) and any(
        run.workflow == served.workflow and run.version == served.version for served in process.serves
    )


def blocked_unserved(run: Run, now: int) -> Run:
    return replace(
        run,
        status=Status.BLOCKED,
        owner=None,
        epoch=run.epoch + (run.status is Status.RUNNING),
        wake_at=None,
        listening=False,
        error=encode_failure(unserved_failure(run.workflow, run.version)),
        fingerprint="",
        updated_at=now,
    )


# ---------------------------------------------------------------- audit


def impossible(run: Run, unseen: bool) -> str | None:
    """What is wrong with a row that no verb can have written; `unseen`: it has a message above what it has seen."""
    if run.wake_at is not None or run.status in TERMINAL:
        return None
    if run.status in (Status.PENDING, Status.RUNNING):
        return f"{run.status} without a wake time: nobody would ever look at it"
    if run.status is Status.SUSPENDED and not run.listening:
        return "suspended without a wake time and not listening: nothing could ever wake it"
    if run.status is Status.SUSPENDED and unseen:
        return "suspended, listening, with an unseen message and no wake time: it was not woken"
    return None
