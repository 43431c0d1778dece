"""Reading a run's stream: what is there already, then what comes, until the run has ended."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Any, Generic, TypeVar

from msgspec import Struct

from perdure.engine.engine import Engine
from perdure.model import values
from perdure.model.errors import RunNotFound
from perdure.model.run import TERMINAL, RunKey
from perdure.model.stream import StoredChunk

T = TypeVar("T")

#: Chunks that are read at once.
_PAGE = 200


class Chunk(Struct, Generic[T], frozen=True):
    """One value of a stream."""

    value: T
    #: Where it stands: `run.stream(name, after=offset)` goes on behind it. Offsets grow; they have gaps.
    offset: int
    #: The run that wrote it: a link of the chain.
    run_id: str
    #: The position of the step that wrote it, and its attempt; 0 for the workflow's body.
    seq: int
    attempt: int
    #: How many this attempt wrote to the stream before. 0 from a step: it begins (anew); what it wrote before is void.
    index: int
    #: Microseconds, the store's clock.
    at: int


class Stream(Generic[T]):
    """A stream of a run, and of the links that continue it. `async for chunk in run.stream("tokens"):`

    Gives what was written after an offset, then what comes, and ends with the run (the whole chain), however that ends. Waits
    on while the store cannot be reached. Raises `RunNotFound` (also where the run is deleted meanwhile), `InvalidValue` for a
    value that does not fit the type. Each iteration begins again.
    """

    def __init__(
        self,
        name: str,
        engine: Callable[[], Engine],
        identify: Callable[[], Awaitable[RunKey]],
        following: Callable[[RunKey], Awaitable[RunKey | None]],
        decode: Callable[[bytes], T],
        after: int,
    ) -> None:
        self.name = name
        self._engine = engine
        self._identify = identify
        self._following = following
        self._decode = decode
        self._after = after

    async def __aiter__(self) -> AsyncIterator[Chunk[T]]:
        after = self._after
        key: RunKey | None = await self._identify()
        while key is not None:
            page = await self._next_page(key, after)
            for stored in page:
                after = stored.offset
                yield self._chunk(key, stored)
            if not page:
                key = await self._following(key)

    async def collect(self) -> list[T]:
        """Wait for the end, and give all values but those of attempts that another attempt of their step has replaced."""
        kept: list[Chunk[T]] = []
        async for chunk in self:
            if chunk.index == 0 and chunk.attempt:
                kept = [each for each in kept if (each.run_id, each.seq) != (chunk.run_id, chunk.seq)]
            kept.append(chunk)
        return [chunk.value for chunk in kept]

    async def _next_page(self, key: RunKey, after: int) -> Sequence[StoredChunk]:
        """What comes next, once there is something; empty when the run has ended with nothing more."""
        while True:
            engine = self._engine()
            tell = engine.executor.tell
            with (
                tell.endings.listen(key.incarnation, TERMINAL) as end,
                tell.tails.listen(key.incarnation, self.name, after) as tail,
            ):
                page = await self._read(engine, key, after)
                if page:
                    return page
                standing = await engine.reads.standing(key)
                if standing is None:
                    raise RunNotFound(f"there is no run {key.id!r} any more; it was deleted")
                if standing.status in TERMINAL:
                    return await self._read(engine, key, after)  # nothing comes after the end, but before it
                end.saw_standing(standing)
                await asyncio.wait((end.change, tail.change), return_when=asyncio.FIRST_COMPLETED)
                for change in (end.change, tail.change):
                    if change.done():
                        change.result()

    async def _read(self, engine: Engine, key: RunKey, after: int) -> Sequence[StoredChunk]:
        return await engine.reads.chunks(key, self.name, after, _PAGE)

    def _chunk(self, key: RunKey, stored: StoredChunk) -> Chunk[T]:
        value = self._decode(stored.payload)
        return Chunk(value, stored.offset, key.id, stored.seq, stored.attempt, stored.index, stored.at)


def decoder(name: str, run_id: str, type: Any) -> Callable[[bytes], Any]:
    """Restores a chunk's value. Raises `UsageError` for what is no type hint."""
    values.decoder(type)

    def decode(data: bytes) -> Any:
        return values.decode(data, type, what=f"a value of stream {name!r} of run {run_id!r}")

    return decode
