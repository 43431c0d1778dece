"""A fleet of simulated processes on one store and one clock, in one thread; a seed decides everything.

What is deterministic, and how: each process has its own event loop, which runs only when the fleet steps it; which process is
stepped next, what happens to it and when time moves are drawn from `Random(seed)`; there are no threads (renewals are driven
by the clock) and no real time; what Perdure draws by chance (owners, run seeds, jitter) comes from the same generator. So a
seed gives the same story in every run, on every machine with the same Python.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
import logging
from collections.abc import Awaitable, Callable, Coroutine, Generator, Sequence
from contextlib import contextmanager
from random import Random
from typing import Any, TypeVar
from unittest.mock import patch

from perdure import Perdure
from perdure.engine.executor import Executor
from perdure.model.errors import StoreUnavailable
from perdure.stores.memory import MemoryStore
from perdure.testing import ManualClock
from tests.simulation.hostloop import HostLoop, bury
from tests.simulation.process import ClockedRenewal, Gone, NoWatchdog, Process, State, Weather, noted
from tests.simulation.truth import Truth

T = TypeVar("T")

#: Seconds of virtual time, and callbacks, after which a simulation is stuck.
_HORIZON = 24 * 3600.0
_CALLBACKS = 2_000_000

#: What every process of a fleet is set to (seconds).
SETTINGS: dict[str, Any] = {"lease": 5.0, "poll": 1.0, "audit": 30.0, "drain": 2.0, "max_recoveries": 1000}


class Chance:
    """Stands in for the module `secrets`."""

    def __init__(self, rng: Random) -> None:
        self._rng = rng

    def token_hex(self, size: int) -> str:
        return self._rng.randbytes(size).hex()

    def randbits(self, count: int) -> int:
        return self._rng.getrandbits(count)

    def SystemRandom(self) -> Random:  # noqa: N802
        return self._rng


class Fleet:
    """See the head of this module. Use inside `simulated()`."""

    def __init__(self, rng: Random, *, include: Sequence[Any], weather: Weather | None = None, size: int = 3) -> None:
        self.rng = rng
        self.weather = weather or Weather()
        self.clock = ManualClock()
        self.store = MemoryStore(self.clock)
        self.problems: list[str] = []
        self.truth = Truth(self.store, self.trouble)
        self.director = HostLoop(self.seconds, lambda what: self.trouble(f"director: {what}"))
        self.processes: list[Process] = []
        self.buried: list[Process] = []
        #: Tokens and payloads of what was sent to tokens.
        self.sent: list[tuple[str, int]] = []
        #: What happened, in order.
        self.tale: list[str] = []
        #: Called at each verb that changes something; a hook for those who cut at a certain one.
        self.on_verb: Callable[[Process, str, str], None] = lambda process, when, verb: None
        #: Whoever is asked first, as long as it can be.
        self.favourite: Process | None = None
        self._include = include
        self._size = size
        self._seconds = 0.0
        self._names = itertools.count()
        self._later: list[tuple[float, int, Callable[[], None]]] = []
        self._steps = 0

    # -- what processes ask for ---------------------------------------------------------------------------------------

    def seconds(self) -> float:
        """Time that only ever grows."""
        return self._seconds

    def trouble(self, what: str) -> None:
        """Something that must not be."""
        self.problems.append(f"{self._seconds:.3f} s: {what}")

    def tell(self, what: str) -> None:
        """Something that happened."""
        self.tale.append(f"{self._seconds:.3f} s: {what}")

    def at_verb(self, process: Process, when: str, verb: str) -> None:
        self.on_verb(process, when, verb)

    # -- processes ----------------------------------------------------------------------------------------------------

    def spawn(self, **options: Any) -> Process:
        name = f"p{next(self._names)}"
        made = Process(self, self.store, self.clock, name, include=self._include, **(SETTINGS | options))
        self.processes.append(made)
        return made

    async def do(self, act: Callable[[Perdure], Awaitable[T]]) -> T:
        """Have some process do this, and another one if that one is gone before it answers. On the director's loop."""
        while True:
            ready = [process for process in self.processes if process.ready]
            if self.favourite is not None and self.favourite.state is State.UP and not self.favourite.frozen:
                ready = [self.favourite] if self.favourite.ready else []
            if ready:
                answer: asyncio.Future[T] = self.director.create_future()
                self.rng.choice(ready).run(act, answer, self.director)
                try:
                    return await answer
                except (Gone, StoreUnavailable):
                    pass
            await asyncio.sleep(self.rng.uniform(0.01, 0.5))

    @property
    def callbacks(self) -> int:
        """How many rounds it took."""
        return self._steps

    def director_runs(self, story: Coroutine[Any, Any, T]) -> T:
        """Something that needs no process and no time."""
        task = self.director.create_task(story)
        while not task.done():
            self.director.step()
        return task.result()

    # -- the world goes on --------------------------------------------------------------------------------------------

    def run(self, story: Coroutine[Any, Any, T]) -> T | None:
        """Until the story is told. None, and a problem, if it never is."""
        while len(self.processes) < self._size:
            self.spawn()
        task = self.director.create_task(story)
        while not task.done():
            if not self._one() and not self._pass_time():
                self.trouble("nothing more can happen, but the story is not told")
                break
            self._steps += 1
            if self._steps > _CALLBACKS or self._seconds > _HORIZON:
                self.trouble("it never ends")
                break
        if not task.done():
            return None
        return task.result()

    def _one(self) -> bool:
        """One callback of one process that has any."""
        self._bury_the_dead()
        loops = [self.director] if self.director.has_work() else []
        awake = [process for process in self.processes if not process.frozen]
        candidates: list[Process | None] = [process for process in awake if process.loop.has_work()]
        candidates += [None] * len(loops)
        if not candidates:
            return False
        process = self.rng.choice(candidates)
        if process is None:
            self.director.step()
            return True
        for _ in range(self.rng.randrange(1, 8)):
            process.loop.step()
            if process.frozen:
                break
        self._strike(process)
        return True

    def _strike(self, process: Process) -> None:
        weather, draw = self.weather, self.rng.random()
        if process.state is State.GONE:
            return
        for likely, strike in (
            (weather.crash, process.kill),
            (weather.stop, lambda: process.stop(self.rng.uniform(0.1, 20.0))),
            (weather.leave, process.leave),
            (weather.jump, lambda: self._jump(self.rng.choice([-2.0, 1.0, 30.0]))),
        ):
            if draw < likely:
                strike()
                return
            draw -= likely

    def _jump(self, seconds: float) -> None:
        """The machines' clocks are set."""
        self.tell(f"the clock jumps by {seconds:g} s")
        self.clock.set(self.clock.now() + round(seconds * 1_000_000))

    def _bury_the_dead(self) -> None:
        for process in [process for process in self.processes if process.state is State.GONE]:
            self.processes.remove(process)
            self.buried.append(process)
            if len(self.processes) + len(self._later) < self._size:
                self._in(self.rng.uniform(0.0, 3.0), lambda: void(self.spawn()))

    def _in(self, seconds: float, call: Callable[[], None]) -> None:
        heapq.heappush(self._later, (self._seconds + seconds, next(self._names), call))

    def _pass_time(self) -> bool:
        """To the next moment at which something happens; False if nothing ever will."""
        now = self.clock.now()
        alarm = self.clock.next_alarm()
        moments = [(alarm - now) / 1_000_000] if alarm is not None else []
        timers = [self.director.next_timer(), *(p.loop.next_timer() for p in self.processes if not p.frozen)]
        timers += [process.stopped_until for process in self.processes if process.stopped_until > self._seconds]
        timers += [self._later[0][0]] if self._later else []
        moments += [when - self._seconds for when in timers if when is not None]
        if not moments:
            return False
        step = max(0.0, min(moments))
        self._seconds += step
        self.clock.set(now + -int(-step * 1_000_000 // 1))
        while self._later and self._later[0][0] <= self._seconds:
            heapq.heappop(self._later)[2]()
        return True

    # -- the end ------------------------------------------------------------------------------------------------------

    def close(self) -> None:
        """Let go of everything that is left, without a word."""
        for process in (*self.buried, *self.processes):
            process.bury()
        bury(self.director)


def void(thing: object) -> None:
    """For calls whose result nobody wants."""


class _Faults(logging.Handler):
    """Whatever Perdure logs as its own fault is a problem."""

    def __init__(self, fleet: list[Fleet]) -> None:
        super().__init__(logging.ERROR)
        self._fleet = fleet

    def emit(self, record: logging.LogRecord) -> None:
        if self._fleet:
            error = f": {record.exc_info[1]!r}" if record.exc_info else ""
            self._fleet[0].trouble(f"logged: {record.getMessage()}{error}")


@contextmanager
def simulated(
    seed: object, *, include: Sequence[Any], weather: Weather | None = None, size: int = 3
) -> Generator[Fleet]:
    """A fleet in a world where chance comes from the seed and renewals from the clock."""
    rng = Random(str(seed))
    fleets: list[Fleet] = []
    handler = _Faults(fleets)
    logger = logging.getLogger("perdure.engine")
    level, propagate = logger.level, logger.propagate
    logger.addHandler(handler)
    logger.propagate = False
    try:
        with (
            patch("perdure.engine.engine.Renewal", ClockedRenewal),
            patch("perdure.engine.engine.Watchdog", NoWatchdog),
            patch("perdure.app.opened.secrets", Chance(rng)),
            patch("perdure.app.starting.secrets", Chance(rng)),
            patch.object(Executor, "instance", noted(Executor.instance)),
            patch("perdure.engine.sending.secrets", Chance(Random(0))),  # ids of signals: they steer nothing
        ):
            fleet = Fleet(rng, include=include, weather=weather, size=size)
            fleets.append(fleet)
            try:
                yield fleet
            finally:
                fleets.clear()
                fleet.close()
    finally:
        logger.removeHandler(handler)
        logger.setLevel(level)
        logger.propagate = propagate
