"""A simulated process: an app on a loop of its own, over its own view of the shared store."""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from random import Random
from typing import Any, Protocol

from perdure import Perdure
from perdure.authoring import ambient
from perdure.core.instance import Instance
from perdure.engine.executor import Executor
from perdure.engine.services.renewal import Renewal
from perdure.engine.services.watchdog import Watchdog
from perdure.model.errors import StoreUnavailable, UsageError
from perdure.ports.clock import Alarm, Clock
from perdure.ports.store import Finding
from perdure.stores.memory import MemoryStore
from tests.simulation.hostloop import HostLoop, bury

#: The process that the running code belongs to.
current: contextvars.ContextVar[Process] = contextvars.ContextVar("current")


class Gone(Exception):
    """The process was killed, or closed its app, before it answered."""


class State(Enum):
    UP = auto()
    CLOSING = auto()
    GONE = auto()


#: Verbs that change something: those that a crash can cut.
CHANGING = frozenset({"write", "claim", "release", "unblock", "audit", "block_unserved"})


@dataclass(frozen=True)
class Weather:
    """How likely each trouble is, at each verb of each process's store (or, `crash` and `stop`, at each of its callbacks)."""

    unavailable: float = 0.0
    lost_answer: float = 0.0
    crash_in_verb: float = 0.0
    stop_in_verb: float = 0.0
    crash: float = 0.0
    stop: float = 0.0
    leave: float = 0.0
    lost_hint: float = 0.0
    jump: float = 0.0
    slow: float = 0.3


class World(Protocol):
    """What a process needs of the fleet."""

    clock: Any
    rng: Random
    weather: Weather

    def seconds(self) -> float: ...
    def trouble(self, what: str) -> None: ...
    def tell(self, what: str) -> None: ...
    def at_verb(self, process: Process, when: str, verb: str) -> None: ...


class Wire:
    """The Store port as one process has it: answers come late, or never; the process may end, or stop, at each of them."""

    def __init__(self, store: MemoryStore, process: Process) -> None:
        self._store = store
        self._process = process

    def __getattr__(self, verb: str) -> Any:
        inner = getattr(self._store, verb)
        if not asyncio.iscoroutinefunction(inner):
            return inner

        async def call(*arguments: Any, **keywords: Any) -> Any:
            await self._pass("before", verb)
            result = await inner(*arguments, **keywords)
            if verb in CHANGING:
                self._process.world.tell(f"{self._process.name} {verb}: {_shown(verb, arguments, result)}")
            await self._pass("after", verb)
            return result

        return call

    async def audit(self, *, heal: bool = True) -> Sequence[Finding]:
        findings = await self._store.audit(heal=heal)
        for finding in findings:
            self._process.world.trouble(f"the audit found: {finding.run.id} {finding.what}")
        return findings

    def on_change(self, callback: Callable[[], None]) -> Callable[[], None]:
        process, world = self._process, self._process.world

        def hint() -> None:
            if process.state is not State.GONE and world.rng.random() >= world.weather.lost_hint:
                callback()

        return self._store.on_change(hint)

    async def _pass(self, when: str, verb: str) -> None:
        process, world = self._process, self._process.world
        weather, rng = world.weather, world.rng
        if verb in CHANGING:
            world.at_verb(process, when, verb)
        if rng.random() < weather.slow:
            for _ in range(rng.randrange(3)):
                await asyncio.sleep(0)
        if rng.random() < (weather.unavailable if when == "before" else weather.lost_answer):
            raise StoreUnavailable(f"no answer to {verb} this time")
        if verb in CHANGING:
            if rng.random() < weather.crash_in_verb:
                process.kill()
            elif rng.random() < weather.stop_in_verb:
                process.stop(rng.uniform(0.1, 20.0))
        if process.frozen:
            await asyncio.sleep(0)  # where it stands until its loop is stepped again, if it ever is


class ClockedRenewal(Renewal):
    """Leases are renewed at the clock's times, not from a thread: as often, and by the same code."""

    _alarm: Alarm | None = None

    def start(self) -> None:
        self._renewed = self._means.store.now()
        self._renewer = self._means.store.renewer()
        self._arm()

    def _arm(self) -> None:
        when = self._means.clock.now() + self._means.settings.lease // 3
        self._alarm = self._means.clock.call_at(when, self._ring)

    def _ring(self) -> None:
        self._renew(self._renewer)
        self._beat(self._renewer)
        self._arm()

    async def beat(self) -> None:
        self._beat(self._renewer)
        await asyncio.sleep(0)  # what comes of it comes as from a thread

    def kick_beat(self) -> None: ...

    def kick(self) -> None:
        if len(self._executor.holdings):
            self._means.loop.call_soon(self._renew, self._renewer)

    async def fresh(self) -> bool:
        if len(self._executor.holdings) and not self._fresh():
            self._renew(self._renewer)
            await asyncio.sleep(0)  # what it found comes as from a thread
        return self._fresh() or not len(self._executor.holdings)

    async def stop(self) -> None:
        if self._alarm is not None:
            self._alarm.cancel()
            self._membership.depart(self._renewer)


class NoWatchdog(Watchdog):
    """Nothing blocks a simulated loop."""

    def start(self) -> None: ...

    def dead(self) -> bool:
        return False


