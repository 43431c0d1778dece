"""The app: where a URL becomes a running engine. The only module that knows concrete adapters."""

from __future__ import annotations

import asyncio
import os
import secrets
import socket
import time  # noqa: TID251  (a monotonic clock for the watchdog; all other time is the store's)
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Self, TypeVar, Unpack, cast, overload
from urllib.parse import parse_qsl, unquote, urlsplit

from perdure.authoring import ambient
from perdure.authoring.arity import Takes0, Takes1, Takes2, Takes3, Takes4, Takes5
from perdure.authoring.options import StartKeywords, StartOptions
from perdure.authoring.registry import Registry, listed
from perdure.authoring.step import StepDefinition
from perdure.authoring.workflow import BoundWorkflow, WorkflowDefinition
from perdure.engine import door
from perdure.engine.engine import Engine
from perdure.engine.events import Events, Lifecycle
from perdure.engine.handle import RunHandle, check_stored, outgoing_signal, send
from perdure.engine.listing import run_query
from perdure.engine.means import Means
from perdure.engine.settings import SettingsKeywords, settings
from perdure.engine.systemclock import SystemClock
from perdure.model.commit import Create, Ended, Exists
from perdure.model.errors import RunEnded, UsageError
from perdure.model.ids import check_known_id
from perdure.model.messages import Outgoing
from perdure.model.run import DEFAULT_NAMESPACE, NewRun, Run, Status
from perdure.model.shown import shown, without_secrets
from perdure.ports.clock import Clock
from perdure.ports.store import Store

R = TypeVar("R")
A = TypeVar("A")
B = TypeVar("B")
C = TypeVar("C")
D = TypeVar("D")
E = TypeVar("E")


