"""What one behaviour test works in: a store and a clock that all its processes share, and races made by hand."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeVar

from perdure import Lifecycle, StoreUnavailable
from perdure.core.instance import Instance
from perdure.engine.cache import Cache
from perdure.model.commit import TurnCommit
from perdure.model.run import Status
from perdure.ports.fleet import Process
from perdure.ports.store import Held, Renewal, Renewer, Store
from perdure.stores.memory import MemoryStore
from perdure.testing import ManualClock, TestApp
from perdure.testing.kit import at_once, let_others_go_on

T = TypeVar("T")

#: How parked instances are kept: all of them ("on"), none ("0"), or "random".
CACHES = ("on", "0", "random")


class World:
    """One store, one clock. Each app made here is another process."""

    def __init__(self, url: str, cache: str) -> None:
        self.clock = ManualClock()
        self.url = self._url = url
        self._gates: list[Gate] = []
        self._memory = MemoryStore(self.clock) if url == "memory://" else None
        self._options: dict[str, Any] = {"cache": 0} if cache == "0" else {}

    def app(self, *definitions: Any, store: Any = None, **options: Any) -> TestApp:
        """A process that serves these definitions."""
        if store is None and self._memory is not None:
            store = self._memory.view()
        options = self._options | options
        return TestApp(*definitions, url=self._url, store=store, clock=self.clock, **options)

    def client(self, *definitions: Any, **options: Any) -> TestApp:
        """A process that only talks to the store: what it starts, it leaves to others."""
        return self.app(*definitions, consume=False, **options)

    def doomed(self, *definitions: Any, **options: Any) -> TestApp:
        """A process that will be killed: when it is left, its steps die, and it gives nothing back."""
        gate = self.gate()
        gate.mute("release")
        gate.mute("depart")
        return self.app(*definitions, store=gate, drain=0.001, **options)

    def gate(self) -> Gate:
        """Another process's store, for `app(store=...)`, that can be stopped, or made to fail, at a verb."""
        gate = Gate(self.store())
        self._gates.append(gate)
        return gate

    def store(self) -> Store:
        """Another process's store, not opened."""
        if self._memory is not None:
            return self._memory.view()
        from perdure.app import open_store

        return open_store(self._url, self.clock)

    async def pass_time(self, work: Awaitable[T]) -> T:
        """What `work` gives. Until then, whenever all apps (which must be on gates) only wait, time jumps to the next alarm."""
        task = asyncio.ensure_future(work)
        while not task.done():
            await let_others_go_on()
            due = self.clock.next_alarm()
            busy = at_once() > 0 or any(gate.at_work for gate in self._gates)
            if not (busy or task.done()) and due is not None and due <= self.after(3600):
                self.clock.set(due)
        return task.result()

    def after(self, seconds: float) -> int:
        """Microseconds: the time that many seconds from now."""
        return self.clock.now() + round(seconds * 1_000_000)


class Stop:
    """A place in a store where calls wait until they are released."""

    def __init__(self) -> None:
        self.reached = asyncio.Event()
        self._go = asyncio.Event()

    async def hold(self) -> None:
        self.reached.set()
        await self._go.wait()

    def release(self) -> None:
        self._go.set()


Condition = Callable[..., bool]


def always(*arguments: Any) -> bool:
    return True


