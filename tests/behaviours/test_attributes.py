"""ATTR: attributes that a body changes, and finding runs by them. RET-14: counts."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from perdure import Context, InvalidId, InvalidValue, RunFailed, Status, UsageError, attr, step, workflow
from perdure.model.history import Event, Op
from tests.behaviours.world import World


@workflow
async def stages(ctx: Context) -> None:
    ctx.upsert_attributes({"amount": 200})
    await ctx.wait_for_signal("go")
    ctx.upsert_attributes({"amount": 300, "stage": "paid"})
    ctx.upsert_attributes({"stage": "sent", "items": ["a"]})
    await ctx.wait_for_signal("go")


async def test_attr_01_attributes_are_merged_shallowly_and_found_at_once(world: World) -> None:
    async with world.app(stages) as app, world.client() as client:
        run = await app.start(stages, id="r1", attributes={"amount": 1, "box": {"a": 1}})
        await app.settle()
        assert await run.attributes() == {"amount": 200, "box": {"a": 1}}
        assert [one.id for one in await client.runs(attributes={"amount": 200})] == ["r1"]
        assert await client.count(where=[attr("amount") < 200]) == 0
        await run.signal("go")
        await app.settle()
        assert await run.attributes() == {"amount": 300, "box": {"a": 1}, "stage": "sent", "items": ["a"]}
        found = await client.runs(where=[attr("amount") > 250, attr("stage") == "sent"])
        assert [one.attributes for one in found] == [b'{"amount":300,"box":{"a":1},"stage":"sent","items":["a"]}']
        assert await client.runs(where=[attr("stage") == "paid"]) == []


async def test_attr_01_one_entry_a_call(world: World) -> None:
    async with world.app(stages) as app:
        run = await app.start(stages, id="r1")
        await run.signal("go")
        await app.settle()
        entries = [entry for entry in await run.history() if entry.op is Op.ATTRIBUTES]
        assert [(entry.event, entry.name) for entry in entries] == [(Event.SCHEDULED, "searchAttributes")] * 3
        assert entries[0].payload == b'{"amount":200}'
        assert [one.state for one in await run.steps() if one.op is Op.ATTRIBUTES] == ["completed"] * 3


async def test_attr_02_a_replay_writes_nothing_again(world: World) -> None:
    async with world.doomed(stages) as app:
        await app.start(stages, id="r1", attributes={"amount": 1})
        await app.settle()
    async with world.app(stages) as app:
        run = app.get_run("r1")
        before = await run.info()
        await run.signal("go")
        await app.settle()
        await run.signal("go")
        await app.settle()
        assert (await run.info()).status is Status.COMPLETED
        assert await run.attributes() == {"amount": 300, "stage": "sent", "items": ["a"]}
        assert before.attributes == b'{"amount":200}'
        assert len([entry for entry in await run.history() if entry.op is Op.ATTRIBUTES]) == 3


async def test_attr_02_attributes_of_a_turn_that_was_lost_are_not_there(world: World) -> None:
    gate = world.gate()

    @workflow
    async def changes(ctx: Context) -> None:
        await asyncio.sleep(10)
        ctx.upsert_attributes({"stage": "late"})
        await ctx.wait_for_signal("never")

    async with world.app(changes, store=gate) as app:
        run = await app.start(changes, id="r1", attributes={"stage": "early"})
        await app.settle()
        assert (await app.runs(attributes={"stage": "early"}))[0].id == "r1"
        await run.cancel()
        await app.tick(20)
        assert await run.attributes() == {"stage": "early"}


async def test_attr_01_the_next_link_has_them_and_children_do_not(world: World) -> None:
    @step
    async def nothing() -> None: ...

    @workflow
    async def child(ctx: Context) -> None:
        await nothing()

    @workflow
    async def links(ctx: Context, n: int) -> int:
        ctx.upsert_attributes({"n": n})
        await ctx.child(child)
        if n < 2:
            ctx.continue_as_new(n + 1)
        return n

    async with world.app(links, child) as app:
        run = await app.start(links, 0, id="r1", attributes={"plan": "pro"})
        assert await run.result() == 2
        found = await app.runs(attributes={"plan": "pro"})
        assert [(one.id, one.attributes) for one in found] == [
            ("r1~2", b'{"plan":"pro","n":2}'),
            ("r1~1", b'{"plan":"pro","n":1}'),
            ("r1", b'{"plan":"pro","n":0}'),
        ]
        assert [one.attributes for one in await app.runs(workflow="child")] == [None] * 3


@pytest.mark.parametrize(
    ("given", "error"),
    [
        ([("a", 1)], UsageError),
        ("text", UsageError),
        (None, UsageError),
        ({"": 1}, InvalidId),
        ({1: 1}, InvalidId),
        ({"a\nb": 1}, InvalidId),
        ({"n": float("nan")}, InvalidValue),
        ({"f": object()}, InvalidValue),
        ({"long": "x" * 3_000_000}, InvalidValue),
    ],
    ids=range(9),
)
async def test_attr_01_what_cannot_be_stored_is_refused_at_the_call(
    world: World, given: Any, error: type[Exception]
) -> None:
    @workflow
    async def wrong(ctx: Context) -> None:
        ctx.upsert_attributes(given)

    async with world.app(wrong) as app:
        run = await app.start(wrong, id="r1", attributes={"kept": 1})
        with pytest.raises(RunFailed) as caught:
            await run.result()
        assert isinstance(caught.value.__cause__, error)
        assert await run.attributes() == {"kept": 1}
        assert await run.steps() == []


# ---------------------------------------------------------------- listing and counting


@workflow
async def waits(ctx: Context) -> None:
    await ctx.wait_for_signal("go")


async def test_attr_03_conditions_are_anded(world: World) -> None:
    async with world.client(waits) as client:
        for n, region in enumerate(["eu", "us", "eu", "eu"]):
            await client.start(waits, id=f"r{n}", attributes={"amount": n * 50, "region": region})
        await client.start(waits, id="none")

        async def found(*where: Any) -> list[str]:
            return [run.id for run in await client.runs(where=where)]

        assert await found(attr("amount") > 0, attr("region") == "eu") == ["r3", "r2"]
        assert await found(attr("amount") >= 50, attr("amount") < 150) == ["r2", "r1"]
        assert await found(attr("region") != "eu") == ["r1"]
        assert await found(attr("amount") != 7.5) == ["r3", "r2", "r1", "r0"]
        assert await found(attr("amount") > "0") == []
        assert [run.id for run in await client.runs(attributes={"region": "eu"}, where=[attr("amount") <= 0])] == ["r0"]


async def test_attr_08_pages_newest_first(world: World) -> None:
    async with world.client(waits) as client:
        for n in range(5):
            await client.start(waits, id=f"r{n}", tags=["x"], attributes={"n": n})
        [first] = await client.runs(limit=1)
        assert [run.id for run in await client.runs(limit=2, before=first.incarnation)] == ["r3", "r2"]
        page = await client.runs(where=[attr("n") >= 1], tag="x", limit=2)
        await client.start(waits, id="late", tags=["x"], attributes={"n": 9})
        rest = await client.runs(where=[attr("n") >= 1], tag="x", limit=2, before=page[-1].incarnation)
        assert [run.id for run in (*page, *rest)] == ["r4", "r3", "r2", "r1"]


async def test_attr_07_by_tags_and_origin(world: World) -> None:
    async with world.client(waits) as client:
        await client.start(waits, id="a", tags=["etl", "eu"], origin="cron")
        await client.start(waits, id="b", tags=["etl-foo", "eu"], origin="web", namespace="red")
        assert [run.id for run in await client.runs(tag="etl")] == ["a"]
        assert [run.id for run in await client.runs(tag=["eu", "etl-foo"])] == ["b"]
        assert [run.id for run in await client.runs(tag=["eu", "etl", "none"])] == []
        assert [run.id for run in await client.runs(origin="web")] == ["b"]
        assert [run.id for run in await client.runs(origin="web", namespace="default")] == []


async def test_ret_14_facets_are_of_all_that_match(world: World) -> None:
    @workflow
    async def fails(ctx: Context) -> None:
        raise ValueError

    async with world.app(waits, fails) as app:
        for n in range(4):
            await app.start(waits, id=f"w{n}", origin="cron" if n % 2 else None, tags=["x", "y"] if n else [])
        await app.start(fails, id="f", origin="cron", namespace="red")
        await app.settle()
        assert await app.count() == 5
        assert await app.count(status=["failed", "dead"]) == await app.count(workflow="fails") == 1
        assert await app.facets("status") == {"suspended": 4, "failed": 1}
        assert await app.facets("workflow", namespace="red") == {"fails": 1}
        assert await app.facets("tag") == {"x": 3, "y": 3, None: 2}
        assert await app.facets("status", "origin") == {
            ("suspended", "cron"): 2,
            ("suspended", None): 2,
            ("failed", "cron"): 1,
        }
        assert await app.facets("status", namespace="blue") == {}


async def test_ret_14_an_app_of_one_namespace_counts_there(world: World) -> None:
    async with world.client(waits) as client, world.client(waits, namespace="red") as red:
        await client.start(waits, id="a")
        await red.start(waits, id="b")
        assert (await client.count(), await red.count(), await red.count(namespace="default")) == (2, 1, 1)


async def test_ret_14_bad_questions(world: World) -> None:
    async with world.client() as client:
        asked: Any = client
        with pytest.raises(UsageError, match="by what"):
            await asked.facets()
        with pytest.raises(UsageError, match="not counted by 'colour'"):
            await asked.facets("colour")
        with pytest.raises(UsageError, match="there is no filter 'colour'"):
            await asked.count(colour="red")
        with pytest.raises(UsageError, match="where takes a list"):
            await asked.runs(where=attr("a") == 1)
        with pytest.raises(UsageError, match="conditions like"):
            await asked.runs(where=["a > 1"])