class Perdure:
    """Durable workflows on one store.

    `url`: `sqlite:///orders.db` (a path; four slashes for an absolute one; `?synchronous=NORMAL` trades the last commits of a
    power cut for speed), `postgresql://user:password@host/database` (with `?schema=...`; needs `perdure[postgres]`) or
    `memory://`. `include`: modules to import whose workflows and steps this process serves; what was
    defined in the program's own file, and what is started here, is served anyway. Other keywords: see `SettingsKeywords`
    (durations in seconds or `timedelta`).

    `async with app:` opens the store and works in this process; `app.client()` only talks to the store. Nothing is opened or
    started before. One event loop uses an app.
    """

    def __init__(
        self,
        url: str = "sqlite:///perdure.db",
        *,
        include: Iterable[Any] = (),
        store: Store | None = None,
        clock: Clock | None = None,
        consume: bool = True,
        registry: Registry | None = None,
        **options: Unpack[SettingsKeywords],
    ) -> None:
        self.url = url
        self.registry = Registry() if registry is None else registry
        self.settings = settings(options)
        self.registry.plan(listed(include))
        self._clock = clock or SystemClock()
        self._given_store = store
        self._consume = consume
        self._engine: Engine | None = None
        self._events = Events()
        self._opening = False
        #: True if something was registered that the engine was not told of.
        self._news = False
        if store is None:
            open_store(url, self._clock)  # a bad URL is told here, not at the first use; nothing is opened yet

    # -- opening ------------------------------------------------------------------------------------------------------

    async def __aenter__(self) -> Self:
        if self._engine is not None or self._opening:
            raise UsageError("this app is open already; make another one for another `async with`")
        self._opening = True
        try:
            return await self._open()
        finally:
            self._opening = False

    async def _open(self) -> Self:
        self.registry.load()
        self._news = False  # the engine begins with all that was registered until here
        store = self._given_store or open_store(self.url, self._clock)
        await store.open()
        ambient.enter(self)
        engine: Engine | None = None
        try:
            means = Means(
                store=store,
                clock=self._clock,
                registry=self.registry,
                settings=self.settings,
                events=self._events,
                owner=f"{socket.gethostname()}:{os.getpid()}:{secrets.token_hex(4)}",
                pid=os.getpid(),
                chance=secrets.SystemRandom().random,
                monotonic=time.monotonic,
                loop=asyncio.get_running_loop(),
            )
            engine = Engine(means, consume=self._consume)
            await engine.start()
        except (Exception, asyncio.CancelledError):  # a coroutine that is being dropped cannot await
            ambient.leave(self)
            if engine is not None:
                await engine.stop()
            await store.close()
            raise
        self._engine = engine
        return self

    async def __aexit__(self, *raised: object) -> None:
        if self._engine is not None and door.inherited(self._engine):
            return  # nothing of it is ours
        engine = self.engine
        try:
            await engine.stop()  # steps that are still at work may use the app meanwhile
        finally:
            self._engine = None
            ambient.leave(self)
            await engine.means.store.close()

    @property
    def engine(self) -> Engine:
        """The running engine. Raises `UsageError` while the app is not open, and where it may not be used."""
        if self._engine is None:
            raise UsageError("this app is not open; write `async with app:` around its use")
        return door.enter(self._engine)

    def client(self) -> Perdure:
        """Another app on the same store that only talks to it and runs nothing: for web handlers and scripts."""
        store = self._given_store
        if store is None and self.url.startswith("memory:"):
            # What is in memory is only to be found by sharing it.
            store = self._given_store = open_store(self.url, self._clock)
        client = Perdure(
            self.url,
            store=store,
            clock=self._clock,
            consume=False,
            registry=self.registry,
        )
        client.settings = self.settings
        return client

    def register(self, *definitions: StepDefinition[..., Any] | WorkflowDefinition[..., Any]) -> None:
        """Serve these too. On an open app it counts from the next start on."""
        if self.registry.add(*definitions):
            self._news = True

    # -- starting -----------------------------------------------------------------------------------------------------

    @overload
    async def start(self, workflow: Takes0[R], /, **options: Unpack[StartKeywords]) -> RunHandle[R]: ...
    @overload
    async def start(self, workflow: Takes1[A, R], a: A, /, **options: Unpack[StartKeywords]) -> RunHandle[R]: ...
    @overload
    async def start(
        self, workflow: Takes2[A, B, R], a: A, b: B, /, **options: Unpack[StartKeywords]
    ) -> RunHandle[R]: ...
    @overload
    async def start(
        self, workflow: Takes3[A, B, C, R], a: A, b: B, c: C, /, **options: Unpack[StartKeywords]
    ) -> RunHandle[R]: ...
    @overload
    async def start(
        self, workflow: Takes4[A, B, C, D, R], a: A, b: B, c: C, d: D, /, **options: Unpack[StartKeywords]
    ) -> RunHandle[R]: ...
    @overload
    async def start(
        self, workflow: Takes5[A, B, C, D, E, R], a: A, b: B, c: C, d: D, e: E, /, **options: Unpack[StartKeywords]
    ) -> RunHandle[R]: ...
    @overload
    async def start(self, workflow: str, /, *inputs: Any, **options: Unpack[StartKeywords]) -> RunHandle[Any]: ...
    async def start(self, workflow: Any, /, *inputs: Any, **options: Unpack[StartKeywords]) -> RunHandle[Any]:
        """Start a run: positionals are the workflow's input, keywords are Perdure's. Returns once it is durable.

        The same `id` again starts nothing and gives a handle on the run that has it. Raises `NotRegistered`,
        `InvalidArguments`, `InvalidValue`, `InvalidId` before anything is written.
        """
        definition, chosen = self._resolve(workflow, options, "app.start")
        return await self._start(definition, definition.encode_input(inputs, {}), chosen, ())

    async def launch(
        self, definition: WorkflowDefinition[Any, Any], input: bytes, options: StartOptions
    ) -> RunHandle[Any]:
        """What `workflow.start(...)` and `workflow.run(...)` do outside workflows."""
        self._serve_too(definition)
        return await self._start(definition, input, options.over(definition.declared), ())

    async def signal_with_start(
        self,
        workflow: Any,
        /,
        *inputs: Any,
        signal: str,
        payload: Any = None,
        signal_id: str | None = None,
        **options: Unpack[StartKeywords],
    ) -> RunHandle[Any]:
        """Start a run if its `id` is new, and send it a signal, in one transaction. `id` is required."""
        definition, chosen = self._resolve(workflow, options, "app.signal_with_start")
        if chosen.id is None:
            raise UsageError("app.signal_with_start needs id=...: it names the run to signal")
        message = outgoing_signal(signal, payload, run_id=chosen.id, dedup=signal_id)
        return await self._start(definition, definition.encode_input(inputs, {}), chosen, (message,))

    # -- signals and runs ---------------------------------------------------------------------------------------------

    async def signal(
        self, name: str = "", payload: Any = None, *, token: str, id: str | None = None, namespace: str | None = None
    ) -> None:
        """Send a signal to whoever waits for `token`, or keep it until somebody does. Returns once it is durable."""
        space = namespace if namespace is not None else self.settings.namespace or DEFAULT_NAMESPACE
        await send(self.engine, outgoing_signal(name, payload, token=token, dedup=id, namespace=space))

    @overload
    def get_run(self, id: str, workflow: WorkflowDefinition[..., R]) -> RunHandle[R]: ...
    @overload
    def get_run(self, id: str, workflow: None = ...) -> RunHandle[Any]: ...
    def get_run(self, id: str, workflow: WorkflowDefinition[..., Any] | None = None) -> RunHandle[Any]:
        """A handle on a run; `workflow` types and restores its result. Looks nothing up: the run may not exist."""
        return RunHandle(self.engine, check_known_id(id), workflow)

    async def runs(
        self,
        *,
        status: Status | str | Iterable[Status | str] = (),
        workflow: str | None = None,
        namespace: str | None = None,
        tag: str | None = None,
        attributes: Mapping[str, Any] | None = None,
        limit: int = 50,
        before: int | None = None,
    ) -> list[Run]:
        """Runs, newest first. Continue with `before` = the last one's `incarnation`.

        `attributes`: names and the values that all of them must have (texts, numbers, booleans, None).
        """
        space = self.settings.namespace if namespace is None else namespace
        query = run_query(status, workflow, space, tag, attributes, limit, before)
        return list(await self.engine.reads.runs(query))

    # -- watching -----------------------------------------------------------------------------------------------------

    def subscribe(self, listener: Callable[[Lifecycle], None]) -> Callable[[], None]:
        """Call `listener` with every lifecycle event of this process's runs, on its loop; returns the unsubscriber.

        May be called before the app is opened, and lasts until it is undone.
        """
        return self._events.subscribe(listener)

    def on_dead(self, listener: Callable[[str], None]) -> Callable[[], None]:
        """Call `listener` with the id of each run that this process gives up as dead, as `subscribe` does."""
        return self._events.on_dead(listener)

    # -- how a run starts ---------------------------------------------------------------------------------------------

    def _resolve(
        self, workflow: Any, options: StartKeywords, verb: str
    ) -> tuple[WorkflowDefinition[..., Any], StartOptions]:
        chosen = StartOptions()
        if isinstance(workflow, BoundWorkflow):
            bound = cast("BoundWorkflow[..., Any]", workflow)
            workflow, chosen = bound.definition, bound.options
        if isinstance(workflow, str):
            found = self.registry.workflow(workflow)
        elif isinstance(workflow, WorkflowDefinition):
            found = cast("WorkflowDefinition[..., Any]", workflow)
            self._serve_too(found)
        else:
            raise UsageError(f"{verb} needs a workflow, not {shown(workflow)}; decorate the function with @workflow")
        return found, chosen.using(options, verb).over(found.declared)

    async def _start(
        self,
        definition: WorkflowDefinition[Any, Any],
        input: bytes,
        options: StartOptions,
        messages: tuple[Outgoing, ...],
    ) -> RunHandle[Any]:
        engine = self.engine
        if self._news:
            await engine.serve()
            self._news = False
        new = self._new_run(definition, input, options)
        executor = engine.executor
        if (
            new.start_at is None
            and not engine.claimer.backlog
            and executor.holdings.room() > 0
            and self._serves(new.namespace)
        ):
            answer = await engine.begin(definition, new, messages)
        else:
            answer = await engine.ask(Create(run=new, messages=messages))
        check_stored(answer)
        if isinstance(answer, Ended):
            raise RunEnded(
                f"run {answer.run.id!r} has ended ({answer.run.status}); {messages[0].name!r} was not delivered"
            )
        if isinstance(answer, Exists) and answer.run.workflow != definition.name:
            raise UsageError(
                f"run id {new.id!r} is taken by a run of workflow {answer.run.workflow!r}; nothing was started"
            )
        key = answer.run.key if isinstance(answer, Exists) else getattr(answer, "key", None)
        return RunHandle(engine, new.id, definition, key)

    def _serve_too(self, definition: WorkflowDefinition[..., Any]) -> None:
        """What is started here is served here. The first time, runs that waited for it may be due."""
        if self.registry.add(definition):
            self._news = True

    def _serves(self, namespace: str) -> bool:
        return self.settings.namespace is None or self.settings.namespace == namespace

    def _new_run(self, definition: WorkflowDefinition[Any, Any], input: bytes, options: StartOptions) -> NewRun:
        start_at = options.start_at
        if options.delay is not None:
            start_at = self.engine.store.now() + options.delay
        return NewRun(
            id=options.id or secrets.token_hex(16),
            workflow=definition.name,
            version=definition.version,
            input=input,
            seed=secrets.randbits(62),
            namespace=options.namespace or self.settings.namespace or DEFAULT_NAMESPACE,
            priority=options.priority,
            tags=options.tags,
            attributes=options.attributes,
            origin=options.origin,
            start_at=start_at,
            timeout=options.timeout,
        )


