"""Background loops, one a file, each with the same shape."""

from __future__ import annotations

from typing import Protocol


class Service(Protocol):
    """Something that goes on from `start` to `stop`. Both on the event loop."""

    def start(self) -> None: ...

    async def stop(self) -> None:
        """May be called without `start`."""
        ...
