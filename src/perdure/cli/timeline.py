"""A run's history as spans of time: what happened when, and what is open now. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import StrEnum

from msgspec import Struct

from perdure.model.history import Entry, Event, Op
from perdure.model.steps import State, Step, fold

_STEPS = frozenset({Op.STEP, Op.LOCAL})
_MOMENTS = frozenset({Op.SPAWN, Op.VALUE, Op.STREAM})


class Kind(StrEnum):
    """What went on during a span."""

    WORK = "work"  # an attempt that succeeded, or a child
    FAILED = "failed"  # an attempt, or a wait, that failed
    WAIT = "wait"  # for a timer, a signal, a worker, or the next attempt
    OPEN = "open"  # not over


class Span(Struct, frozen=True):
    """From `start` to `end`, in microseconds of the store's clock."""

    start: int
    end: int
    kind: Kind


class Row(Struct, frozen=True):
    """One operation of a run."""

    step: Step
    spans: tuple[Span, ...]

    @property
    def took(self) -> int:
        """From issue to end, or to now."""
        return max(0, self.spans[-1].end - self.step.issued_at) if self.spans else 0


def rows(entries: Sequence[Entry], now: int) -> list[Row]:
    """The operations of a history, in the order in which they were issued, as of `now`."""
    attempts: dict[int, list[Entry]] = {}
    for entry in entries:
        if entry.began is not None:
            attempts.setdefault(entry.seq, []).append(entry)
    return [Row(step, tuple(_spans(step, attempts.get(step.seq, ()), now))) for step in fold(entries)]


def bounds(rows: Iterable[Row], start: int, end: int) -> tuple[int, int]:
    """The least and greatest time to draw, at least a microsecond apart."""
    times = [time for row in rows for span in row.spans for time in (span.start, span.end)]
    first, last = min([start, *times]), max([end, *times])
    return first, max(last, first + 1)


def _spans(step: Step, attempts: Iterable[Entry], now: int) -> Iterable[Span]:
    if step.op in _MOMENTS:
        return [Span(step.issued_at, step.issued_at, Kind.WORK)]
    end = step.ended_at
    if step.op not in _STEPS:
        kind = Kind.OPEN if end is None else _ended_kind(step)
        return [Span(step.issued_at, max(step.issued_at, now if end is None else end), kind)]
    return _attempt_spans(step, attempts, now)


def _ended_kind(step: Step) -> Kind:
    if step.state is State.FAILED:
        return Kind.FAILED
    return Kind.WORK if step.op in (Op.CHILD, Op.JOIN) else Kind.WAIT


def _attempt_spans(step: Step, attempts: Iterable[Entry], now: int) -> list[Span]:
    """The attempts that reported, and the waits between them. (Of one that was cut off nobody knows when it began.)"""
    spans: list[Span] = []
    position = step.issued_at
    for entry in attempts:
        began = max(position, entry.began or entry.at)
        if began > position:
            spans.append(Span(position, began, Kind.WAIT))
        position = max(began, entry.at)
        spans.append(Span(began, position, Kind.WORK if entry.event is Event.RESOLVED else Kind.FAILED))
    if step.ended_at is None:
        spans.append(Span(position, max(position, now), Kind.OPEN))
    elif step.ended_at > position or not spans:
        spans.append(Span(position, max(position, step.ended_at), Kind.WAIT))
    return spans
