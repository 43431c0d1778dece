"""Faults that users of systems like this one reported, which are no single section's matter."""

from __future__ import annotations

import asyncio
import dataclasses
import functools
import gc
import threading
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from perdure import (
    Context,
    NotRegistered,
    RunFailed,
    RunUnsuccessful,
    Status,
    StoreError,
    StoreUnavailable,
    UsageError,
    step,
    workflow,
)
from perdure.core.instance import Instance
from perdure.model.commit import Send
from perdure.model.messages import MessageKind, Outgoing
from perdure.model.steps import State
from perdure.testing.kit import let_others_go_on
from tests.behaviours.world import Barrier, World, ends, events_of, goes_on, kinds, parks

calls: list[Any] = []


@pytest.fixture(autouse=True)
def no_calls() -> None:
    calls.clear()


@step
async def note(what: str) -> str:
    calls.append(what)
    return what


@workflow
async def works(ctx: Context) -> str:
    await note("a")
    await ctx.wait_for_signal("go")
    return await note("b")


# ---------------------------------------------------------------- F1: the store goes away during recovery


@pytest.mark.parametrize("verb", ["claim", "history", "write", "next_wake"])
@pytest.mark.parametrize("when", ["before", "after"])
async def test_f01_recovery_goes_on_when_the_store_is_back(world: World, verb: str, when: str) -> None:
    barrier = Barrier()

    @workflow
    async def held(ctx: Context) -> str:
        await note("a")
        await ctx.local_step("hold", barrier.wait)
        return "done"

    async with world.doomed(held) as dead:
        for number in range(5):
            await dead.start(held, id=f"r{number}")
        await dead.settle(steps=False)
    world.clock.advance(31)
    barrier.open()
    gate = world.gate()
    gate.fail(when, verb, StoreUnavailable("the database is restarting"), times=3)
    async with world.app(held, store=gate, poll=1) as app:
        for number in range(5):
            run = app.get_run(f"r{number}")
            assert await world.pass_time(run.result()) == "done"
            assert (await run.info()).recoveries <= 3


async def test_f01_claims_whose_histories_cannot_be_read_are_given_back_uncounted(world: World) -> None:
    async with world.app(works) as app:
        await app.start(works, id="r1")
        await app.settle()
        await app.get_run("r1").signal("go")
        await app.settle()
        await app.start(works, id="r2")
        await app.settle()
    gate = world.gate()
    gate.fail("before", "history", StoreUnavailable("away"), times=20)
    async with world.app(works, store=gate, poll=1, max_recoveries=2) as app:
        await app.get_run("r2").signal("go")
        assert await world.pass_time(app.get_run("r2").result()) == "b"
        assert (await app.get_run("r2").info()).recoveries == 0
    assert gate.calls["release"] >= 20


async def lost_and_waiting(world: World, barrier: Barrier) -> Any:
    """A workflow of which three runs were cut off in a step when their process died, and three wait and are signalled."""

    @workflow
    async def either(ctx: Context, cut: bool) -> str:
        await note("a")
        if cut:
            await ctx.local_step("hold", barrier.wait)
        else:
            await ctx.wait_for_signal("go")
        return "done"

    async with world.doomed(either) as dead:
        for number in range(6):
            await dead.start(either, number < 3, id=f"r{number}")
        await dead.settle(steps=False)
    async with world.client() as client:
        for number in range(3, 6):
            await client.get_run(f"r{number}").signal("go")
    world.clock.advance(31)
    barrier.open()
    return either


@pytest.mark.parametrize("failures", [6, 60])
async def test_f01_lost_runs_whose_histories_cannot_be_read_are_read_again_and_none_dies_of_it(
    world: World, failures: int
) -> None:
    either = await lost_and_waiting(world, Barrier())
    gate = world.gate()
    gate.fail("before", "history", StoreUnavailable("the database is restarting"), times=failures)
    # A short outage costs one recovery, a longer one not one a try.
    async with world.app(either, store=gate, poll=1, max_recoveries=1 if failures == 6 else 5) as app:
        for number in range(6):
            assert await world.pass_time(app.get_run(f"r{number}").result()) == "done"
            assert (await app.get_run(f"r{number}").info()).recoveries <= (number < 3)
    assert sorted(calls) == ["a"] * 6


