"""Following streams: whoever waits for the next chunk is told here when there may be one.

What is written in this process is told at once. What is written elsewhere is found by looking at the ends of the streams that
somebody waits at, one look for all (see `services.lookout`). A look compares with where each reader stands, so that none is
missed: whoever reads is listed before the read, and what is written after it is followed by a look.
"""

from __future__ import annotations

import asyncio
from collections.abc import Generator, Iterable
from contextlib import contextmanager

from perdure.model.errors import UsageError
from perdure.model.stream import NewChunk
from perdure.ports.store import Store


class Tail:
    """One who waits at the end of a stream. Event loop only."""

    __slots__ = ("after", "change")

    def __init__(self, after: int) -> None:
        #: The last offset that was read.
        self.after = after
        self.change: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def tell(self) -> None:
        if not self.change.done():
            self.change.set_result(None)


class Tails:
    """Event loop only."""

    def __init__(self) -> None:
        self._waiting: dict[tuple[int, str], dict[Tail, None]] = {}
        self._closed = False

    def written(self, incarnation: int, chunks: Iterable[NewChunk]) -> None:
        """This process wrote to a run's streams."""
        if self._waiting:
            for stream in {chunk.stream for chunk in chunks}:
                for tail in self._waiting.get((incarnation, stream), ()):
                    tail.tell()

    def waiting(self) -> bool:
        return bool(self._waiting)

    def __len__(self) -> int:
        return len(self._waiting)

    async def look(self, store: Store) -> None:
        """Tell those whose stream has grown."""
        asked = list(self._waiting)
        if not asked:
            return
        for stream, head in zip(asked, await store.heads(asked), strict=True):
            for tail in self._waiting.get(stream, ()):
                if head > tail.after:
                    tail.tell()

    def close(self) -> None:
        """Nothing is told here any more: whoever waits would wait for ever."""
        self._closed = True
        for line in self._waiting.values():
            for tail in line:
                if not tail.change.done():
                    tail.change.set_exception(_closed())

    @contextmanager
    def listen(self, incarnation: int, stream: str, after: int) -> Generator[Tail]:
        """To be told of the next chunk, for as long as this lasts. Listen first, then read, then wait.

        Raises `UsageError`, as does the tail's `change`, where the app was closed.
        """
        if self._closed:
            raise _closed()
        tail, key = Tail(after), (incarnation, stream)
        self._waiting.setdefault(key, {})[tail] = None
        try:
            yield tail
        finally:
            line = self._waiting[key]
            del line[tail]
            if not line:
                del self._waiting[key]
            if tail.change.done() and not tail.change.cancelled():
                tail.change.exception()  # seen, so that asyncio does not complain
            else:
                tail.change.cancel()


def _closed() -> UsageError:
    return UsageError(
        "the app was closed, so it cannot follow the stream; read on from the last offset when it is open again"
    )
