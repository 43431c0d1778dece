"""Now and then, looking for what must not exist: a run that nobody would ever wake. It is our fault, so it is logged as such,
counted, and healed."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from perdure.engine.means import Means
from perdure.engine.pauses import sleep_until
from perdure.model.errors import StoreError

log = logging.getLogger("perdure.engine")


class Auditor:
    """Event loop only."""

    def __init__(self, means: Means, kick: Callable[[], None]) -> None:
        self._means = means
        self._kick = kick
        self._task: asyncio.Task[None] | None = None
        #: How many findings there ever were.
        self.found = 0

    def start(self) -> None:
        self._task = self._means.loop.create_task(self._run())

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self) -> None:
        while True:
            await sleep_until(self._means.clock, self._means.clock.now() + self._means.settings.audit)
            try:
                findings = await self._means.store.audit()
            except StoreError as error:
                log.warning("perdure: the audit could not be made, trying again later: %s", error)
                continue
            except Exception:
                log.exception("perdure: the audit failed, trying again later; this is a fault in Perdure")
                continue
            for finding in findings:
                self.found += 1
                log.error(
                    "perdure: run %r %s; healed. This is a fault in Perdure, please report it",
                    finding.run.id,
                    finding.what,
                )
            if findings:
                self._kick()
