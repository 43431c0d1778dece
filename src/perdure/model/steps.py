"""A history folded by position: one row for each operation a body issued, as people want to see it."""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum

import msgspec
from msgspec import Struct

from perdure.model.history import MOMENTS, Entry, Event, Op
from perdure.model.steplog import Logged, LogLine, Progress, decode_logged


class State(StrEnum):
    """Where an operation stands."""

    PENDING = "pending"  # issued; open
    RETRYING = "retrying"  # failed at least once, and waits for its next attempt
    COMPLETED = "completed"
    FAILED = "failed"
    ABANDONED = "abandoned"  # nobody awaits it any more
    LET_GO = "let go"  # nobody awaits it any more, but it goes on: it will be undone


class Step(Struct, frozen=True, kw_only=True):
    """One operation. Times are microseconds; `input`, `output` and `error` are JSON."""

    seq: int
    op: Op
    name: str
    state: State
    input: bytes | None
    output: bytes | None = None
    error: bytes | None = None
    #: Attempts that are over, the successful one included; steps only.
    attempts: int = 0
    #: How many of them were cut off with their process.
    cut: int = 0
    issued_at: int
    #: When the last reported attempt began.
    began_at: int | None = None
    ended_at: int | None = None
    #: A timer's or wait's deadline, or when the next attempt starts.
    due: int | None = None
    #: What its attempts said with `perdure.log`, oldest first; and its newest heartbeat.
    log: tuple[LogLine, ...] = ()
    progress: Progress | None = None
    #: The queue that a step goes through.
    queue: str | None = None


def fold(entries: Iterable[Entry]) -> list[Step]:
    """The operations of a history, by position."""
    steps: dict[int, Step] = {}
    # What ended without success since the last operation was issued: nothing was built on it, so a requeue reopens it.
    last: set[int] = set()
    for entry in entries:
        if entry.event is Event.SCHEDULED and entry.op is not None:
            steps[entry.seq] = _issued(entry, entry.op)
            last.clear()
        elif entry.event is Event.REQUEUED:
            for seq in last & steps.keys():
                steps[seq] = _reopened(steps[seq])
        elif entry.seq in steps:
            steps[entry.seq] = _next(steps[entry.seq], entry)
            if entry.event in (Event.FAILED, Event.ABANDONED):
                last.add(entry.seq)
    return [steps[seq] for seq in sorted(steps)]


def _issued(entry: Entry, op: Op) -> Step:
    state = State.COMPLETED if op in MOMENTS else State.PENDING
    return Step(
        seq=entry.seq, op=op, name=entry.name, state=state, input=entry.payload, issued_at=entry.at, due=entry.due
    )


def _next(step: Step, entry: Entry) -> Step:
    attempts = step.attempts + (step.op in (Op.STEP, Op.LOCAL))
    replace = msgspec.structs.replace
    if entry.event is Event.ATTEMPT_FAILED:
        return replace(
            step, state=State.RETRYING, attempts=attempts, error=entry.payload, due=entry.due, began_at=entry.began
        )
    if entry.event is Event.ATTEMPT_CUT:
        return replace(step, attempts=attempts, cut=step.cut + 1)
    if (
        entry.event is Event.RESOLVED and step.state is not State.COMPLETED
    ):  # else it came again, after a requeue or fork
        return replace(
            step,
            state=State.COMPLETED,
            attempts=attempts,
            output=entry.payload,
            error=None,
            began_at=entry.began,
            ended_at=entry.at,
        )
    if entry.event is Event.FAILED:
        return replace(
            step, state=State.FAILED, attempts=attempts, error=entry.payload, began_at=entry.began, ended_at=entry.at
        )
    if entry.event is Event.GATED:
        return replace(step, queue=entry.name)
    if entry.event is Event.ABANDONED:
        return replace(step, state=State.ABANDONED, ended_at=entry.at)
    if entry.event is Event.LOGGED:
        return _said(step, decode_logged(entry.payload))
    if entry.event is Event.LET_GO:
        return replace(step, state=State.LET_GO)
    return step


def _said(step: Step, logged: Logged | None) -> Step:
    if logged is None:
        return step
    # An attempt that was recorded, but not what came of it, is made again under the same number.
    before = tuple(line for line in step.log if line.attempt != logged.attempt)
    progress = step.progress if logged.progress is None else logged.progress
    return msgspec.structs.replace(step, log=before + logged.lines, progress=progress)


def _reopened(step: Step) -> Step:
    """Another chance, unless it has succeeded since."""
    if step.state in (State.FAILED, State.ABANDONED):
        return msgspec.structs.replace(step, state=State.PENDING, ended_at=None)
    return step
