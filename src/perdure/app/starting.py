"""Starting runs from outside workflows."""

from __future__ import annotations

import secrets
from typing import Any, TypeVar, Unpack, cast, overload

from perdure.app.opened import Opened
from perdure.authoring.arity import Takes0, Takes1, Takes2, Takes3, Takes4, Takes5
from perdure.authoring.gated import gated
from perdure.authoring.options import StartKeywords, StartOptions
from perdure.authoring.workflow import BoundWorkflow, WorkflowDefinition
from perdure.engine.handle import RunHandle
from perdure.engine.sending import check_stored, outgoing_signal, queue_full
from perdure.engine.transactions import check_alone, join
from perdure.model.commit import Create, Ended, Exists, Full
from perdure.model.errors import RunEnded, UsageError
from perdure.model.messages import Outgoing
from perdure.model.run import DEFAULT_NAMESPACE, NewRun
from perdure.model.shown import shown

R = TypeVar("R")
A = TypeVar("A")
B = TypeVar("B")
C = TypeVar("C")
D = TypeVar("D")
E = TypeVar("E")


class JoiningKeywords(StartKeywords, total=False):
    """How a run is started, and within which transaction."""

    #: A connection or session with an open transaction: the run exists if that is committed.
    connection: Any


class Starting(Opened):
    """An app as far as it starts runs: see `Perdure`."""

    @overload
    async def start(self, workflow: Takes0[R], /, **options: Unpack[JoiningKeywords]) -> RunHandle[R]: ...
    @overload
    async def start(self, workflow: Takes1[A, R], a: A, /, **options: Unpack[JoiningKeywords]) -> RunHandle[R]: ...
    @overload
    async def start(
        self, workflow: Takes2[A, B, R], a: A, b: B, /, **options: Unpack[JoiningKeywords]
    ) -> RunHandle[R]: ...
    @overload
    async def start(
        self, workflow: Takes3[A, B, C, R], a: A, b: B, c: C, /, **options: Unpack[JoiningKeywords]
    ) -> RunHandle[R]: ...
    @overload
    async def start(
        self, workflow: Takes4[A, B, C, D, R], a: A, b: B, c: C, d: D, /, **options: Unpack[JoiningKeywords]
    ) -> RunHandle[R]: ...
    @overload
    async def start(
        self, workflow: Takes5[A, B, C, D, E, R], a: A, b: B, c: C, d: D, e: E, /, **options: Unpack[JoiningKeywords]
    ) -> RunHandle[R]: ...
    @overload
    async def start(self, workflow: str, /, *inputs: Any, **options: Unpack[JoiningKeywords]) -> RunHandle[Any]: ...
    async def start(self, workflow: Any, /, *inputs: Any, **options: Unpack[JoiningKeywords]) -> RunHandle[Any]:
        """Start a run: positionals are the workflow's input, keywords are Perdure's. Returns once it is durable.

        The same `id` again starts nothing and gives a handle on the run that has it. Raises `NotRegistered`,
        `InvalidArguments`, `InvalidValue`, `InvalidId` before anything is written, and `QueueFull` for a singleton with as many
        in line as may be.

        With `connection` (a connection or session of SQLAlchemy, asyncpg, psycopg or sqlite3, to the store's own database), the
        run is started within the transaction that is open there: it exists if and when that is committed, and the handle
        is of use from then on. A blocking connection to PostgreSQL is used from another thread meanwhile; one to SQLite blocks
        the event loop as any use of it does.
        """
        connection = options.pop("connection", None)
        definition, chosen = self._resolve(workflow, options, "app.start")
        return await self._start(definition, definition.encode_input(inputs, {}), chosen, (), connection)

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
        **options: Unpack[JoiningKeywords],
    ) -> RunHandle[Any]:
        """Start a run if its `id` is new, and send it a signal, in one transaction. `id` is required.

        With `connection`, in the transaction that is open there (see `start`).
        """
        connection = options.pop("connection", None)
        definition, chosen = self._resolve(workflow, options, "app.signal_with_start")
        if chosen.id is None:
            raise UsageError("app.signal_with_start needs id=...: it names the run to signal")
        message = outgoing_signal(signal, payload, run_id=chosen.id, dedup=signal_id)
        return await self._start(definition, definition.encode_input(inputs, {}), chosen, (message,), connection)

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
        connection: Any = None,
    ) -> RunHandle[Any]:
        engine = self.engine
        await self._tell_news()
        new = self._new_run(definition, input, options)
        if connection is not None:
            return await self._join(definition, Create(run=new, messages=messages), connection)
        executor = engine.executor
        if (
            new.start_at is None
            and new.gate is None
            and not engine.claimer.backlog
            and executor.holdings.room() > 0
            and self._serves(new.namespace)
        ):
            answer = await engine.begin(definition, new, messages)
        else:
            answer = await engine.ask(Create(run=new, messages=messages))
        check_stored(answer)
        if isinstance(answer, Full):
            raise queue_full(new, answer.waiting)
        if isinstance(answer, Ended):
            raise RunEnded(
                f"run {answer.run.id!r} has ended ({answer.run.status}); {messages[0].name!r} was not delivered"
            )
        if isinstance(answer, Exists):
            _check_workflow(new.id, answer.run.workflow, definition)
        key = answer.run.key if isinstance(answer, Exists) else getattr(answer, "key", None)
        return RunHandle(engine, new.id, definition, key)

    async def _tell_news(self) -> None:
        """What was registered since the engine was last told of it."""
        if self._news:
            check_alone("starting a workflow that was not known here before")
            await self.engine.serve()
            self._news = False

    async def _join(self, definition: WorkflowDefinition[Any, Any], create: Create, connection: Any) -> RunHandle[Any]:
        """Start within a transaction of the caller's. No first turn is made here: he may roll back."""
        joined = await join(self.engine.means, connection, create)
        if joined.answer == "ended" and joined.key is not None:
            name = create.messages[0].name
            raise RunEnded(f"run {joined.key.id!r} has ended ({joined.status}); {name!r} was not delivered")
        if joined.answer == "full" and create.run.gate is not None:
            raise queue_full(create.run, create.run.gate.rules.depth or 0)
        if joined.answer == "exists":
            _check_workflow(create.run.id, joined.workflow, definition)
        return RunHandle(self.engine, create.run.id, definition, joined.key)

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
        run = NewRun(
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
            carrier=self._hooks.carriers.capture(options.carrier),
            start_at=start_at,
            timeout=options.timeout,
        )
        return gated(run, self.registry, definition, options)


def _check_workflow(run_id: str, workflow: str, definition: WorkflowDefinition[Any, Any]) -> None:
    """Raise `UsageError` where a run of another workflow has the id."""
    if workflow != definition.name:
        raise UsageError(f"run id {run_id!r} is taken by a run of workflow {workflow!r}; nothing was started")
