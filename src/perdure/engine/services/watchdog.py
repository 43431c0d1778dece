"""Watching the event loop from a thread: what blocks it is logged with its stack, once a time it happens."""

from __future__ import annotations

import logging
import sys
import threading
import traceback

from perdure.engine.holdings import Holdings
from perdure.engine.means import Means

log = logging.getLogger("perdure.engine")

_INTERVAL = 0.25


class Watchdog:
    """`start` and `stop` on the event loop, `dead`, `lag` and `blocking` from any thread."""

    def __init__(self, means: Means, holdings: Holdings) -> None:
        self._means = means
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._loop_thread = 0
        #: When the loop was asked for a sign of life that it has not given yet; None: it owes none.
        self._asked: float | None = None
        self._reported = False
        #: Seconds: the longest that a sign of life took since somebody asked.
        self._worst = 0.0
        self._holdings = holdings
        #: The incarnation of the run whose turn or step had the loop when it was found dead.
        self.blocking: int | None = None

    def start(self) -> None:
        self._loop_thread = threading.get_ident()
        self._thread = threading.Thread(target=self._run, name="perdure-watchdog", daemon=True)
        self._thread.start()

    async def stop(self) -> None:
        self._stop.set()
        if self._thread is not None:
            await self._means.loop.run_in_executor(None, self._thread.join)

    def dead(self) -> bool:
        """True if the loop has not ticked for so long that its leases must go."""
        dead = self._silent() > self._means.settings.dead_loop / 1_000_000
        if dead and self.blocking is None:
            self.blocking = self._holdings.running_on(self._means.loop)
        return dead

    def lag(self) -> int:
        """Microseconds: how long the loop took at worst, since this was last asked, to get to something new."""
        worst, self._worst = max(self._worst, self._silent()), 0.0
        return round(worst * 1_000_000)

    def _run(self) -> None:
        while not self._stop.wait(_INTERVAL):
            if self._asked is None:
                self._asked = self._means.monotonic()
                try:
                    self._means.loop.call_soon_threadsafe(self._tick)
                except RuntimeError:
                    return  # the loop is closed
            silent = self._silent()
            if silent > self._means.settings.slow_loop / 1_000_000 and not self._reported:
                self._reported = True
                self._report(silent)

    def _silent(self) -> float:
        """Seconds for which the loop has owed a sign of life."""
        asked = self._asked
        return 0.0 if asked is None else self._means.monotonic() - asked

    def _tick(self) -> None:
        self._worst = max(self._worst, self._silent())
        self._asked = None
        self._reported = False
        self.blocking = None

    def _report(self, silent: float) -> None:
        frames = sys._current_frames()  # pyright: ignore[reportPrivateUsage]  (documented, for debuggers like this)
        frame = frames.get(self._loop_thread)
        stack = "".join(traceback.format_stack(frame)) if frame is not None else "(its thread is gone)"
        log.warning(
            "perdure: the event loop has been blocked for %.1f s; nothing else runs meanwhile. Make the function that "
            "blocks it a sync step (it then runs in a thread) or await what it waits for. It is here:\n%s",
            silent,
            stack,
        )
