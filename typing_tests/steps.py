"""What a type checker knows about steps. Each line with ignore comments is a mistake that both checkers must find."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, assert_type

from perdure import CancelResult, Context, Perdure, RunHandle, Status, Undo
from perdure.authoring.step import step
from perdure.authoring.step_ref import StepRef, step_ref


@dataclass
class Order:
    id: int


@dataclass
class Receipt:
    order: Order


@step
async def look_up(order: Order) -> Receipt:
    return Receipt(order)


@step(max_attempts=3, backoff="exp", base=0.5, cap=timedelta(minutes=1), timeout=30)
async def charge(order: Order, note: str = "", *, urgent: bool = False) -> Receipt:
    return Receipt(order)


@step
def render(receipt: Receipt) -> bytes:
    return repr(receipt).encode()


@step(name="loose", max_attempts=2)
async def loose(data: dict[str, Any]) -> dict[str, Any]:
    return data


@step
def loose_sync(data: dict[str, Any]) -> list[Any]:
    return [data]


class Payments:
    @staticmethod
    @step
    async def refund(receipt: Receipt) -> bool:
        return True

    @step
    @staticmethod
    def void(receipt: Receipt) -> int:
        return 1


async def calls(order: Order) -> None:
    assert_type(await charge(order), Receipt)
    assert_type(await charge(order, "now", urgent=True), Receipt)
    assert_type(render(Receipt(order)), bytes)
    assert_type(await loose({"a": 1}), dict[str, Any])
    assert_type(loose_sync({"a": 1}), list[Any])
    assert_type(await Payments.refund(Receipt(order)), bool)
    assert_type(Payments.void(Receipt(order)), int)
    assert_type(await charge.using(max_attempts=5)(order, urgent=True), Receipt)
    assert_type(await asyncio.create_task(charge(order)), Receipt)
    assert_type(await asyncio.gather(charge(order), Payments.refund(Receipt(order))), tuple[Receipt, bool])
    async with asyncio.TaskGroup() as group:
        assert_type(group.create_task(look_up(order)), asyncio.Task[Receipt])


async def wrong_calls(order: Order) -> None:
    await charge("x")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    await charge()  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    await charge(order, 5)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    await charge(order, note=5)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    await charge(order, "", True)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    await charge(order, nte="")  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    await render(Receipt(order))  # type: ignore[misc]  # pyright: ignore[reportGeneralTypeIssues]
    charge.using(attempts=5)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    charge.using(max_attempts="5")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    charge.using(backoff="linear")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    charge.name = "other"  # type: ignore[misc]  # pyright: ignore[reportAttributeAccessIssue]
    names: list[str] = [await charge(order)]  # type: ignore[list-item]  # pyright: ignore[reportAssignmentType]
    names.clear()


def wrong_decorations() -> None:
    step(5)  # type: ignore[call-overload]  # pyright: ignore[reportCallIssue, reportArgumentType]
    step(max_attempt=5)  # type: ignore[call-overload]  # pyright: ignore[reportCallIssue]
    step(name=5)  # type: ignore[call-overload]  # pyright: ignore[reportArgumentType]


receipts = step_ref("payments:charge", type=Receipt, max_attempts=3)
assert_type(receipts, StepRef[Receipt])
assert_type(step_ref("payments:list", type=list[int]), StepRef[list[int]])
assert_type(step_ref("payments:any"), StepRef[Any])
assert_type(receipts.using(timeout=5), StepRef[Receipt])


async def references(order: Order) -> None:
    assert_type(await receipts(order), Receipt)
    assert_type(await receipts(order=order, note="x"), Receipt)
    counts: list[int] = [await receipts(order)]  # type: ignore[list-item]  # pyright: ignore[reportAssignmentType]
    counts.clear()
    step_ref(5)  # type: ignore[call-overload]  # pyright: ignore[reportArgumentType]


# A step goes where its function goes.
as_function: Callable[[Order], Coroutine[Any, Any, Receipt]] = look_up
as_function_with_default: Callable[[Order], Coroutine[Any, Any, Receipt]] = charge
as_other: Callable[[str], Coroutine[Any, Any, Receipt]] = look_up  # type: ignore[assignment]  # pyright: ignore[reportAssignmentType]


# ---------------------------------------------------------------- undos


@step
async def refund(undo: Undo[Order, Receipt]) -> None:
    assert_type(undo.input, Order)
    assert_type(undo.output, Receipt)


@step(compensate=refund, compensation_attempts=3)
async def charge_safely(order: Order) -> Receipt:
    return Receipt(order)


async def undone(ctx: Context, order: Order) -> None:
    assert_type(await charge_safely(order), Receipt)
    assert_type(await charge.using(compensate=refund)(order), Receipt)
    assert_type(await charge.using(compensate="payments:refund")(order), Receipt)
    assert_type(await receipts.using(compensate=step_ref("payments:refund"))(order), Receipt)
    await ctx.local_step("hold", lambda: 1, compensate=lambda undo: undo.output)
    await ctx.local_step("hold", lambda: 1, compensate=refund, compensation_attempts=2)
    charge.using(compensate=None)
    charge.using(compensate=5)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    charge.using(compensate=print)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    charge.using(compensation_attempts="3")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    charge.using(compensations=3)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]


async def cancelled_with_undo(app: Perdure, run: RunHandle[int]) -> None:
    assert_type(await run.cancel(compensate=True), Status)
    assert_type(await app.cancel_where(tag="t", dry_run=True), list[CancelResult])
    await run.cancel(compensate="yes")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    await app.cancel_where(name="t")  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
