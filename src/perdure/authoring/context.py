"""The context: what a workflow body asks Perdure for, besides plain asyncio."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence, Set
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any, NoReturn, ParamSpec, TypeVar, Unpack, cast, overload
from uuid import UUID

import msgspec

from perdure.authoring.arity import Takes0, Takes1, Takes2, Takes3, Takes4, Takes5
from perdure.authoring.children import ChildHandle, Mode, derived_seed, gather, new_child, unstartable
from perdure.authoring.invocation import invoke
from perdure.authoring.issuing import bound, inside
from perdure.authoring.marker import ContextMarker
from perdure.authoring.options import StartKeywords, StartOptions
from perdure.authoring.registry import Registry
from perdure.authoring.retry import RetryOptions, with_options
from perdure.authoring.step import AsyncStep, SyncStep
from perdure.authoring.step_ref import StepRef
from perdure.authoring.workflow import BoundWorkflow, WorkflowDefinition
from perdure.core.instance import Instance
from perdure.model import values
from perdure.model.durations import instant, unsigned_micros
from perdure.model.errors import NotRegistered, UsageError
from perdure.model.failure import Failure
from perdure.model.ids import check_name, child_id, fan_id, next_link
from perdure.model.policy import RetryPolicy
from perdure.model.shown import shown

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")
A = TypeVar("A")
B = TypeVar("B")
C = TypeVar("C")
D = TypeVar("D")
E = TypeVar("E")

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_PLAIN = RetryPolicy()


class Context(ContextMarker):
    """One workflow run, seen from inside its body. Not usable in steps, nor after the body has ended."""

    __slots__ = ("_definition", "_instance", "_registry")

    def __init__(self, instance: Instance, registry: Registry, definition: WorkflowDefinition[Any, Any]) -> None:
        self._instance = instance
        self._registry = registry
        self._definition = definition

    # -- about the run ------------------------------------------------------------------------------------------------

    @property
    def run_id(self) -> str:
        return self._instance.run.id

    @property
    def random(self) -> Random:
        """A generator that gives the same numbers in every replay. Not for secrets."""
        return self._inside().random

    def now(self) -> datetime:
        """The run's own time: moves only when something is waited for, and is the same in every replay. Aware, UTC."""
        return _EPOCH + timedelta(microseconds=self._instance.now)

    def uuid4(self) -> UUID:
        """A random UUID that is the same in every replay. Not for secrets."""
        return UUID(int=self._inside().random.getrandbits(128), version=4)

    def patched(self, id: str) -> bool:
        """True in runs that take the new path of a change: new ones, and those that have not come to it yet."""
        return self._inside().patched(check_name(id, "a patch id"))

    def set_value(self, key: str, value: Any) -> None:
        """Publish a value that `run.value(key)` reads from anywhere, once the turn is committed. The newest wins."""
        check_name(key, "a value's key")
        instance = self._inside()
        instance.set_value(key, values.encode(value, what=f"value {key!r} of {instance.describe()}"))

    # -- steps --------------------------------------------------------------------------------------------------------

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
        self, name: str, closure: Callable[[], Any], *, type: Any = Any, **options: Unpack[RetryOptions]
    ) -> Coroutine[Any, Any, Any]:
        """Run a closure as a step: once, recorded, with retries. It always runs where the body runs.

        An async closure runs on the event loop, a plain one too: keep it short. `type` restores the result.
        """
        check_name(name, "a local step's name")
        if not callable(closure):
            raise UsageError(f"local step {name!r} needs a function to call, not {shown(closure)}")
        policy = with_options(_PLAIN, options, f"local step {name!r}") if options else _PLAIN
        instance = self._inside()

        async def call() -> bytes:
            result = closure()
            if inspect.isawaitable(result):
                result = await result
            return values.encode(result, type, what=f"result of local step {name!r} of {instance.describe()}")

        future = instance.local(name, call, policy=policy, decode=values.decoder(type))
        return cast("Coroutine[Any, Any, Any]", future)

    def side_effect(self, fn: Callable[[], T]) -> Coroutine[Any, Any, T]:
        """Call `fn` once and remember what it returned: for what must not change on replay, like a secret."""
        return self.local_step("side_effect", fn)

    # -- time and signals ---------------------------------------------------------------------------------------------

    async def sleep_until(self, when: datetime | float) -> None:
        """Sleep until an aware datetime, or seconds since the epoch."""
        self._inside()
        due = instant(when, "sleep_until")
        future = asyncio.get_running_loop().create_future()
        handle = asyncio.get_running_loop().call_at(due / 1_000_000, _wake, future)
        try:
            await future
        finally:
            handle.cancel()

    @overload
    async def wait_for_signal(
        self, name: str, *, type: type[T], token: str | None = ..., timeout: float | timedelta | None = ...
    ) -> T: ...
    @overload
    async def wait_for_signal(
        self, name: str, *, type: Any = ..., token: str | None = ..., timeout: float | timedelta | None = ...
    ) -> Any: ...
    def wait_for_signal(
        self, name: str, *, type: Any = Any, token: str | None = None, timeout: float | timedelta | None = None
    ) -> Coroutine[Any, Any, Any]:
        """Wait for a signal sent to this run by name, or with `token` for one sent to that token from anywhere.

        Signals that came before are waiting already, first in first out. `timeout` (seconds or `timedelta`) raises
        `SignalTimeout`; with 0, only what is there already is taken.
        """
        check_name(name, "a signal's name")
        if token is not None:
            check_name(token, "a token")
        limit = None if timeout is None else unsigned_micros(timeout, "timeout")
        wait = self._inside().signal(name, token=token, timeout=limit, decode=values.decoder(type))
        return cast("Coroutine[Any, Any, Any]", wait)

    # -- other runs ---------------------------------------------------------------------------------------------------

    @overload
    async def child(self, workflow: Takes0[R], /, **options: Unpack[StartKeywords]) -> R: ...
    @overload
    async def child(self, workflow: Takes1[A, R], a: A, /, **options: Unpack[StartKeywords]) -> R: ...
    @overload
    async def child(self, workflow: Takes2[A, B, R], a: A, b: B, /, **options: Unpack[StartKeywords]) -> R: ...
    @overload
    async def child(self, workflow: Takes3[A, B, C, R], a: A, b: B, c: C, /, **options: Unpack[StartKeywords]) -> R: ...
    @overload
    async def child(
        self, workflow: Takes4[A, B, C, D, R], a: A, b: B, c: C, d: D, /, **options: Unpack[StartKeywords]
    ) -> R: ...
    @overload
    async def child(
        self, workflow: Takes5[A, B, C, D, E, R], a: A, b: B, c: C, d: D, e: E, /, **options: Unpack[StartKeywords]
    ) -> R: ...
    @overload
    async def child(self, workflow: str, /, *inputs: Any, **options: Unpack[StartKeywords]) -> Any: ...
    def child(self, workflow: Any, /, *inputs: Any, **options: Unpack[StartKeywords]) -> Any:
        """Run another workflow and wait for its result. Raises `ChildFailed` if it does not complete, or cannot start.

        Cancelling the await cancels the child. Its id is derived from this run's, unless `id=` is given.
        """
        return self._launch(workflow, inputs, {}, StartOptions().using(options, "ctx.child"), detached=False)

    @overload
    async def start_child(self, workflow: Takes0[R], /, **options: Unpack[StartKeywords]) -> ChildHandle[R]: ...
    @overload
    async def start_child(
        self, workflow: Takes1[A, R], a: A, /, **options: Unpack[StartKeywords]
    ) -> ChildHandle[R]: ...
    @overload
    async def start_child(
        self, workflow: Takes2[A, B, R], a: A, b: B, /, **options: Unpack[StartKeywords]
    ) -> ChildHandle[R]: ...
    @overload
    async def start_child(
        self, workflow: Takes3[A, B, C, R], a: A, b: B, c: C, /, **options: Unpack[StartKeywords]
    ) -> ChildHandle[R]: ...
    @overload
    async def start_child(
        self, workflow: str, /, *inputs: Any, **options: Unpack[StartKeywords]
    ) -> ChildHandle[Any]: ...
    def start_child(self, workflow: Any, /, *inputs: Any, **options: Unpack[StartKeywords]) -> Any:
        """Start another workflow and go on at once; await the handle's `result()` if and when you need it."""
        return self._launch(workflow, inputs, {}, StartOptions().using(options, "ctx.start_child"), detached=True)

    def all(
        self, workflow: Takes1[A, R] | str, inputs: Iterable[A], *, mode: Mode = "wait_all", priority: int | None = None
    ) -> Coroutine[Any, Any, list[R]]:
        """Run one child for each input, all at once; the results come in input order.

        Raises `GatherError` if some did not complete: with "wait_all" after all have ended, with "fail_fast" at the first,
        and the others are cancelled.
        """
        if mode not in ("wait_all", "fail_fast"):
            raise UsageError(f'mode must be "wait_all" or "fail_fast", not {shown(mode)}')
        if not isinstance(inputs, Iterable) or isinstance(inputs, str | bytes | Mapping | Set):
            raise UsageError(f"ctx.all needs a list of inputs, one for each child, not {shown(cast('object', inputs))}")
        options = StartOptions().using({"priority": priority}, "ctx.all")
        first = self._inside().reserve()
        futures: list[Any] = []
        ids: list[str] = []
        try:
            for index, one in enumerate(inputs):
                ids.append(fan_id(self.run_id, first, index))
                chosen = msgspec.structs.replace(options, id=ids[-1])
                futures.append(self._launch(workflow, (one,), {}, chosen, detached=False))
        except BaseException:
            for future in futures:
                future.cancel()  # none is started because a later one cannot be
            raise
        return gather(futures, ids, mode)

    def continue_as_new(self, *inputs: Any, **fields: Any) -> NoReturn:
        """End this run and go on as another with a fresh history (`<id>~1`, `~2`, ...) and this input. Never returns.

        The next run keeps the version, namespace, tags, priority, attributes, and the parent that waits. Signals that were
        not read yet go over to it.
        """
        instance = self._inside()
        run = instance.run
        successor = msgspec.structs.replace(
            run,
            id=next_link(run.id),
            input=bound(instance, lambda: self._definition.encode_input(inputs, fields)),
            seed=derived_seed(run.seed, instance.reserve()),
            start_at=None,
        )
        instance.continue_as_new(successor)

    def start_workflow(
        self,
        definition: WorkflowDefinition[Any, Any],
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
        options: StartOptions,
        *,
        detached: bool,
    ) -> Any:
        """What `workflow.run(...)` (or with `detached` `workflow.start(...)`) does inside this body."""
        return self._launch(BoundWorkflow(definition, options), args, kwargs, StartOptions(), detached=detached)

    def _inside(self) -> Instance:
        """The run, for what only its body may ask for."""
        return inside(self._instance)

    # -- how children start -------------------------------------------------------------------------------------------

    def _launch(
        self, workflow: Any, args: Sequence[Any], kwargs: Mapping[str, Any], options: StartOptions, *, detached: bool
    ) -> Any:
        instance = self._inside()
        if isinstance(workflow, BoundWorkflow):
            given = cast("BoundWorkflow[..., Any]", workflow)
            workflow, options = given.definition, _merge(given.options, options)
        run_id = options.id or child_id(self.run_id, instance.reserve())
        definition, refusal = self._find(workflow, run_id)
        if definition is None:
            # The history must have it all the same, and the parent hears of it as of any child that failed.
            assert refusal is not None
            stand_in = self._definition
            run = new_child(instance, stand_in, b"null", options, run_id, awaited=False)
            return self._refuse(run_id, refusal, detached, run)
        data = bound(instance, lambda: definition.encode_input(args, kwargs))
        run = new_child(instance, definition, data, options, run_id, awaited=not detached)
        decode = definition.signature.decode_result
        if not detached:
            return instance.child(run, decode=decode)
        instance.spawn(run)
        return _ready(ChildHandle(instance, run_id, decode, None))

    def _refuse(self, run_id: str, refusal: Failure, detached: bool, run: Any) -> Any:
        if not detached:
            return self._instance.child(run, decode=values.decoder(Any), refusal=refusal)
        return _ready(ChildHandle(self._instance, run_id, values.decoder(Any), refusal))

    def _find(self, workflow: Any, run_id: str) -> tuple[WorkflowDefinition[..., Any] | None, Failure | None]:
        """The definition to start, or why there is none."""
        if not isinstance(workflow, str | WorkflowDefinition):
            raise UsageError(f"a child needs a workflow, not {shown(workflow)}; decorate the function with @workflow")
        try:
            if isinstance(workflow, str):
                return self._registry.workflow(workflow), None
            found = cast("WorkflowDefinition[..., Any]", workflow)
            return self._registry.workflow(found.name, found.version), None
        except NotRegistered as error:
            return None, unstartable(run_id, error)


def _merge(first: StartOptions, second: StartOptions) -> StartOptions:
    given = {name: value for name, value in msgspec.structs.asdict(second).items() if value not in (None, ())}
    return msgspec.structs.replace(first, **given) if given else first


def _wake(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


def _ready(value: T) -> Coroutine[Any, Any, T]:
    """An awaitable that has its value already."""
    future = asyncio.get_running_loop().create_future()
    future.set_result(value)
    return cast("Coroutine[Any, Any, T]", future)


__all__ = ["ChildHandle", "Context"]
