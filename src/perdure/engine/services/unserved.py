"""Runs that are due and that this process cannot run: left to others if others can, blocked if nobody can.

Every audit interval. A run that was blocked so goes on when a process begins to serve it: that one first says so (a beat) and
then makes such runs due (`unblock`). A process that was taken for gone while it was not (stopped, or cut off from the store)
makes them due when it is back.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable

from msgspec.structs import replace

from perdure.engine.endings import Endings
from perdure.engine.means import Means
from perdure.engine.services.claimer import Claimer
from perdure.model.errors import StoreError
from perdure.ports.fleet import Member, Serves
from perdure.ports.store import MOST_UNSERVED, Store

log = logging.getLogger("perdure.engine")


class Unserved:
    """Event loop only. `beat` returns when the fleet knows what this process serves (or cannot be told now)."""

    def __init__(self, means: Means, claimer: Claimer, beat: Callable[[], Awaitable[None]], endings: Endings) -> None:
        self._means = means
        self._claimer = claimer
        self._beat = beat
        self._endings = endings
        self._task: asyncio.Task[None] | None = None
        self._wake = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()
        #: True if others may have taken this process for gone, and have blocked what it serves.
        self._back = False
        #: What was said to be left to others, by workflow and version.
        self._said: set[tuple[str, str]] = set()

    def start(self) -> None:
        self._task = self._means.loop.create_task(self._run())

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        self._idle.set()

    def back(self) -> None:
        """This process was silent for so long that others may have taken it for gone."""
        self._back = True
        self._wake.set()

    @property
    def busy(self) -> bool:
        return not self._idle.is_set()

    async def idle(self) -> None:
        """Wait until it does nothing."""
        await self._idle.wait()

    async def _run(self) -> None:
        settings, clock = self._means.settings, self._means.clock
        while True:
            self._idle.set()
            alarm = clock.call_at(clock.now() + (settings.poll if self._back else settings.audit), self._ring)
            try:
                await self._wake.wait()
            finally:
                alarm.cancel()
            self._idle.clear()
            self._wake.clear()
            try:
                if self._back:
                    await self.unblock(self._means.store)
                    self._back = False
                else:
                    await self._look()
            except StoreError as error:
                log.warning("perdure: cannot look for runs that nobody serves, trying again later: %s", error)
            except Exception:
                log.exception("perdure: looking for runs that nobody serves failed; this is a fault in Perdure")

    def _ring(self) -> None:
        self._idle.clear()
        self._wake.set()

    async def unblock(self, store: Store) -> None:
        """Runs that are blocked on other code than is served here, or because nobody served them, are due."""
        serves = self._means.registry.serves()
        if serves:
            await store.unblock(serves)
            self._claimer.kick()

    async def _look(self) -> None:
        # At once before: were we taken for gone, we would block what we serve ourselves.
        await self._beat()
        blocked = MOST_UNSERVED
        while blocked == MOST_UNSERVED:
            findings = await self._means.store.block_unserved(2 * self._means.settings.lease)
            blocked = len(findings)
            for finding in findings:
                log.warning("perdure: run %r is blocked: %s", finding.run.id, finding.what)
                self._endings.touched(finding.run)
        await self._leave_to_others()

    async def _leave_to_others(self) -> None:
        """Say what is due and served by others only; once for each definition."""
        elsewhere = list(self._elsewhere(await self._means.store.fleet()))
        if elsewhere and await self._due(*elsewhere):
            for each in elsewhere:
                if await self._due(each):
                    self._said.add((each.workflow, each.version))
                    log.info(
                        "perdure: runs of workflow %r version %r are due; this process does not serve them and leaves "
                        "them to processes that do",
                        each.workflow,
                        each.version,
                    )

    def _elsewhere(self, members: Iterable[Member]) -> Iterable[Serves]:
        """What others serve and this process does not, as far as it was not said; each once."""
        known = self._said | {(each.workflow, each.version) for each in self._means.registry.serves()}
        for member in members:
            for each in member.process.serves:
                if (each.workflow, each.version) not in known:
                    known.add((each.workflow, each.version))
                    yield each

    async def _due(self, *serves: Serves) -> bool:
        wake_at = await self._means.store.next_wake(replace(self._claimer.request(1), serves=serves))
        return wake_at is not None and wake_at <= self._means.store.now()
