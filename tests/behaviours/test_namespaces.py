"""NS: who drives which runs."""

from __future__ import annotations

from perdure import Context, Status, step, workflow
from tests.behaviours.world import Barrier, World


async def test_ns_01_a_run_has_the_namespace_of_the_process_that_starts_it(world: World) -> None:
    @workflow
    async def empty() -> None: ...

    async with world.app(empty, namespace="blue") as blue:
        assert (await (await blue.start(empty)).info()).namespace == "blue"
    async with world.app(empty) as operator:
        assert (await (await operator.start(empty)).info()).namespace == "default"


async def test_ns_02_two_scoped_processes_each_drive_their_own_whatever_it_waits_for(world: World) -> None:
    barrier = Barrier()
    drivers: list[tuple[str, str, str]] = []

    def make(driver: str):  # type: ignore[no-untyped-def]
        @workflow(name="pending")
        async def pending(ctx: Context, colour: str) -> None:
            await ctx.side_effect(lambda: drivers.append(("pending", colour, driver)))

        @workflow(name="sleeping")
        async def sleeping(ctx: Context, colour: str) -> None:
            import asyncio

            await asyncio.sleep(60)
            await ctx.side_effect(lambda: drivers.append(("sleeping", colour, driver)))

        @workflow(name="orphaned")
        async def orphaned(ctx: Context, colour: str) -> None:
            await ctx.local_step("hold", barrier.wait)
            await ctx.side_effect(lambda: drivers.append(("orphaned", colour, driver)))

        @workflow(name="timed")
        async def timed(ctx: Context, colour: str) -> None:
            await ctx.wait_for_signal("go")

        return pending, sleeping, orphaned, timed

    async with world.doomed(*make("dead")) as dead:
        for colour in ("blue", "red"):
            await dead.start("orphaned", colour, id=f"{colour}.orphaned", namespace=colour)
        await dead.settle(steps=False)
    async with world.client(*make("client")) as client:
        for colour in ("blue", "red"):
            await client.start("pending", colour, id=f"{colour}.pending", namespace=colour)
            await client.start("sleeping", colour, id=f"{colour}.sleeping", namespace=colour)
            await client.start("timed", colour, id=f"{colour}.timed", namespace=colour, timeout=60)
        barrier.open()
        async with world.app(*make("blue"), namespace="blue") as blue:
            await blue.tick(120)
            assert sorted(drivers) == [
                ("orphaned", "blue", "blue"),
                ("pending", "blue", "blue"),
                ("sleeping", "blue", "blue"),
            ]
            assert await client.get_run("blue.timed").status() is Status.CANCELLED
            for name, status in [
                ("pending", Status.PENDING),
                ("sleeping", Status.PENDING),
                ("orphaned", Status.RUNNING),
                ("timed", Status.PENDING),
            ]:
                assert await client.get_run(f"red.{name}").status() is status, name
        async with world.app(*make("red"), namespace="red") as red:
            await red.tick(120)
        assert {driver for _, colour, driver in drivers if colour == "red"} == {"red"}
        assert await client.get_run("red.timed").status() is Status.CANCELLED


async def test_ns_04_an_operator_drives_all(world: World) -> None:
    @workflow
    async def waits(ctx: Context) -> str:
        return await ctx.wait_for_signal("go", type=str)

    async with world.client(waits) as client:
        for colour in ("blue", "red", "default"):
            await client.start(waits, id=colour, namespace=colour)
        async with world.app(waits) as operator:
            await operator.settle()
            for colour in ("blue", "red", "default"):
                await client.get_run(colour).signal("go", colour)
                assert await operator.get_run(colour).result() == colour


async def test_ns_04_also_blocked_ones(world: World) -> None:
    @workflow(name="flow")
    async def waits(ctx: Context) -> str:
        return await ctx.wait_for_signal("go", type=str)

    @workflow(name="flow")
    async def other(ctx: Context) -> None:
        await ctx.wait_for_signal("stop")

    async with world.app(waits, namespace="blue") as blue:
        await blue.start(waits, id="r1")
        await blue.settle()
    async with world.app(other, namespace="blue") as blue:
        await blue.get_run("r1").signal("go", "now")
        await blue.settle()
        assert await blue.get_run("r1").status() is Status.BLOCKED
    async with world.app(waits, namespace="red") as red:
        await red.settle()
        assert await red.get_run("r1").status() is Status.BLOCKED
    async with world.app(waits) as operator:
        await operator.settle()
        assert await operator.get_run("r1").result() == "now"


async def test_ns_10_a_start_may_name_another_namespace_and_continuing_keeps_it(world: World) -> None:
    @workflow
    async def goes_on(ctx: Context, n: int) -> int:
        if n == 0:
            ctx.continue_as_new(1)
        return n

    async with world.app(goes_on, namespace="blue") as blue:
        run = await blue.start(goes_on, 0, id="p", namespace="red")
        await blue.settle()
        assert await run.status() is Status.PENDING  # not blue's to drive
    async with world.app(goes_on, namespace="red") as red:
        await red.settle()
        assert await red.get_run("p").result() == 1
        assert (await red.get_run("p~1").info()).namespace == "red"


