"""Telling whoever wants to know in this process that the store may have changed elsewhere, at the store's hints. Those who wait
for runs are told every poll interval too, in case the hints are lost."""

from __future__ import annotations

from collections.abc import Callable

from perdure.engine.means import Means
from perdure.engine.services.lookout import Awaited, Lookout
from perdure.ports.clock import Alarm


class Watcher:
    """`start`, `stop` and `subscribe` on the event loop."""

    def __init__(self, means: Means, *awaited: Awaited) -> None:
        self._means = means
        self._lookouts = [Lookout(means, each) for each in awaited]
        self._listeners: list[Callable[[], None]] = [lookout.hint for lookout in self._lookouts]
        self._unsubscribe: Callable[[], None] | None = None
        self._alarm: Alarm | None = None
        self._told = False

    def start(self) -> None:
        loop = self._means.loop

        def changed() -> None:
            # Any thread. Several hints before the loop gets to it are one.
            if not self._told:
                self._told = True
                try:
                    loop.call_soon_threadsafe(self._changed)
                except RuntimeError:
                    pass  # the loop is closed: nobody waits any more

        self._unsubscribe = self._means.store.on_change(changed)
        self._arm()

    async def stop(self) -> None:
        if self._unsubscribe is not None:
            self._unsubscribe()
            self._unsubscribe = None
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None
        for lookout in self._lookouts:
            await lookout.stop()

    def subscribe(self, listener: Callable[[], None], *, pause: int = 0) -> None:
        """Call `listener` too, but not more often than each `pause` microseconds. It must be quick."""
        if pause:
            listener = self._paced(listener, pause)
        self._listeners.append(listener)

    def _paced(self, listener: Callable[[], None], pause: int) -> Callable[[], None]:
        clock = self._means.clock
        alarm: Alarm | None = None
        next_at = 0

        def call() -> None:
            nonlocal alarm, next_at
            alarm = None
            next_at = clock.now() + pause
            listener()

        def hear() -> None:
            nonlocal alarm
            if clock.now() >= next_at:
                call()
            elif alarm is None:
                alarm = clock.call_at(next_at, call)

        return hear

    def _changed(self) -> None:
        self._told = False
        for listener in self._listeners:
            listener()

    def _arm(self) -> None:
        self._alarm = self._means.clock.call_at(self._means.clock.now() + self._means.settings.poll, self._ring)

    def _ring(self) -> None:
        for lookout in self._lookouts:
            lookout.hint()
        self._arm()
