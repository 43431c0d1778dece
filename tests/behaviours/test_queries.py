"""QRY, reading: queries of a body's live state, and the values it publishes."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any

import pytest

from perdure import (
    Context,
    ForbiddenInWorkflow,
    InvalidArguments,
    InvalidId,
    InvalidValue,
    NonDeterminismError,
    NotInWorkflow,
    NotRegistered,
    RunNotFound,
    Status,
    UnknownQuery,
    UsageError,
    step,
    workflow,
)
from tests.behaviours.world import Barrier, World, goes_on, parks


@dataclass
class Basket:
    items: list[str]
    paid: bool = False


@workflow
async def shop(ctx: Context) -> int:
    basket = Basket([])

    def items(beginning: str = "") -> list[str]:
        return [item for item in basket.items if item.startswith(beginning)]

    ctx.on_query("basket", lambda: basket)
    ctx.on_query("items", items)
    while (item := await ctx.wait_for_signal("add", type=str)) != "pay":
        basket.items.append(item)
    basket.paid = True
    return len(basket.items)


async def fill(run: Any, *items: str) -> None:
    for item in items:
        await run.signal("add", item)


async def test_qry_01_a_published_value_is_read_without_touching_the_run(world: World) -> None:
    @workflow
    async def progress(ctx: Context) -> None:
        ctx.set_value("progress", 50)
        await ctx.wait_for_signal("go")
        ctx.set_value("progress", 51)
        ctx.set_value("progress", 99)

    async with world.app(progress) as app:
        run = await app.start(progress, id="r1")
        await app.settle()
        before = await run.info()
        assert await run.value("progress") == 50
        assert await run.value("other") is None
        assert await run.info() == before
        await run.signal("go")
        await run.result()
        assert await run.value("progress", int) == 99  # QRY-02: the newest
        with pytest.raises(RunNotFound):
            await app.get_run("nobody").value("progress")


async def test_qry_a_query_reads_the_parked_run_and_changes_nothing(world: World) -> None:
    async with world.app(shop) as app:
        run = await app.start(shop, id="r1")
        await fill(run, "apple", "pear")
        await app.settle()
        before, history = await run.info(), await run.history()
        assert await run.query("items") == ["apple", "pear"]
        assert await run.query("items", "p") == ["pear"]
        assert await run.query("basket") == {"items": ["apple", "pear"], "paid": False}
        assert await run.query("basket", type=Basket) == Basket(["apple", "pear"])
        assert (await run.info(), await run.history()) == (before, history)
        await fill(run, "plum", "pay")
        assert await run.result() == 3


async def test_qry_what_is_answered_is_a_copy(world: World) -> None:
    async with world.app(shop) as app:
        run = await app.start(shop, id="r1")
        await fill(run, "apple")
        await app.settle()
        (await run.query("items")).append("stolen")
        assert await run.query("items") == ["apple"]


async def test_qry_any_process_with_the_code_answers_from_the_history(world: World) -> None:
    async with world.app(shop) as worker, world.client(shop) as client, world.client() as stranger:
        await worker.start(shop, id="r1")
        await fill(client.get_run("r1"), "apple")
        await worker.settle()
        before = await client.get_run("r1").info()
        assert await client.get_run("r1").query("items") == ["apple"]
        assert await client.get_run("r1").info() == before
        assert not len(client.engine.executor.cache)
        with pytest.raises(NotRegistered, match="workflow 'shop' is not registered here"):
            await stranger.get_run("r1").query("items")


async def test_qry_a_run_that_has_ended_answers_too(world: World) -> None:
    async with world.app(shop) as app:
        run = await app.start(shop, id="r1")
        await fill(run, "apple", "pay")
        await run.result()
        assert await run.query("basket", type=Basket) == Basket(["apple"], paid=True)
        cancelled = await app.start(shop, id="r2")
        await fill(cancelled, "pear")
        await app.settle()
        await cancelled.cancel()
        assert await cancelled.query("items") == ["pear"]


async def test_qry_of_a_chain_the_newest_link_answers(world: World) -> None:
    @workflow
    async def counter(ctx: Context, n: int) -> None:
        ctx.on_query("n", lambda: n)
        await ctx.wait_for_signal("more")
        ctx.continue_as_new(n + 1)

    async with world.app(counter) as app:
        run = await app.start(counter, 1, id="r1")
        for n in (1, 2, 3):
            await app.settle()
            assert await run.query("n", type=int) == n
            await run.signal("more")


async def test_qry_while_a_step_runs_the_body_answers(world: World) -> None:
    barrier = Barrier()

    @step
    async def slow() -> None:
        await barrier.wait()

    @workflow
    async def phases(ctx: Context) -> None:
        phase = "before"
        ctx.on_query("phase", lambda: phase)
        await ctx.wait_for_signal("go")
        phase = "slow"
        await slow()
        phase = "done"

    async with world.app(phases) as app, world.client(phases) as client:
        run = await app.start(phases, id="r1")
        await app.settle()
        await run.signal("go")
        await barrier.reached.wait()
        assert await run.query("phase") == "slow"
        assert await client.get_run("r1").query("phase") == "slow"
        barrier.open()
        await run.result()
        assert await run.query("phase") == "done"


@pytest.mark.parametrize("kind", ["parks", "goes on"])
async def test_qry_only_committed_state_is_told(world: World, kind: str) -> None:
    """The body is ahead of the log while its turn is being committed."""

    @step
    async def after() -> None: ...

    @workflow
    async def ahead(ctx: Context) -> None:
        seen: list[str] = []
        ctx.on_query("seen", lambda: seen)
        seen.append(await ctx.wait_for_signal("go", type=str))
        if kind == "goes on":
            await after()
        await ctx.wait_for_signal("go")

    gate = world.gate()
    async with world.app(ahead, store=gate) as app:
        run = await app.start(ahead, id="r1")
        await app.settle()
        stop = gate.stop("before", "write", parks if kind == "parks" else goes_on)
        await run.signal("go", "x")
        await stop.reached.wait()
        assert await run.query("seen") == []
        stop.release()
        await app.settle()
        assert await run.query("seen") == ["x"]


async def test_qry_what_is_parked_here_but_went_on_elsewhere_is_not_believed(world: World) -> None:
    async with world.app(shop) as ada:
        run = await ada.start(shop, id="r1")
        await fill(run, "apple")
        await ada.settle()
        ada.engine.executor.holdings.closed = True  # it claims nothing any more
        async with world.app(shop) as bob:
            await fill(bob.get_run("r1"), "pear")
            await bob.settle()
            assert await run.query("items") == ["apple", "pear"]


async def test_qry_no_such_query_names_those_that_there_are(world: World) -> None:
    @workflow
    async def silent(ctx: Context) -> None:
        await ctx.wait_for_signal("go")

    async with world.app(shop, silent) as app:
        run = await app.start(shop, id="r1")
        quiet = await app.start(silent, id="r2")
        later = await app.start(shop, id="r3", delay=60)
        await app.settle()
        with pytest.raises(UnknownQuery, match=r"no query 'item' .*there are 'basket', 'items'"):
            await run.query("item")
        with pytest.raises(UnknownQuery, match=r"it has none\. Its body offers one with ctx\.on_query"):
            await quiet.query("items")
        with pytest.raises(UnknownQuery, match="has not begun yet"):
            await later.query("items")
        with pytest.raises(RunNotFound):
            await app.get_run("nobody").query("items")
        with pytest.raises(InvalidId):
            await run.query("")


async def test_qry_bad_arguments_and_answers(world: World) -> None:
    @workflow
    async def odd(ctx: Context) -> None:
        ctx.on_query("half", half)
        ctx.on_query("handle", object)
        ctx.on_query("fails", lambda: 1 // 0)
        await ctx.wait_for_signal("go")

    def half(n: int) -> str:
        return n / 2  # type: ignore[return-value]

    async with world.app(odd) as app:
        run = await app.start(odd, id="r1")
        await app.settle()
        before = await run.info()
        for args in ((), (1, 2), ("x",)):
            with pytest.raises(InvalidArguments, match="query 'half' of run 'r1'"):
                await run.query("half", *args)
        with pytest.raises(InvalidValue, match="says it returns str"):
            await run.query("half", 3)
        with pytest.raises(InvalidValue, match="the result of query 'handle'"):
            await run.query("handle")
        with pytest.raises(ZeroDivisionError):
            await run.query("fails")
        assert await run.info() == before


async def test_qry_an_operation_in_a_query_is_an_error(world: World) -> None:
    @step
    async def work() -> None: ...

    @workflow
    async def busy(ctx: Context) -> str:
        woken = asyncio.Event()

        def wakes() -> None:
            woken.set()

        ctx.on_query("works", lambda: ctx.step(work))
        ctx.on_query("publishes", lambda: ctx.set_value("k", 1))
        ctx.on_query("wakes", wakes)
        waiting = asyncio.ensure_future(woken.wait())
        await ctx.wait_for_signal("go")
        waiting.cancel()
        return "done"

    async with world.app(busy) as app:
        run = await app.start(busy, id="r1")
        await app.settle()
        before = await run.info()
        for name in ("works", "publishes"):
            with pytest.raises(NotInWorkflow):
                await run.query(name)
        if len(app.engine.executor.cache):
            with pytest.raises(ForbiddenInWorkflow, match="a query may only read"):
                await run.query("wakes")
        assert await run.info() == before
        await run.signal("go")
        assert await run.result() == "done"


async def test_qry_what_cannot_be_a_query_is_told_at_once(world: World) -> None:
    async def waits() -> int:
        return 1

    @workflow
    async def wrong(ctx: Context, what: int) -> None:
        fn: Any = [waits, 5, lambda *args: args][what]
        ctx.on_query("q", fn)

    @workflow
    async def nameless(ctx: Context) -> None:
        ctx.on_query(" ", int)

    @workflow
    async def escaped(ctx: Context) -> None:
        await ctx.local_step("inner", lambda: ctx.on_query("q", int))

    async with world.app(wrong, nameless, escaped) as app:
        for what, text in enumerate(("needs a plain function", "needs a plain function", "no fixed names")):
            run = await app.start(wrong, what)
            assert await run.wait() is Status.FAILED
            assert text in str((await run.info()).reason)
        run = await app.start(nameless)
        assert "a query's name" in (await run_reason(run))
        run = await app.start(escaped)
        assert "outside its workflow function" in (await run_reason(run))


async def run_reason(run: Any) -> str:
    await run.wait()
    return str((await run.info()).reason)


async def test_qry_code_that_does_not_fit_says_so(world: World) -> None:
    @workflow(name="changes")
    async def old(ctx: Context) -> None:
        ctx.on_query("q", lambda: 1)
        await ctx.wait_for_signal("a")

    @workflow(name="changes")
    async def new(ctx: Context) -> None:
        ctx.on_query("q", lambda: 2)
        await ctx.wait_for_signal("b")

    async with world.app(old) as app, world.client(new) as client:
        await app.start(old, id="r1")
        await app.settle()
        with pytest.raises(NonDeterminismError, match="r1#0"):
            await client.get_run("r1").query("q")
        assert await app.get_run("r1").query("q") == 1


async def test_qry_a_query_registered_again_is_the_newer(world: World) -> None:
    @workflow
    async def twice(ctx: Context) -> None:
        ctx.on_query("q", lambda: 1)
        await ctx.wait_for_signal("go")
        ctx.on_query("q", lambda: 2)
        await ctx.wait_for_signal("go")

    async with world.app(twice) as app:
        run = await app.start(twice)
        await app.settle()
        assert await run.query("q") == 1
        await run.signal("go")
        await app.settle()
        assert await run.query("q") == 2


def test_qry_usage_errors_are_usage_errors() -> None:
    assert issubclass(UnknownQuery, UsageError)
