"""RETRY-10 to -12: runs made from others, with another input or from a place in a history; requeues with a cascade."""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from typing import Any

import pytest

from perdure import (
    ChildFailed,
    Context,
    FatalError,
    InvalidArguments,
    NotRegistered,
    RunFailed,
    RunNotFound,
    Status,
    UsageError,
    step,
    workflow,
)
from perdure.model.ids import again_id, check_known_id, next_link
from tests.behaviours.world import World

ran: Counter[str] = Counter()
broken: set[str] = set()


@pytest.fixture(autouse=True)
def _anew() -> None:
    ran.clear()
    broken.clear()


@step
async def do(name: str) -> str:
    ran[name] += 1
    if name in broken:
        raise FatalError(f"{name} is broken")
    return name


@workflow(version="2", tags=["mine"])
async def works(ctx: Context, given: dict[str, Any]) -> str:
    if not given.get("fixed"):
        raise FatalError("bad input")
    return await do("work")


async def test_retry_10_another_run_with_another_input(world: World) -> None:
    async with world.app(works, do) as app:
        run = await app.start(
            works,
            {},
            id="r1",
            tags=["more"],
            namespace="red",
            priority=3,
            origin="web",
            attributes={"a": 1},
            timeout=60,
        )
        with pytest.raises(RunFailed):
            await run.result()
        before, history = await run.info(), await run.history()
        again = await run.retry_with_input({"fixed": True})
        assert re.fullmatch(r"r1~retry~[0-9a-f]{8}", again.id)
        assert await again.result() == "work"
        info = await again.info()
        for name in (
            "workflow",
            "version",
            "namespace",
            "tags",
            "priority",
            "origin",
            "attributes",
            "timeout",
            "parent",
        ):
            assert getattr(info, name) == getattr(before, name), name
        assert info.seed != before.seed
        assert (await run.info(), await run.history()) == (before, history)
        assert (await again.retry_with_input({"fixed": True})).id.startswith(f"{again.id}~retry~")


async def test_retry_10_a_child_is_retried_on_its_own(world: World) -> None:
    @workflow
    async def parent(ctx: Context) -> str:
        try:
            return str(await ctx.child(works, {}))
        except ChildFailed:
            return "failed"

    async with world.app(parent, works, do) as app:
        run = await app.start(parent, id="p")
        assert await run.result() == "failed"
        again = await app.get_run("p.child.0").retry_with_input({"fixed": True})
        assert await again.result() == "work"
        info = await again.info()
        assert (info.parent, info.awaited_as, info.depth) == (None, None, 0)
        assert await run.delete() == 2
        assert await again.status() is Status.COMPLETED


async def test_retry_10_bad_input_starts_nothing(world: World) -> None:
    async with world.app(works, do) as app, world.client() as stranger:
        run = await app.start(works, {}, id="r1")
        with pytest.raises(RunFailed):
            await run.result()
        with pytest.raises(InvalidArguments):
            await run.retry_with_input()
        with pytest.raises(InvalidArguments):
            await run.retry_with_input({}, {}, {})
        with pytest.raises(NotRegistered, match="works"):
            await stranger.get_run("r1").retry_with_input({})
        with pytest.raises(RunNotFound):
            await app.get_run("none").retry_with_input({})
        with pytest.raises(RunNotFound):
            await app.get_run("none").fork(0)
        assert await app.count() == 1


def test_retry_10_ids_of_such_runs_are_known_and_no_links() -> None:
    for chance in (0, 0x12345678, 0xFFFFFFFF, 2**40):
        run_id = again_id("r" * 512, "retry", chance)
        assert check_known_id(run_id) == run_id
        assert check_known_id(run_id + ".child.3~2") == run_id + ".child.3~2"
        assert next_link(run_id) == f"{run_id}~1"


# ---------------------------------------------------------------- forks


@workflow
async def chain(ctx: Context) -> list[str]:
    first = [await do("a"), str(ctx.random.random()), str(ctx.uuid4())]
    second = await do("b")
    return [*first, second, str(ctx.random.random()), await do("c")]


async def test_fork_runs_no_step_again_that_is_before_it(world: World) -> None:
    broken.add("c")
    async with world.app(chain, do) as app:
        run = await app.start(chain, id="r1", attributes={"a": 1}, tags=["x"])
        with pytest.raises(RunFailed):
            await run.result()
        broken.clear()
        before, history = await run.info(), await run.history()
        fork = await run.fork(from_step=1)
        assert re.fullmatch(r"r1~fork~[0-9a-f]{8}", fork.id)
        whole = await fork.result()
        assert ran == {"a": 1, "b": 2, "c": 2}
        info = await fork.info()
        assert (info.seed, info.tags, info.attributes, info.started_at) == (
            before.seed,
            ("x",),
            b'{"a":1}',
            before.started_at,
        )
        assert (await run.info(), await run.history()) == (before, history)
        await run.requeue()
        assert await run.result() == whole  # chance gives the same
        assert [(one.name, one.attempts) for one in await fork.steps()] == [("do", 1)] * 3


