"""Steps: the functions that do the work. Their results are recorded; in a workflow, a call is a durable operation."""

from __future__ import annotations

import asyncio
import functools
import inspect
import sys
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, Protocol, Self, TypeVar, Unpack, overload

from perdure.authoring.compensation import CanUndo, Compensation, StepOptions, undo_of, with_step_options
from perdure.authoring.context_parameter import refuse_context
from perdure.authoring.function import Function, examine, look_like
from perdure.authoring.gating import QueueUse
from perdure.authoring.issuing import bound, issue
from perdure.authoring.signature import Signature
from perdure.core.ambient import current
from perdure.core.instance import Instance
from perdure.model.errors import ForbiddenInWorkflow, UsageError
from perdure.model.policy import RetryPolicy

P = ParamSpec("P")
R = TypeVar("R")
# Covariant: what gives an int gives an object, and that is what a checker asks for inside `print(...)` or an f-string.
R_co = TypeVar("R_co", covariant=True)


@dataclass(frozen=True, eq=False, repr=False)
class StepDefinition(CanUndo, Generic[P, R_co]):
    """A function that is a step. Data only: it belongs to no app and is known to none until it is registered."""

    name: str
    function: Function
    signature: Signature
    policy: RetryPolicy
    #: The queue that each call goes through.
    queue: QueueUse | None = None
    compensation: Compensation | None = None

    def __post_init__(self) -> None:
        look_like(self, self.function)

    if TYPE_CHECKING:  # Given by `look_like`.

        @property
        def __name__(self) -> str: ...
        @property
        def __qualname__(self) -> str: ...

    @property
    def fn(self) -> Callable[P, Any]:
        """The function itself: calling it is never durable."""
        return self.function.call

    @property
    def is_async(self) -> bool:
        return self.function.is_async

    @property
    def module(self) -> str:
        return self.function.module

    def using(self, **options: Unpack[StepOptions]) -> Self:
        """The same step with these options in place of its own, one by one."""
        policy, queue, undone = with_step_options(self.policy, self.queue, self.compensation, options, f"{self}.using")
        return replace(self, policy=policy, queue=queue, compensation=undone)

    def as_undo(self, owner: str) -> tuple[str, RetryPolicy]:
        if not self.signature.takes_undo():
            raise UsageError(
                f"{owner} cannot be undone by {self}, which takes {self.signature}: an undo takes one argument, an "
                "Undo(input, output)"
            )
        return self.name, self.policy

    def issue(self, instance: Instance, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Coroutine[Any, Any, R_co]:
        """Ask the run for this step, now. What comes back is a future of its loop."""
        signature = self.signature
        undo = undo_of(instance, self.name, self.compensation, signature.plain)
        data = bound(instance, lambda: signature.bind(args, kwargs))
        return issue(instance, self.name, data, self.policy, self.queue, signature.decode_result, undo)

    def __str__(self) -> str:
        return f"step {self.name!r}"

    def __repr__(self) -> str:
        return f"<{self} of {self.function.location}>"


class AsyncStep(StepDefinition[P, R_co]):
    """A step made of an async function."""

    if TYPE_CHECKING:
        # Type checkers know best what asyncio's functions make of several coroutines if those come from async functions.
        async def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R_co: ...

    else:

        def __call__(self, *args: Any, **kwargs: Any) -> Any:
            """In a workflow: the durable operation, issued now, to be awaited. Elsewhere: a plain call of the function."""
            instance = current()
            if instance is None:
                return self.function.call(*args, **kwargs)
            return self.issue(instance, args, kwargs)


class SyncStep(StepDefinition[P, R_co]):
    """A step made of a plain function: runs in a thread."""

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R_co:
        """A plain call of the function. In a workflow: `ForbiddenInWorkflow`, since it could not be awaited."""
        instance = current()
        if instance is not None:
            raise ForbiddenInWorkflow(
                f"{instance.describe()} called the sync {self} directly; write `await ctx.step({self.function.spelled}, ...)`"
            )
        result: R_co = self.function.call(*args, **kwargs)
        return result


# Web frameworks and retry decorators ask whether a callable is async in one of these two ways.
if sys.version_info >= (3, 12):
    inspect.markcoroutinefunction(AsyncStep)
if sys.version_info < (3, 14) and not TYPE_CHECKING:
    AsyncStep._is_coroutine = asyncio.coroutines._is_coroutine


class StepDecorator(Protocol):
    """`@step(...)`, waiting for its function."""

    @overload
    def __call__(  # type: ignore[overload-overlap]  # pyright: ignore[reportOverlappingOverload]
        self, fn: Callable[P, Coroutine[Any, Any, R]], /
    ) -> AsyncStep[P, R]: ...
    @overload
    def __call__(self, fn: Callable[P, R], /) -> SyncStep[P, R]: ...


# An async function fits both forms; the first that fits is taken, which is the one it is listed for.
@overload
def step(  # type: ignore[overload-overlap]  # pyright: ignore[reportOverlappingOverload]
    fn: Callable[P, Coroutine[Any, Any, R]], /
) -> AsyncStep[P, R]: ...
@overload
def step(fn: Callable[P, R], /) -> SyncStep[P, R]: ...
@overload
def step(*, name: str | None = None, **options: Unpack[StepOptions]) -> StepDecorator: ...
def step(fn: Any = None, /, *, name: str | None = None, **options: Unpack[StepOptions]) -> Any:
    """Make a function a step.

    `name` defaults to the function's own. `max_attempts` counts the first (default 1). Waits between attempts: `base`
    (default 1 s), growing by `factor` (2) up to `cap` (1 h) with `backoff="exp"`, all alike with "fixed"; `jitter` is the
    part of a wait (0 to 1) that chance may take away. `timeout` bounds each attempt. Durations are seconds or `timedelta`.
    `queue` names the queue (see `Perdure.queue`) that each call goes through, `queue_key` the key by which a fair one takes
    turns (default: the run's id), `priority` (greater first) what goes ahead in it.
    `compensate` is the step that undoes this one when its run fails, `compensation_attempts` how often that is tried (see
    `StepOptions`).
    Raises `UsageError` for a function that cannot be a step.
    """
    if fn is None:
        return functools.partial(_define, name=name, options=options)
    if isinstance(fn, str):
        raise UsageError(f'@step takes its name by keyword: write @step(name="{fn}")')
    return _define(fn, name=name, options=options)


def _define(target: object, *, name: str | None, options: StepOptions) -> StepDefinition[..., Any]:
    function = examine(target, kind="step", name=name)
    owner = f"step {function.name!r}"
    refuse_context(function.call, owner)
    signature = Signature(function.call, owner)
    kind: type[Any] = AsyncStep if function.is_async else SyncStep
    policy, queue, undone = with_step_options(RetryPolicy(), None, None, options, f"@step on {owner}")
    definition: StepDefinition[..., Any] = kind(function.name, function, signature, policy, queue, undone)
    return definition
