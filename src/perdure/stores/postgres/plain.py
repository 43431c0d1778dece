"""Plain writes as the SQL function `plain_1` takes them: column by column, many in one call.

Plain is a turn that only adds to its own run (history, consumed messages, status), and a new run without messages.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import msgspec

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

# The types of the columns, in the order of the rows made below and of the parameters of `plain_1`.
_TYPES: Final = {"i": "integer", "l": "bigint", "s": "smallint", "b": "boolean", "t": "text", "y": "bytea"}
_TURNS: Final = "iltllislblblyyt"
_CONSUMED: Final = "il"
_NEWS: Final = "itttyltlytytlltllllstillblyyt"
_TAGS: Final = "it"
_FACETS: Final = "itt"
_HISTORY: Final = "iislttylll"
#: Of `turn_1`: consumed messages and history, for one turn.
_OWN: Final = "lslttylll"

_encode: Final = msgspec.json.Encoder().encode


def placeholders() -> str:
    """The parameters of `plain_1`.

    An array that is not of bytes goes as the text that PostgreSQL writes arrays as: asyncpg looks at each element of a list
    several times, which took most of a batch.
    """
    kinds = _TURNS + _CONSUMED + _NEWS + _TAGS + _FACETS + _HISTORY
    return f"$1, $2, {_arrays(kinds, 3)}"


def turn_placeholders() -> str:
    """The parameters of `turn_1`: the time, a turn's own columns but its place and how many entries it has, its arrays."""
    scalars = ", ".join(f"${number}" for number in range(1, 15))
    return f"{scalars}, {_arrays(_OWN, 15)}"


def turn_parameters(turn: TurnCommit, at: int | None) -> list[Any]:
    """Of `turn_1`. Raises as `Columns` does."""
    _, run, owner, epoch, n, _, *rest = _turn_row(0, turn)
    consumed = [f"{{{','.join(map(str, turn.consumed))}}}"]
    rows = [_entry_row(entry) for entry in turn.entries]
    return [at, run, owner, epoch, n, *rest, *consumed, *_columns(rows, _OWN[1:])]


def _arrays(kinds: str, first: int) -> str:
    casts = ("" if kind == "y" else f"::text::{_TYPES[kind]}[]" for kind in kinds)
    return ", ".join(f"${number}{cast}" for number, cast in enumerate(casts, start=first))


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
        or turn.listens
        or turn.unwaits
        or turn.children
        or turn.joins
        or turn.cancels
        or turn.sends
        or turn.values
        or turn.attributes is not None
        or turn.asks
        or turn.releases
        or turn.chunks
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
    if create.messages or run.gate is not None or not run.id.strip():
        return False
    if turn is None:
        return True
    told = run.awaited_as is not None and turn.status is not Status.RUNNING
    return _is_plain(turn) and not turn.consumed and not told


class Columns:
    """The columns of a batch of plain writes. Raises `UnicodeError` and the like for what cannot be stored."""

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
            self._history.append((line, place, *_entry_row(entry)))

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


def _columns(rows: Sequence[tuple[Any, ...]], types: str) -> list[Any]:
    if not rows:
        return [() if kind == "y" else "{}" for kind in types]
    return [
        _array(column) if kind != "y" else column if column.count(None) < len(column) else ()
        for kind, column in zip(types, zip(*rows, strict=True), strict=True)
    ]


def _array(column: tuple[Any, ...]) -> str:
    """As PostgreSQL writes an array. That is JSON with other brackets, as long as nothing is escaped.

    One of nothing but NULL is empty: `unnest` fills it up.
    """
    if column.count(None) == len(column):
        return "{}"
    text = _encode(column)
    if b"\\" not in text:
        return f"{{{text[1:-1].decode()}}}"
    return f"{{{','.join('NULL' if each is None else _quoted(each) for each in column)}}}"


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def _entry_row(entry: Entry) -> tuple[Any, ...]:
    return (
        _EVENTS[entry.event],
        entry.seq,
        _OPS[entry.op],
        entry.name,
        entry.payload,
        entry.at,
        entry.due,
        entry.began,
    )


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
        run.carrier,
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
