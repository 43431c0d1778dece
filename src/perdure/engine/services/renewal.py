"""Renewing leases and beating, from a thread with its own connection: a busy event loop must not cost the runs their leases.

A *dead* event loop must: if it has not ticked for a minute, its runs are given back, except the one that blocks it (which
another process will then recover, and count), and renewing stops until the loop ticks again.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable

from perdure.engine.executor import Executor
from perdure.engine.means import Means
from perdure.engine.membership import Membership
from perdure.engine.services.watchdog import Watchdog
from perdure.model.errors import StoreError
from perdure.ports.store import Renewer

log = logging.getLogger("perdure.engine")


class Rounds:
    """How often something was asked for, up to which of these it was done, and who waits for which. Event loop only."""

    def __init__(self) -> None:
        #: Read by the thread, too.
        self.wanted = 0
        self._made = 0
        self._waiting: list[tuple[int, asyncio.Future[None]]] = []

    @property
    def open(self) -> bool:
        return self._made < self.wanted

    def want(self) -> int:
        """Ask for one; its number."""
        self.wanted += 1
        return self.wanted

    async def made_up_to(self, number: int) -> None:
        """Wait for it."""
        if self._made < number:
            future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting.append((number, future))
            await future

    def answer(self, made: int) -> None:
        """Those up to this number were done."""
        self._made = made
        done = [future for number, future in self._waiting if number <= made]
        self._waiting = [each for each in self._waiting if each[0] > made]
        for future in done:
            if not future.done():
                future.set_result(None)


class Renewal:
    """`start`, `beat`, `fresh` and `stop` on the event loop; the work is done in a thread."""

    def __init__(self, means: Means, executor: Executor, watchdog: Watchdog) -> None:
        self._means = means
        self._executor = executor
        self._watchdog = watchdog
        self._membership = Membership(means, executor.holdings, watchdog.lag)
        self._rounds = Rounds()
        self._wake = threading.Event()
        self._stopping = False
        self._thread: threading.Thread | None = None
        #: When the last renewal that succeeded began.
        self._renewed = 0
        #: Called, on the loop, when this process was silent for so long that others may have taken it for gone.
        self.on_return: Callable[[], None] = lambda: None

    def start(self) -> None:
        self._renewed = self._means.store.now()
        renewer = self._means.store.renewer()
        self._thread = threading.Thread(target=self._run, args=(renewer,), name="perdure-renewal", daemon=True)
        self._thread.start()

    def kick(self) -> None:
        """Renew soon: some of the held runs may have been cancelled, or sent a message, elsewhere."""
        if self._thread is not None and len(self._executor.holdings):
            self._want()

    def kick_beat(self) -> None:
        """Beat soon: what the fleet was told of this process has changed."""
        if self._thread is not None:
            self._want(beat=True)

    @property
    def busy(self) -> bool:
        """True from when a renewal was asked for until it is made."""
        return self._rounds.open

    async def idle(self) -> None:
        """Wait until what was asked for has been done."""
        await self._rounds.made_up_to(self._rounds.wanted)

    def _want(self, *, beat: bool = False) -> int:
        if beat:
            # Before the thread can see the new number: else it could answer that without a beat.
            self._membership.ask(self._rounds.wanted + 1)
        number = self._rounds.want()
        self._wake.set()
        return number

    async def beat(self) -> None:
        """Tell the fleet what this process serves now. Returns when it is told, or cannot be."""
        await self._rounds.made_up_to(self._want(beat=True))

    async def fresh(self) -> bool:
        """See that none of our leases has run out behind our back (the machine slept, the store was away): else we would
        claim, and run twice, what we still hold. At once if they were renewed lately; False if they cannot be now."""
        if not len(self._executor.holdings) or self._fresh():
            return True
        await self._rounds.made_up_to(self._want())
        return self._fresh()

    def _fresh(self) -> bool:
        return self._means.store.now() - self._renewed <= self._means.settings.lease // 2

    async def stop(self) -> None:
        """Renew no more, and leave the fleet. Call after the last turn is in."""
        self._stopping = True
        self._wake.set()
        if self._thread is not None:
            await self._means.loop.run_in_executor(None, self._thread.join)
        self._rounds.answer(self._rounds.wanted)

    def _run(self, renewer: Renewer) -> None:
        released = False
        try:
            while True:
                self._wake.wait(self._membership.due_in())
                self._wake.clear()
                if self._stopping:
                    self._membership.depart(renewer)
                    return
                wanted = self._rounds.wanted
                try:
                    if not self._watchdog.dead():
                        released = False
                        self._renew(renewer)
                        if self._membership.due():
                            self._beat(renewer)
                    else:
                        self._membership.miss()
                        released = released or self._give_back(renewer)
                except Exception:
                    # Without this thread every lease of this process would run out.
                    log.exception("perdure: renewing leases failed, trying again; this is a fault in Perdure")
                self._tell(self._rounds.answer, wanted)
        finally:
            renewer.close()

    def _beat(self, renewer: Renewer) -> None:
        if self._membership.beat(renewer):
            self._tell(self.on_return)

    def _tell(self, call: Callable[..., None], *arguments: object) -> None:
        try:
            self._means.loop.call_soon_threadsafe(call, *arguments)
        except RuntimeError:
            self._stopping = True  # the loop is closed

    def _renew(self, renewer: Renewer) -> None:
        now = self._means.store.now()
        claims = self._executor.holdings.claims()
        if claims:
            try:
                renewals = renewer.renew(self._means.owner, self._means.settings.lease, claims)
            except StoreError as error:
                log.warning("perdure: cannot renew %d leases, trying again: %s", len(claims), error)
                return
            self._tell(self._executor.nudges.renewed, claims, renewals, now + self._means.settings.lease)
        self._renewed = now

    def _give_back(self, renewer: Renewer) -> bool:
        blocking = self._watchdog.blocking
        others = [claim for claim in self._executor.holdings.claims() if claim.incarnation != blocking]
        log.error("perdure: the event loop is dead; giving back %d runs and renewing no more", len(others))
        try:
            renewer.release(self._means.owner, others)
        except StoreError as error:
            log.warning("perdure: cannot give back runs, trying again: %s", error)
            return False
        return True
