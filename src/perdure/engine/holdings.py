"""The runs that this process holds. Changed on the event loop only; the renewal and watchdog threads read copies."""

from __future__ import annotations

import asyncio

from perdure.engine.held import Held
from perdure.ports.store import Held as Claim


class Holdings:
    """Held runs by incarnation, and how many more there may be."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._held: dict[int, Held] = {}
        #: Runs on their way in: claimed or being created, not held yet.
        self.coming = 0
        self._idle = asyncio.Event()
        #: True once nothing more may come in.
        self.closed = False
        #: True once nothing may begin for what is held: it is about to be given back.
        self.stopped = False
        #: The run whose turn has the loop right now.
        self.driving: int | None = None

    def __len__(self) -> int:
        return len(self._held)

    def __contains__(self, incarnation: object) -> bool:
        return incarnation in self._held

    def room(self) -> int:
        """How many more runs may come in."""
        return 0 if self.closed else max(0, self.limit - len(self._held) - self.coming)

    def get(self, incarnation: int) -> Held | None:
        return self._held.get(incarnation)

    def all(self) -> list[Held]:
        """Any thread: `dict.copy` is atomic."""
        return list(self._held.copy().values())

    def add(self, held: Held) -> None:
        self._held[held.key.incarnation] = held

    def drop(self, held: Held) -> None:
        """It is not ours any more: whatever runs for it here is stopped."""
        held.let_go()
        if self._held.get(held.key.incarnation) is held:
            del self._held[held.key.incarnation]
        if not self._held:
            self._idle.set()

    async def empty(self) -> None:
        """Wait until no run is held."""
        while self._held:
            self._idle.clear()
            await self._idle.wait()

    def claims(self) -> list[Claim]:
        """What to renew. Any thread."""
        return [Claim(held.key.incarnation, held.epoch, held.instance.inbox.seen) for held in self.all()]

    def running_on(self, loop: asyncio.AbstractEventLoop) -> int | None:
        """The run whose turn or step has the loop now. Any thread, for the watchdog: a good guess is good enough."""
        if self.driving is not None:
            return self.driving
        task = asyncio.current_task(loop)
        for held in self.all():
            if task is not None and task in held.tasks.copy().values():
                return held.key.incarnation
        return None
