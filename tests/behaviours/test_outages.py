"""The store cannot be reached: callers get one clear error when the app's patience is over; waits and loops go on."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any

import pytest

from perdure import Context, Perdure, Status, StoreUnavailable, UsageError, step, workflow
from perdure.testing import TestApp
from tests.behaviours.test_waiting import calm
from tests.behaviours.world import Gate, World, ends

Call = Callable[[TestApp], Awaitable[Any]]


@workflow
async def waits(ctx: Context) -> Any:
    return await ctx.wait_for_signal("go")


@workflow
async def fails(ctx: Context) -> None:
    raise ValueError("as it must")


def down(gate: Gate, *verbs: str, when: str = "before") -> None:
    for verb in verbs or ("write", "claim", "get", "history", "values", "runs", "standing", "messages", "next_wake"):
        gate.fail(when, verb, StoreUnavailable("no route to the disk"), times=1_000)


async def prepared(world: World, *, client: bool = True, **options: Any) -> tuple[TestApp, Gate]:
    """An app whose store can be reached yet, with runs `parked` and `failed` in it."""
    async with world.app(waits, fails) as app:
        await app.start(waits, id="parked")
        await app.start(fails, id="failed")
        await app.settle()
    gate = world.gate()
    options = {"patience": 3, "poll": 1} | options
    make = world.client if client else world.app
    return make(waits, fails, store=gate, **options), gate


async def warm(app: TestApp) -> None:
    """What the first start has done besides, to say what is served here, is behind us."""
    await app.start(fails, id="failed")  # is there: nothing begins
    await app.settle()


async def refused(world: World, call: Awaitable[Any], seconds: float = 3) -> str:
    """The words of the one error, which must come when patience is over."""
    began = world.clock.now()
    with pytest.raises(StoreUnavailable) as raised:
        await world.pass_time(call)
    assert world.clock.now() == began + round(seconds * 1_000_000)
    words = str(raised.value)
    assert f"given up after {seconds:g} s" in words
    assert "no route to the disk" in words
    return words


async def _awaited(call: Awaitable[Any]) -> Any:
    return await call


WRITES: dict[str, tuple[Call, str, str]] = {
    "start": (lambda app: app.start(waits, id="r"), "starting run 'r' of workflow 'waits'", "again with id='r'"),
    "signal": (
        lambda app: app.get_run("parked").signal("go", 1, id="s1"),
        "sending signal 'go' to run 'parked'",
        "again with id='s1'",
    ),
    "token": (
        lambda app: app.signal("go", 1, token="t", id="s1"),
        "sending signal 'go' to token 't'",
        "again with id='s1'",
    ),
    "signal_with_start": (
        lambda app: app.signal_with_start(waits, id="r", signal="go", signal_id="s1"),
        "starting run 'r'",
        "again with id='r' and signal_id='s1'",
    ),
    "cancel": (lambda app: app.get_run("parked").cancel(), "cancelling run 'parked'", "cancel it again"),
    "requeue": (lambda app: app.get_run("failed").requeue(), "requeueing run 'failed'", "requeue it again"),
    "delete": (lambda app: app.get_run("parked").delete(), "deleting run 'parked'", "delete it again"),
}

READS: dict[str, tuple[Call, str]] = {
    "status": (lambda app: app.get_run("parked").status(), "reading run 'parked'"),
    "info": (lambda app: app.get_run("parked").info(), "reading run 'parked'"),
    "latest": (lambda app: app.get_run("parked").latest(), "reading run 'parked'"),
    "value": (lambda app: app.get_run("parked").value("k"), "reading run 'parked'"),
    "history": (lambda app: app.get_run("parked").history(), "reading run 'parked'"),
    "steps": (lambda app: app.get_run("parked").steps(), "reading run 'parked'"),
    "runs": (lambda app: app.runs(), "listing runs"),
}


@pytest.mark.parametrize("client", [True, False], ids=["client", "worker"])
@pytest.mark.parametrize("verb", WRITES)
async def test_a_write_that_never_got_through_is_one_error_and_is_not_made_later(
    world: World, verb: str, client: bool
) -> None:
    call, doing, again = WRITES[verb]
    app, gate = await prepared(world, client=client)
    async with app:
        await warm(app)
        before = await app.runs()
        down(gate)
        words = await refused(world, call(app))
        assert words.startswith(doing)
        assert "It may have been written all the same" in words
        assert again in words
        gate.release_all()
        await world.pass_time(app.engine.committer.idle())
        await app.tick(60)
        assert [(run.id, run.status) for run in await app.runs()] == [(run.id, run.status) for run in before]
        assert app.engine.executor.holdings.coming == 0
        await world.pass_time(call(app))  # and asking again does it


@pytest.mark.parametrize("client", [True, False], ids=["client", "worker"])
@pytest.mark.parametrize("verb", WRITES)
async def test_a_write_whose_answers_were_all_lost_is_there_and_asking_again_does_not_do_it_twice(
    world: World, verb: str, client: bool
) -> None:
    call, _, _ = WRITES[verb]
    app, gate = await prepared(world, client=client)
    async with app:
        await warm(app)
        down(gate, "write", when="after")
        assert "may have been written" in await refused(world, call(app))
        gate.release_all()
        await world.pass_time(app.engine.committer.idle())
        await world.pass_time(call(app))
        if not client:
            await app.tick(60)  # a lease that was not known of runs out
        stood = {run.id: run for run in await app.runs()}
        assert set(stood) == {"start": {"parked", "failed", "r"}, "signal_with_start": {"parked", "failed", "r"}}.get(
            verb, {"failed"} if verb == "delete" else {"parked", "failed"}
        )
        if verb == "cancel":
            assert stood["parked"].status is Status.CANCELLED
        if verb in ("signal", "signal_with_start"):
            assert stood["parked" if verb == "signal" else "r"].inbox == 1


async def test_a_write_that_waited_behind_others_was_surely_not_written(world: World) -> None:
    app, gate = await prepared(world)
    async with app:
        down(gate, "write")
        first = [asyncio.create_task(_awaited(app.get_run("parked").signal("no", n))) for n in range(2)]
        await calm(gate)
        more = asyncio.create_task(_awaited(app.get_run("parked").signal("no", 2)))
        await calm(gate)
        words = await refused(world, app.start(waits, id="r"))
        assert "Nothing was written" in words
        for each in (*first, more):
            with pytest.raises(StoreUnavailable):
                await each
        gate.release_all()
        await world.pass_time(app.engine.committer.idle())
        assert (await app.get_run("parked").info()).inbox == 0


@pytest.mark.parametrize("verb", READS)
async def test_a_read_is_one_error(world: World, verb: str) -> None:
    call, doing = READS[verb]
    app, gate = await prepared(world)
    async with app:
        down(gate)
        words = await refused(world, call(app))
        assert words.startswith(doing)
        assert "Nothing is changed by that" in words
        gate.release_all()
        await call(app)


@pytest.mark.parametrize("verb", ["value", "history"])
async def test_also_one_that_begins_well(world: World, verb: str) -> None:
    app, gate = await prepared(world)
    async with app:
        down(gate, "values" if verb == "value" else verb)
        words = await refused(world, READS[verb][0](app))
        assert words.startswith(f"reading {'value ' + repr('k') if verb == 'value' else 'the history'} of run 'parked'")


@pytest.mark.parametrize("verb", [*WRITES, *READS])
async def test_an_outage_within_patience_is_only_a_delay(
    world: World, verb: str, caplog: pytest.LogCaptureFixture
) -> None:
    call = (WRITES | READS)[verb][0]
    app, gate = await prepared(world)
    async with app:
        for each in ("write", "get", "runs"):
            gate.fail("before", each, StoreUnavailable("for a moment"), times=4)
        with caplog.at_level(logging.WARNING, "perdure.engine"):
            await world.pass_time(call(app))
    assert 1 <= len([record for record in caplog.records if "for a moment" in record.getMessage()]) <= 2


@pytest.mark.parametrize("wait", ["result", "wait"])
async def test_f41_who_waits_for_a_run_waits_through_an_outage(
    world: World, wait: str, caplog: pytest.LogCaptureFixture
) -> None:
    app, gate = await prepared(world)
    async with app, world.app(waits) as worker:
        with caplog.at_level(logging.WARNING, "perdure.engine"):
            down(gate)
            tasks = [asyncio.create_task(_awaited(getattr(app.get_run("parked"), wait)())) for _ in range(20)]
            await calm(gate)
            for _ in range(100):  # far beyond its patience
                world.clock.advance(1)
                await calm(gate)
            assert not any(task.done() for task in tasks)
            with pytest.raises(TimeoutError):
                await app.get_run("parked").result(timeout=0.001)
            assert len([record for record in caplog.records if "cannot be reached" in record.getMessage()]) == 1
        gate.release_all()
        if wait == "result":
            await worker.get_run("parked").signal("go", 1)
            await worker.settle()
        expected = 1 if wait == "result" else Status.SUSPENDED
        assert await world.pass_time(asyncio.gather(*tasks)) == [expected] * 20
        assert not app.engine.executor.tell.endings.waiting()


@pytest.mark.parametrize("verb", [*WRITES, *READS, "result"])
async def test_f25_a_call_that_is_cancelled_in_an_outage_leaves_nothing_behind(world: World, verb: str) -> None:
    calls = {name: each[0] for name, each in (WRITES | READS).items()} | {
        "result": lambda app: app.get_run("parked").result()
    }
    app, gate = await prepared(world, poll=1_000_000)
    async with app:
        down(gate)
        task = asyncio.create_task(_awaited(calls[verb](app)))
        await calm(gate)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        gate.release_all()
        world.clock.advance(1)
        await calm(gate)
        await app.engine.committer.idle()
        assert not app.engine.executor.tell.endings.waiting()
        due = world.clock.next_alarm()
        assert due is not None
        assert due > world.after(1_000)  # only the next poll


async def test_f23_a_store_that_hangs_is_given_up_and_its_late_answer_does_no_harm(world: World) -> None:
    app, gate = await prepared(world, client=False)
    async with app:
        await warm(app)
        stop = gate.stop("before", "write")
        task = asyncio.create_task(_awaited(app.start(waits, id="r")))
        await stop.reached.wait()
        world.clock.advance(3)
        with pytest.raises(StoreUnavailable, match=r"does not answer.*may have been written"):
            await task
        stop.release()
        await app.settle()
        assert await app.get_run("r").status() is Status.SUSPENDED
        run = await app.start(waits, id="r")
        await run.signal("go", 1)
        assert await run.result() == 1


async def test_f23_so_is_a_read(world: World) -> None:
    app, gate = await prepared(world, patience=0.5)
    async with app:
        gate.stop("before", "get")
        with pytest.raises(StoreUnavailable, match=r"reading run 'parked' was given up after 0\.5 s.*does not answer"):
            await app.get_run("parked").status()
        assert await app.get_run("parked").status() is Status.SUSPENDED


async def test_turns_of_runs_go_on_beyond_any_patience(world: World) -> None:
    done: list[str] = []

    @step
    async def note(what: str) -> None:
        done.append(what)

    @workflow
    async def works(ctx: Context) -> str:
        await note("a")
        await note("b")
        return "done"

    gate = world.gate()
    async with world.app(works, store=gate, patience=2, poll=1, lease=3600) as app:
        await (await app.start(works, id="first")).result()
        done.clear()
        down(gate, "write")
        gate.fail("before", "write", StoreUnavailable("no route to the disk"), ends)
        starting = asyncio.create_task(_awaited(app.start(works, id="lost")))
        with pytest.raises(StoreUnavailable):
            await world.pass_time(starting)
        gate.release_all()
        run = await world.pass_time(app.start(works, id="r"))
        gate.fail("before", "write", StoreUnavailable("no route to the disk"), times=20)
        assert await world.pass_time(run.result()) == "done"
        assert done == ["a", "b"]


async def test_patience_is_a_setting(world: World) -> None:
    assert Perdure("memory://").settings.patience == 30_000_000
    assert Perdure("memory://", patience=timedelta(minutes=1)).settings.patience == 60_000_000
    for wrong in (0, -1, "long"):
        with pytest.raises(UsageError, match="patience"):
            Perdure("memory://", patience=wrong)  # type: ignore[arg-type]
