"""What the context offers for other runs: children, awaited, detached, or many at once."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterable, Mapping, Sequence, Set
from typing import Any, TypeVar, Unpack, cast, overload

import msgspec

from perdure.authoring.arity import Takes0, Takes1, Takes2, Takes3, Takes4, Takes5
from perdure.authoring.children import ChildHandle, Mode, derived_seed, gather, new_child, unstartable
from perdure.authoring.issuing import bound
from perdure.authoring.options import StartKeywords, StartOptions
from perdure.authoring.seat import Seat
from perdure.authoring.workflow import BoundWorkflow, WorkflowDefinition
from perdure.model import values
from perdure.model.carrier import encode_carrier
from perdure.model.errors import NotRegistered, UsageError
from perdure.model.failure import Failure
from perdure.model.ids import child_id, fan_id
from perdure.model.run import NewRun
from perdure.model.shown import shown

R = TypeVar("R")
T = TypeVar("T")
A = TypeVar("A")
B = TypeVar("B")
C = TypeVar("C")
D = TypeVar("D")
E = TypeVar("E")


class Launching(Seat):
    """The part of the context that starts other runs."""

    __slots__ = ()

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

    def start_stored(
        self,
        workflow: str,
        version: str,
        input: bytes,
        *,
        tags: tuple[str, ...] = (),
        timeout: int | None = None,
        origin: str | None = None,
        carrier: Mapping[str, str] | None = None,
    ) -> None:
        """Start a run on an input as it is stored, of a definition that need not be known here. (For `perdure.patterns`.)"""
        instance = self._inside()
        parent, seq = instance.run, instance.reserve()
        instance.spawn(
            NewRun(
                id=child_id(parent.id, seq),
                workflow=workflow,
                version=version,
                input=input,
                seed=derived_seed(parent.seed, seq),
                namespace=parent.namespace,
                priority=parent.priority,
                tags=tags,
                origin=origin,
                depth=parent.depth + 1,
                timeout=timeout,
                carrier=encode_carrier(carrier or {}),
            )
        )

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
            run = new_child(instance, stand_in, b"null", options, run_id, registry=None, awaited=False)
            return self._refuse(run_id, refusal, detached, run)
        data = bound(instance, lambda: definition.encode_input(args, kwargs))
        run = new_child(instance, definition, data, options, run_id, registry=self._registry, awaited=not detached)
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


def _ready(value: T) -> Coroutine[Any, Any, T]:
    """An awaitable that has its value already."""
    future = asyncio.get_running_loop().create_future()
    future.set_result(value)
    return cast("Coroutine[Any, Any, T]", future)