async def test_ns_10_a_scoped_process_lists_its_own_runs(world: World) -> None:
    @workflow
    async def empty() -> None: ...

    async with world.app(empty) as operator, world.app(empty, namespace="blue") as blue:
        await operator.start(empty, id="mine")
        await blue.start(empty, id="blues")
        assert [run.id for run in await blue.runs()] == ["blues"]
        assert [run.id for run in await operator.runs()] == ["blues", "mine"]
        assert [run.id for run in await operator.runs(namespace="blue")] == ["blues"]


async def test_ns_13_a_due_blocked_run_is_driven_by_its_namespace_or_an_operator_only(world: World) -> None:
    """Also one that was blocked because nobody served it in its namespace."""

    @workflow
    async def works() -> int:
        return 1

    @workflow
    async def other() -> None: ...

    async with world.client(works) as client, world.app(other, audit=60, namespace="red") as red:
        for name in ("first", "second"):
            await client.start(works, id=name, namespace="blue")
        await red.tick(130)
        assert [await client.get_run(name).status() for name in ("first", "second")] == [Status.BLOCKED] * 2
        async with world.app(works, namespace="red") as red_too:
            await red_too.tick(130)
            assert await client.get_run("first").status() is Status.BLOCKED
        await client.get_run("first").requeue()
        async with world.app(works, namespace="blue") as blue:
            await blue.settle()
            assert await client.get_run("first").result() == 1
            assert await client.get_run("second").result() == 1  # it serves it now: it need not be asked


async def test_ns_13_two_hundred_of_them_are_taken_at_a_time(world: World) -> None:
    @workflow
    async def works() -> int:
        return 1

    @workflow
    async def other() -> None: ...

    async with world.client(works) as client, world.app(other, audit=60) as bystander:
        for number in range(205):
            await client.start(works, id=f"r{number}")
        await bystander.tick(130)
        assert {run.status for run in await client.runs(limit=300)} == {Status.BLOCKED}
        gate = world.gate()
        taken: list[int] = []
        gate.watch("claim", lambda request: taken.append(request.limit))
        async with world.app(works, store=gate) as app:
            await app.settle()
        assert {run.status for run in await client.runs(limit=300)} == {Status.COMPLETED}
        assert max(taken) == 200


async def test_ns_04_one_backlog_does_not_starve_the_other_namespaces(world: World) -> None:
    """An operator with little room: of each namespace the oldest, then the second oldest of each."""
    order: list[str] = []

    @workflow
    async def works(ctx: Context) -> None:
        async def note() -> None:
            order.append(ctx.run_id)

        await ctx.local_step("note", note)

    async with world.client(works) as client:
        for number in range(40):
            await client.start(works, id=f"blue.{number}", namespace="blue")
        for colour in ("red", "green"):
            for number in range(2):
                await client.start(works, id=f"{colour}.{number}", namespace=colour)
        async with world.app(works, max_runs=3) as operator:
            await operator.settle()
    assert len(order) == 44
    assert sorted(order[:3]) == ["blue.0", "green.0", "red.0"]
    assert sorted(order[3:6]) == ["blue.1", "green.1", "red.1"]
    assert order[6:] == [f"blue.{number}" for number in range(2, 40)]


async def test_ns_02_a_scoped_process_leaves_the_deadlines_of_others_alone(world: World) -> None:
    @workflow
    async def waits(ctx: Context) -> None:
        await ctx.wait_for_signal("go")

    async with world.app(waits, namespace="blue") as blue, world.client(waits) as client:
        await client.start(waits, id="red", namespace="red", timeout=10)
        await blue.start(waits, id="blue", timeout=10)
        await blue.tick(60)
        assert await client.get_run("blue").status() is Status.CANCELLED
        assert await client.get_run("red").status() is Status.PENDING


async def test_ns_10_a_retried_run_and_its_children_keep_their_namespace(world: World) -> None:
    broken = [True]

    @step(max_attempts=1)
    async def fragile() -> str:
        if broken:
            raise ValueError("broken")
        return "whole"

    @workflow
    async def child() -> str:
        return ", also in red"

    @workflow
    async def parent(ctx: Context) -> str:
        return await fragile() + await ctx.child(child, id="c")

    async with world.app(parent, child) as operator:
        run = await operator.start(parent, id="p", namespace="red")
        await operator.settle()
        assert await run.status() is Status.FAILED
        broken.clear()
        await run.requeue()
        await operator.settle()
        assert await run.result() == "whole, also in red"
        assert {(found.id, found.namespace) for found in await operator.runs()} == {("p", "red"), ("c", "red")}
