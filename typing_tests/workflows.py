"""What a type checker knows about workflows: defined, run, and started, by an app or by themselves.

`App` shows how a method that takes a workflow is written: positionals are the workflow's, keywords Perdure's. Each line with
ignore comments is a mistake that both checkers must find.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Generic, TypeVar, Unpack, assert_type, overload

from perdure.authoring.ambient import Started
from perdure.authoring.arity import Takes0, Takes1, Takes2, Takes3, Takes4, Takes5
from perdure.authoring.marker import ContextMarker
from perdure.authoring.options import StartKeywords
from perdure.authoring.step import step
from perdure.authoring.workflow import workflow
from perdure.patterns.accumulate import Batch, Debounce

A = TypeVar("A")
B = TypeVar("B")
C = TypeVar("C")
D = TypeVar("D")
E = TypeVar("E")
R = TypeVar("R")


class Context(ContextMarker):
    """Stands in for the real one."""


class RunHandle(Generic[R]):
    async def result(self) -> R:
        raise NotImplementedError


class App:
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
        raise NotImplementedError


@dataclass
class Order:
    id: int


@dataclass
class BigOrder(Order):
    size: int


@step
async def charge(order: Order) -> str:
    return str(order.id)


def affordable(order: Order, note: str = "", *, urgent: bool = False) -> None:
    if order.id > 1000:
        raise ValueError("too dear")


@workflow
async def plain(ctx: Context, order: Order) -> str:
    return await charge(order)


@workflow(version="2", tags=["billing"], timeout=timedelta(days=1), origin="shop", validate=affordable)
async def checkout(ctx: Context, order: Order, note: str = "", *, urgent: bool = False) -> str:
    return await plain.run(order)


@workflow
async def nothing(ctx: Context) -> None: ...


@workflow
async def nothing_at_all() -> int:
    return 1


@workflow(on_event="order.paid")
async def by_event(ctx: Context, order: Order) -> int:
    return 1


@workflow(on_event=["order.paid", Batch("order.sent", max=3, window=60, key="id"), Debounce("order.seen", window=5)])
async def by_events(ctx: Context, order: Order) -> int:
    return 1


@workflow(name="ship")
async def no_context(order: Order, note: str = "") -> bool:
    return True


@workflow
async def loose(ctx: Context, data: dict[str, Any] | None, count: int) -> list[Any]:
    return [data]


@workflow
async def loose_no_context(data: dict[str, Any] | None) -> dict[str, Any]:
    return {}


@workflow
async def five(ctx: Context, a: int, b: str, c: list[int], d: float, e: bytes) -> tuple[int, str]:
    return a, b


@workflow
async def keyword_needed(ctx: Context, order: Order, *, note: str) -> str:
    return note


class Flows:
    @workflow
    @staticmethod
    async def nested(ctx: Context, order: Order) -> str:
        return ""


async def starts(app: App, order: Order, big: BigOrder, when: datetime) -> None:
    run = await app.start(checkout, order, id="checkout:42")
    assert_type(run, RunHandle[str])
    assert_type(await run.result(), str)
    assert_type(await app.start(checkout, order, "a note", priority=7, tags=["vip"], start_at=when), RunHandle[str])
    assert_type(await app.start(checkout, big, delay=60, timeout=timedelta(hours=1)), RunHandle[str])
    assert_type(await app.start(nothing), RunHandle[None])
    assert_type(await app.start(nothing_at_all, origin="x", namespace="t1", attributes={"a": 1}), RunHandle[int])
    assert_type(await app.start(no_context, order), RunHandle[bool])
    assert_type(await app.start(no_context, order, "x"), RunHandle[bool])
    assert_type(await app.start(loose, {"any": object()}, 1), RunHandle[list[Any]])
    assert_type(await app.start(loose, None, 1), RunHandle[list[Any]])
    assert_type(await app.start(loose_no_context, {"x": 1}), RunHandle[dict[str, Any]])
    assert_type(await app.start(five, 1, "b", [1], 1.0, b""), RunHandle[tuple[int, str]])
    assert_type(await app.start(Flows.nested, order), RunHandle[str])
    assert_type(await app.start(checkout.using(priority=3), order), RunHandle[str])
    assert_type(await app.start("by-name", order, 5), RunHandle[Any])


async def wrong_starts(app: App, order: Order) -> None:
    await app.start(checkout, 5)  # type: ignore[misc]  # pyright: ignore[reportCallIssue, reportArgumentType]
    await app.start(checkout)  # type: ignore[arg-type]  # pyright: ignore[reportCallIssue, reportArgumentType]
    await app.start(checkout, order, 5)  # type: ignore[misc]  # pyright: ignore[reportCallIssue, reportArgumentType]
    await app.start(checkout, order, note="")  # type: ignore[call-overload]  # pyright: ignore[reportCallIssue]
    await app.start(checkout, order=order)  # type: ignore[call-overload]  # pyright: ignore[reportCallIssue]
    await app.start(checkout, order, id=5)  # type: ignore[call-overload]  # pyright: ignore[reportCallIssue, reportArgumentType]
    await app.start(nothing, 5)  # type: ignore[arg-type]  # pyright: ignore[reportCallIssue, reportArgumentType]
    await app.start(nothing_at_all, 5)  # type: ignore[arg-type]  # pyright: ignore[reportCallIssue, reportArgumentType]
    await app.start(no_context, "x")  # type: ignore[misc]  # pyright: ignore[reportCallIssue, reportArgumentType]
    await app.start(loose, {}, "x")  # type: ignore[misc]  # pyright: ignore[reportCallIssue, reportArgumentType]
    await app.start(loose_no_context, 5)  # type: ignore[misc]  # pyright: ignore[reportCallIssue, reportArgumentType]
    await app.start(five, 1, "b", ["c"], 1.0, b"")  # type: ignore[misc]  # pyright: ignore[reportCallIssue, reportArgumentType]
    await app.start(keyword_needed, order)  # type: ignore[arg-type]  # pyright: ignore[reportCallIssue, reportArgumentType]
    await app.start(charge, order)  # type: ignore[call-overload]  # pyright: ignore[reportCallIssue, reportArgumentType]
    run = await app.start(plain, order)
    numbers: list[int] = [await run.result()]  # type: ignore[list-item]  # pyright: ignore[reportAssignmentType]
    numbers.clear()


async def runs_itself(order: Order) -> None:
    assert_type(await checkout.run(order), str)
    assert_type(await checkout.run(order, urgent=True, note="x"), str)
    assert_type(await checkout.start(order, note="x"), Started[str])
    assert_type(await (await checkout.start(order)).result(), str)
    assert_type(await no_context.run(order, note="x"), bool)
    assert_type(await nothing.run(), None)
    assert_type(await by_event.run(order), int)
    assert_type(await by_events.run(order), int)
    assert_type(await loose.run({}, count=3), list[Any])
    bound = checkout.using(id="c", tags={"vip"}, start_at=1.5, attributes={"a": [1]})
    assert_type(await bound.start(order, note="x"), Started[str])
    assert_type(await bound.using(priority=1).run(order, urgent=True), str)
    assert_type(await asyncio.gather(plain.run(order), no_context.run(order)), tuple[str, bool])
    assert_type(await asyncio.create_task(plain.run(order)), str)
    coroutine: Coroutine[Any, Any, str] = plain.run(order)
    await coroutine


async def runs_itself_wrongly(order: Order) -> None:
    await plain(order)  # type: ignore[operator]  # pyright: ignore[reportCallIssue]
    await plain.run("x")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    await plain.run()  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    await plain.run(order, id="x")  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    await checkout.run(order, note=5)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    await no_context.run(order, nte="")  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    await loose.run({}, "x")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    await loose_no_context.run(5)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    await checkout.using(id="c").start(order, nte="x")  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    checkout.using(ident="c")  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    checkout.using(delay="5m")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    checkout.version = "3"  # type: ignore[misc]  # pyright: ignore[reportAttributeAccessIssue]


def not_a_coroutine(ctx: Context) -> int:
    return 1


workflow(not_a_coroutine)  # type: ignore[arg-type]  # pyright: ignore[reportCallIssue, reportArgumentType]
workflow(on_event=5)  # type: ignore[call-overload]  # pyright: ignore[reportArgumentType]
workflow(version=2)  # type: ignore[call-overload]  # pyright: ignore[reportArgumentType]
workflow(tag=["x"])  # type: ignore[call-overload]  # pyright: ignore[reportCallIssue]
