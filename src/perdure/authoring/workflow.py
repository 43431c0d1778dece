"""Workflows: the async functions that are durable as a whole."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Concatenate, Generic, ParamSpec, Protocol, TypeVar, Unpack, cast, overload

from perdure.authoring.ambient import Started, launcher
from perdure.authoring.context_parameter import takes_context
from perdure.authoring.events import OnEvent, listed_events
from perdure.authoring.fingerprint import fingerprint
from perdure.authoring.function import Function, examine, look_like, plain_function
from perdure.authoring.gating import Singleton
from perdure.authoring.marker import ContextMarker
from perdure.authoring.options import StartKeywords, StartOptions
from perdure.authoring.signature import Signature
from perdure.authoring.version import check_version
from perdure.core.ambient import current
from perdure.model.errors import ForbiddenInWorkflow, InvalidArguments, UsageError
from perdure.model.shown import shown, told

P = ParamSpec("P")
R = TypeVar("R")


@dataclass(frozen=True, eq=False, repr=False)
class WorkflowDefinition(Generic[P, R]):
    """An async function that is a workflow. `P` is its input: its parameters without the context. Data only."""

    name: str
    version: str
    function: Function
    signature: Signature
    wants_context: bool
    #: What was declared on the decorator; see `StartOptions.over`.
    declared: StartOptions
    #: Called with the decoded arguments before a start is accepted; what it raises rejects the start.
    validate: Callable[..., object] | None
    singleton: Singleton | None = None
    #: Which events start a run.
    on_event: tuple[OnEvent, ...] = ()

    def __post_init__(self) -> None:
        look_like(self, self.function)

    if TYPE_CHECKING:  # Given by `look_like`.

        @property
        def __name__(self) -> str: ...
        @property
        def __qualname__(self) -> str: ...

    @functools.cached_property
    def fingerprint(self) -> str:
        """Of the workflow's code: see fingerprint.py. Taken when it is first asked for, when its module is complete."""
        return fingerprint(plain_function(self.function.call))

    @property
    def fn(self) -> Callable[..., Coroutine[Any, Any, R]]:
        """The function itself, context parameter included: calling it is never durable (for unit tests)."""
        return self.function.call

    @property
    def module(self) -> str:
        return self.function.module

    @property
    def tags(self) -> tuple[str, ...]:
        return self.declared.tags

    @property
    def timeout_us(self) -> int | None:
        """How long each link of a run may take; None: for ever."""
        return self.declared.timeout

    @property
    def origin(self) -> str | None:
        return self.declared.origin

    def using(self, **options: Unpack[StartKeywords]) -> BoundWorkflow[P, R]:
        """This workflow with start options, for `.start(...)` and `.run(...)` with any arguments, keywords too."""
        return BoundWorkflow(self, StartOptions().using(options, f"{self.function.spelled}.using"))

    if TYPE_CHECKING:
        # Type checkers know best what asyncio's functions make of several coroutines if those come from async functions.
        async def run(self, *args: P.args, **kwargs: P.kwargs) -> R: ...
        async def start(self, *args: P.args, **kwargs: P.kwargs) -> Started[R]: ...

    else:

        def run(self, *args: Any, **kwargs: Any) -> Any:
            """In a workflow: an awaited child. Elsewhere: start it on the app entered around, and wait for its result."""
            return _launch(self, StartOptions(), args, kwargs, detached=False)

        def start(self, *args: Any, **kwargs: Any) -> Any:
            """In a workflow: a detached child. Elsewhere: start it on the app entered around. Gives a handle."""
            return _launch(self, StartOptions(), args, kwargs, detached=True)

    def encode_input(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> bytes:
        """The stored input that these arguments make, checked as a start checks it: against the hints and `validate`.

        Raises `InvalidArguments` and `InvalidValue`.
        """
        data = self.signature.bind(args, kwargs)
        self.check_input(data)
        return data

    def check_input(self, data: bytes) -> None:
        """Raise `InvalidArguments` or `InvalidValue` unless this input, from wherever, fits the hints and `validate`."""
        args, kwargs = self.signature.unbind(data)
        if self.validate is not None:
            try:
                self.validate(*args, **kwargs)
            except Exception as error:  # It is the user's: it may raise anything.
                raise InvalidArguments(f"{self} refused its input: {told(error)}") from error

    def call(self, context: ContextMarker, data: bytes) -> Coroutine[Any, Any, R]:
        """The body, begun on this stored input. Raises `InvalidArguments` and `InvalidValue`."""
        args, kwargs = self.signature.unbind(data)
        body = cast("Callable[..., Coroutine[Any, Any, R]]", self.function.call)
        return body(*((context, *args) if self.wants_context else args), **kwargs)

    def __str__(self) -> str:
        return f"workflow {self.name!r} (version {self.version})"

    def __repr__(self) -> str:
        return f"<{self} of {self.function.location}>"

    if not TYPE_CHECKING:  # To a type checker a call is an error already.

        def __call__(self, *args: Any, **kwargs: Any) -> Any:
            instance, name = current(), self.function.spelled
            if instance is not None:
                raise ForbiddenInWorkflow(
                    f"{instance.describe()} called {self} directly; write `await {name}.run(...)` for a child whose "
                    f"result you need, or `await {name}.start(...)` for one on its own"
                )
            raise UsageError(
                f"{self} cannot be called; write `await app.start({name}, ...)`, or {name}.fn(...) to test its function"
            )


@dataclass(frozen=True, eq=False)
class BoundWorkflow(Generic[P, R]):
    """A workflow with start options."""

    definition: WorkflowDefinition[P, R]
    options: StartOptions

    def using(self, **options: Unpack[StartKeywords]) -> BoundWorkflow[P, R]:
        """The same with these options in place of those it has."""
        return BoundWorkflow(self.definition, self.options.using(options, f"{self.definition.function.spelled}.using"))

    if TYPE_CHECKING:
        # As in `WorkflowDefinition`.
        async def run(self, *args: P.args, **kwargs: P.kwargs) -> R: ...
        async def start(self, *args: P.args, **kwargs: P.kwargs) -> Started[R]: ...

    else:

        def run(self, *args: Any, **kwargs: Any) -> Any:
            """As `WorkflowDefinition.run`."""
            return _launch(self.definition, self.options, args, kwargs, detached=False)

        def start(self, *args: Any, **kwargs: Any) -> Any:
            """As `WorkflowDefinition.start`."""
            return _launch(self.definition, self.options, args, kwargs, detached=True)


def _launch(
    definition: WorkflowDefinition[..., R],
    options: StartOptions,
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    *,
    detached: bool,
) -> Any:
    """Start the workflow as a child if a body is running here, else on the app that is entered or open."""
    instance = current()
    if instance is not None:
        return instance.context.start_workflow(definition, args, kwargs, options, detached=detached)
    name = definition.function.spelled
    app = launcher(
        f"{name}.{'start' if detached else 'run'}(...)", f"`await app.start({name}, ...)` on the one you mean"
    )
    started = app.launch(definition, definition.encode_input(args, kwargs), options)
    return started if detached else _result(started)


async def _result(started: Coroutine[Any, Any, Started[R]]) -> R:
    return await (await started).result()


class _Anything(Protocol):
    """Every type but a context, which has no `__sizeof__` for type checkers (see marker.py), and `None`."""

    def __sizeof__(self) -> int: ...


R_co = TypeVar("R_co", covariant=True)
_Context = TypeVar("_Context", bound=ContextMarker)
_Input = TypeVar("_Input", bound=_Anything | None)
_Input_contra = TypeVar("_Input_contra", bound=_Anything | None, contravariant=True)


class _WithoutContext(Protocol[_Input_contra, P, R_co]):  # pyright: ignore[reportInvalidTypeVarUse]
    """An async function whose first parameter is no context. It must fit both forms: one finds all of its parameters, the
    other asks for the first one's type.

    Without the second, a function with a context fits too. A type checker then takes the first form of `@workflow` that
    fits, unless `Any` stands in a hint: mypy then gives up on all of them, and nothing about the workflow is checked.
    """

    @overload
    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> Coroutine[Any, Any, R_co]: ...
    @overload
    def __call__(self, first: _Input_contra, /, *args: Any, **kwargs: Any) -> Coroutine[Any, Any, R_co]: ...


class WorkflowDecorator(Protocol):
    """`@workflow(...)`, waiting for its function."""

    @overload
    def __call__(
        self, fn: Callable[Concatenate[_Context, P], Coroutine[Any, Any, R]], /
    ) -> WorkflowDefinition[P, R]: ...
    @overload
    def __call__(self, fn: _WithoutContext[_Input, P, R], /) -> WorkflowDefinition[P, R]: ...  # type: ignore[overload-overlap]
    @overload
    def __call__(self, fn: Callable[[], Coroutine[Any, Any, R]], /) -> WorkflowDefinition[[], R]: ...


@overload
def workflow(fn: Callable[Concatenate[_Context, P], Coroutine[Any, Any, R]], /) -> WorkflowDefinition[P, R]: ...
@overload
def workflow(fn: _WithoutContext[_Input, P, R], /) -> WorkflowDefinition[P, R]: ...  # type: ignore[overload-overlap]
@overload
def workflow(fn: Callable[[], Coroutine[Any, Any, R]], /) -> WorkflowDefinition[[], R]: ...
@overload
def workflow(
    *,
    name: str | None = None,
    version: str = "1",
    tags: Iterable[str] = (),
    timeout: float | timedelta | None = None,
    origin: str | None = None,
    validate: Callable[..., object] | None = None,
    singleton: Singleton | None = None,
    on_event: OnEvent | Iterable[OnEvent] | None = None,
) -> WorkflowDecorator: ...
def workflow(
    fn: Any = None,
    /,
    *,
    name: str | None = None,
    version: str = "1",
    tags: Iterable[str] = (),
    timeout: float | timedelta | None = None,
    origin: str | None = None,
    validate: Callable[..., object] | None = None,
    singleton: Singleton | None = None,
    on_event: OnEvent | Iterable[OnEvent] | None = None,
) -> Any:
    """Make an async function a workflow.

    A first parameter annotated `Context`, or unannotated and named `ctx`, receives the context; the others are the input.
    `name` defaults to the function's own. Runs go on with the version they began with; new ones begin on the newest.
    `timeout` (seconds or `timedelta`) bounds each run from its due start; `origin` names the package that declares the
    workflow; `validate` is called with the arguments before a start is accepted, and rejects it by raising (it must depend
    on nothing else). `singleton` bounds how many runs go on at once (see `Singleton`). `on_event` names the events that start
    a run each, with the payload as input; a `Batch` or `Debounce` there starts one run for several. Raises `UsageError` for a
    function that cannot be a workflow.
    """
    if isinstance(fn, str):
        raise UsageError(f'@workflow takes its name by keyword: write @workflow(name="{fn}")')
    declared: StartKeywords = {"tags": tags, "timeout": timeout, "origin": origin}
    define = functools.partial(
        _define,
        name=name,
        version=version,
        declared=declared,
        validate=validate,
        singleton=singleton,
        on_event=on_event,
    )
    return define if fn is None else define(fn)


def _define(
    target: object,
    *,
    name: str | None,
    version: str,
    declared: StartKeywords,
    validate: Callable[..., object] | None,
    singleton: Singleton | None,
    on_event: object,
) -> WorkflowDefinition[..., Any]:
    function = examine(target, kind="workflow", name=name)
    owner = f"workflow {function.name!r}"
    if not function.is_async:
        raise UsageError(
            f"@workflow needs an async function, but {function.location} is a plain one: write `async def`"
        )
    if validate is not None and (not callable(validate) or inspect.iscoroutinefunction(validate)):
        raise UsageError(f"validate of {owner} must be a plain function (it is not awaited), not {shown(validate)}")
    if singleton is not None and not isinstance(singleton, Singleton):
        raise UsageError(f"singleton of {owner} must be like Singleton(key=...), not {shown(singleton)}")
    events = listed_events(on_event, owner)
    if singleton is not None and events:
        # Whoever publishes need not have the code that makes the key of an input.
        raise UsageError(
            f"{owner} is a singleton, which events cannot start; let them start another workflow, and this one from there: "
            f"`await ctx.start_child({function.name}, event)`"
        )
    wants_context = takes_context(function.call, owner)
    return WorkflowDefinition(
        function.name,
        check_version(version),
        function,
        Signature(function.call, owner, skip=int(wants_context)),
        wants_context,
        StartOptions().using(declared, f"@workflow on {owner}"),
        validate,
        singleton,
        events,
    )
