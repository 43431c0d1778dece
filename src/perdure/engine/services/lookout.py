"""Looking at what somebody waits for, runs or streams: one look for all, whenever the store may have changed.

Never two looks at once, and after each a pause as long as it took: a storm of hints costs half the time at the most. The first
hint after a quiet time is followed at once, and one that comes during a look or its pause by one more look.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Protocol

from perdure.engine.means import Means
from perdure.engine.pauses import sleep_until
from perdure.model.errors import StoreError
from perdure.ports.store import Store

log = logging.getLogger("perdure.engine")


class Awaited(Protocol):
    """What somebody may wait for."""

    def __len__(self) -> int:
        """How many are waited for."""
        ...

    async def look(self, store: Store) -> None:
        """One look at all of them; tells whoever waits for what has changed."""
        ...


class Lookout:
    """Event loop only."""

    def __init__(self, means: Means, awaited: Awaited) -> None:
        self._means = means
        self._awaited = awaited
        self._task: asyncio.Task[None] | None = None
        #: True if something may have changed since the last look began.
        self._again = False
        #: True from when a failure was logged until a look succeeds.
        self._failing = False

    def hint(self) -> None:
        """The store may have changed."""
        if self._task is not None:
            self._again = True
        elif len(self._awaited):
            self._task = self._means.loop.create_task(self._run())

    async def stop(self) -> None:
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def _run(self) -> None:
        clock = self._means.clock
        try:
            self._again = True
            while self._again:
                self._again = False
                began = clock.now()
                await self._look()
                took = clock.now() - began
                # A clock that jumped must not keep us from looking.
                await sleep_until(clock, clock.now() + max(0, min(took, self._means.settings.poll)))
        finally:
            self._task = None

    async def _look(self) -> None:
        """Does not fail: what could not be looked at is looked at again at the next poll, or hint."""
        try:
            async with asyncio.timeout(self._means.settings.patience / 1_000_000):
                await self._awaited.look(self._means.store)
        except (StoreError, TimeoutError) as error:
            if not self._failing:
                self._failing = True
                why = str(error) or "it does not answer"
                log.warning("perdure: cannot look at %d that are waited for, trying again: %s", len(self._awaited), why)
        except Exception:
            log.exception("perdure: looking at what is waited for failed, trying again; this is a fault in Perdure")
        else:
            self._failing = False
