"""What a type checker knows about finding and operating runs."""

from __future__ import annotations

from typing import assert_type

from perdure.app import Perdure
from perdure.authoring.context import Context
from perdure.authoring.workflow import workflow
from perdure.engine.bulk import Item
from perdure.engine.handle import RunHandle
from perdure.model.attributes import Condition
from perdure.model.conditions import attr
from perdure.model.run import Run, Status


@workflow
async def order(ctx: Context, amount: int) -> str:
    ctx.upsert_attributes({"amount": amount})
    ctx.upsert_attributes([("amount", 1)])  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    return ""


async def finding(app: Perdure) -> None:
    assert_type(attr("amount") == 1, Condition)
    assert_type(attr("amount") > 1.5, Condition)
    assert_type(attr("amount") <= "text", Condition)
    assert_type(await app.runs(where=[attr("a") != None], tag=["x", "y"], origin="web", limit=3), list[Run])  # noqa: E711
    assert_type(await app.runs(status=[Status.FAILED, "dead"], attributes={"a": 1}), list[Run])
    assert_type(await app.count(workflow="order"), int)
    assert_type(await app.facets("status", tag="x"), dict[str | None, int])
    assert_type(await app.facets("status", "origin"), dict[tuple[str | None, ...], int])
    await app.facets("colour")  # type: ignore[call-overload]  # pyright: ignore[reportArgumentType]
    await app.runs(colour="red")  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    await app.runs(where=["a > 1"])  # type: ignore[list-item]  # pyright: ignore[reportArgumentType]


async def operating(app: Perdure) -> None:
    run = app.get_run("r", order)
    assert_type(await run.requeue(children=True), Status)
    assert_type(await run.retry_with_input(2), RunHandle[str])
    assert_type(await run.fork(3), RunHandle[str])
    assert_type(await (await run.fork(from_step=3)).result(), str)
    assert_type(await run.pause(at_once=True), bool)
    assert_type(await run.unpause(), bool)
    assert_type((await run.redispatch()).steps, int)
    assert_type(await app.requeue_where(status="failed", dry_run=True), list[Item])
    assert_type([item.id for item in await app.delete_where(where=[attr("a") > 1])], list[str])
    assert_type(await app.pause_where(tag="x"), list[Item])
    assert_type(await app.unpause_where(tag="x"), list[Item])
    await run.fork("3")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
