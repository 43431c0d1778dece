"""The history held against what the code issues. A difference is a fault of the code: it is explained, and blocks the run.

The history is a list of results; between two of them the body issued certain operations. Replay compares both what each
operation is (kind and name) and how many there were at each result, so that an operation that is new, gone, renamed or
moved is found at the first result where it shows.
"""

from __future__ import annotations

import sys
from collections.abc import Collection, Mapping, Sequence
from types import FrameType

import msgspec

from perdure.core.loop import WorkflowLoop
from perdure.core.operation import Operation
from perdure.model.errors import NonDeterminismError
from perdure.model.history import Entry, Event, Op
from perdure.model.shown import told

_DELIVERED = frozenset({Event.RESOLVED, Event.FAILED, Event.CANCEL})
_CLOSED = frozenset({Event.RESOLVED, Event.FAILED, Event.ABANDONED})
#: What tells of attempts only: the body does not hear of it.
_ATTEMPTS = frozenset({Event.ATTEMPT_FAILED, Event.ATTEMPT_CUT, Event.LOGGED})
_UNDONE = frozenset({Event.FAILED, Event.ATTEMPT_FAILED})
_STEPS = frozenset({Op.STEP, Op.LOCAL})
#: An operator had the run begin or go on from here: the body may go further than the history before it does.
_REVIVED = frozenset({Event.REQUEUED, Event.FORKED})
#: Named after the run that started them.
_FAMILY = frozenset({Op.CHILD, Op.SPAWN, Op.JOIN})
_FORGOTTEN = frozenset({Op.SPAWN, Op.VALUE, Op.ATTRIBUTES, Op.STREAM})
_NOT_USERS = frozenset({"perdure", "asyncio"})


class Recorded:
    """One run's history during a replay."""

    def __init__(self, run_id: str, entries: Sequence[Entry]) -> None:
        self.run_id = run_id
        self.markers = frozenset(entry.name for entry in entries if entry.event is Event.MARKER)
        self.abandoned = frozenset(entry.seq for entry in entries if entry.event is Event.ABANDONED)
        self._scheduled = {entry.seq: entry for entry in entries if entry.event is Event.SCHEDULED}
        self._issued_before = _counts(entries)
        self._passed = 0
        #: True if the body may go further than the history does: it is a requeue that took the run's end back, or there is
        #: none, since the first turn was lost.
        self._open_ended = _open_ended(entries)
        #: True if the body may be over where the history is.
        self._may_end = self._open_ended or any(entry.event is Event.END for entry in entries)
        self._open = _open(entries)
        #: What is before this position was issued by the run that this one was forked from: its children have other names.
        self._copied = max((entry.seq for entry in entries if entry.event is Event.FORKED), default=0)

    def match(self, operation: Operation) -> NonDeterminismError | None:
        """Hold an operation that the code issues against the recorded one, and give it the recorded facts."""
        entry = self._scheduled.get(operation.seq)
        issued = _name(operation.op, operation.name)
        if entry is None:
            return self._error(
                operation.seq, "nothing", issued, "the code issues an operation that the history does not have"
            )
        namesake = operation.seq < self._copied and entry.op in _FAMILY
        if entry.op is not operation.op or not (entry.name == operation.name or namesake):
            return self._error(operation.seq, _name(entry.op, entry.name), issued, "the code issues another operation")
        operation.payload = entry.payload
        operation.due = entry.due
        return None

    def left_behind(self, seq: int) -> bool:
        """True if the body (its next position is `seq`) got past the end of such a history: what it does is new."""
        return self._open_ended and self._passed == len(self._issued_before) - 1 and seq == self._issued_before[-1]

    def check(self, seq: int, error: BaseException | None) -> NonDeterminismError | None:
        """Before the next result: the code must have issued exactly what was recorded by then. `seq`: its next position."""
        expected = self._issued_before[self._passed]
        if seq == expected:
            return None
        if seq < expected:
            return self._missing(seq, error)
        entry = self._scheduled[expected]
        name = _name(entry.op, entry.name)
        return self._error(
            expected, f"{name} after a later result", f"{name} before it", "the code issues it too early"
        )

    def check_complete(
        self, seq: int, pending: Collection[int], ended: bool, error: BaseException | None
    ) -> NonDeterminismError | None:
        """After the last result. `pending`: positions the code still waits for; `ended`: its body is over."""
        fault = self.check(seq, error)
        if fault is not None or self._may_end:
            return fault
        if ended:
            fault = self._error(seq, "a body that goes on", "its end", f"the code ends here{_raising(error)}")
        elif self._open is not None and self._open != set(pending):
            odd = min(self._open ^ set(pending))
            entry = self._scheduled[odd]
            states = ("open", "abandoned") if odd in self._open else ("abandoned", "open")
            name = _name(entry.op, entry.name)
            fault = self._error(odd, f"{name} {states[0]}", f"{name} {states[1]}", "the code cancels differently")
        if fault is not None:
            fault.__cause__ = error
        return fault

    def unexpected(self, entry: Entry, error: BaseException | None) -> NonDeterminismError:
        """The history has a result for an operation that the code does not wait for."""
        fault = self._error(
            entry.seq,
            f"a result of {_name(entry.op, entry.name)}",
            "nothing",
            "the code abandoned the operation before",
        )
        fault.__cause__ = error
        return fault

    def pass_by(self) -> None:
        """A result was delivered."""
        self._passed += 1

    def _missing(self, seq: int, error: BaseException | None) -> NonDeterminismError:
        entry = self._scheduled[seq]
        reason = f"the code never issues it{_raising(error)}"
        fault = self._error(seq, _name(entry.op, entry.name), "nothing", reason)
        fault.__cause__ = error
        return fault

    def _error(self, seq: int, recorded: str, issued: str, reason: str) -> NonDeterminismError:
        where = source_line()
        return NonDeterminismError(
            f"non-determinism at {self.run_id}#{seq}: recorded {recorded}, issued {issued} ({reason})"
            + (f" at {where}" if where else "")
            + ". Deploy code that fits the history, guard the change with ctx.patched(), or register it as a new version.",
            run_id=self.run_id,
            seq=seq,
            recorded=recorded,
            issued=issued,
        )


