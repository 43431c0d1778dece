"""Streams: what a run writes while it runs, for readers elsewhere to follow. Each is a list of chunks that only grows."""

from __future__ import annotations

from typing import Final

from msgspec import Struct

#: Bytes of JSON of one chunk.
MOST_CHUNK: Final = 256 * 1024


class NewChunk(Struct, frozen=True, gc=False):
    """Something to be written at the end of a stream."""

    stream: str
    #: JSON.
    payload: bytes
    #: The operation that wrote it.
    seq: int
    #: The attempt of that step; 0: the body itself.
    attempt: int
    #: How many chunks that attempt wrote to this stream before. 0: the step begins here, and what it wrote before is void.
    index: int


class StoredChunk(Struct, frozen=True, gc=False):
    """A chunk as the store has it."""

    #: Greater than those of all chunks that were written to any stream of the run before, and of the links it continues.
    offset: int
    payload: bytes
    seq: int
    attempt: int
    index: int
    #: When it was written, by the store's clock.
    at: int
