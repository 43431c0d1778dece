"""Claiming: whenever runs may be due and there is room, take some. This one loop is the whole scheduler.

It looks when told that something became due here, when the earliest wake time it knows has come, when the store may have
changed elsewhere, and every poll interval in any case: the store is the truth, the rest only saves time.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from perdure.engine.executor import Executor
from perdure.engine.loading import Loading
from perdure.engine.means import Means
from perdure.model.errors import StoreError
from perdure.model.run import FORMAT
from perdure.ports.clock import Alarm
from perdure.ports.store import ClaimRequest

log = logging.getLogger("perdure.engine")

_BATCH = 200


class Claimer:
    """Event loop only."""

    def __init__(
        self, means: Means, executor: Executor, loading: Loading, renewed: Callable[[], Awaitable[bool]]
    ) -> None:
        self._means = means
        self._executor = executor
        self._loading = loading
        self._renewed = renewed
        self._wake = asyncio.Event()
        self._idle = asyncio.Event()
        #: When it rings, and the clock's handle on it.
        self._alarm: tuple[int, Alarm] | None = None
        self._task: asyncio.Task[None] | None = None
        #: True while there may be more due runs than there is room for: new runs then queue up behind them.
        self.backlog = False
        #: True while there may be a wake time that the alarm does not know.
        self._ask = True

    def start(self) -> None:
        self._executor.on_room = self._room
        self._executor.gating.look = self._look_soon
        self._task = self._means.loop.create_task(self._run())
        self.kick()

    async def stop(self) -> None:
        """Claim nothing more. What is being claimed just now is given back."""
        if self._task is not None:
            task, self._task = self._task, None
            self._wake.set()
            self._loading.hurry()
            await asyncio.wait([task])
        self._idle.set()
        if self._alarm is not None:
            self._alarm[1].cancel()
        self._executor.on_room = lambda wake_at: None

    def kick(self, *, now: bool = False) -> None:
        """Something may be due. `now`: at once, and there is no new wake time later than that to ask for."""
        if not now:
            self._ask = True
        if self._task is not None:
            self._idle.clear()
            self._wake.set()

    @property
    def busy(self) -> bool:
        """True from when it was told to look until it has."""
        return self._task is not None and not self._idle.is_set()

    async def idle(self) -> None:
        """Wait until it has looked since it was last told to, and taken what it found."""
        await self._idle.wait()

    def _look_soon(self, now: bool) -> None:
        self.kick(now=now)

    def _room(self, wake_at: int | None) -> None:
        if self.backlog:
            self.kick(now=True)
        if wake_at is None:
            return
        if wake_at <= self._means.clock.now():
            self.kick(now=True)
        else:
            self._arm(wake_at)

    def _arm(self, when: int) -> None:
        """See that somebody looks at `when`."""
        if self._alarm is not None:
            if self._alarm[0] <= when:
                return
            self._alarm[1].cancel()
        self._alarm = when, self._means.clock.call_at(when, self._ring)

    def _ring(self) -> None:
        self._alarm = None
        self.kick()

    async def _run(self) -> None:
        while self._task is not None:
            if not self._wake.is_set():
                self._idle.set()
            await self._wake.wait()
            self._wake.clear()
            try:
                await self._look()
            except StoreError as error:
                log.warning("perdure: cannot look for due runs, trying again: %s", error)
            except Exception:
                # One odd row must not end the loop that everything else lives from (FAULTS F10).
                log.exception("perdure: looking for due runs failed, trying again; this is a fault in Perdure")
            self._arm(self._means.clock.now() + self._means.settings.poll)

    async def _look(self) -> None:
        while self._task is not None:
            limit = min(self._executor.holdings.room(), _BATCH)
            if limit == 0:
                self.backlog = True
                return
            request = self.request(limit)
            if not request.serves:
                return
            if not await self._renewed() or self._stopped():
                return
            claimed = await self._means.store.claim(request)
            self.backlog = len(claimed) == limit
            if claimed and self._stopped():
                await self._loading.give_back(claimed)  # the app is being closed: others may have them
            elif claimed:
                await self._loading.take(claimed)
            if not self.backlog:
                await self._ask_next(request)
                return

    def _stopped(self) -> bool:
        return self._task is None

    async def _ask_next(self, request: ClaimRequest) -> None:
        """Have the alarm ring when the earliest run is due, unless it is sure to be set for that already."""
        if self._ask:
            self._ask = False
            try:
                next_wake = await self._means.store.next_wake(request)
            except BaseException:
                self._ask = True
                raise
            if next_wake is not None:
                self._arm(next_wake)

    def request(self, limit: int) -> ClaimRequest:
        """What this process can run."""
        namespace = self._means.settings.namespace
        return ClaimRequest(
            owner=self._means.owner,
            namespaces=None if namespace is None else (namespace,),
            serves=self._means.registry.serves(),
            limit=limit,
            lease=self._means.settings.lease,
            format=FORMAT,
        )
