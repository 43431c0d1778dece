"""START: how runs begin: ids, options, delays, races."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta

import pytest

from perdure import (
    Context,
    InvalidArguments,
    InvalidId,
    InvalidValue,
    NotRegistered,
    PerdureError,
    RunFailed,
    Status,
    StoreError,
    StoreUnavailable,
    UsageError,
    step,
    workflow,
)
from perdure.model.commit import Create
from tests.behaviours.world import Barrier, World, events_of, kinds


@step
async def hello(name: str) -> str:
    return f"hello {name}"


@workflow
async def greet(ctx: Context, name: str) -> str:
    return await hello(name)


@workflow(name="wait")
async def waits(ctx: Context) -> str:
    return await ctx.wait_for_signal("go", type=str)


async def test_start_01_returns_at_once_and_waiting_later_gives_the_result(world: World) -> None:
    barrier = Barrier()

    @workflow
    async def slow(ctx: Context) -> str:
        await ctx.local_step("slow", barrier.wait)
        return "done"

    async with world.app(slow) as app:
        run = await app.start(slow, id="r1")
        assert run.id == "r1"
        assert await run.status() in (Status.PENDING, Status.RUNNING)  # Started, and not waited for.
        barrier.open()
        assert await run.wait() is Status.COMPLETED
        assert await run.result() == "done"


async def test_start_01_without_an_id_each_run_gets_one_of_its_own(world: World) -> None:
    async with world.app(greet) as app:
        first, second = await app.start(greet, "a"), await app.start(greet, "b")
        assert first.id != second.id
        assert [await first.result(), await second.result()] == ["hello a", "hello b"]


async def test_start_02_what_a_client_starts_stays_pending_until_a_worker_comes(world: World) -> None:
    async with world.client(greet) as client:
        run = await client.start(greet, "you", id="r1")
        await client.settle()
        assert await run.status() is Status.PENDING
        async with world.app(greet) as worker:
            await worker.settle()
            assert await run.status() is Status.COMPLETED
            assert await run.result() == "hello you"


async def test_start_04_an_id_that_was_used_starts_nothing(world: World) -> None:
    calls: list[int] = []

    @workflow
    async def one(ctx: Context, n: int) -> int:
        await ctx.side_effect(lambda: calls.append(n))
        return n

    async with world.app(one) as app:
        assert await (await app.start(one, 1, id="fixed-id")).result() == 1
        again = await app.start(one, 2, id="fixed-id")
        assert await again.status() is Status.COMPLETED
        assert await again.result() == 1
        assert calls == [1]
    async with world.app(one) as other, world.client(one) as client:
        assert await (await other.start(one, 3, id="fixed-id")).result() == 1
        assert await (await client.start(one, 4, id="fixed-id")).result() == 1
        await other.settle()
    assert calls == [1]


async def test_start_04_the_loser_of_a_race_for_an_id_runs_nothing(world: World) -> None:
    calls: list[str] = []

    @workflow
    async def one(ctx: Context, who: str) -> str:
        await ctx.side_effect(lambda: calls.append(who))
        return who

    gate = world.gate()
    async with world.app(one) as ada, world.app(one, store=gate) as bob:
        creating = gate.stop("before", "write", lambda batch: any(isinstance(write, Create) for write in batch))
        starting = asyncio.create_task(bob.start(one, "bob", id="r1"))
        await creating.reached.wait()
        assert await (await ada.start(one, "ada", id="r1")).result() == "ada"
        creating.release()
        assert await (await starting).result() == "ada"
        await bob.settle()
        assert calls == ["ada"]


async def test_start_05_an_unknown_workflow_is_refused_and_leaves_no_row(world: World) -> None:
    async with world.app(greet) as app:
        with pytest.raises(NotRegistered, match="workflow 'ghost' is not registered"):
            await app.start("ghost", id="r1")
        assert await app.runs() == []


async def test_start_06_input_that_the_validator_rejects_leaves_no_row(world: World) -> None:
    def positive(amount: int) -> None:
        if amount < 0:
            raise ValueError("the amount must not be negative")

    @workflow(validate=positive)
    async def pay(ctx: Context, amount: int) -> int:
        return amount

    async with world.app(pay) as app:
        with pytest.raises(InvalidArguments, match="the amount must not be negative"):
            await app.start(pay, -1, id="r1")
        assert await app.store.get("r1") is None
        assert await (await app.start(pay, 1, id="r1")).result() == 1


async def test_start_06_so_does_input_that_does_not_fit_or_cannot_be_stored(world: World) -> None:
    async with world.app(greet) as app:
        with pytest.raises(InvalidArguments):
            await app.start(greet, id="r1")  # type: ignore[arg-type]
        with pytest.raises((InvalidArguments, InvalidValue)):
            await app.start(greet, 5, id="r1")  # type: ignore[misc]
        with pytest.raises(InvalidValue):
            await app.start(greet, "\ud800", id="r1")
        assert await app.runs() == []


async def test_start_07_priority_is_stored_and_absent_without_one(world: World) -> None:
    async with world.client(greet) as client:
        await client.start(greet, "a", id="urgent", priority=7)
        await client.start(greet, "b", id="plain")
        assert (await client.get_run("urgent").info()).priority == 7
        assert (await client.get_run("plain").info()).priority is None


async def test_start_07_greater_priority_runs_first(world: World) -> None:
    order: list[str] = []

    @workflow
    async def noted(ctx: Context) -> None:
        await ctx.side_effect(lambda: order.append(ctx.run_id))

    async with world.client(noted) as client:
        for run_id, priority in [("low", -5), ("plain", None), ("high", 3), ("plain-2", None)]:
            await client.start(noted, id=run_id, priority=priority)
            world.clock.advance(1)
    async with world.app(noted, max_runs=1) as worker:
        await worker.settle()
    assert order == ["high", "plain", "plain-2", "low"]


async def test_start_08_tags_are_the_union_of_the_workflows_and_the_starts(world: World) -> None:
    @workflow(tags=["billing"])
    async def bill() -> None: ...

    async with world.app(bill) as app:
        run = await app.start(bill, tags=["vip", "billing"])
        assert sorted((await run.info()).tags) == ["billing", "vip"]
        assert [found.id for found in await app.runs(tag="vip")] == [run.id]


@pytest.mark.parametrize("how", ["start_at", "delay"])
async def test_start_11_a_delayed_start_is_suspended_until_it_is_due(world: World, how: str) -> None:
    due = world.after(4)
    async with world.app(greet) as app:
        events = events_of(app)
        if how == "start_at":
            run = await app.start(greet, "you", id="r1", start_at=datetime.fromtimestamp(due / 1e6, UTC))
        else:
            run = await app.start(greet, "you", id="r1", delay=timedelta(seconds=4))
        stored = await run.info()
        assert (stored.status, stored.wake_at, stored.started_at) == (Status.SUSPENDED, due, None)
        await app.settle()
        assert await run.status() is Status.SUSPENDED
        assert events == []


async def test_start_12_and_then_the_body_runs_for_the_first_time(world: World) -> None:
    due = world.after(4)

    @workflow
    async def when(ctx: Context) -> int:
        return round(ctx.now().timestamp() * 1_000_000)

    async with world.app(when) as app:
        events = events_of(app)
        run = await app.start(when, id="r1", delay=4)
        await app.tick(3.999)
        assert await run.status() is Status.SUSPENDED
        await app.tick(0.001)
        assert await run.result() == due
        assert kinds(events) == ["run.started", "run.completed"]


async def test_start_12_also_where_only_another_process_can_run_it(world: World) -> None:
    async with world.client(greet) as client, world.app(greet) as worker:
        run = await client.start(greet, "you", delay=60)
        await worker.tick(59)
        assert await run.status() is Status.SUSPENDED
        await worker.tick(1)
        assert await run.result() == "hello you"


@pytest.mark.parametrize("consume", [False, True])
async def test_start_15_a_store_that_cannot_create_says_so_itself(world: World, consume: bool) -> None:
    gate = world.gate()
    async with world.app(greet, store=gate, consume=consume) as app:
        gate.fail("before", "write", StoreError("the disk is on fire"))
        with pytest.raises(StoreError, match="the disk is on fire"):
            await app.start(greet, "you", id="r1")
        assert await app.store.get("r1") is None
        assert (await app.start(greet, "you", id="r1")).id == "r1"


async def test_start_15_one_that_is_away_is_waited_for(world: World) -> None:
    gate = world.gate()
    async with world.app(greet, store=gate) as app:
        gate.fail("before", "write", StoreUnavailable("no route to the disk"), times=3)
        run = await world.pass_time(app.start(greet, "you", id="r1"))
        assert gate.calls["write"] >= 4
        assert await run.result() == "hello you"


@pytest.mark.parametrize("first", [0, 1])
async def test_start_16_two_signals_with_start_race_and_both_are_delivered(world: World, first: int) -> None:
    @workflow
    async def pair(ctx: Context) -> list[str]:
        return sorted([await ctx.wait_for_signal("go", type=str), await ctx.wait_for_signal("go", type=str)])

    gates = [world.gate(), world.gate()]
    async with world.app(pair, store=gates[0]) as ada, world.app(pair, store=gates[1]) as bob:
        stops = [gate.stop("before", "write") for gate in gates]
        starts = [
            asyncio.create_task(app.signal_with_start(pair, id="r1", signal="go", payload=name))
            for app, name in ((ada, "from ada"), (bob, "from bob"))
        ]
        for stop in stops:
            await stop.reached.wait()
        stops[first].release()
        await starts[first]
        stops[1 - first].release()
        run = await starts[1 - first]
        for app in (ada, bob):
            await app.settle()
        assert await run.result() == ["from ada", "from bob"]
        assert len(await ada.runs()) == 1


async def test_start_17_another_process_picks_a_new_run_up_without_a_poll(world: World) -> None:
    async with world.app(greet) as worker, world.client(greet) as client:
        await worker.settle()
        run = await client.start(greet, "you")
        # Nothing polls here, and nobody tells the worker: only the store's own hint does.
        assert await asyncio.wait_for(run.result(), 10) == "hello you"


async def test_start_18_the_callers_origin_beats_the_declared_one(world: World) -> None:
    @workflow(origin="billing-package")
    async def bill() -> None: ...

    async with world.app(bill) as app:
        declared = await app.start(bill)
        given = await app.start(bill, origin="cron")
        assert (await declared.info()).origin == "billing-package"
        assert (await given.info()).origin == "cron"


async def test_start_19_waiting_ends_when_the_run_is_settled_and_result_waits_for_its_end(world: World) -> None:
    async with world.app(waits) as app:
        run = await app.start(waits)
        assert await run.wait() is Status.SUSPENDED
        ending = asyncio.create_task(run.result())
        await app.settle()
        assert not ending.done()
        await run.signal("go", "now")
        assert await ending == "now"
        assert await run.wait() is Status.COMPLETED


async def test_start_19_a_cancelled_and_a_failed_run_are_ends_too(world: World) -> None:
    @workflow
    async def fails() -> None:
        raise ValueError("no")

    async with world.app(waits, fails) as app:
        failed = await app.start(fails)
        with pytest.raises(RunFailed, match="no"):
            await failed.result()
        assert await failed.wait() is Status.FAILED
        cancelled = await app.start(waits)
        ending = asyncio.create_task(cancelled.result())
        await app.settle()
        assert await cancelled.cancel() is Status.CANCELLED
        with pytest.raises(PerdureError, match="cancelled"):
            await ending


@pytest.mark.parametrize("run_id", ["", " ", "\t\n", "x" * 513, "nul\0", 7])
async def test_f05_an_id_that_is_none_is_refused_everywhere(world: World, run_id: object) -> None:
    async with world.app(greet) as app:
        with pytest.raises(InvalidId):
            await app.start(greet, "you", id=run_id)  # type: ignore[call-overload]
        with pytest.raises(InvalidId):
            app.get_run(run_id)  # type: ignore[call-overload]
        with pytest.raises(InvalidId):
            await app.signal_with_start(waits, id=run_id, signal="go")  # type: ignore[arg-type]
        with pytest.raises(InvalidId):
            greet.using(id=run_id)  # type: ignore[arg-type]

        @workflow
        async def parent(ctx: Context) -> str:
            return str(await ctx.child(greet, "you", id=run_id))  # type: ignore[call-overload]

        with pytest.raises(RunFailed, match="id"):
            await (await app.start(parent, id="parent")).result()
        assert [run.id for run in await app.runs()] == ["parent"]


async def test_start_04_an_id_that_another_workflow_has_is_refused(world: World) -> None:
    async with world.app(greet, waits) as app:
        await (await app.start(greet, "you", id="r")).result()
        with pytest.raises(UsageError, match=r"'r' is taken by a run of workflow 'greet'"):
            await app.start(waits, id="r")


async def test_start_11_a_signal_does_not_wake_a_delayed_run_before_its_time(world: World) -> None:
    @workflow
    async def waits(ctx: Context) -> list[str]:
        return [await ctx.wait_for_signal("go", type=str), f"{ctx.now():%S}"]

    async with world.app(waits) as app:
        run = await app.signal_with_start(waits, id="r1", signal="go", payload="early", delay=60)
        await app.tick(59)
        stored = await run.info()
        assert (stored.status, stored.started_at) == (Status.SUSPENDED, None)
        await run.signal("go", "later")
        await app.settle()
        assert (await run.info()).started_at is None
        await app.tick(1)
        assert await run.result() == ["early", "00"]


async def test_start_04_two_starts_of_one_id_at_once(world: World) -> None:
    ran: list[int] = []

    def run(n: int) -> int:
        ran.append(n)
        return n

    @workflow
    async def one(ctx: Context, n: int) -> int:
        return await ctx.side_effect(lambda: run(n))

    async with world.app(one) as app:
        runs = await asyncio.gather(*(app.start(one, n, id="same") for n in range(5)))
        results = {await run.result() for run in runs}
        assert len(results) == 1
        assert ran == list(results)


async def test_attr_03_runs_are_found_by_their_attributes(world: World) -> None:
    async with world.client(waits) as client:
        await client.start(waits, id="a", attributes={"customer": 42, "plan": "pro", "eu": True, "list": [1]})
        await client.start(waits, id="b", attributes={"customer": 43, "plan": "pro", "eu": None})
        await client.start(waits, id="c", attributes={"customer": 42.0, "since": datetime(2025, 1, 1, tzinfo=UTC)})
        await client.start(waits, id="d")

        async def found(**attributes: object) -> list[str]:
            return [run.id for run in await client.runs(attributes=attributes)]

        assert await found() == ["d", "c", "b", "a"]
        assert await found(plan="pro") == ["b", "a"]
        assert await found(plan="pro", customer=42) == ["a"]
        assert await found(customer=42.0) == ["c", "a"]
        assert await found(eu=None) == ["b"]
        assert await found(eu=False) == await found(missing=None) == []
        assert await found(since=datetime(2025, 1, 1, tzinfo=UTC)) == ["c"]
        with pytest.raises(UsageError, match="no run can be found by attribute 'list' being"):
            await found(plan="pro", list=[1])