async def test_fork_from_the_first_step_and_of_a_run_that_is_still_at_it(world: World) -> None:
    @workflow
    async def waits(ctx: Context) -> list[str]:
        return [await do("a"), await ctx.wait_for_signal("go", type=str), await do("b")]

    async with world.app(waits, do) as app:
        run = await app.start(waits, id="r1")
        await app.settle()
        first, second, third = [await run.fork(seq) for seq in (0, 1, 1)]
        await app.settle()
        assert ran == {"a": 2}
        for each, text in ((first, "one"), (second, "two"), (run, "three")):
            await each.signal("go", text)
            assert await each.result() == ["a", text, "b"]
        assert await third.status() is Status.SUSPENDED
        after = await run.fork(2)
        assert await after.result() == ["a", "three", "b"]  # what was answered before is not asked again


async def test_fork_keeps_results_that_came_later_to_steps_before_it(world: World) -> None:
    @workflow
    async def gathers(ctx: Context) -> list[str]:
        return [*await asyncio.gather(do("a"), do("b"), do("c"), do("d"))]

    broken.add("c")
    async with world.app(gathers, do) as app:
        run = await app.start(gathers, id="r1")
        with pytest.raises(RunFailed):
            await run.result()
        broken.clear()
        fork = await run.fork(2)
        assert await fork.result() == ["a", "b", "c", "d"]
        assert ran == {"a": 1, "b": 1, "c": 2, "d": 2}
        broken.add("d")
        again = await fork.fork(3)
        with pytest.raises(RunFailed):
            await again.result()
        broken.clear()
        await again.requeue()
        assert await again.result() == ["a", "b", "c", "d"]
        assert ran == {"a": 1, "b": 1, "c": 2, "d": 4}


async def test_fork_tries_afresh_what_failed_later_before_it_and_keeps_what_was_caught(world: World) -> None:
    @workflow
    async def catches(ctx: Context) -> list[str]:
        try:
            await do("caught")
        except FatalError:
            pass
        return [*await asyncio.gather(do("a"), do("b"))]

    broken.update({"caught", "a"})
    async with world.app(catches, do) as app:
        run = await app.start(catches, id="r1")
        with pytest.raises(RunFailed):
            await run.result()
        broken.clear()
        assert await (await run.fork(2)).result() == ["a", "b"]
        assert ran == {"caught": 1, "a": 2, "b": 2}


async def test_fork_has_values_and_attributes_as_they_were_there(world: World) -> None:
    @workflow
    async def publishes(ctx: Context) -> None:
        ctx.set_value("at", 1)
        ctx.upsert_attributes({"at": 1})
        await do("a")
        ctx.set_value("at", 2)
        ctx.upsert_attributes({"at": 2})
        await ctx.wait_for_signal("go")

    async with world.app(publishes, do) as app:
        run = await app.start(publishes, id="r1", attributes={"kept": True})
        await app.settle()
        broken.add("a")
        fork = await run.fork(2)
        with pytest.raises(RunFailed):
            await fork.result()
        assert (await fork.value("at"), await fork.attributes()) == (1, {"kept": True, "at": 1})
        assert (await run.value("at"), await run.attributes()) == (2, {"kept": True, "at": 2})
        assert await app.count(attributes={"at": 1}) == 1


async def test_fork_keeps_what_children_gave_and_has_children_of_its_own(world: World) -> None:
    @workflow
    async def child(ctx: Context, name: str) -> str:
        return await do(name)

    @workflow
    async def parent(ctx: Context) -> list[str]:
        got = [await ctx.child(child, "a")]
        got += await ctx.all(child, ["b", "c"])
        return [*got, await do("d"), await ctx.child(child, "e")]

    async with world.app(parent, child, do) as app:
        run = await app.start(parent, id="p")
        await run.result()
        fork = await run.fork(3)
        assert await fork.result() == ["a", "b", "c", "d", "e"]
        assert ran == {"a": 1, "b": 1, "c": 1, "d": 2, "e": 2}
        assert [one.id for one in await app.runs() if one.parent and one.parent.id == fork.id] == [f"{fork.id}.child.4"]
        assert await run.delete() == 5
        assert await fork.delete() == 2


async def test_fork_starts_children_anew_that_were_awaited_there(world: World) -> None:
    @workflow
    async def child(ctx: Context, name: str) -> str:
        return await ctx.wait_for_signal("go", type=str)

    @workflow
    async def parent(ctx: Context) -> list[str]:
        return [*await asyncio.gather(ctx.child(child, "a"), do("b"), do("c"))]

    async with world.app(parent, child, do) as app:
        run = await app.start(parent, id="p")
        await app.settle()
        fork = await run.fork(2)
        await app.settle()
        await app.get_run("p.child.0").signal("go", "theirs")
        await app.get_run(f"{fork.id}.child.0").signal("go", "ours")
        assert await run.result() == ["theirs", "b", "c"]
        assert await fork.result() == ["ours", "b", "c"]
        assert ran == {"b": 1, "c": 2}