async def test_f01_what_was_claimed_and_cannot_be_loaded_or_given_back_is_found_by_others(world: World) -> None:
    either = await lost_and_waiting(world, Barrier())
    gate = world.gate()
    for verb in ("history", "release"):
        gate.fail("before", verb, StoreUnavailable("gone"), times=1_000)
    async with world.app(either, store=gate, poll=1) as app:
        for _ in range(40):
            world.clock.advance(0.5)
            await let_others_go_on()
        assert app.engine.executor.holdings.coming <= 3
    world.clock.advance(61)
    async with world.app(either) as app:
        await app.settle()
        for number in range(6):
            assert await app.get_run(f"r{number}").result() == "done"
    assert sorted(calls) == ["a"] * 6


async def test_f01_closing_does_not_wait_for_a_store_that_does_not_come_back(world: World) -> None:
    either = await lost_and_waiting(world, Barrier())
    gate = world.gate()
    gate.fail("before", "history", StoreUnavailable("gone"), times=1_000)
    async with world.app(either, store=gate, poll=1):
        while gate.calls.get("history", 0) < 3:
            await let_others_go_on()
            world.clock.advance(0.05)
        before = world.clock.now()
    assert world.clock.now() == before


async def test_f01_a_run_that_must_be_read_again_is_when_the_store_is_back(world: World) -> None:
    """A turn that would end the run is refused, since a control message has come; the run goes back to its log."""

    @workflow
    async def short(ctx: Context) -> str:
        await note("a")
        return "done"

    gate = world.gate()
    async with world.app(short, store=gate) as app:
        stop = gate.stop("before", "write", ends)
        run = await app.start(short, id="r")
        await stop.reached.wait()
        other = world.store()
        await other.open()
        await other.write([Send(Outgoing(kind=MessageKind.CANCEL, run_id="r"))])
        await other.close()
        for verb in ("history", "get", "messages"):
            gate.fail("before", verb, StoreUnavailable("away"), times=3)
        stop.release()
        with pytest.raises(RunUnsuccessful):
            await world.pass_time(run.result())
        info = await world.pass_time(run.info())
        assert (info.epoch, info.recoveries) == (1, 0)
    assert calls == ["a"]


# ---------------------------------------------------------------- F4, F7: two processes


async def test_f04_two_processes_execute_each_of_many_runs_once(world: World) -> None:
    @workflow
    async def counted(ctx: Context, n: int) -> None:
        await ctx.side_effect(lambda: calls.append(n))

    async with world.client(counted) as client:
        await asyncio.gather(*(client.start(counted, n) for n in range(300)))
    async with world.app(counted, max_runs=20) as ada, world.app(counted, max_runs=20) as bob:
        await asyncio.gather(ada.settle(), bob.settle())
        await ada.settle()
        assert len(await ada.runs(status="completed", limit=1000)) == 300
    assert sorted(calls) == list(range(300))


@pytest.mark.parametrize("stop_at", ["before", "after"])
async def test_f07_whoever_loses_the_race_for_a_turn_adopts_what_was_stored(world: World, stop_at: str) -> None:
    """Ada's wait runs out while she does not notice that her lease has; Bob, who has it now, got the message."""

    @workflow
    async def waits(ctx: Context) -> str:
        await note("began")
        try:
            async with asyncio.timeout(20):
                return await ctx.wait_for_signal("go", type=str)
        except TimeoutError:
            return "too late"

    gate = world.gate()
    async with world.app(waits, store=gate) as ada, world.app(waits) as bob:
        stop = gate.stop(stop_at, "write", parks)
        run = await ada.start(waits, id="r1")
        await stop.reached.wait()
        gate.frozen = True
        await bob.get_run("r1").signal("go", "in time")
        world.clock.advance(31)
        await bob.settle()
        assert await bob.get_run("r1").wait() is Status.COMPLETED
        stored = await bob.get_run("r1").history()
        said = await bob.get_run("r1").result()
        gate.frozen = False
        stop.release()
        await ada.settle()
        assert await run.result() == said
        assert await bob.get_run("r1").history() == stored


# ---------------------------------------------------------------- F10: one bad row among many