def revive(entries: Sequence[Entry]) -> tuple[Sequence[Entry], Sequence[Entry]]:
    """The history as a requeue makes it count, and the results in it that are to be delivered anew.

    Taken back are the run's end and the failures delivered after the last operation was issued: nothing else was built on
    them, so those operations are open again, with fresh attempts (numbered on), and so are those that the end cut off.
    Failures that the body caught and went on from stay. What came after the first failure that is taken back came to a body
    that was on its way out: it comes again, to one that is not, and may go on from there.

    The time that the run lay dead does not count: timers that were open go on with the time they had left, and a bounded wait
    that failed has all of its time again.

    A fork takes nothing back. The results that were copied after the place where it was made are delivered anew.
    """
    if not any(entry.event in _REVIVED for entry in entries):
        return entries, ()
    spans = {entry.seq: entry.due - entry.at for entry in entries if entry.event is Event.SCHEDULED and entry.due}
    kept: list[Entry] = []
    again: list[Entry] = []
    for entry in entries:
        if entry.event is Event.REQUEUED:
            kept, taken_back = _taken_back(kept, entry.at, spans)
            again += taken_back
        elif entry.event is Event.FORKED:
            place = len(kept) - int(entry.payload or b"0")
            kept, again = kept[:place], kept[place:]
        elif entry.event not in _ATTEMPTS and entry.event is not Event.END:
            again = []  # the run went on: they have come again, and stand in what follows
        kept.append(entry)
    return kept, again


def _taken_back(entries: list[Entry], requeued_at: int, spans: Mapping[int, int]) -> tuple[list[Entry], list[Entry]]:
    last = max((i for i, entry in enumerate(entries) if entry.event is Event.SCHEDULED), default=-1)
    failed = [i for i, entry in enumerate(entries) if i > last and entry.event is Event.FAILED]
    undone = {entries[i].seq for i in failed}
    first = failed[0] if failed else len(entries)
    cut_off = {entry.seq for entry in entries[last + 1 :] if entry.event is Event.ABANDONED}
    dead = max(0, requeued_at - entries[min(first, len(entries) - 1)].at)
    kept: list[Entry] = []
    again: list[Entry] = []
    for index, entry in enumerate(entries):
        if entry.event is Event.SCHEDULED and entry.due is not None and entry.seq in cut_off | undone:
            due = requeued_at + spans[entry.seq] if entry.seq in undone else entry.due + dead
            kept.append(msgspec.structs.replace(entry, due=due))
        elif index > first and entry.event is Event.RESOLVED:
            again.append(entry)
        elif (index > last and entry.event is Event.ABANDONED) or (entry.seq in undone and entry.event in _UNDONE):
            if entry.op in _STEPS or entry.event is not Event.ABANDONED:
                kept.append(msgspec.structs.replace(entry, event=Event.ATTEMPT_CUT, due=None))
        elif entry.event is not Event.END and (index < last or entry.event is not Event.LET_GO):
            kept.append(entry)
    return kept, again


def note_attempt(operation: Operation | None, entry: Entry) -> None:
    """What the history says of a step's attempts, for whoever runs the next one."""
    if operation is None:
        return
    if entry.event is Event.ATTEMPT_FAILED:
        operation.attempts += 1
        operation.failures += 1
        operation.next_at = entry.due
    elif entry.event is Event.ATTEMPT_CUT:
        operation.attempts += 1


def source_line() -> str:
    """The innermost line of user code in the running turn, as `file:line`; empty if no user code is running."""
    frame: FrameType | None = sys._getframe(1)  # pyright: ignore[reportPrivateUsage]  (the one way)
    line = ""
    while frame is not None and frame.f_code is not WorkflowLoop.drain.__code__:
        if not line and frame.f_globals.get("__name__", "").partition(".")[0] not in _NOT_USERS:
            line = f"{frame.f_code.co_filename}:{frame.f_lineno}"
        frame = frame.f_back
    return line if frame is not None else ""


def _raising(error: BaseException | None) -> str:
    return "" if error is None else f"; its body raised {type(error).__name__}: {told(error)}"


def _open_ended(entries: Sequence[Entry]) -> bool:
    told = (entry.event for entry in reversed(entries) if entry.event not in _ATTEMPTS)
    return next(told, Event.REQUEUED) in _REVIVED


def _open(entries: Sequence[Entry]) -> set[int] | None:
    """The positions that wait at the end of the history; None where a requeue or fork makes that a matter of the replay."""
    if any(entry.event in _REVIVED for entry in entries):
        return None
    opened = {entry.seq for entry in entries if entry.event is Event.SCHEDULED and entry.op not in _FORGOTTEN}
    return opened - {entry.seq for entry in entries if entry.event in _CLOSED}


def _name(op: Op | None, name: str) -> str:
    return f"{op} {name!r}" if op is not None else repr(name)


def _counts(entries: Sequence[Entry]) -> list[int]:
    """How many operations had been issued before each result, and at the end."""
    counts: list[int] = []
    issued = 0
    for entry in entries:
        if entry.event is Event.SCHEDULED:
            issued += 1
        elif entry.event in _DELIVERED:
            counts.append(issued)
    counts.append(issued)
    return counts
