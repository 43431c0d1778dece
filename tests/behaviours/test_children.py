"""CHILD: runs that start runs, wait for them, and hear of their end. F29, F31, F32, F34."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from perdure import (
    ChildFailed,
    Context,
    FatalError,
    GatherError,
    InvalidArguments,
    RunFailed,
    RunTimedOut,
    Status,
    StoreError,
    step,
    workflow,
)
from perdure.authoring.children import Mode
from perdure.model.commit import TurnCommit
from perdure.model.history import Op
from perdure.model.run import Run
from perdure.model.steps import State
from perdure.ports.store import RunQuery
from perdure.testing import TestApp
from tests.behaviours.world import Barrier, World, events_of, kinds

calls: list[str] = []


@pytest.fixture(autouse=True)
def no_calls() -> None:
    calls.clear()


@workflow
async def ship(ctx: Context, order: int) -> str:
    await ctx.side_effect(lambda: calls.append(ctx.run_id))
    return f"shipped {order}"


@workflow
async def waits(ctx: Context) -> str:
    return await ctx.wait_for_signal("go", type=str)


@workflow
async def fails(ctx: Context, why: str) -> str:
    raise ValueError(why)


@workflow
async def maybe(ctx: Context, n: int) -> int:
    """Returns n when told to go; fails if n is negative."""
    await ctx.wait_for_signal("go")
    if n < 0:
        raise ValueError(f"no {n}")
    return n


async def children_of(app: TestApp, run_id: str) -> list[Run]:
    run = await app.get_run(run_id).info()
    return sorted(await app.store.runs(RunQuery(parent=run.key, limit=1000)), key=lambda child: child.incarnation)


async def test_child_01_a_child_has_a_derived_id_and_its_result_comes_back(world: World) -> None:
    @workflow
    async def parent(ctx: Context) -> str:
        return (await ctx.child(ship, 7)).upper()

    async with world.client(parent, ship) as client:
        await client.start(parent, id="p")
    async with world.app(parent) as app:  # the child's code is elsewhere, but known
        await app.settle()
    async with world.app(parent, ship) as app:
        await app.settle()
        assert await app.get_run("p").result() == "SHIPPED 7"
        child = await app.get_run("p.child.0").info()
        assert (child.status, child.depth) == (Status.COMPLETED, 1)
        assert child.parent is not None
        assert (child.parent.id, child.parent.seq) == ("p", 0)
    assert calls == ["p.child.0"]


async def test_child_01_the_parent_is_suspended_meanwhile(world: World) -> None:
    @workflow
    async def parent(ctx: Context) -> str:
        return await ctx.child(waits)

    async with world.app(parent, waits) as app:
        run = await app.start(parent, id="p")
        await app.settle()
        assert await run.status() is Status.SUSPENDED
        assert (await run.info()).wake_at is None
    async with world.app(parent, waits) as app:
        await app.get_run("p.child.0").signal("go", "back")
        assert await app.get_run("p").result() == "back"


async def test_child_02_a_failing_child_raises_in_the_parent(world: World) -> None:
    @workflow
    async def strict(ctx: Context) -> str:
        return await ctx.child(fails, "boom")

    @workflow
    async def lenient(ctx: Context) -> list[Any]:
        try:
            await ctx.child(fails, "boom")
        except ChildFailed as error:
            return [str(error), error.child_id, error.status, repr(error.__cause__), getattr(error, "retryable", None)]
        return []

    async with world.app(strict, lenient, fails) as app:
        with pytest.raises(RunFailed, match=r"child 'p.child.0' failed: boom") as caught:
            await (await app.start(strict, id="p")).result()
        error = caught.value.__cause__
        assert isinstance(error, ChildFailed)
        assert isinstance(error.__cause__, ValueError)
        said = await (await app.start(lenient, id="q")).result()
        assert said == ["child 'q.child.0' failed: boom", "q.child.0", "failed", "ValueError('boom')", False]


async def test_child_02_so_does_one_that_was_cancelled_ran_out_of_time_or_died(world: World) -> None:
    @workflow
    async def parent(ctx: Context, timeout: float | None) -> str:
        try:
            return await ctx.child(waits, id=f"{ctx.run_id}.c", timeout=timeout)
        except ChildFailed as error:
            return error.status

    async with world.app(parent, waits) as app:
        cancelled = await app.start(parent, None, id="p1")
        timed_out = await app.start(parent, 60, id="p2")
        await app.settle()
        await app.get_run("p1.c").cancel()
        await app.tick(60)
        assert await cancelled.result() == "cancelled"
        assert await timed_out.result() == "execution_timeout"


async def test_child_03_the_parents_timeline_shows_the_child(world: World) -> None:
    @workflow
    async def parent(ctx: Context) -> str:
        return await ctx.child(waits)

    async with world.app(parent, waits) as app:
        run = await app.start(parent, id="p")
        await app.settle()
        assert [(s.seq, s.op, s.name, s.state) for s in await run.steps()] == [
            (0, Op.CHILD, "p.child.0", State.PENDING)
        ]
        await app.get_run("p.child.0").signal("go", "back")
        await run.result()
        [only] = await run.steps()
        assert (only.state, only.output) == (State.COMPLETED, b'"back"')


async def test_child_04_a_detached_child_is_started_once_and_its_parent_goes_on(world: World) -> None:
    @workflow
    async def parent(ctx: Context) -> str:
        child = await ctx.start_child(ship, 7)
        await ctx.wait_for_signal("go")
        return child.id

    async with world.app(parent, ship) as app:
        run = await app.start(parent, id="p")
        await app.settle()
        assert await app.get_run("p.child.0", ship).result() == "shipped 7"
        assert await run.status() is Status.SUSPENDED
    async with world.app(parent, ship) as app:
        await app.get_run("p").signal("go")
        assert await app.get_run("p").result() == "p.child.0"
    assert calls == ["p.child.0"]


async def test_child_04_it_goes_on_after_its_parent_has_ended(world: World) -> None:
    @workflow
    async def parent(ctx: Context, fail: bool) -> None:
        await ctx.start_child(waits, id=f"{ctx.run_id}.c")
        if fail:
            raise ValueError("no")

    async with world.app(parent, waits) as app:
        await (await app.start(parent, False, id="p")).result()
        with pytest.raises(RunFailed):
            await (await app.start(parent, True, id="q")).result()
        for child in ("p.c", "q.c"):
            await app.settle()
            assert await app.get_run(child).status() is Status.SUSPENDED
            await app.get_run(child).signal("go", "still here")
            assert await app.get_run(child).result() == "still here"


@pytest.mark.parametrize("ended", [False, True])
async def test_child_04_its_result_can_be_awaited_later(world: World, ended: bool) -> None:
    @workflow
    async def parent(ctx: Context) -> list[str]:
        child = await ctx.start_child(waits, id="c")
        await ctx.wait_for_signal("now")
        return [await child.result(), await child.result()]

    async with world.app(parent, waits) as app:
        run = await app.start(parent, id="p")
        await app.settle()
        if ended:
            await app.get_run("c").signal("go", "back")
            await app.settle()
        await run.signal("now")
        await app.settle()
        if not ended:
            assert await run.status() is Status.SUSPENDED
            await app.get_run("c").signal("go", "back")
        assert await run.result() == ["back", "back"]


async def test_child_05_the_same_id_joins_the_child_that_has_it(world: World) -> None:
    @workflow
    async def parent(ctx: Context) -> list[str]:
        await ctx.start_child(ship, 7, id="c")
        return [
            await ctx.child(ship, 7, id="c"),
            *await asyncio.gather(*(ctx.child(ship, 8, id="c") for _ in range(2))),
        ]

    async with world.app(parent, ship) as app:
        assert await (await app.start(parent, id="p")).result() == ["shipped 7"] * 3
    assert calls == ["c"]


async def test_child_06_a_child_of_an_unknown_workflow_fails_to_start(world: World) -> None:
    @workflow
    async def strict(ctx: Context) -> Any:
        return await ctx.child("ghost", 1)

    @workflow
    async def lenient(ctx: Context, detached: bool) -> list[Any]:
        try:
            if detached:
                await (await ctx.start_child("ghost", 1)).result()
            else:
                await ctx.child("ghost", 1)
        except ChildFailed as error:
            await ctx.wait_for_signal("go")
            return [error.status, "failed to start" in str(error), "ghost" in str(error)]
        return []

    async with world.app(strict, lenient) as app:
        with pytest.raises(RunFailed, match=r"failed to start.*'ghost'"):
            await (await app.start(strict)).result()
        for detached in (True, False):
            await app.start(lenient, detached, id=f"p{detached}")
        await app.settle()
    async with world.app(strict, lenient) as app:
        for detached in (True, False):
            run = app.get_run(f"p{detached}")
            await run.signal("go")
            assert await run.result() == ["not started", True, True]
        assert len(await app.runs()) == 3


async def test_f29_a_child_whose_input_does_not_fit_is_an_error_at_the_call(world: World) -> None:
    @workflow
    async def parent(ctx: Context) -> str:
        try:
            await ctx.child(ship, "not a number")  # type: ignore[misc]
        except InvalidArguments:
            return "refused"
        except ChildFailed:
            return "failed"
        return "started"

    async with world.app(parent, ship) as app:
        run = await app.start(parent, id="p")
        assert await run.result() in ("refused", "failed")
        assert await children_of(app, "p") == []


async def test_f29_a_child_whose_id_belongs_to_another_run_fails_to_start(world: World) -> None:
    @workflow
    async def parent(ctx: Context) -> str:
        try:
            return await ctx.child(ship, 7, id="taken")
        except ChildFailed as error:
            return f"{error.status}: {error}"

    async with world.app(parent, ship) as app:
        await (await app.start(ship, 1, id="taken")).result()
        said = await (await app.start(parent, id="p")).result()
        assert said.startswith("not started: ")
        assert "'taken' belongs to a run that this one did not start" in said
    assert calls == ["taken"]


async def test_child_08_children_are_found_by_their_parent_also_after_all_have_ended(world: World) -> None:
    @workflow
    async def parent(ctx: Context) -> None:
        await ctx.start_child(ship, 1)
        await ctx.child(ship, 2)

    async with world.app(parent, ship) as app:
        await (await app.start(parent, id="p")).result()
        await app.settle()
        assert [child.id for child in await children_of(app, "p")] == ["p.child.0", "p.child.1"]


async def test_child_12_a_child_inherits_the_namespace_and_priority_of_its_run(world: World) -> None:
    @workflow
    async def parent(ctx: Context) -> None:
        await asyncio.gather(ctx.child(ship, 1, id="a"), ctx.child(ship, 2, id="b", priority=9))

    async with world.app(parent, ship) as operator:  # drives every namespace
        await (await operator.start(parent, id="p", namespace="t1", priority=3)).result()
        a, b = await children_of(operator, "p")
        assert (a.namespace, a.priority) == ("t1", 3)
        assert (b.namespace, b.priority) == ("t1", 9)


# ---------------------------------------------------------------- fans


async def test_child_13_a_fan_reserves_its_positions_and_ids_and_starts_at_once(world: World) -> None:
    @workflow
    async def parent(ctx: Context) -> list[int]:
        return await ctx.all(maybe, [1, 2, 3])

    async with world.app(parent, maybe) as app:
        events = events_of(app)
        run = await app.start(parent, id="p")
        await app.settle()
        assert [(s.seq, s.name) for s in await run.steps()] == [(n, f"p.all.0.{n}") for n in range(3)]
        assert kinds(events, "p") == ["run.started", "run.suspended"]
        assert [child.status for child in await children_of(app, "p")] == [Status.SUSPENDED] * 3


async def test_child_15_its_results_come_in_input_order(world: World) -> None:
    @workflow
    async def parent(ctx: Context) -> list[int]:
        return await ctx.all(maybe, [1, 2, 3])

    async with world.app(parent, maybe) as app:
        run = await app.start(parent, id="p")
        for number in (2, 0, 1):
            await app.settle()
            await app.get_run(f"p.all.0.{number}").signal("go")
        assert await run.result() == [1, 2, 3]


async def test_child_16_an_empty_fan_is_nothing(world: World) -> None:
    @workflow
    async def parent(ctx: Context) -> list[Any]:
        return [await ctx.all(maybe, []), await ctx.all("ghost", [], mode="fail_fast")]

    async with world.app(parent, maybe) as app:
        run = await app.start(parent, id="p")
        assert await run.result() == [[], []]
        assert await run.steps() == []


async def test_child_17_waiting_for_all_raises_after_all_have_ended(world: World) -> None:
    @workflow
    async def parent(ctx: Context) -> list[Any]:
        try:
            return await ctx.all(maybe, [1, -2, 3])
        except GatherError as error:
            [(index, child_id, cause)] = error.failures
            return [str(error), index, child_id, str(cause), error.results]

    async with world.app(parent, maybe) as app:
        run = await app.start(parent, id="p")
        await app.settle()
        await app.get_run("p.all.0.1").signal("go")
        await app.settle()
        assert await run.status() is Status.SUSPENDED
        for number in (0, 2):
            await app.get_run(f"p.all.0.{number}").signal("go")
        said, *facts = await run.result()
        assert "1 of 3" in said
        assert facts == [1, "p.all.0.1", "child 'p.all.0.1' failed: no -2", [1, None, 3]]
        assert [c.status for c in await children_of(app, "p")] == [Status.COMPLETED, Status.FAILED, Status.COMPLETED]


async def test_child_18_fail_fast_raises_at_the_first_and_cancels_the_others(world: World) -> None:
    @workflow
    async def parent(ctx: Context) -> list[Any]:
        try:
            return await ctx.all(maybe, [1, -2, 3], mode="fail_fast")
        except GatherError as error:
            return [index for index, _, _ in error.failures]

    async with world.app(parent, maybe) as app:
        run = await app.start(parent, id="p")
        await app.settle()
        await app.get_run("p.all.0.0").signal("go")
        await app.settle()
        await app.get_run("p.all.0.1").signal("go")
        assert await run.result() == [1]
        await app.settle()
        assert [c.status for c in await children_of(app, "p")] == [Status.COMPLETED, Status.FAILED, Status.CANCELLED]


# ---------------------------------------------------------------- run and start


async def test_child_21_run_and_start_mean_children_in_a_workflow_and_runs_outside(world: World) -> None:
    @workflow
    async def parent(ctx: Context) -> list[str]:
        detached = await ship.start(1)
        return [detached.id, await ship.run(2), await ship.using(id="mine").run(3)]

    async with world.app(parent, ship) as app:
        assert await parent.using(id="p").run() == ["p.child.0", "shipped 2", "shipped 3"]
        assert await ship.run(4) == "shipped 4"
        handle = await ship.using(id="alone").start(5)
        assert (handle.id, await handle.result()) == ("alone", "shipped 5")
        assert [child.id for child in await children_of(app, "p")] == ["p.child.0", "p.child.1", "mine"]


# ---------------------------------------------------------------- F31: what ends with its parent


async def test_f31_children_end_with_a_parent_that_runs_out_of_time(world: World) -> None:
    @workflow
    async def grandparent(ctx: Context) -> None:
        await ctx.child(parent, id="p")

    @workflow
    async def parent(ctx: Context) -> None:
        await ctx.start_child(ship, 1, id="finished")
        await ctx.start_child(waits, id="detached")
        await ctx.child(waits, id="awaited")

    async with world.app(grandparent, parent, waits, ship) as app:
        run = await app.start(grandparent, id="g", timeout=60)
        await app.tick(60)
        with pytest.raises(RunTimedOut):
            await run.result()
        status = {one.id: one.status for one in await app.runs()}
        assert status.pop("finished") is Status.COMPLETED
        assert set(status) == {"g", "p", "detached", "awaited"}
        assert set(status.values()) == {Status.CANCELLED}


async def test_f31_a_child_whose_await_is_given_up_is_cancelled(world: World) -> None:
    @workflow
    async def parent(ctx: Context) -> str:
        try:
            async with asyncio.timeout(10):
                await ctx.child(waits, id="impatient")
        except TimeoutError:
            pass
        detached = await ctx.start_child(waits, id="patient")
        try:
            async with asyncio.timeout(10):
                await detached.result()
        except TimeoutError:
            pass
        return await ctx.wait_for_signal("done", type=str)

    async with world.app(parent, waits) as app:
        await app.start(parent, id="p")
        await app.tick(20)
        assert await app.get_run("impatient").status() is Status.CANCELLED
        assert await app.get_run("patient").status() is Status.SUSPENDED
    async with world.app(parent, waits) as app:
        await app.get_run("p").signal("done", "all the same")
        assert await app.get_run("p").result() == "all the same"
        await app.get_run("patient").signal("go", "nobody listens")
        assert await app.get_run("patient").result() == "nobody listens"


@pytest.mark.parametrize("mode", ["wait_all", "fail_fast"])
async def test_f31_a_fan_whose_await_is_given_up_is_cancelled(world: World, mode: Mode) -> None:
    @workflow
    async def parent(ctx: Context) -> str:
        try:
            async with asyncio.timeout(10):
                await ctx.all(maybe, [1, 2], mode=mode)
        except TimeoutError:
            pass
        return await ctx.wait_for_signal("done", type=str)

    async with world.app(parent, maybe) as app:
        await app.start(parent, id="p")
        await app.settle()
        assert [child.status for child in await children_of(app, "p")] == [Status.SUSPENDED] * 2
        await app.tick(20)
        assert [child.status for child in await children_of(app, "p")] == [Status.CANCELLED] * 2
        assert await app.get_run("p").status() is Status.SUSPENDED


async def test_f31_a_running_step_of_a_cancelled_child_is_stopped(world: World) -> None:
    barrier, stopped = Barrier(), []

    @step
    async def hold() -> None:
        try:
            await barrier.wait()
        except asyncio.CancelledError:
            stopped.append("stopped")
            raise

    @workflow
    async def busy(ctx: Context) -> None:
        await hold()

    @workflow
    async def parent(ctx: Context) -> list[int]:
        failures: list[int] = []
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(ctx.child(busy, id="busy"))
                group.create_task(ctx.child(fails, "boom", id="failing"))
        except* ChildFailed as errors:
            failures.append(len(errors.exceptions))
        return failures

    async with world.app(parent, busy, fails) as app:
        run = await app.start(parent, id="p")
        assert await run.result() == [1]
        await app.settle()
        assert await app.get_run("busy").status() is Status.CANCELLED
        assert stopped == ["stopped"] or barrier.count == 0


# ---------------------------------------------------------------- F32: a start is all or nothing


@pytest.mark.parametrize("when", ["before", "after"])
async def test_f32_a_crash_while_a_child_is_started_starts_it_once(world: World, when: str) -> None:
    @workflow
    async def parent(ctx: Context) -> str:
        await ctx.side_effect(lambda: None)
        return await ctx.child(ship, 7)

    def starts_a_child(batch: Any) -> bool:
        return any(isinstance(write, TurnCommit) and write.children for write in batch)

    gate = world.gate()
    gate.mute("release")
    async with world.app(parent, ship, store=gate, drain=0.001) as app:
        gate.fail(when, "write", StoreError("cut off"), starts_a_child)
        await app.start(parent, id="p")
        await app.settle()
    world.clock.advance(31)
    async with world.app(parent, ship) as app:
        await app.settle()
        assert await app.get_run("p").result() == "shipped 7"
        assert [run.id for run in reversed(await app.runs())] == ["p", "p.child.1"]
    assert calls == ["p.child.1"]


@pytest.mark.parametrize("when", ["before", "after"])
async def test_a_crash_while_a_child_ends_tells_its_parent_all_the_same(world: World, when: str) -> None:
    @workflow
    async def parent(ctx: Context) -> str:
        return await ctx.child(ship, 7)

    def ends_the_child(batch: Any) -> bool:
        return any(isinstance(w, TurnCommit) and w.run.id == "p.child.0" and w.output for w in batch)

    gate = world.gate()
    gate.mute("release")
    async with world.app(parent, ship, store=gate, drain=0.001) as app:
        gate.fail(when, "write", StoreError("cut off"), ends_the_child)
        await app.start(parent, id="p")
        await app.settle()
    world.clock.advance(31)
    async with world.app(parent, ship) as app:
        await app.settle()
        assert await app.get_run("p").result() == "shipped 7"
    assert set(calls) == {"p.child.0"}


@pytest.mark.parametrize("order", ["child first", "parent first"])
async def test_a_child_that_ends_while_its_parent_parks_wakes_it(world: World, order: str) -> None:
    """Parent and child in two processes, and both commits are held up."""

    @workflow
    async def parent(ctx: Context) -> str:
        task = asyncio.ensure_future(ctx.child(waits, id="c"))
        await ctx.wait_for_signal("nudge")
        return await task

    ada_store, bob_store = world.gate(), world.gate()
    async with (
        world.app(parent, waits, store=ada_store) as ada,
        world.app(waits, store=bob_store) as bob,
        world.client() as client,
    ):
        run = await ada.start(parent, id="p")
        await ada.settle()
        await bob.settle()
        parks = ada_store.stop("before", "write", lambda batch: any(w.run.id == "p" for w in batch))
        await client.get_run("p").signal("nudge")
        await parks.reached.wait()
        ada_store.stop("before", "claim")  # so that only bob can take the child
        ends = bob_store.stop("before", "write", lambda batch: any(w.run.id == "c" for w in batch))
        await client.get_run("c").signal("go", "back")
        await ends.reached.wait()
        first, second = (ends, parks) if order == "child first" else (parks, ends)
        first.release()
        await (bob if order == "child first" else ada).engine.committer.idle()
        second.release()
        ada_store.release_all()
        assert await run.result() == "back"


# ---------------------------------------------------------------- F34: task groups


async def test_f34_a_failing_child_in_a_task_group_fails_the_parent_and_is_rebuilt(world: World) -> None:
    @workflow
    async def parent(ctx: Context) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(ctx.child(ship, 1))
            group.create_task(ctx.child(fails, "boom"))

    async with world.app(parent, ship, fails) as app:
        run = await app.start(parent, id="p")
        with pytest.raises(RunFailed) as caught:
            await run.result()
        group = caught.value.__cause__
        assert isinstance(group, ExceptionGroup)
        [error] = group.exceptions
        assert isinstance(error, ChildFailed)
        assert "boom" in str(error)


async def test_f34_nested_groups_travel_from_step_to_body_and_except_star_works(world: World) -> None:
    @step
    async def fails_twice() -> None:
        inner = ExceptionGroup("inner", [KeyError("k"), FatalError("f", "code", [1])])
        raise ExceptionGroup("outer", [ValueError("v"), inner])

    @workflow
    async def body(ctx: Context) -> list[str]:
        said: list[str] = []
        try:
            await fails_twice()
        except* ValueError as group:
            said.append(f"value {len(group.exceptions)}")
        except* KeyError:
            said.append("key")
        except* FatalError as group:
            [inner] = group.exceptions
            assert isinstance(inner, ExceptionGroup)
            [error] = inner.exceptions
            assert isinstance(error, FatalError)
            said.append(f"fatal {error.code} {error.details}")
        await ctx.wait_for_signal("go")
        return said

    async with world.app(body) as app:
        await app.start(body, id="r1")
        await app.settle()
    async with world.app(body) as app:
        await app.get_run("r1").signal("go")
        assert await app.get_run("r1").result() == ["value 1", "key", "fatal code [1]"]


async def test_a_process_that_may_hold_one_run_drives_a_family(world: World) -> None:
    @workflow
    async def leaf(ctx: Context, n: int) -> int:
        return await ctx.side_effect(lambda: n)

    @workflow
    async def tree(ctx: Context, depth: int) -> int:
        if depth == 0:
            return sum(await ctx.all(leaf, [1, 2, 3]))
        return sum(await asyncio.gather(ctx.child(tree, depth - 1), ctx.child(tree, depth - 1)))

    async with world.app(tree, leaf, max_runs=1) as app:
        assert await (await app.start(tree, 3)).result() == 48


async def test_child_21_in_a_step_they_are_runs_of_the_app_around(world: World) -> None:
    @workflow
    async def ship(ctx: Context, n: int) -> int:
        return n * 10

    @step
    async def ships(n: int) -> int:
        return await ship.using(id=f"from a step {n}").run(n)

    @workflow
    async def order(ctx: Context) -> int:
        return await ships(4)

    async with world.app(order, ship) as app:
        assert await (await app.start(order)).result() == 40
        assert (await app.get_run("from a step 4").info()).parent is None
