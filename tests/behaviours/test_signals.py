"""SIG: signals by name and by token, kept until somebody waits, delivered once. F16, F17, F25: none is ever lost."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import pytest

from perdure import Context, RunEnded, RunFailed, RunNotFound, SignalTimeout, Status, step, workflow
from perdure.model.history import Event
from perdure.testing import TestApp
from perdure.testing.kit import let_others_go_on
from tests.behaviours.world import Barrier, World, ends, goes_on, parks

TOKEN = "order:42"

by_both = pytest.mark.parametrize("how", ["name", "token"])


@workflow
async def one(ctx: Context, how: str) -> Any:
    return await ctx.wait_for_signal("go", token=TOKEN if how == "token" else None)


@workflow
async def three(ctx: Context, how: str) -> list[Any]:
    return [await ctx.wait_for_signal("go", token=TOKEN if how == "token" else None) for _ in range(3)]


async def send(app: TestApp, how: str, payload: Any, **options: Any) -> None:
    if how == "token":
        await app.signal("go", payload, token=TOKEN, **options)
    else:
        await app.get_run("r1").signal("go", payload, **options)


@by_both
async def test_sig_01_a_waiting_run_goes_on_with_the_payload(world: World, how: str) -> None:
    async with world.app(one) as app:
        run = await app.start(one, how, id="r1")
        assert await run.wait() is Status.SUSPENDED
        await send(app, how, {"by": "x"})
        assert await run.result() == {"by": "x"}


@by_both
async def test_sig_01_also_from_another_process(world: World, how: str) -> None:
    async with world.app(one) as worker, world.client() as client:
        run = await worker.start(one, how, id="r1")
        await worker.settle()
        await send(client, how, 1)
        assert await run.result() == 1


@by_both
async def test_sig_02_what_came_early_is_waiting_already(world: World, how: str) -> None:
    async with world.client(one) as client:
        await client.start(one, how, id="r1")
        await send(client, how, "early")
    async with world.app(one) as app:
        run = app.get_run("r1")
        assert await run.result() == "early"
        assert not [entry for entry in await run.history() if entry.event is Event.ABANDONED]
        assert (await run.info()).inbox == 1


@by_both
async def test_sig_03_first_in_first_out(world: World, how: str) -> None:
    async with world.app(three) as app:
        if how == "token":
            await send(app, how, "first")
        run = await app.start(three, how, id="r1")
        if how == "name":
            await send(app, how, "first")
        await send(app, how, "second")
        await app.settle()
        await send(app, how, "third")
        assert await run.result() == ["first", "second", "third"]


async def test_sig_03_names_and_tokens_do_not_mix(world: World) -> None:
    @workflow
    async def mixed(ctx: Context) -> list[str]:
        a = await ctx.wait_for_signal("a", type=str)
        b = await ctx.wait_for_signal("b", type=str)
        c = await ctx.wait_for_signal("a", token="a", type=str)
        return [a, b, c]

    async with world.app(mixed) as app:
        run = await app.start(mixed)
        await app.signal("a", "by token", token="a")
        await run.signal("b", "for b")
        await app.settle()
        assert await run.status() is Status.SUSPENDED
        await run.signal("a", "for a")
        assert await run.result() == ["for a", "for b", "by token"]


async def test_sig_03_two_waits_for_one_name_are_served_in_the_order_they_were_made(world: World) -> None:
    @workflow
    async def pair(ctx: Context) -> list[str]:
        return list(await asyncio.gather(*(ctx.wait_for_signal("go", type=str) for _ in range(2))))

    async with world.app(pair) as app:
        run = await app.start(pair)
        await app.settle()
        await run.signal("go", "first")
        await app.settle()
        await run.signal("go", "second")
        assert await run.result() == ["first", "second"]


async def test_sig_04_signal_with_start_starts_and_delivers_or_only_delivers(world: World) -> None:
    @workflow
    async def collect(ctx: Context, n: int) -> list[int]:
        return [await ctx.wait_for_signal("item", type=int) for _ in range(n)]

    async with world.app(collect) as app:
        for item in range(10):
            await app.signal_with_start(collect, 10, id="r1", signal="item", payload=item)
            if item % 3 == 0:
                await app.settle()
        assert await app.get_run("r1").result() == list(range(10))
        assert len(await app.runs()) == 1


async def test_sig_04_many_at_once_lose_none(world: World) -> None:
    @workflow
    async def collect(ctx: Context, n: int) -> list[int]:
        return [await ctx.wait_for_signal("item", type=int) for _ in range(n)]

    async with world.app(collect) as ada, world.app(collect) as bob:
        await asyncio.gather(
            *(
                (ada, bob)[item % 2].signal_with_start(collect, 40, id="r1", signal="item", payload=item)
                for item in range(40)
            )
        )
        assert sorted(await ada.get_run("r1").result()) == list(range(40))
        await bob.settle()


@by_both
@pytest.mark.parametrize("where", ["before", "after"])
async def test_sig_05_a_signal_that_meets_the_parking_turn_is_not_lost(world: World, how: str, where: str) -> None:
    """F16: it comes after the run looked whether one had, and before (or just after) it is known to be waiting."""
    gate = world.gate()
    async with world.app(one, store=gate) as worker, world.client(one) as client:
        parking = gate.stop(where, "write", parks)
        starting = asyncio.create_task(worker.start(one, how, id="r1"))
        await parking.reached.wait()
        if where == "before" and how == "name":
            await client.start(one, how, id="r1")  # its row is not there yet: so somebody else makes it
        await send(client, how, "just in time")
        parking.release()
        run = await starting
        assert await run.result() == "just in time"
        await worker.settle()
        # The wait is over: what comes now belongs to the next one who waits.
        if how == "token":
            await send(client, how, "for the next")
            assert await (await worker.start(one, how, id="r2")).result() == "for the next"


@by_both
@pytest.mark.parametrize("where", ["before", "after"])
async def test_f16_nor_one_that_meets_it_after_a_step(world: World, how: str, where: str) -> None:
    @step
    async def work() -> int:
        return 1

    @workflow
    async def works(ctx: Context) -> str:
        await work()
        return await ctx.wait_for_signal("go", token=TOKEN if how == "token" else None, type=str)

    gate = world.gate()
    async with world.app(works, store=gate) as worker, world.client() as client:
        parking = gate.stop(where, "write", parks)
        run = await worker.start(works, id="r1")
        await parking.reached.wait()
        await send(client, how, "just in time")
        parking.release()
        assert await run.result() == "just in time"


@by_both
@pytest.mark.parametrize("read", ["before", "after"])
async def test_f16_nor_one_that_comes_here_before_the_answer_to_a_parking(world: World, how: str, read: str) -> None:
    """The run is parked and woken again, but this process still thinks that it holds it: its inbox is read, not claimed.

    `read`: the inbox is read before the answer comes, or while it does.
    """

    @step
    async def work() -> int:
        return 1

    @workflow
    async def works(ctx: Context) -> str:
        await work()
        return await ctx.wait_for_signal("go", token=TOKEN if how == "token" else None, type=str)

    gate = world.gate()
    async with world.app(works, store=gate) as app:
        parking = gate.stop("after", "write", parks)
        reading = gate.stop("before", "messages")
        run = await app.start(works, id="r1")
        await parking.reached.wait()
        await send(app, how, "just in time")
        if read == "before":
            reading.release()
            await app.engine.claimer.idle()
            await let_others_go_on()
            parking.release()
        else:
            parking.release()
            while "r1" in {held.key.id for held in app.engine.executor.holdings.all()}:
                await let_others_go_on()
            reading.release()
        assert await run.result() == "just in time"


@by_both
async def test_f16_a_signal_to_a_run_busy_with_a_step_is_there_when_it_waits(world: World, how: str) -> None:
    barrier = Barrier()

    @workflow
    async def busy(ctx: Context) -> str:
        await ctx.local_step("work", barrier.wait)
        return await ctx.wait_for_signal("go", token=TOKEN if how == "token" else None, type=str)

    async with world.app(busy) as worker, world.client() as client:
        run = await worker.start(busy, id="r1")
        await barrier.reached.wait()
        await send(client, how, "while it worked")
        barrier.open()
        assert await run.result() == "while it worked"


async def test_f16_a_run_that_waits_while_a_step_runs_hears_at_once_what_is_sent_here(world: World) -> None:
    barrier = Barrier()

    @workflow
    async def races(ctx: Context) -> str:
        task = asyncio.ensure_future(ctx.local_step("work", barrier.wait))
        said = await ctx.wait_for_signal("stop", type=str)
        task.cancel()
        return said

    async with world.app(races) as app:
        run = await app.start(races, id="r1")
        await barrier.reached.wait()
        await run.signal("stop", "enough")
        assert await run.result() == "enough"


@by_both
async def test_f16_and_soon_what_is_sent_elsewhere(world: World, how: str) -> None:
    barrier = Barrier()

    @workflow
    async def races(ctx: Context) -> str:
        task = asyncio.ensure_future(ctx.local_step("work", barrier.wait))
        said = await ctx.wait_for_signal("go", token=TOKEN if how == "token" else None, type=str)
        task.cancel()
        return said

    async with world.app(races) as worker, world.client() as client:
        run = await worker.start(races, id="r1")
        await barrier.reached.wait()
        await send(client, how, "enough")
        world.clock.advance(1)
        assert await run.result() == "enough"


async def test_f17_a_token_keeps_what_nobody_waits_for(world: World) -> None:
    async with world.client() as client:
        for payload in ("first", "second", "third"):
            await client.signal("go", payload, token=TOKEN)
    async with world.app(three) as app:
        assert await (await app.start(three, "token")).result() == ["first", "second", "third"]


async def test_f17_and_gives_it_back_when_the_wait_ends_without_it(world: World) -> None:
    @workflow
    async def gives_up(ctx: Context) -> str:
        try:
            await ctx.wait_for_signal("go", token=TOKEN, timeout=5)
        except SignalTimeout:
            return "gave up"
        return "got it"

    async with world.app(gives_up, one) as app:
        first = await app.start(gives_up)
        await app.tick(5)
        assert await first.result() == "gave up"
        await app.signal("go", "for the next", token=TOKEN)
        assert await (await app.start(one, "token")).result() == "for the next"


async def test_tokens_live_in_namespaces(world: World) -> None:
    async with world.app(one) as app:
        blue = await app.start(one, "token", namespace="blue")
        red = await app.start(one, "token", namespace="red")
        await app.settle()
        await app.signal("go", "red", token=TOKEN, namespace="red")
        await app.settle()
        assert await blue.status() is Status.SUSPENDED
        assert await red.result() == "red"
        await app.signal("go", "blue", token=TOKEN, namespace="blue")
        assert await blue.result() == "blue"


@by_both
async def test_the_same_id_is_delivered_once_also_after_it_was_consumed(world: World, how: str) -> None:
    async with world.app(three) as app:
        run = await app.start(three, how, id="r1")
        for _ in range(2):
            await send(app, how, "a", id="message-a")
            await app.settle()
            await send(app, how, "a again", id="message-a")
        await send(app, how, "b", id="message-b")
        await send(app, how, "c")
        assert await run.result() == ["a", "b", "c"]
        await send(app, how, "a late", id="message-a")  # known, so it is no error that the run has ended


async def test_a_signal_to_nobody_or_to_an_ended_run_says_so(world: World) -> None:
    @workflow
    async def short() -> None: ...

    async with world.app(short) as app:
        with pytest.raises(RunNotFound, match="'nobody'"):
            await app.get_run("nobody").signal("go")
        run = await app.start(short, id="r1")
        await run.result()
        with pytest.raises(RunEnded, match=r"'r1' has ended \(completed\)"):
            await run.signal("go")


async def test_a_signal_that_meets_the_runs_end_is_refused_or_kept_but_never_blocks_it(world: World) -> None:
    @workflow
    async def works(ctx: Context) -> str:
        await ctx.side_effect(lambda: None)
        return "done"

    gate = world.gate()
    async with world.app(works, store=gate) as worker, world.client() as client:
        ending = gate.stop("before", "write", ends)
        run = await worker.start(works, id="r1")
        await ending.reached.wait()
        await client.get_run("r1").signal("go", "unread")
        ending.release()
        assert await run.result() == "done"


# ---------------------------------------------------------------- bounded waits


@workflow
async def bounded(ctx: Context, how: str) -> str:
    token = TOKEN if how == "token" else None
    try:
        return await ctx.wait_for_signal("go", token=token, timeout=timedelta(seconds=5), type=str)
    except TimeoutError as error:
        if not isinstance(error, SignalTimeout):
            raise
        return f"{error} ({error.signal}, {error.timeout:g})"


@by_both
async def test_sig_11_a_bounded_wait_gives_up_at_its_time(world: World, how: str) -> None:
    async with world.app(bounded) as app:
        run = await app.start(bounded, how, id="r1")
        await app.tick(4.999)
        assert await run.status() is Status.SUSPENDED
        await app.tick(0.001)
        what = f"token '{TOKEN}'" if how == "token" else "signal 'go'"
        said = await run.result()
        assert f"waited 5 seconds for {what}" in said
        assert said.endswith("(go, 5)")


@by_both
async def test_sig_11_or_returns_the_payload_before(world: World, how: str) -> None:
    async with world.app(bounded) as app:
        run = await app.start(bounded, how, id="r1")
        await app.tick(4.999)
        await send(app, how, "in time")
        await app.settle()
        await app.tick(60)
        assert await run.result() == "in time"


@by_both
async def test_sig_11_a_message_that_came_in_time_beats_a_deadline_that_passed_while_nobody_was_there(
    world: World, how: str
) -> None:
    async with world.app(bounded) as app:
        await app.start(bounded, how, id="r1")
        await app.settle()
    world.clock.advance(4)
    async with world.client() as client:
        await send(client, how, "in time")
    world.clock.advance(3600)
    async with world.app(bounded) as app:
        assert await app.get_run("r1").result() == "in time"


@by_both
async def test_sig_11_a_wait_of_no_time_takes_only_what_is_there(world: World, how: str) -> None:
    @workflow
    async def looks(ctx: Context) -> list[Any]:
        found: list[Any] = []
        try:
            while True:
                found.append(await ctx.wait_for_signal("go", token=TOKEN if how == "token" else None, timeout=0))
        except SignalTimeout:
            return found

    async with world.client(looks) as client:
        run = await client.start(looks, id="r1")
        for payload in (1, 2):
            await send(client, how, payload)
        async with world.app(looks) as app:
            await app.settle()
            assert await run.status() is Status.COMPLETED
            assert await run.result() == [1, 2]


async def test_sig_11_a_wait_cannot_take_less_than_no_time(world: World) -> None:
    @workflow
    async def looks(ctx: Context) -> None:
        await ctx.wait_for_signal("go", timeout=-1)

    async with world.app(looks) as app:
        with pytest.raises(RunFailed, match="timeout cannot be negative"):
            await (await app.start(looks)).result()


async def test_sig_11_uncaught_it_fails_the_run(world: World) -> None:
    @workflow
    async def strict(ctx: Context) -> None:
        await ctx.wait_for_signal("go", timeout=5)

    async with world.app(strict) as app:
        run = await app.start(strict)
        await app.tick(5)
        with pytest.raises(RunFailed, match="signal 'go'") as caught:
            await run.result()
        error = caught.value.__cause__
        assert isinstance(error, SignalTimeout)
        assert (error.signal, error.timeout) == ("go", 5.0)


async def test_sig_12_the_deadline_is_recorded_once(world: World) -> None:
    async with world.app(bounded) as app:
        await app.start(bounded, "name", id="r1")
        await app.settle()
    due = world.after(5)
    for _ in range(2):
        world.clock.advance(2)
        async with world.app(bounded) as app:
            run = app.get_run("r1")
            await run.signal("something else")  # wakes it: it is replayed, and parks again
            await app.settle()
            assert (await run.info()).wake_at == due
    async with world.app(bounded) as app:
        await app.tick(1)
        assert await app.get_run("r1").status() is Status.COMPLETED


# ---------------------------------------------------------------- F25, F55


async def test_f25_a_waiter_that_was_cancelled_leaves_nothing_behind(world: World) -> None:
    async with world.app(one) as app:
        run = await app.start(one, "name", id="r1")
        await app.settle()
        for _ in range(3):
            waiting = [asyncio.create_task(run.result()), asyncio.create_task(run.wait())]
            await app.settle()
            for task in waiting:
                task.cancel()
            await asyncio.gather(*waiting, return_exceptions=True)
        assert not app.engine.executor.tell.endings.waiting()
        with pytest.raises(TimeoutError):
            await run.result(timeout=0)
        await app.settle()
        assert not app.engine.executor.tell.endings.waiting()
        await run.signal("go", "now")
        assert await run.result() == "now"


async def test_f25_nor_does_a_wait_that_a_body_gave_up(world: World) -> None:
    @workflow
    async def twice(ctx: Context) -> list[str]:
        said = []
        for _ in range(2):
            try:
                async with asyncio.timeout(5):
                    said.append(await ctx.wait_for_signal("go", token=TOKEN, type=str))
            except TimeoutError:
                said.append("gave up")
        said.append(await ctx.wait_for_signal("go", token=TOKEN, type=str))
        return said

    async with world.app(twice) as app:
        run = await app.start(twice)
        await app.tick(5)
        await app.signal("go", "second", token=TOKEN)
        await app.settle()
        await app.signal("go", "third", token=TOKEN)
        assert await run.result() == ["gave up", "second", "third"]


async def test_f55_a_woken_waiter_sees_the_end_and_not_what_was_before(world: World) -> None:
    async with world.app(one) as app, world.client() as client:
        run = await app.start(one, "name", id="r1")
        await app.settle()
        seen: list[Any] = []

        async def watch(handle: Any) -> None:
            await handle.result()
            seen.append((await handle.status(), (await handle.info()).output))

        watchers = [
            asyncio.create_task(watch(h)) for h in (run, app.get_run("r1"), client.get_run("r1")) for _ in "abc"
        ]
        await app.settle()
        await run.signal("go", 1)
        await asyncio.gather(*watchers)
        assert seen == [(Status.COMPLETED, b"1")] * 9


async def test_f55_many_waiters_may_come_and_go_while_runs_end(world: World) -> None:
    async with world.app(one) as app:
        runs = [await app.start(one, "name", id=f"r{n}") for n in range(20)]
        await app.settle()
        waiting = [asyncio.create_task(run.result()) for run in runs for _ in range(3)]
        await app.settle()
        for task in waiting[::3]:
            task.cancel()
        await asyncio.gather(*(run.signal("go", run.id) for run in runs))
        results = await asyncio.gather(*waiting, return_exceptions=True)
        assert [r for r in results if isinstance(r, str)] == [run.id for run in runs for _ in range(2)]


@by_both
async def test_a_signal_that_wakes_a_run_on_its_way_is_not_lost_between_two_processes(world: World, how: str) -> None:
    """Ada's run goes on (it holds the lease) while Bob's client sends: the message is in the answer to her next commit."""
    gate = world.gate()
    async with world.app(three, store=gate) as ada, world.client() as bob:
        run = await ada.start(three, how, id="r1")
        await ada.settle()
        for number in range(3):
            going = gate.stop("before", "write", lambda batch: parks(batch) or ends(batch) or goes_on(batch))
            await send(bob, how, number)
            await going.reached.wait()
            going.release()
        assert await run.result() == [0, 1, 2]


@pytest.mark.parametrize("how", ["nudge", "renewal", "late"])
async def test_f17_a_signal_that_goes_from_one_wait_of_a_run_to_its_next_is_taken_once(world: World, how: str) -> None:
    """A turn gives up one wait for a token and begins another; while it is being committed the signal came for the first."""
    barrier = Barrier()

    @workflow
    async def twice(ctx: Context) -> list[int]:
        first = asyncio.ensure_future(ctx.wait_for_signal("go", token=TOKEN))
        await ctx.local_step("gate", barrier.wait)
        first.cancel()
        got = [await ctx.wait_for_signal("go", token=TOKEN, type=int)]
        try:
            got.append(await ctx.wait_for_signal("go", token=TOKEN, type=int, timeout=5))
        except SignalTimeout:
            pass
        return got

    gate = world.gate()
    async with world.app(twice, store=gate) as app, world.client() as client:
        run = await app.start(twice, id="r1")
        await barrier.reached.wait()
        parking = gate.stop("before", "write", parks)
        reading = gate.stop("after", "messages") if how == "late" else None
        barrier.open()
        await parking.reached.wait()
        if how == "renewal":
            await client.signal("go", 1, token=TOKEN)
            app.engine.renewal.kick()
        else:
            await app.signal("go", 1, token=TOKEN)
        if reading is not None:
            await reading.reached.wait()
        for _ in range(100):
            await let_others_go_on()
        parking.release()
        for _ in range(100):
            await let_others_go_on()
        if reading is not None:
            reading.release()
        await app.tick(6)
        assert await run.result() == [1]
