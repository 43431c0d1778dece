"""QRY: values that a run publishes. F61, F67: what a body sees is what was stored."""

from __future__ import annotations

import dataclasses
import enum
import math
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any, NamedTuple
from uuid import UUID

import pytest

from perdure import Context, InvalidValue, RunFailed, RunNotFound, Status, step, workflow
from tests.behaviours.world import World


@workflow
async def progresses(ctx: Context) -> None:
    ctx.set_value("progress", 50)
    await ctx.wait_for_signal("go")
    ctx.set_value("progress", 75)
    ctx.set_value("progress", 80)
    await ctx.wait_for_signal("go")


async def test_qry_01_a_value_is_read_from_anywhere_and_the_run_does_not_notice(world: World) -> None:
    async with world.app(progresses) as app, world.client() as client:
        run = await app.start(progresses, id="r1")
        await app.settle()
        before = await run.info()
        assert await run.value("progress") == 50
        assert await client.get_run("r1").value("progress", int) == 50
        await app.settle()
        assert await run.info() == before
        assert before.status is Status.SUSPENDED


async def test_qry_02_the_newest_value_wins(world: World) -> None:
    async with world.app(progresses) as app:
        run = await app.start(progresses, id="r1")
        await app.settle()
        await run.signal("go")
        await app.settle()
        assert await run.value("progress") == 80
    async with world.app(progresses) as app:  # a replay publishes nothing anew
        await app.get_run("r1").signal("nudge")
        await app.settle()
        assert await app.get_run("r1").value("progress") == 80
        await app.get_run("r1").signal("go")
        await app.get_run("r1").result()
        assert await app.get_run("r1").value("progress") == 80


async def test_qry_03_a_key_that_was_never_published_gives_the_default(world: World) -> None:
    async with world.app(progresses) as app:
        run = await app.start(progresses)
        await app.settle()
        assert await run.value("other") is None
        assert await run.value("other", int, default=7) == 7
        with pytest.raises(RunNotFound, match="'nobody'"):
            await app.get_run("nobody").value("progress")


async def test_qry_04_the_history_has_them_too(world: World) -> None:
    async with world.app(progresses) as app:
        run = await app.start(progresses)
        await app.settle()
        await run.signal("go")
        await app.settle()
        assert [s.input for s in await run.steps() if s.name == "progress"] == [b"50", b"75", b"80"]


async def test_a_value_is_seen_when_its_turn_is_durable_and_not_before(world: World) -> None:
    gate = world.gate()
    async with world.app(progresses, store=gate) as app, world.client() as client:
        run = await app.start(progresses, id="r1")
        await app.settle()
        stop = gate.stop("before", "write", lambda batch: any(getattr(write, "values", ()) for write in batch))
        await run.signal("go")
        await stop.reached.wait()
        assert await client.get_run("r1").value("progress") == 50
        stop.release()
        await app.settle()
        assert await client.get_run("r1").value("progress") == 80


# ---------------------------------------------------------------- F61: live and replayed, the same value


class Colour(enum.Enum):
    RED = "red"


class Point(NamedTuple):
    x: int
    y: int


@dataclasses.dataclass
class Order:
    id: int
    lines: list[tuple[str, Decimal]]
    due: date
    by: UUID
    colour: Colour


ORDER = Order(7, [("a", Decimal("1.10"))], date(2025, 5, 1), UUID(int=5), Colour.RED)

VALUES: list[tuple[Any, Any]] = [
    ((1, (2, 3)), tuple[int, tuple[int, int]]),
    ({1, 2}, set[int]),
    (Decimal("0.1"), Decimal),
    (UUID(int=1), UUID),
    (b"\x00\xff", bytes),
    (2**200, int),
    (datetime(2025, 1, 1, tzinfo=UTC), datetime),
    (timedelta(seconds=1.5), timedelta),
    (Colour.RED, Colour),
    (Point(1, 2), Point),
    (ORDER, Order),
    ("\\u0000", str),
    ("nul \x00 and ünïcode 🎉", str),
]


