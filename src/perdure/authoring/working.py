"""What the context offers for work: steps, by their function or name, and closures."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Coroutine
from typing import Any, ParamSpec, TypeVar, Unpack, cast, overload

from perdure.authoring.compensation import LocalOptions, compensation, split, undo_of
from perdure.authoring.invocation import invoke
from perdure.authoring.retry import with_options
from perdure.authoring.seat import Seat
from perdure.authoring.step import AsyncStep, SyncStep
from perdure.authoring.step_ref import StepRef
from perdure.model import values
from perdure.model.errors import UsageError
from perdure.model.ids import check_name
from perdure.model.policy import RetryPolicy
from perdure.model.shown import shown

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")

_PLAIN = RetryPolicy()


class Working(Seat):
    """The part of the context that runs steps."""

    __slots__ = ()

    @overload
    async def step(self, fn: AsyncStep[P, R], /, *args: P.args, **kwargs: P.kwargs) -> R: ...
    @overload
    async def step(self, fn: SyncStep[P, R], /, *args: P.args, **kwargs: P.kwargs) -> R: ...
    @overload
    async def step(self, fn: StepRef[R], /, *args: Any, **kwargs: Any) -> R: ...
    @overload
    async def step(self, fn: str, /, *args: Any, **kwargs: Any) -> Any: ...
    def step(self, fn: Any, /, *args: Any, **kwargs: Any) -> Coroutine[Any, Any, Any]:
        """Run a step, async or sync, or one known by name. Issued now; await what comes back."""
        return invoke(self._inside(), fn, args, kwargs)

    def local_step(
        self, name: str, closure: Callable[[], Any], *, type: Any = Any, **options: Unpack[LocalOptions]
    ) -> Coroutine[Any, Any, Any]:
        """Run a closure as a step: once, recorded, with retries. It always runs where the body runs.

        An async closure runs on the event loop, a plain one too: keep it short. `type` restores the result. `compensate`: what
        undoes it if the run fails, a step or another closure, called with an `Undo` whose output is the result.
        """
        check_name(name, "a local step's name")
        if not callable(closure):
            raise UsageError(f"local step {name!r} needs a function to call, not {shown(closure)}")
        policy, undone = _PLAIN, None
        if options:
            own, undo = split(options)
            policy = with_options(_PLAIN, own, f"local step {name!r}")
            undone = compensation(None, undo, f"local step {name!r}", closures=True)
        instance = self._inside()
        decode = values.decoder(type)

        async def call() -> Any:
            result = closure()
            return await result if inspect.isawaitable(result) else result

        def encode(result: Any) -> bytes:
            return values.encode(result, type, what=f"result of local step {name!r} of {instance.describe()}")

        future = instance.local(
            name,
            call,
            policy=policy,
            decode=decode,
            encode=encode,
            undo=undo_of(instance, name, undone, decode=decode),
        )
        return cast("Coroutine[Any, Any, Any]", future)

    def side_effect(self, fn: Callable[[], T]) -> Coroutine[Any, Any, T]:
        """Call `fn` once and remember what it returned: for what must not change on replay, like a secret."""
        return self.local_step("side_effect", fn)
