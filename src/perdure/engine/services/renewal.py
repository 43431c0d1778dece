"""Renewing leases, from a thread with its own connection: a busy event loop must not cost the runs their leases.

A *dead* event loop must: if it has not ticked for a minute, its runs are given back, except the one that blocks it (which
another process will then recover, and count), and renewing stops until the loop ticks again.
"""

from __future__ import annotations

import asyncio
import logging
import threading

from perdure.engine.executor import Executor
from perdure.engine.services.watchdog import Watchdog
from perdure.engine.settings import Settings
from perdure.model.errors import StoreError
from perdure.ports.store import Renewer, Store

log = logging.getLogger("perdure.engine")


class Renewal:
    """`start` and `stop` on the event loop; the work is done in a thread."""

    def __init__(self, store: Store, executor: Executor, watchdog: Watchdog, settings: Settings) -> None:
        self._store = store
        self._executor = executor
        self._watchdog = watchdog
        self._settings = settings
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    def start(self) -> None:
        self._loop = asyncio.get_running_loop()
        renewer = self._store.renewer()
        self._thread = threading.Thread(target=self._run, args=(renewer,), name="perdure-renewal", daemon=True)
        self._thread.start()

    async def stop(self) -> None:
        """Renew no more. Call after the last turn is in."""
        self._stop.set()
        if self._thread is not None:
            await asyncio.get_running_loop().run_in_executor(None, self._thread.join)

    def _run(self, renewer: Renewer) -> None:
        interval = self._settings.lease / 3 / 1_000_000
        released = False
        try:
            while not self._stop.wait(interval):
                if not self._watchdog.dead():
                    released = False
                    self._renew(renewer)
                elif not released:
                    released = self._give_back(renewer)
        finally:
            renewer.close()

    def _renew(self, renewer: Renewer) -> None:
        claims = self._executor.holdings.claims()
        if not claims:
            return
        try:
            renewals = renewer.renew(self._executor.owner, self._settings.lease, claims)
        except StoreError as error:
            log.warning("perdure: cannot renew %d leases, trying again: %s", len(claims), error)
            return
        assert self._loop is not None
        try:
            self._loop.call_soon_threadsafe(self._executor.nudges.renewed, renewals)
        except RuntimeError:
            self._stop.set()  # the loop is closed

    def _give_back(self, renewer: Renewer) -> bool:
        blocking = self._watchdog.blocking
        others = [claim for claim in self._executor.holdings.claims() if claim.incarnation != blocking]
        log.error("perdure: the event loop is dead; giving back %d runs and renewing no more", len(others))
        try:
            renewer.release(self._executor.owner, others)
        except StoreError as error:
            log.warning("perdure: cannot give back runs, trying again: %s", error)
            return False
        return True
