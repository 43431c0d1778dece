"""Plain writes as the SQL function `plain_1` takes them: column by column, many in one call.

Plain is a turn that only adds to its own run (history, consumed messages, status), and a new run without messages.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from perdure.model.attributes import searchable
from perdure.model.commit import Create, TurnCommit, Write
from perdure.model.history import Entry, Event, Op
from perdure.model.run import Status
from perdure.stores.postgres.rows import STATUS_CODES

_CASCADING: Final = (Status.CANCELLED, Status.DEAD)
_PARKED: Final = (Status.SUSPENDED, Status.BLOCKED)
_FIRST_TERMINAL: Final = STATUS_CODES[Status.COMPLETED]

#: asyncpg is quickest with plain numbers and texts.
_EVENTS: Final = {event: int(event) for event in Event}
_OPS: Final[dict[Op | None, str | None]] = {op: str(op.value) for op in Op} | {None: None}

#: How many columns there are of turns, consumed messages, new runs, tags, attributes and history.
_TURNS, _CONSUMED, _NEWS, _TAGS, _FACETS, _HISTORY = 15, 2, 28, 2, 3, 10
PARAMETERS: Final = 2 + _TURNS + _CONSUMED + _NEWS + _TAGS + _FACETS + _HISTORY


def plain_key(write: Write) -> int | str | None:
    """Names the run of a plain write (an incarnation, or the id of a new one); None: it is not plain."""
    if type(write) is TurnCommit:
        return write.run.incarnation if _is_plain(write) and (_parks(write) or _ignores_nothing(write)) else None
    if type(write) is Create:
        return write.run.id if _is_plain_create(write) else None
    return None


def _is_plain(turn: TurnCommit) -> bool:
    return not (
        turn.waits
        or turn.unwaits
        or turn.children
        or turn.joins
        or turn.cancels
        or turn.sends
        or turn.values
        or turn.successor is not None
        or turn.status in _CASCADING
    )


def _parks(turn: TurnCommit) -> bool:
    return turn.status in _PARKED


def _ignores_nothing(turn: TurnCommit) -> bool:
    """Whether a turn that does not park leaves out what only parking uses. (The long way checks that it could be stored.)"""
    return turn.wake_at is None and turn.fingerprint is None


def _is_plain_create(create: Create) -> bool:
    turn, run = create.turn, create.run
    if create.messages or not run.id.strip():
        return False
    if turn is None:
        return True
    told = run.awaited_as is not None and turn.status is not Status.RUNNING
    return _is_plain(turn) and not turn.consumed and not told


class Columns:
    """The columns of a batch of plain writes. The order of all is that of the parameters of `plain_1`."""

    def __init__(self, writes: Sequence[Write]) -> None:
        self._size = len(writes)
        turns: list[tuple[Any, ...]] = []
        consumed: list[tuple[int, int]] = []
        news: list[tuple[Any, ...]] = []
        tags: list[tuple[int, str]] = []
        facets: list[tuple[int, str, str]] = []
        self._history: list[tuple[Any, ...]] = []
        for place, write in enumerate(writes):
            if type(write) is TurnCommit:
                turns.append(_turn_row(place, write))
                line = len(turns)
                consumed += [(line, number) for number in write.consumed]
                self._record(line, write.entries)
            elif type(write) is Create:
                news.append(_new_row(place, write))
                line = len(news)
                tags += [(line, tag) for tag in write.run.tags]
                facets += [(line, *facet) for facet in searchable(write.run.attributes)]
                if write.turn is not None:
                    self._record(-line, write.turn.entries)
        self._turns, self._consumed, self._news, self._tags, self._facets = turns, consumed, news, tags, facets

    def _record(self, line: int, entries: Sequence[Entry]) -> None:
        for place, entry in enumerate(entries):
            self._history.append(
                (
                    line,
                    place,
                    _EVENTS[entry.event],
                    entry.seq,
                    _OPS[entry.op],
                    entry.name,
                    entry.payload,
                    entry.at,
                    entry.due,
                    entry.began,
                )
            )

    def parameters(self, at: int | None) -> list[Any]:
        return [
            at,
            self._size,
            *_columns(self._turns, _TURNS),
            *_columns(self._consumed, _CONSUMED),
            *_columns(self._news, _NEWS),
            *_columns(self._tags, _TAGS),
            *_columns(self._facets, _FACETS),
            *_columns(self._history, _HISTORY),
        ]


def _columns(rows: Sequence[tuple[Any, ...]], width: int) -> Sequence[Sequence[Any]]:
    return list(zip(*rows, strict=True)) if rows else ((),) * width


def _turn_row(place: int, turn: TurnCommit) -> tuple[Any, ...]:
    code = STATUS_CODES[turn.status]
    parks = turn.status in _PARKED
    running = turn.status is Status.RUNNING
    return (
        place,
        turn.run.incarnation,
        turn.owner,
        turn.epoch,
        turn.n,
        len(turn.entries),
        code,
        turn.wake_at if parks else None,
        turn.listening and parks,
        turn.seen,
        turn.progress,
        turn.started_at,
        None if running else turn.output,
        None if running else turn.error,
        turn.fingerprint if parks else None,
    )


def _new_row(place: int, create: Create) -> tuple[Any, ...]:
    run = create.run
    parent = run.parent
    lineage = (None, None, None) if parent is None else (parent.id, parent.incarnation, parent.seq)
    return (
        place,
        run.id,
        run.workflow,
        run.version,
        run.input,
        run.seed,
        run.namespace,
        run.priority,
        run.attributes,
        run.origin,
        *lineage,
        run.awaited_as,
        run.depth,
        run.start_at,
        run.timeout,
        run.format,
        *_begun(create.turn),
    )


def _begun(turn: TurnCommit | None) -> tuple[Any, ...]:
    """From status to fingerprint, after the first turn; without one the store knows."""
    if turn is None:
        return (None, None, 0, 0, None, False, None, None, None, None)
    code = STATUS_CODES[turn.status]
    ended, running = code >= _FIRST_TERMINAL, turn.status is Status.RUNNING
    return (
        code,
        turn.owner if running else None,
        len(turn.entries),
        turn.seen,
        None if ended else turn.wake_at,
        turn.listening and not ended and not running,
        turn.started_at,
        None if running else turn.output,
        None if running else turn.error,
        None if running or ended else turn.fingerprint,
    )
