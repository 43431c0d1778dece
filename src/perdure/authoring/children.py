"""Children as a workflow body sees them: what is needed to start one, the handle of a detached one, and fans."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Generic, Literal, TypeVar, cast

from perdure.authoring.gated import check_not_own, gated
from perdure.authoring.issuing import inside
from perdure.authoring.options import StartOptions
from perdure.authoring.registry import Registry
from perdure.authoring.workflow import WorkflowDefinition
from perdure.core.instance import Instance
from perdure.model.carrier import inherit
from perdure.model.errors import ChildFailed, GatherError, PerdureError
from perdure.model.failure import Failure, capture
from perdure.model.run import NewRun

R = TypeVar("R")

Mode = Literal["wait_all", "fail_fast"]

#: Derived seeds stay in what every store's integer column holds.
_SEEDS = 1 << 62


def derived_seed(seed: int, seq: int) -> int:
    """The seed of the run that operation `seq` starts (Knuth's MMIX step): a crash and a retry draw the same."""
    return (seed * 6364136223846793005 + seq * 1442695040888963407 + 1) % _SEEDS


def new_child(
    instance: Instance,
    definition: WorkflowDefinition[Any, Any],
    input: bytes,
    options: StartOptions,
    run_id: str,
    *,
    registry: Registry | None,
    awaited: bool,
) -> NewRun:
    """The run to start. A child inherits its parent's namespace, and its priority unless it is given one.

    `registry`: where its queue is declared; None: it has no gate.
    """
    parent = instance.run
    options = options.over(definition.declared)
    start_at = options.start_at
    if options.delay is not None:
        start_at = instance.now + options.delay
    run = NewRun(
        id=run_id,
        workflow=definition.name,
        version=definition.version,
        input=input,
        seed=derived_seed(parent.seed, instance.reserve()),
        namespace=options.namespace or parent.namespace,
        priority=parent.priority if options.priority is None else options.priority,
        tags=options.tags,
        attributes=options.attributes,
        origin=options.origin,
        carrier=inherit(parent.carrier, options.carrier),
        awaited_as=run_id if awaited else None,
        depth=parent.depth + 1,
        start_at=start_at,
        timeout=options.timeout,
    )
    if registry is not None:
        run = gated(run, registry, definition, options)
        check_not_own(run, parent)
    return run


def unstartable(run_id: str, error: PerdureError) -> Failure:
    """What a parent gets for a child that cannot be started."""
    failure = ChildFailed(f"child {run_id!r} failed to start: {error}", child_id=run_id, status="not started")
    failure.__cause__ = error
    return capture(failure)


class ChildHandle(Generic[R]):
    """A detached child: goes on by itself, whatever becomes of its parent, unless that is cancelled."""

    __slots__ = ("_decode", "_instance", "_refusal", "id")

    def __init__(self, instance: Instance, id: str, decode: Callable[[bytes], R], refusal: Failure | None) -> None:
        #: The child's run id.
        self.id = id
        self._instance = instance
        self._decode = decode
        self._refusal = refusal

    def result(self) -> Coroutine[Any, Any, R]:
        """Wait for the child's end; raises `ChildFailed` if it did not complete. Giving up the wait leaves it running."""
        wait = inside(self._instance).join(self.id, decode=self._decode, refusal=self._refusal)
        return cast("Coroutine[Any, Any, R]", wait)

    def __repr__(self) -> str:
        return f"<child {self.id!r}>"


async def gather(futures: Sequence[asyncio.Future[Any]], ids: Sequence[str], mode: Mode) -> list[Any]:
    """The results of a fan in input order. Raises `GatherError`; fail-fast then cancels the children still running.

    Giving it up cancels them too, as giving up one awaited child does.
    """
    when = asyncio.FIRST_EXCEPTION if mode == "fail_fast" else asyncio.ALL_COMPLETED
    if futures:
        try:
            await asyncio.wait(futures, return_when=when)
        except BaseException:  # asyncio.wait leaves what it waited for alone
            for future in futures:
                future.cancel()
            raise
    failures = [
        (index, ids[index], error)
        for index, future in enumerate(futures)
        if future.done() and not future.cancelled() and (error := future.exception()) is not None
    ]
    if not failures:
        return [future.result() for future in futures]
    for future in futures:
        future.cancel()
    results = [f.result() if f.done() and not f.cancelled() and f.exception() is None else None for f in futures]
    first = failures[0][2]
    raise GatherError(f"{len(failures)} of {len(futures)} children failed; the first: {first}", failures, results)