def parse_url(url: str) -> tuple[str, str, dict[str, str]]:
    """Kind, path (of a database: the whole URL) and options of a store's URL. Raises `UsageError`."""
    try:
        parts = urlsplit(url) if isinstance(url, str) else urlsplit("")
    except ValueError:
        parts = urlsplit("")
    if parts.scheme in ("postgresql", "postgres") and parts.netloc + parts.path.strip("/"):
        return "postgresql", url, {}
    options = dict(parse_qsl(parts.query, keep_blank_values=True))
    known = {"synchronous"} if parts.scheme == "sqlite" else set[str]()
    if parts.scheme in ("sqlite", "memory") and (unknown := options.keys() - known):
        raise UsageError(
            f"the store URL {shown(url)} has an unknown option {shown(min(unknown))}; sqlite:// has synchronous"
        )
    if parts.scheme == "memory" and not parts.path:
        return "memory", "", options
    path = unquote(parts.path[1:])
    if parts.scheme == "sqlite" and path and path.isprintable() and not (parts.netloc or parts.fragment):
        return "sqlite", path, options
    given = shown(without_secrets(url) if isinstance(url, str) else url)
    raise UsageError(
        f"{given} is no store URL; write sqlite:///orders.db (a path below this folder), sqlite:////var/lib/orders.db (an "
        "absolute one), postgresql://user@host/database or memory://"
    )


def open_store(url: str, clock: Clock) -> Store:
    """The store of a URL, not opened yet. Raises `UsageError`."""
    kind, path, options = parse_url(url)
    if kind == "memory":
        from perdure.stores.memory import MemoryStore

        return MemoryStore(clock)
    if kind == "postgresql":
        try:
            from perdure.stores.postgres import PostgresStore
        except ModuleNotFoundError as error:
            if error.name != "asyncpg":
                raise
            raise UsageError(
                "a postgresql:// store needs the driver asyncpg: pip install 'perdure[postgres]'"
            ) from None
        return PostgresStore(path, clock=clock)
    from perdure.stores.sqlite import SqliteStore

    return SqliteStore(path, clock=clock, synchronous=options.get("synchronous", "FULL").upper())


__all__ = ["Perdure", "open_store", "parse_url"]