async def test_f10_one_run_that_cannot_be_loaded_does_not_keep_the_others_from_starting(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    replay = Instance.replay

    def fails(instance: Instance, *args: Any, **kwargs: Any) -> Any:
        if instance.run.id == "r2":
            raise RuntimeError("what is stored makes no sense")
        return replay(instance, *args, **kwargs)

    async with world.app(works) as app:
        for number in range(5):
            await app.start(works, id=f"r{number}")
        await app.settle()
    monkeypatch.setattr(Instance, "replay", fails)
    async with world.client() as client:
        for number in range(5):
            await client.get_run(f"r{number}").signal("go")
    async with world.app(works) as app:
        await app.settle()
        for number in (0, 1, 3, 4):
            assert await app.get_run(f"r{number}").result() == "b"
        bad = app.get_run("r2")
        assert await bad.status() is Status.BLOCKED
        assert b"'r2'" in ((await bad.info()).error or b"")
        await app.tick(86400)
        assert (await bad.info()).recoveries == 0
        assert await (await app.start("works", id="next")).wait() is Status.SUSPENDED  # the loop lives
        assert await bad.cancel() is Status.CANCELLED


async def test_f10_one_history_that_the_store_cannot_give_does_not_keep_the_others_from_starting(world: World) -> None:
    async with world.app(works) as app:
        for number in range(5):
            await app.start(works, id=f"r{number}")
        await app.settle()
        bad = (await app.get_run("r2").info()).incarnation
    async with world.client() as client:
        for number in range(5):
            await client.get_run(f"r{number}").signal("go")
    gate = world.gate()
    gate.fail("before", "history", RuntimeError("a row makes no sense"), lambda asked: bad in asked, times=100)
    async with world.app(works, store=gate, cache=0, poll=1) as app:
        for number in (0, 1, 3, 4):
            assert await world.pass_time(app.get_run(f"r{number}").result()) == "b"
        assert await app.get_run("r2").wait() is Status.BLOCKED
        assert "0 of the" in ((await app.get_run("r2").info()).reason or "")


async def test_f10_one_whose_input_no_longer_fits_fails_alone(world: World) -> None:
    @workflow(name="typed")
    async def loose(ctx: Context, n: str) -> str:
        return n

    @workflow(name="typed")
    async def strict(ctx: Context, n: int) -> int:
        return n

    async with world.client(loose) as client:
        for number, n in enumerate(["1", "x"]):
            await client.start(loose, n, id=f"r{number}")
        await client.start("typed", "2", id="r2")
    async with world.app(strict, works) as app:
        run = await app.start(works)
        await app.settle()
        assert await run.status() is Status.SUSPENDED
        for number in range(3):
            with pytest.raises(RunFailed):
                await app.get_run(f"r{number}").result()


async def test_f10_a_turn_that_cannot_be_stored_blocks_its_run_and_hurts_no_neighbour(world: World) -> None:
    @workflow
    async def sends(ctx: Context, bad: bool) -> str:
        await note("step")
        if bad:
            ctx._instance.set_value("\ud800", b"1")  # nothing of ours lets such a key through
        return "done"

    async with world.app(sends) as app:
        runs = await asyncio.gather(*(app.start(sends, n == 3, id=f"r{n}") for n in range(6)))
        await app.settle()
        for number, run in enumerate(runs):
            assert await run.status() is (Status.BLOCKED if number == 3 else Status.COMPLETED)


# ---------------------------------------------------------------- F13, F19: who owns what


async def test_f13_only_a_claim_sets_the_owner(world: World) -> None:
    barrier = Barrier()

    @workflow
    async def held(ctx: Context) -> str:
        await ctx.local_step("hold", barrier.wait)
        return "done"

    async with world.client(held) as client:
        await client.start(held, id="r1")
        assert (await client.get_run("r1").info()).owner is None
        async with world.app(held, drain=0.001) as ada:
            await barrier.reached.wait()
            assert (await client.get_run("r1").info()).owner == ada.engine.means.owner
        assert (await client.get_run("r1").info()).owner is None
        barrier.open()
        async with world.app(held) as bob:
            await bob.settle()
            stored = await client.get_run("r1").info()
            assert (stored.status, stored.owner) == (Status.COMPLETED, None)


async def test_f13_a_late_write_and_a_late_close_leave_the_new_owner_alone(world: World) -> None:
    barrier = Barrier()

    @workflow
    async def held(ctx: Context) -> str:
        await note("a")
        await ctx.local_step("hold", barrier.wait)
        return "done"

    gate = world.gate()
    async with world.app(held) as bob:
        async with world.app(held, store=gate, drain=0.001, patience=3600) as ada:
            run = await ada.start(held, id="r1")
            await ada.settle(steps=False)
            gate.frozen = True
            await ada.engine.claimer.stop()  # else she may claim it anew herself
            late = gate.stop("before", "write")
            sending = asyncio.create_task(run.signal("unheard"))
            await late.reached.wait()
            world.clock.advance(31)
            await bob.settle(steps=False)
            owner = bob.engine.means.owner
            assert (await bob.get_run("r1").info()).owner == owner
            late.release()
            await sending
            assert (await bob.get_run("r1").info()).owner == owner
            # She still believes to hold it, and closes: gives it back, after a last turn perhaps.
            assert len(ada.engine.executor.holdings) == 1
        stood = await bob.get_run("r1").info()
        assert (stood.owner, stood.status) == (owner, Status.RUNNING)
        barrier.open()
        await bob.settle()
        stored = await bob.get_run("r1").info()
        assert (stored.status, stored.owner) == (Status.COMPLETED, None)


async def test_f19_a_process_without_the_code_leaves_runs_and_messages_alone(world: World) -> None:
    @workflow
    async def other() -> None: ...

    async with world.app(works) as app:
        await app.start(works, id="r1")
        await app.settle()
    async with world.app(other) as app:
        await app.get_run("r1").signal("go")
        before = await app.get_run("r1").info()
        await app.tick(3600)
        assert await app.get_run("r1").info() == before
    async with world.app() as app:
        await app.tick(3600)
        assert await app.get_run("r1").info() == before
    async with world.app(works) as app:
        assert await app.get_run("r1").result() == "b"
    assert calls == ["a", "b"]


# ---------------------------------------------------------------- F43: what user code may catch


async def test_f43_no_except_or_finally_can_swallow_a_wait(world: World) -> None:
    @workflow
    async def greedy(ctx: Context) -> list[str]:
        said: list[str] = []
        try:
            try:
                said.append(await ctx.wait_for_signal("one", type=str))
            except BaseException as error:
                said.append(f"caught {type(error).__name__}")
                raise
            finally:
                said.append(await note("cleaned"))
        except Exception as error:
            said.append(f"swallowed {error!r}")
        said.append(await ctx.wait_for_signal("two", type=str))
        return said

    async with world.app(greedy) as app:
        await app.start(greedy, id="r1")
        await app.settle()
        assert calls == []  # it only waits: nothing is cleaned up
    for name in ("one", "two"):
        async with world.app(greedy) as app:
            await app.get_run("r1").signal(name, name)
            await app.settle()
    async with world.client() as client:
        assert await client.get_run("r1").result() == ["one", "cleaned", "two"]
    assert calls == ["cleaned"]


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # the collector finds it, and complains
async def test_f43_a_body_that_catches_everything_in_a_loop_cannot_hang_the_process(world: World) -> None:
    @workflow
    async def stubborn(ctx: Context) -> str:
        while True:
            try:
                return await ctx.wait_for_signal("go", type=str)
            except BaseException:
                continue

    async with world.app(stubborn) as app:
        await app.start(stubborn, id="r1")
        await app.settle()
    async with world.app(stubborn) as app:
        await app.get_run("r1").signal("go", "at last")
        assert await app.get_run("r1").result() == "at last"
    gc.collect()


# ---------------------------------------------------------------- F53: threads


async def test_f53_an_engine_runs_in_any_thread(world: World) -> None:
    results: list[Any] = []

    async def main() -> None:
        async with world.app(works) as app:
            run = await app.start(works, id="r1")
            await run.signal("go")
            results.append(await run.result())

    def run_it() -> None:
        try:
            asyncio.run(main())
        except BaseException as error:
            results.append(error)

    thread = threading.Thread(target=run_it)
    thread.start()
    await asyncio.to_thread(thread.join)
    assert results == ["b"]


# ---------------------------------------------------------------- F56: what can be decorated


@dataclasses.dataclass
class Adder:
    """Callable, and not hashable."""

    by: int

    def __call__(self, n: int) -> int:
        return n + self.by


def twice(fn: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(fn)
    async def wrapper(*args: Any, **kwargs: Any) -> Any:
        await fn(*args, **kwargs)
        return await fn(*args, **kwargs)

    return wrapper


class Shop:
    @step
    @staticmethod
    async def inside(n: int) -> int:
        return n + 1

    @staticmethod
    @step
    async def outside(n: int) -> int:
        return n + 2


class Branch(Shop):
    """Inherits its steps."""


add_five = step(name="add_five")(Adder(5))
add_seven = step(name="add_seven")(functools.partial(Adder.__call__, Adder(7)))


@step
@twice
async def counted(n: int) -> int:
    calls.append(n)
    return len(calls)


@workflow
async def decorated(ctx: Context) -> list[int]:
    return [
        await Shop.inside(1),
        await Branch.outside(1),
        await ctx.step(add_five, 1),
        await ctx.step(add_seven, 1),
        await counted(9),
    ]


async def test_f56_decorated_things_run_as_steps_and_keep_their_names(world: World) -> None:
    async with world.app(decorated, Shop.inside, Branch.outside, add_five, add_seven) as app:
        run = await app.start(decorated)
        assert await run.result() == [2, 3, 6, 8, 2]
        assert [s.name for s in await run.steps()] == ["inside", "outside", "add_five", "add_seven", "counted"]
    assert counted.__name__ == "counted"
    assert calls == [9, 9]


# ---------------------------------------------------------------- cuts: a crash at each write


PLACES = {"first": lambda batch: True, "goes on": goes_on, "parks": parks, "ends": ends}


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("place", PLACES)
async def test_a_run_survives_a_crash_at_every_write(world: World, place: str, when: str) -> None:
    async with world.client(works) as client:
        await client.start(works, id="r1")
        await client.get_run("r1").signal("go")
    gate = world.gate()
    gate.mute("release")
    async with world.app(works, store=gate, drain=0.001) as app:
        gate.fail(when, "write", StoreError("cut off"), PLACES[place])
        await app.settle()
    world.clock.advance(31)
    async with world.app(works) as app:
        await app.settle()
        run = app.get_run("r1")
        assert await run.result() == "b"
        assert [(s.name, s.state) for s in await run.steps()] == [
            ("note", State.COMPLETED),
            ("go", State.COMPLETED),
            ("note", State.COMPLETED),
        ]
    assert list(dict.fromkeys(calls)) == ["a", "b"]


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("place", PLACES)
async def test_and_a_connection_lost_at_every_write(world: World, place: str, when: str) -> None:
    """The answer is unknown: the same write is asked again, and counts once."""
    gate = world.gate()
    async with world.app(works, store=gate) as app:
        gate.fail(when, "write", StoreUnavailable("gone"), PLACES[place], times=2)
        events = events_of(app)
        run = await world.pass_time(app.start(works, id="r1"))
        await world.pass_time(run.signal("go"))
        assert await world.pass_time(run.result()) == "b"
        await world.pass_time(app.settle())  # it may have been seen in the store before its answer was known
        assert calls == ["a", "b"]
        assert kinds(events).count("run.completed") == 1


def sends(batch: Sequence[Any]) -> bool:
    return any(isinstance(write, Send) for write in batch)


async def test_f16_a_signal_to_a_run_whose_parking_is_not_known_yet_wakes_it(world: World) -> None:
    """It is parked in the store, and its process, which holds it still, was just told that nothing is due."""
    gate = world.gate()
    async with world.app(works, store=gate) as app:
        gate.fail("after", "write", StoreUnavailable("gone"), PLACES["parks"], times=2)
        run = await world.pass_time(app.start(works, id="r1"))
        sending = gate.stop("before", "write", sends)
        signal = asyncio.create_task(run.signal("go"))
        await sending.reached.wait()
        await app.engine.claimer.idle()
        sending.release()
        await world.pass_time(signal)
        assert await world.pass_time(run.result()) == "b"


async def test_bad_names_are_told_and_change_nothing(world: World) -> None:
    async with world.app(works) as app:
        with pytest.raises(NotRegistered, match="did you mean 'works'"):
            await app.start("work")
        with pytest.raises(UsageError):
            await app.start(test_bad_names_are_told_and_change_nothing)  # type: ignore[call-overload]
        assert await app.runs() == []
