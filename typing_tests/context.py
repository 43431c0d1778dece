"""What a type checker knows about the context, in the words of the README's first example."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from datetime import UTC, datetime
from random import Random
from typing import Any, assert_type
from uuid import UUID

from perdure.app import Perdure
from perdure.authoring.children import ChildHandle
from perdure.authoring.context import Context
from perdure.authoring.step import step
from perdure.authoring.step_ref import step_ref
from perdure.authoring.workflow import workflow


@dataclass
class Order:
    id: int


@dataclass
class Receipt:
    total: int


@dataclass
class Shipment:
    tracking: str


@dataclass
class Approval:
    by: str


@step(max_attempts=3, backoff="exp")
async def charge(order: Order) -> Receipt:
    return Receipt(order.id)


@step
def render(receipt: Receipt, *, wide: bool = False) -> bytes:
    return b""


def show(*anything: object) -> None: ...


@workflow
async def ship(ctx: Context, order: Order) -> Shipment:
    return Shipment(str(order.id))


@workflow
async def invoice(ctx: Context, order: Order, note: str = "") -> int:
    return 1


@workflow(version="1", tags=["billing"])
async def checkout(ctx: Context, order: Order) -> str:
    receipt = await charge(order)
    assert_type(await ctx.step(render, receipt), bytes)
    assert_type(await ctx.step(render, receipt, wide=True), bytes)
    assert_type(await ctx.step(charge, order), Receipt)
    assert_type(await ctx.step(step_ref("payments:charge", type=Receipt), order), Receipt)
    assert_type(await ctx.step("payments:charge", order), Any)
    # Where any object will do, a checker asks for a step that gives an `object`.
    show(await ctx.step(render, receipt), f"{await ctx.step(charge, order)}", str(await ctx.step(render, receipt)))
    show(await ctx.step(step_ref("payments:charge", type=Receipt), order), await charge(order), await ship.run(order))
    show(await ctx.child(ship, order), f"{await ctx.all(ship, [order])}", await ctx.child(invoice, order, "x"))
    async with asyncio.timeout(7 * 86400):
        approval = await ctx.wait_for_signal("approve", type=Approval)
    assert_type(approval, Approval)
    assert_type(await ctx.wait_for_event("paid", match={"order.id": 1}, type=Receipt, timeout=60), Receipt)
    assert_type(await ctx.wait_for_event("paid"), Any)
    await ctx.wait_for_event("paid", match=[1])  # type: ignore[call-overload]  # pyright: ignore[reportArgumentType]
    assert_type(await ctx.child(ship, order, id="x", priority=3), Shipment)
    assert_type(await ctx.child(invoice, order), int)
    assert_type(await ctx.child(invoice, order, "x"), int)
    assert_type(await ctx.start_child(ship, order), ChildHandle[Shipment])
    assert_type(await (await ctx.start_child(ship, order)).result(), Shipment)
    assert_type(await ctx.all(ship, [order, order], mode="fail_fast"), list[Shipment])
    assert_type(await asyncio.create_task(ctx.child(ship, order)), Shipment)
    a, b = await asyncio.gather(ctx.child(ship, order), ctx.child(invoice, order))
    assert_type(a, Shipment)
    assert_type(b, int)
    c, d = await asyncio.gather(ctx.step(render, receipt), ctx.child(invoice, order))
    assert_type(c, bytes)
    assert_type(d, int)
    assert_type(ctx.now(), datetime)
    assert_type(ctx.random, Random)
    assert_type(ctx.uuid4(), UUID)
    assert_type(ctx.patched("x"), bool)
    await ctx.sleep_until(datetime(2030, 1, 1, tzinfo=UTC))
    return a.tracking


@workflow
async def wrong(ctx: Context, order: Order) -> None:
    await ctx.step(render, 5)  # type: ignore[call-overload]  # pyright: ignore[reportCallIssue, reportArgumentType]
    await ctx.step(charge.fn, order)  # type: ignore[call-overload]  # pyright: ignore[reportCallIssue, reportArgumentType]
    await ctx.child(ship, 5)  # type: ignore[misc]  # pyright: ignore[reportCallIssue, reportArgumentType]
    await ctx.child(ship, order, note="x")  # type: ignore[call-overload]  # pyright: ignore[reportCallIssue]
    await ctx.all(ship, [5])  # type: ignore[misc]  # pyright: ignore[reportArgumentType]
    await ctx.all(ship, [order], mode="fast")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


async def main(app: Perdure, order: Order) -> None:
    run = await app.start(checkout, order, id="checkout:42")
    assert_type(await run.result(), str)
    assert_type(await app.get_run("checkout:42", checkout).result(), str)
    await app.start(checkout, 5)  # type: ignore[misc]  # pyright: ignore[reportCallIssue, reportArgumentType]
    await app.start(checkout, order, idd="x")  # type: ignore[call-overload]  # pyright: ignore[reportCallIssue]


async def in_a_database(ctx: Context, app: Perdure, connection: object) -> None:
    def fn(connection: Any) -> int:
        return 1

    assert_type(await ctx.transaction("count", fn, type=int, max_attempts=3), int)
    await ctx.transaction("count", fn, on=connection)
    await app.start("count", id="c", connection=connection)
    await app.signal(token="t", connection=connection)
    await app.get_run("c").signal("go", connection=connection)
