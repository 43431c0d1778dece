"""Applying a batch of writes: one call of the server, one transaction."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from perdure.model.commit import (
    Answer,
    Applied,
    Changed,
    Ended,
    Exists,
    Fenced,
    Missing,
    Moved,
    Refused,
    Unstorable,
    Write,
)
from perdure.model.run import RunKey
from perdure.stores.postgres.connections import Connections, Fault, fault_of
from perdure.stores.postgres.encoding import Touched, Unfit, encoded
from perdure.stores.postgres.place import Place
from perdure.stores.postgres.rows import Row, to_message, to_run

#: Bytes of one call's JSON, beyond which a batch is cut; PostgreSQL takes 256 MB.
_LARGEST: Final = 32 * 1024 * 1024


class Batches:
    """Writes to one place. `at`: the time to write them at; None is the server's own."""

    def __init__(self, place: Place, connections: Connections) -> None:
        self._connections = connections
        self._write = f"SELECT * FROM {place.quoted}.write_1($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)"

    async def write(self, batch: Sequence[Write], at: int | None) -> list[Answer]:
        answers: list[Answer | None] = [None] * len(batch)
        items: list[tuple[int, bytes, Write]] = []
        for place, write in enumerate(batch):
            try:
                items.append((place, *encoded(write)))
            except Unfit as refusal:
                answers[place] = Unstorable(str(refusal))
        for some in _cut(items):
            for (place, *_), answer in zip(some, await self._apply(some, at), strict=True):
                answers[place] = answer
        return [_there(answer) for answer in answers]

    async def _apply(self, items: Sequence[tuple[int, bytes, Write]], at: int | None) -> list[Answer]:
        """In one transaction if all can be stored, else in two halves: what cannot must not hurt its neighbours."""
        try:
            return await self._call(items, at)
        except Exception as error:
            if fault_of(error) is not Fault.DATA:
                raise
            if len(items) == 1:
                return [Unstorable(f"{type(error).__name__}: {error}")]
        half = len(items) // 2
        return [*await self._apply(items[:half], at), *await self._apply(items[half:], at)]

    async def _call(self, items: Sequence[tuple[int, bytes, Write]], at: int | None) -> list[Answer]:
        touched = Touched()
        for _, _, write in items:
            touched.add(write)
        text = (b"[" + b",".join(text for _, text, _ in items) + b"]").decode()
        return _answers(await self._connections.fetch(self._write, at, text, *touched.parameters()))


def _cut(items: Sequence[tuple[int, bytes, Write]]) -> Sequence[Sequence[tuple[int, bytes, Write]]]:
    """Into parts that are not too large for one call."""
    parts: list[list[tuple[int, bytes, Write]]] = []
    room = 0
    for item in items:
        room -= len(item[1])
        if room < 0 or not parts:
            parts.append([])
            room = _LARGEST - len(item[1])
        parts[-1].append(item)
    return parts


def _there(answer: Answer | None) -> Answer:
    assert answer is not None
    return answer


def _answers(rows: Sequence[Row]) -> list[Answer]:
    """From the rows of `write_1`: those of one write follow each other, the first has the kind of answer."""
    answers: list[Answer] = []
    start = 0
    while start < len(rows):
        end = start + 1
        while end < len(rows) and rows[end][1] is None:
            end += 1
        answers.append(_answer(rows[start], rows[start + 1 : end]))
        start = end
    return answers


def _answer(row: Row, rest: Sequence[Row]) -> Answer:
    _, kind, key_id, incarnation, run, _ = row
    key = None if incarnation is None else RunKey(key_id, incarnation)
    match kind:
        case "applied":
            return Applied(key)
        case "moved":
            assert key is not None
            return Moved(key, tuple(to_message(each[5]) for each in rest))
        case "refused":
            return Refused(tuple(to_message(each[5]) for each in rest))
        case "fenced":
            return Fenced(None if run is None else to_run(run))
        case "exists":
            return Exists(to_run(run))
        case "ended":
            return Ended(to_run(run))
        case "changed":
            return Changed(tuple(to_run(each[4]) for each in rest))
        case _:
            return Missing(key_id or "")