async def test_fork_waits_anew_for_what_was_waited_for(world: World) -> None:
    @workflow
    async def waits(ctx: Context) -> list[Any]:
        async def slept() -> str:
            await asyncio.sleep(100)
            return "slept"

        waiting = [ctx.wait_for_signal("go", token="t"), slept()]
        return await asyncio.gather(*waiting, do("a"))

    async with world.app(waits, do) as app:
        run = await app.start(waits, id="r1")
        await app.tick(60)
        await run.cancel()
        fork = await run.fork(2)
        await app.settle()
        await app.signal(payload="hello", token="t")
        await app.tick(39)
        assert await fork.status() is Status.SUSPENDED
        await app.tick(1)  # the timer goes on where it was
        assert await fork.result() == ["hello", "slept", "a"]


async def test_fork_goes_on_after_a_crash(world: World) -> None:
    async with world.app(chain, do) as app:
        run = await app.start(chain, id="r1")
        whole = await run.result()
    async with world.client(chain) as client:
        fork = await client.get_run("r1", chain).fork(1)
        assert await fork.status() is Status.SUSPENDED
        assert await client.count(status="suspended") == 1
    async with world.app(chain, do) as app:
        assert await app.get_run(fork.id, chain).result() == whole
        assert ran == {"a": 1, "b": 2, "c": 2}


async def test_fork_of_code_that_has_changed_says_so(world: World) -> None:
    def old() -> Any:
        @workflow(name="changes")
        async def changes(ctx: Context) -> None:
            await do("a")
            await do("b")

        return changes

    def new() -> Any:
        @workflow(name="changes")
        async def changes(ctx: Context) -> None:
            await ctx.local_step("other", lambda: 1)

        return changes

    async with world.app(old(), do) as app:
        await (await app.start("changes", id="r1")).result()
    async with world.app(new(), do) as app:
        fork = await app.get_run("r1").fork(1)
        await app.settle()
        info = await fork.info()
        assert info.status is Status.BLOCKED
        assert "recorded step 'do', issued local 'other'" in (info.reason or "")


@pytest.mark.parametrize("seq", [-1, 3, 10**30, "0", 1.0, None, True], ids=str)
async def test_fork_from_where_there_is_nothing_is_refused(world: World, seq: Any) -> None:
    async with world.app(chain, do) as app:
        run = await app.start(chain, id="r1")
        await run.result()
        with pytest.raises(UsageError, match=r"from_step|no operation"):
            await run.fork(seq)
        assert await app.count() == 1


async def test_fork_of_a_run_that_has_not_begun_is_refused(world: World) -> None:
    async with world.client(chain) as client:
        run = await client.start(chain, id="r1")
        with pytest.raises(UsageError, match="it has not issued any yet"):
            await run.fork(0)


# ---------------------------------------------------------------- requeues with a cascade


@workflow
async def leaf(ctx: Context, name: str) -> str:
    return await do(name)


@workflow
async def middle(ctx: Context, names: list[str]) -> list[str]:
    return await ctx.all(leaf, names)


@workflow
async def top(ctx: Context) -> list[str]:
    try:
        await ctx.child(leaf, "caught")
    except ChildFailed:
        pass
    return await ctx.child(middle, ["a", "b", "c"])


async def test_retry_05_a_requeue_with_its_children_revives_those_that_are_waited_for(world: World) -> None:
    broken.update({"caught", "a", "c"})
    async with world.app(top, middle, leaf, do) as app:
        run = await app.start(top, id="t")
        with pytest.raises(RunFailed):
            await run.result()
        broken.clear()
        assert await run.requeue(children=True) is Status.PENDING
        assert await run.result() == ["a", "b", "c"]
        assert ran == {"caught": 1, "a": 2, "b": 1, "c": 2}
        assert await app.get_run("t.child.0").status() is Status.FAILED


async def test_retry_05_a_cascade_that_was_cut_short_goes_on_when_asked_again(world: World) -> None:
    broken.add("a")
    async with world.app(top, middle, leaf, do) as app:
        run = await app.start(top, id="t")
        with pytest.raises(RunFailed):
            await run.result()
        broken.clear()
        await run.requeue()
        await app.settle()
        assert await run.status() is Status.SUSPENDED
        assert await run.requeue(children=True) is Status.SUSPENDED
        assert await run.result() == ["a", "b", "c"]
        assert await run.requeue(children=True) is Status.COMPLETED


async def test_retry_05_the_last_link_of_a_child_is_requeued(world: World) -> None:
    @workflow
    async def links(ctx: Context, n: int) -> str:
        if n:
            ctx.continue_as_new(n - 1)
        return await do("a")

    @workflow
    async def parent(ctx: Context) -> str:
        return await ctx.child(links, 2)

    broken.add("a")
    async with world.app(parent, links, do) as app:
        run = await app.start(parent, id="p")
        with pytest.raises(RunFailed):
            await run.result()
        broken.clear()
        await run.requeue(children=True)
        assert await run.result() == "a"