class Gate:
    """A Store that does what another one does, but where a test says so it waits, or fails, before or after a verb."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._hooks: list[tuple[str, str, Condition, Callable[[], Any]]] = []
        self.muted: set[str] = set()
        self._stops: list[Stop] = []
        #: How often each verb was called.
        self.calls: dict[str, int] = {}
        #: How many calls the store is working on.
        self.at_work = 0
        #: True: its leases cannot be renewed.
        self.frozen = False

    def mute(self, verb: str) -> None:
        """From now on the verb does nothing at all."""
        self.muted.add(verb)

    def renewer(self) -> Renewer:
        return Freezer(self, self._store.renewer())

    def stop(self, when: str, verb: str, condition: Condition = always) -> Stop:
        """Have the next call of `verb` that fits wait; `when`: "before" or "after" it is done."""
        stop = Stop()
        self._stops.append(stop)
        self._add(when, verb, condition, stop.hold)
        return stop

    def release_all(self) -> None:
        """Nothing is stopped any more."""
        self._hooks.clear()
        for stop in self._stops:
            stop.release()

    def fail(self, when: str, verb: str, error: Exception, condition: Condition = always, *, times: int = 1) -> None:
        """Have the next calls of `verb` that fit raise."""

        async def hold() -> None:
            raise error

        for _ in range(times):
            self._add(when, verb, condition, hold)

    def watch(self, verb: str, see: Callable[..., Any]) -> None:
        """Have `see` called with the arguments of every call of `verb`."""
        self._hooks.append(("before", verb, lambda *arguments: bool(see(*arguments)) and False, _nothing))

    def _add(self, when: str, verb: str, condition: Condition, action: Callable[[], Any]) -> None:
        self._hooks.append((when, verb, condition, action))

    async def _pass(self, when: str, verb: str, arguments: tuple[Any, ...]) -> None:
        for hook in self._hooks:
            if hook[:2] == (when, verb) and hook[2](*arguments):
                self._hooks.remove(hook)
                await hook[3]()
                return

    def __getattr__(self, verb: str) -> Any:
        inner = getattr(self._store, verb)
        if not asyncio.iscoroutinefunction(inner):
            return inner

        async def call(*arguments: Any, **keywords: Any) -> Any:
            self.calls[verb] = self.calls.get(verb, 0) + 1
            if verb in self.muted:
                return None
            await self._pass("before", verb, arguments)
            self.at_work += 1
            try:
                result = await inner(*arguments, **keywords)
            finally:
                self.at_work -= 1
            await self._pass("after", verb, arguments)
            return result

        return call


async def _nothing() -> None: ...


class Freezer:
    """The renewer of a gate."""

    def __init__(self, gate: Gate, renewer: Renewer) -> None:
        self._gate = gate
        self._renewer = renewer

    def renew(self, owner: str, lease: int, held: Sequence[Held]) -> Sequence[Renewal]:
        if self._gate.frozen:
            raise StoreUnavailable("frozen")
        return self._renewer.renew(owner, lease, held)

    def release(self, owner: str, held: Sequence[Held]) -> None:
        self._renewer.release(owner, held)

    def beat(self, process: Process, ttl: int) -> None:
        if self._gate.frozen:
            raise StoreUnavailable("frozen")
        self._renewer.beat(process, ttl)

    def depart(self, owner: str) -> None:
        if "depart" not in self._gate.muted:
            self._renewer.depart(owner)

    def close(self) -> None:
        self._renewer.close()


def parks(batch: Sequence[Any]) -> bool:
    """A batch of writes with a turn that parks its run."""
    return _turns(batch, Status.SUSPENDED)


def ends(batch: Sequence[Any]) -> bool:
    """A batch of writes with a turn that completes its run."""
    return _turns(batch, Status.COMPLETED)


def goes_on(batch: Sequence[Any]) -> bool:
    """A batch of writes with a turn that keeps its run."""
    return _turns(batch, Status.RUNNING)


def _turns(batch: Sequence[Any], status: Status) -> bool:
    turns = [write if isinstance(write, TurnCommit) else getattr(write, "turn", None) for write in batch]
    return any(turn is not None and turn.status is status for turn in turns)


class Fickle(Cache):
    """A cache that drops parked instances by chance."""

    chance = random.Random(0)

    def put(self, incarnation: int, n: int, fingerprint: str, instance: Instance) -> None:
        super().put(incarnation, n, fingerprint, instance)
        while len(self) and self.chance.random() < 0.5:
            self.evict()


class Barrier:
    """A place in a step: it says that it was reached, and waits until it may go on."""

    def __init__(self) -> None:
        self.reached = asyncio.Event()
        self.opened = asyncio.Event()
        #: How often it was reached.
        self.count = 0

    async def wait(self) -> None:
        self.count += 1
        self.reached.set()
        await self.opened.wait()

    def open(self) -> None:
        self.opened.set()


def events_of(app: TestApp) -> list[Lifecycle]:
    """A list of all lifecycle events of the app from now on."""
    events: list[Lifecycle] = []
    app.subscribe(events.append)
    return events


def kinds(events: Sequence[Lifecycle], run_id: str | None = None) -> list[str]:
    return [event.kind for event in events if run_id in (None, event.run_id)]


async def settled_status(app: TestApp, run_id: str) -> Status:
    """How a run stands once the app has come to rest."""
    await app.settle()
    return await app.get_run(run_id).status()
