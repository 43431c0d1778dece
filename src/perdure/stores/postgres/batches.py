"""Applying a batch of writes: one call of the server, one transaction."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final, TypeAlias, cast

from perdure.model.commit import (
    Answer,
    Applied,
    Changed,
    Create,
    Ended,
    Exists,
    Fenced,
    Full,
    Missing,
    Moved,
    Published,
    Refused,
    TurnCommit,
    Unstorable,
    Write,
)
from perdure.model.errors import StoreError
from perdure.model.run import RunKey
from perdure.stores.postgres.connections import Connections, Fault, ServerFull, fault_of
from perdure.stores.postgres.encoding import Touched, Unfit, encoded
from perdure.stores.postgres.place import Place
from perdure.stores.postgres.plain import Columns, placeholders, plain_key, turn_parameters, turn_placeholders
from perdure.stores.postgres.rows import Row, to_message, to_run

#: Bytes of one call's JSON, beyond which a batch is cut; PostgreSQL takes 256 MB.
_LARGEST: Final = 32 * 1024 * 1024

#: The parameters of `write_1`.
_PARAMETERS: Final = ", ".join(f"${number}" for number in range(1, 13))

#: So many plain writes in a row, between others, go the short way.
_WORTH_IT: Final = 8

#: Seconds: before a write that the server had no room for is tried again by itself.
_ROOM_PAUSES: Final = (0.05, 0.2, 0.5)

#: A write's place in its batch, its JSON, and what of it can be stored.
Item: TypeAlias = tuple[int, bytes, Write]


class Batches:
    """Writes to one place. `at`: the time to write them at; None is the server's own."""

    def __init__(self, place: Place, connections: Connections) -> None:
        self._fetch = connections.fetch
        self._write = f"SELECT * FROM {place.quoted}.write_1({_PARAMETERS})"
        self._turn = f"SELECT {place.quoted}.turn_1({turn_placeholders()})"
        self._room = f"SELECT {place.quoted}.has_room_1()"
        self._plain = f"SELECT * FROM {place.quoted}.plain_1({placeholders()})"

    async def write(self, batch: Sequence[Write], at: int | None) -> list[Answer]:
        answers: list[Answer] = []
        for plain, writes in _stretches(batch):
            if plain:
                answers += await self._short(writes, at)
            else:
                answers += await self._long(writes, at)
        return answers

    async def _short(self, writes: Sequence[Write], at: int | None) -> list[Answer]:
        try:
            if len(writes) == 1 and isinstance(turn := writes[0], TurnCommit):
                [[applied]] = await self._fetch(self._turn, *turn_parameters(turn, at))
                if applied:
                    return [Applied(turn.run)]
            [[applied, begun]] = await self._fetch(self._plain, *Columns(writes).parameters(at))
        except Exception as error:
            if not _is_of_some(error):
                raise
            return await self._long(writes, at)  # It finds out whose data it is.
        news = iter(begun or ())
        answers: list[Answer] = [
            Applied(RunKey(each.run.id, next(news)) if isinstance(each, Create) else cast("TurnCommit", each).run)
            for each in writes[:applied]
        ]
        return answers if applied == len(writes) else answers + await self._long(writes[applied:], at)

    async def _long(self, writes: Sequence[Write], at: int | None) -> list[Answer]:
        answers: list[Answer | None] = [None] * len(writes)
        items: list[Item] = []
        for place, write in enumerate(writes):
            try:
                items.append((place, *encoded(write)))
            except Unfit as refusal:
                answers[place] = Unstorable(str(refusal))
        for some in _cut(items):
            for (place, *_), answer in zip(some, await self._apply(some, at), strict=True):
                answers[place] = answer
        return cast("list[Answer]", answers)

    async def _apply(self, items: Sequence[Item], at: int | None) -> list[Answer]:
        """In one transaction if all can be stored, else in two halves: what cannot must not hurt its neighbours."""
        try:
            return await self._call(items, at)
        except Exception as error:
            if not _is_of_some(error):
                raise
            if len(items) == 1:
                return [await self._refusal(items, at, error)]
        half = len(items) // 2
        return [*await self._apply(items[:half], at), *await self._apply(items[half:], at)]

    async def _refusal(self, items: Sequence[Item], at: int | None, error: Exception) -> Answer:
        """The answer to a write that was refused by itself. One that the server had no room for may find it a moment later;
        it cannot be stored if there is room for what any write takes, and still none for this one."""
        for pause in _ROOM_PAUSES:
            if not isinstance(error, ServerFull):
                return Unstorable(f"{type(error).__name__}: {error}")
            await asyncio.sleep(pause)
            await self._fetch(self._room)  # Raises, where it is not this one's fault.
            try:
                [answer] = await self._call(items, at)
            except Exception as again:
                if not _is_of_some(again):
                    raise
                error = again
            else:
                return answer
        return Unstorable(f"the write is too large for the server: {error.__cause__ or error}")

    async def _call(self, items: Sequence[Item], at: int | None) -> list[Answer]:
        touched = Touched()
        for _, _, write in items:
            touched.add(write)
        text = (b"[" + b",".join(text for _, text, _ in items) + b"]").decode()
        return _answers(await self._fetch(self._write, at, text, *touched.parameters()))


def _is_of_some(error: Exception) -> bool:
    """Whether a batch was refused for some of its writes, and not for what became of the server."""
    return isinstance(error, ServerFull) or (not isinstance(error, StoreError) and fault_of(error) is Fault.DATA)


def _stretches(batch: Sequence[Write]) -> Sequence[tuple[bool, Sequence[Write]]]:
    """The batch in order, cut into what goes the short way and what goes the long one. A cut is one more commit: only a long
    row of plain writes is worth it."""
    stretches: list[tuple[bool, list[Write]]] = []
    keys: set[int | str] = set()
    for write in batch:
        key = plain_key(write)
        plain = key is not None
        if not stretches or stretches[-1][0] != plain or key in keys:
            stretches.append((plain, []))
            keys.clear()
        if key is not None:
            keys.add(key)
        stretches[-1][1].append(write)
    if len(stretches) == 1:
        return stretches
    joined: list[tuple[bool, list[Write]]] = []
    for plain, writes in stretches:
        short = plain and len(writes) >= _WORTH_IT
        if joined and not short and not joined[-1][0]:
            joined[-1][1].extend(writes)
        else:
            joined.append((short, writes))
    return joined


def _cut(items: Sequence[Item]) -> Sequence[Sequence[Item]]:
    """Into parts that are not too large for one call."""
    parts: list[list[Item]] = []
    room = 0
    for item in items:
        room -= len(item[1])
        if room < 0 or not parts:
            parts.append([])
            room = _LARGEST - len(item[1])
        parts[-1].append(item)
    return parts


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
    key = None if key_id is None or incarnation is None else RunKey(key_id, incarnation)
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
        case "published":
            assert incarnation is not None
            return Published(int(incarnation), tuple(RunKey(each[2], each[3]) for each in rest))
        case "full":
            assert incarnation is not None  # it carries the number
            return Full(int(incarnation))
        case "changed":
            return Changed(tuple(to_run(each[4]) for each in rest))
        case _:
            return Missing(key_id or "")