def noted(make: Callable[..., Instance]) -> Callable[..., Instance]:
    """`Executor.instance`, so that a process that died can be cleaned up after."""

    def make_and_note(executor: Executor, *arguments: Any) -> Instance:
        instance = make(executor, *arguments)
        current.get().instances.append(instance)
        return instance

    return make_and_note


class Process:
    """Up from its making on. `options` are those of `Perdure`."""

    def __init__(self, world: World, store: MemoryStore, clock: Clock, name: str, **options: Any) -> None:
        self.world = world
        self.name = name
        self.state = State.UP
        self.loop = HostLoop(world.seconds, self._unhandled)
        #: Seconds: it does nothing before.
        self.stopped_until = 0.0
        #: What its engine calls itself in leases.
        self.owner = ""
        self._executor: Executor | None = None
        #: All that it ever made; else the collector would find those of a dead process, and complain.
        self.instances: list[Instance] = []
        self._open = False
        self._leave = asyncio.Event()
        self._owed: dict[asyncio.Future[Any], HostLoop] = {}
        self.app = Perdure(store=Wire(store.view(), self), clock=clock, **options)
        context = contextvars.copy_context()
        context.run(current.set, self)
        self._main = context.run(self.loop.create_task, self._live())

    @property
    def frozen(self) -> bool:
        return self.state is State.GONE or self.world.seconds() < self.stopped_until

    @property
    def ready(self) -> bool:
        """True if it can be asked to do something."""
        return self._open and self.state is State.UP

    def epoch_of(self, incarnation: int) -> int | None:
        """By which claim it holds a run."""
        held = None if self._executor is None else self._executor.holdings.get(incarnation)
        return None if held is None else held.epoch

    async def _live(self) -> None:
        while not self._open:
            try:
                await self.app.__aenter__()
            except StoreUnavailable:
                await asyncio.sleep(0.5)  # as its supervisor would
            else:
                self._open = True
                self.owner = self.app.engine.means.owner
                self._executor = self.app.engine.executor
        await self._leave.wait()
        try:
            await self.app.__aexit__(None, None, None)
        except StoreUnavailable:
            pass  # at the very end
        self.state = State.GONE
        self._disappoint()

    def _unhandled(self, what: str) -> None:
        if self.state is not State.GONE:
            self.world.trouble(f"{self.name}: {what}")

    def kill(self) -> None:
        """As by SIGKILL: no line of it runs any more."""
        self.state = State.GONE
        self.world.tell(f"{self.name} is killed")
        self._disappoint()

    def stop(self, seconds: float) -> None:
        """As by SIGSTOP and SIGCONT, or on a machine that sleeps."""
        self.stopped_until = self.world.seconds() + seconds
        self.world.tell(f"{self.name} is stopped for {seconds:.1f} s")

    def leave(self) -> None:
        """As by SIGTERM: close the app, then end."""
        if self.ready:
            self.state = State.CLOSING
            self.world.tell(f"{self.name} closes")
            self.loop.call_soon(self._leave.set)

    def run(self, act: Callable[[Perdure], Awaitable[Any]], answer: asyncio.Future[Any], to: HostLoop) -> None:
        """Do something with its app; `answer`, on loop `to`, gets what came of it, or `Gone`."""
        self._owed[answer] = to

        async def do() -> None:
            result: Any = None
            error: Exception | None = None
            try:
                result = await act(self.app)
            except UsageError as raised:
                closed = self.state is not State.UP and "closed" in str(raised)
                error = Gone(self.name) if closed else raised
            except Exception as raised:
                error = raised
            if self._owed.pop(answer, None) is not None:
                to.call_soon(_settle, answer, result, error)

        context = contextvars.copy_context()
        context.run(current.set, self)
        context.run(self.loop.create_task, do())

    def _disappoint(self) -> None:
        owed, self._owed = self._owed, {}
        for answer, loop in owed.items():
            loop.call_soon(_settle, answer, None, Gone(self.name))

    def bury(self) -> None:
        """Clean up after it, for the sake of the real process."""
        ambient.leave(self.app)
        for instance in self.instances:
            instance.close()
        bury(self.loop)


def _shown(verb: str, arguments: Sequence[Any], result: Any) -> str:
    """One verb and its answer, for the tale."""
    if verb == "claim":
        return ", ".join(f"{each.run.id} ({each.was}, epoch {each.run.epoch})" for each in result)
    if verb != "write":
        return f"{arguments} -> {result}"
    parts: list[str] = []
    for write, answer in zip(arguments[0], result, strict=True):
        turn = getattr(write, "turn", None) or write
        run_id = getattr(getattr(write, "run", None), "id", None) or getattr(write, "run_id", "")
        entries = "+".join(f"{entry.event.name}#{entry.seq}" for entry in getattr(turn, "entries", ()))
        status = getattr(turn, "status", "")
        parts.append(f"{type(write).__name__} {run_id} {entries} {status} -> {type(answer).__name__}")
    return "; ".join(parts)


def _settle(answer: asyncio.Future[Any], result: Any, error: Exception | None) -> None:
    if answer.done():
        return
    if error is None:
        answer.set_result(result)
    else:
        answer.set_exception(error)
