"""An app for tests: a store in memory, a clock driven by hand, and a way to wait until everything has come to rest.

    async with TestApp(checkout) as app:
        run = await app.start(checkout, order, id="c1")
        await app.settle()                  # charged; now it waits for the approval
        await run.signal("approve", "ada")
        await app.tick(timedelta(days=7))   # whatever is due on the way happens at its time
        assert await run.result() == "shipped"

No test ever waits for time to pass: `tick` moves the clock from one due time to the next, and lets what is due there finish.
"""

from __future__ import annotations

import asyncio
from datetime import datetime, timedelta
from typing import Any
from weakref import WeakKeyDictionary

from perdure.app import Perdure
from perdure.authoring.step import StepDefinition
from perdure.authoring.workflow import WorkflowDefinition
from perdure.model.durations import instant, micros
from perdure.ports.store import Store
from perdure.testing.clock import START, ManualClock

#: Seconds, some thirty years. Nothing is looked for "in any case" here, only because it is due.
_NEVER = 1e9


class TestApp(Perdure):
    """As `Perdure`, but on a `ManualClock`. The definitions given are served; those that are started are served anyway.

    `url` may be any store's, or `store` any store on the same clock: several apps on one store and one clock are several
    processes. `now`: what the clock says at first (an aware datetime or seconds since the epoch; default: the start of
    2025). `settle_within`: real seconds that `settle` waits for steps in flight before it says which ones do not end.
    Other options are `Perdure`'s.
    """

    __test__ = False  # pytest: no class of tests

    def __init__(
        self,
        *definitions: StepDefinition[..., Any] | WorkflowDefinition[..., Any],
        url: str = "memory://",
        store: Store | None = None,
        clock: ManualClock | None = None,
        now: datetime | float | None = None,
        settle_within: float = 30.0,
        **options: Any,
    ) -> None:
        #: The one source of time of this app.
        self.clock = clock or ManualClock(START if now is None else instant(now, "now"))
        #: Real seconds.
        self.settle_within = settle_within
        settings: dict[str, Any] = {"poll": _NEVER, "audit": _NEVER, **options}
        super().__init__(url, store=store, clock=self.clock, **settings)
        self.register(*definitions)

    @property
    def store(self) -> Store:
        """The store of the open app."""
        return self.engine.store

    async def settle(self, *, steps: bool = True) -> None:
        """Wait until nothing more can happen at this time: every run has ended or waits for a message or for the clock.

        With `steps` False, steps in flight that wait for something of their own (or run in threads) are left to themselves:
        for tests that hold one at a barrier. Raises `TimeoutError` naming the steps that did not end.
        """
        engine = self.engine
        engine.claimer.kick()  # so that what other apps put into the store is seen
        try:
            async with asyncio.timeout(self.settle_within):
                await engine.rest(steps=steps)
                while at_once() > 0:
                    await let_others_go_on()
                    await engine.rest(steps=steps)
        except TimeoutError:
            running = ", ".join(self._in_flight()) or "no step"
            raise TimeoutError(
                f"the app did not come to rest within {self.settle_within:g} real seconds; in flight: {running}. "
                "Use settle(steps=False) to leave steps running"
            ) from None

    async def tick(self, by: float | timedelta, *, steps: bool = True) -> None:
        """Move the clock on by seconds or a `timedelta`, stopping wherever something is due, and settle at each stop."""
        end = self.clock.now() + micros(by)
        await self.settle(steps=steps)
        while (due := self.clock.next_alarm()) is not None and due <= end:
            self.clock.set(due)
            await self.settle(steps=steps)
        self.clock.set(end)
        await self.settle(steps=steps)

    def _in_flight(self) -> list[str]:
        return [
            f"step {operation.name!r} of run {held.key.id!r}"
            for held in self.engine.executor.holdings.all()
            for seq, operation in held.instance.steps.items()
            if seq in held.tasks
        ]


#: How many tasks of a loop are in `let_others_go_on`.
_polite: WeakKeyDictionary[asyncio.AbstractEventLoop, int] = WeakKeyDictionary()


def at_once() -> int:
    """How many tasks and callbacks of this loop could go on right now, those aside that only ask this themselves.

    None, where the loop does not tell.
    """
    loop = asyncio.get_running_loop()
    return len(getattr(loop, "_ready", ())) - _polite.get(loop, 0)


async def let_others_go_on() -> None:
    """Everything that could go on at once does."""
    loop = asyncio.get_running_loop()
    _polite[loop] = _polite.get(loop, 0) + 1
    try:
        await asyncio.sleep(0)
    finally:
        _polite[loop] -= 1


__all__ = ["TestApp"]
