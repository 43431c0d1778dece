"""All cases: the functions named `test_...` of the topic modules."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from types import ModuleType
from typing import Any, NamedTuple

from perdure.testing.clock import ManualClock
from perdure.testing.conformance import (
    attributes,
    audits,
    batches,
    blocked,
    cancels,
    children,
    claims,
    concurrency,
    continuation,
    counts,
    create,
    deletion,
    events,
    fence,
    fleet,
    gatedruns,
    gates,
    histories,
    hostile,
    leases,
    lines,
    listing,
    publishing,
    requeues,
    signals,
    standing,
    steering,
    streams,
    tokens,
    transactions,
    turns,
)
from perdure.testing.conformance.kit import Kit, StoreFactory

_TOPICS: tuple[ModuleType, ...] = (
    create,
    turns,
    fence,
    batches,
    claims,
    leases,
    tokens,
    transactions,
    signals,
    events,
    publishing,
    children,
    continuation,
    cancels,
    deletion,
    requeues,
    blocked,
    fleet,
    gates,
    gatedruns,
    lines,
    histories,
    audits,
    listing,
    attributes,
    counts,
    standing,
    steering,
    streams,
    hostile,
    concurrency,
)


class Case(NamedTuple):
    """One scenario. `str()` of it names it."""

    topic: str
    name: str
    function: Callable[[Kit], Coroutine[Any, Any, None]]

    def __str__(self) -> str:
        return f"{self.topic}-{self.name}"


def run_case(case: Case, factory: StoreFactory) -> None:
    """Run one case on a store of its own. Raises `AssertionError` where the store does not keep the contract."""
    asyncio.run(_run(case, factory))


async def _run(case: Case, factory: StoreFactory) -> None:
    clock = ManualClock()
    kit = Kit(factory, clock, await factory.make(clock))
    try:
        await case.function(kit)
    finally:
        for other in kit.others:
            await factory.dispose(other)
        await factory.dispose(kit.store)


def _cases() -> Iterator[Case]:
    for module in _TOPICS:
        topic = module.__name__.rpartition(".")[2]
        for name, function in vars(module).items():
            if name.startswith("test_"):
                yield Case(topic, name.removeprefix("test_"), function)


CASES: tuple[Case, ...] = tuple(_cases())
