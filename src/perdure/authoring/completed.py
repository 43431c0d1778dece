"""`as_completed` for workflow bodies: like asyncio's, but it starts what it is given in the order in which it is given."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Iterable, Iterator
from typing import TypeVar

T = TypeVar("T")


def as_completed(awaitables: Iterable[Awaitable[T]]) -> Iterator[Awaitable[T]]:
    """Awaitables that give the results of `awaitables` in the order in which they come.

    Deterministic in a workflow, where asyncio's own starts coroutines in the order of a set. Works outside one too.
    """
    finished: asyncio.Queue[asyncio.Future[T]] = asyncio.Queue()
    futures = [asyncio.ensure_future(awaitable) for awaitable in awaitables]
    for future in futures:
        future.add_done_callback(finished.put_nowait)

    async def next_one() -> T:
        return (await finished.get()).result()

    return (next_one() for _ in futures)
