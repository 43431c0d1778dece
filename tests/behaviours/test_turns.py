"""What a turn costs and when effects begin: commit counts (DESIGN 4), and that nothing runs twice in one process."""

from __future__ import annotations

import asyncio

from perdure import Context, Status, step, workflow
from perdure.model.commit import Send
from perdure.model.messages import MessageKind, Outgoing
from tests.behaviours.world import Barrier, World, ends, goes_on

calls: list[int] = []


@step
async def note(n: int) -> int:
    calls.append(n)
    return n


@workflow
async def in_a_row(ctx: Context, n: int) -> int:
    return sum([await note(i) for i in range(n)])


@workflow
async def side_by_side(ctx: Context, n: int) -> int:
    return sum(await asyncio.gather(*[note(i) for i in range(n)]))


async def test_n_steps_in_a_row_cost_n_plus_1_commits(world: World) -> None:
    store = world.gate()
    async with world.app(in_a_row, store=store) as app:
        for n in (0, 1, 2, 7):
            before = store.calls.get("write", 0)
            run = await app.start(in_a_row, n)
            assert await run.result() == sum(range(n))
            await app.settle()
            assert store.calls["write"] - before == n + 1


async def test_500_steps_side_by_side_cost_a_handful_of_commits(world: World) -> None:
    store = world.gate()
    async with world.app(side_by_side, store=store) as app:
        run = await app.start(side_by_side, 500)
        assert await run.result() == sum(range(500))
        await app.settle()
        assert store.calls["write"] <= 8


async def test_a_step_whose_result_waits_for_the_next_turn_is_not_started_again(world: World) -> None:
    first, second, third = Barrier(), Barrier(), Barrier()

    @step
    async def one() -> None:
        await first.wait()

    @step
    async def two() -> None:
        await second.wait()

    @step
    async def three() -> None:
        await third.wait()

    @workflow
    async def trio(ctx: Context) -> None:
        await asyncio.gather(one(), two(), three())

    store = world.gate()
    async with world.app(trio, one, two, three, store=store) as app:
        run = await app.start(trio)
        await asyncio.gather(first.reached.wait(), second.reached.wait(), third.reached.wait())
        stop = store.stop("after", "write", goes_on)
        first.open()
        await stop.reached.wait()  # the commit of one's result is in flight
        second.open()  # two's result waits for the next turn
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        stop.release()
        await app.settle(steps=False)
        third.open()
        assert await run.wait() is Status.COMPLETED
        assert (first.count, second.count, third.count) == (1, 1, 1)


async def test_no_step_begins_before_the_commit_that_asked_for_it(world: World) -> None:
    calls.clear()
    store = world.gate()
    async with world.app(in_a_row, store=store) as app:
        stop = store.stop("before", "write")
        starting = asyncio.create_task(app.start(in_a_row, 1))
        await stop.reached.wait()
        assert calls == []
        stop.release()
        run = await starting
        assert await run.result() == 0
        assert calls == [0]


async def test_a_run_that_is_blocked_over_unread_messages_stays_blocked(world: World) -> None:
    @workflow
    async def waits(ctx: Context) -> None:
        await ctx.wait_for_signal("go")
        await asyncio.Event().wait()  # a deadlock: nothing can ever set it

    async with world.app(waits) as app:
        run = await app.start(waits, id="r")
        await app.settle()
        for _ in range(3):
            await run.signal("go")
        await app.settle()
        assert await run.status() is Status.BLOCKED
        await run.signal("go")
        await app.settle()
        assert await run.status() is Status.BLOCKED
        assert (await run.info()).inbox == 4


async def test_a_turn_that_ends_over_an_unread_cancel_goes_back_and_takes_it_in(world: World) -> None:
    seen: list[str] = []

    @workflow
    async def body(ctx: Context) -> str:
        try:
            return str(await note(1))
        except asyncio.CancelledError:
            seen.append("cancelled")
            raise

    store, other = world.gate(), world.store()
    await other.open()
    async with world.app(body, store=store) as app:
        stop = store.stop("before", "write", ends)
        run = await app.start(body, id="r")
        await stop.reached.wait()
        await other.write([Send(Outgoing(kind=MessageKind.CANCEL, run_id="r", name="cancel"))])
        stop.release()
        assert await run.wait() is Status.CANCELLED
        assert seen == ["cancelled"]
    await other.close()