@pytest.mark.parametrize(("value", "hint"), VALUES, ids=lambda part: repr(part)[:40])
async def test_f61_the_first_run_sees_the_value_that_a_replay_sees(world: World, value: Any, hint: Any) -> None:
    seen: list[Any] = []

    async def gives() -> Any:
        return value

    gives.__annotations__["return"] = hint
    given = step(gives)

    @workflow
    async def body(ctx: Context) -> None:
        seen.append(await ctx.step(given))
        seen.append(await ctx.local_step("local", lambda: value, type=hint))
        seen.append(await ctx.wait_for_signal("go", type=hint))
        await ctx.wait_for_signal("again")

    async with world.app(body) as app:
        run = await app.start(body, id="r1")
        await run.signal("go", value)
        await app.settle()
    async with world.app(body) as app:
        await app.get_run("r1").signal("again")
        await app.get_run("r1").result()
    assert seen == [value] * len(seen)
    assert len(seen) >= 3
    assert {type(one) for one in seen} == {type(value)}


async def test_f61_a_local_steps_type_says_what_is_stored_too(world: World) -> None:
    @workflow
    async def body(ctx: Context) -> str:
        found = await ctx.local_step("gives", lambda: {1: {2: "a"}}, type=dict[int, dict[int, str]])
        return str(found[1][2])

    @workflow
    async def wrong(ctx: Context) -> None:
        await ctx.local_step("gives", lambda: "text", type=int)

    async with world.app(body, wrong) as app:
        assert await (await app.start(body)).result() == "a"
        with pytest.raises(RunFailed, match="local 'gives' at position 0"):
            await (await app.start(wrong)).result()


async def test_f61_without_a_hint_it_is_plain_json_both_times(world: World) -> None:
    seen: list[Any] = []

    @workflow
    async def body(ctx: Context) -> None:
        seen.append(await ctx.local_step("local", lambda: {"t": (1, 2), "when": date(2025, 1, 1)}))
        await ctx.wait_for_signal("again")

    async with world.app(body) as app:
        await app.start(body, id="r1")
        await app.settle()
    async with world.app(body) as app:
        await app.get_run("r1").signal("again")
        await app.get_run("r1").result()
    assert seen == [{"t": [1, 2], "when": "2025-01-01"}] * 2


@pytest.mark.parametrize(
    "value",
    [math.nan, math.inf, "\ud800", {(1, 2): 3}, object(), open],
    ids=["nan", "infinity", "surrogate", "key", "object", "function"],
)
async def test_f61_what_would_not_come_back_is_refused_at_the_call(world: World, value: Any) -> None:
    @workflow
    async def body(ctx: Context) -> None:
        await ctx.local_step("gives", lambda: {"deep": [value]}, max_attempts=5)

    @workflow
    async def waits(ctx: Context) -> None:
        await ctx.wait_for_signal("go")

    async with world.app(body, waits) as app:
        run = await app.start(body)
        with pytest.raises(RunFailed, match="deep") as caught:
            await run.result()
        assert isinstance(caught.value.__cause__, InvalidValue)
        waiting = await app.start(waits)
        with pytest.raises(InvalidValue, match="deep"):
            await waiting.signal("go", {"deep": [value]})


async def test_f67_what_the_caller_changes_later_changes_nothing(world: World) -> None:
    @step
    async def takes(items: list[int]) -> int:
        items.append(99)
        return len(items)

    @workflow
    async def body(ctx: Context, items: list[int]) -> list[int]:
        items.append(2)
        call = takes(items)
        items.append(3)
        count = await call
        ctx.set_value("items", items)
        items.append(4)
        await ctx.wait_for_signal("go")
        return [*items, count]

    async with world.app(body) as app:
        mine, tags = [1], ["a"]
        run = await app.start(body, mine, id="r1", tags=tags)
        mine.append(100)
        tags.append("b")
        await app.settle()
        assert mine == [1, 100]
        assert await run.value("items") == [1, 2, 3]
        assert (await run.steps())[0].input == b"[1,2]"
        assert (await run.info()).tags == ("a",)
    async with world.app(body) as app:
        await app.get_run("r1").signal("go")
        assert await app.get_run("r1").result() == [1, 2, 3, 4, 3]
