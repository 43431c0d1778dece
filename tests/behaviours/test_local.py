"""LOCAL: steps that run where the run does: attempts, waits between them, errors that end them. F44-F74."""

from __future__ import annotations

import asyncio
import itertools
import threading
from collections.abc import AsyncIterator, Iterator
from contextvars import ContextVar
from datetime import timedelta
from typing import Any

import pytest

from perdure import (
    Context,
    FatalError,
    InvalidValue,
    RunFailed,
    Status,
    StepFailed,
    StepTimeout,
    UsageError,
    ValueTooLarge,
    current_step,
    step,
    workflow,
)
from perdure.model.steps import State
from tests.behaviours.world import Barrier, World, events_of, kinds


class Flaky:
    """Fails so many times, then returns 7. Notes when it was called, in milliseconds from the start."""

    def __init__(self, world: World, failures: int, error: BaseException | None = None) -> None:
        self._world = world
        self._begin = world.clock.now()
        self._failures = failures
        self._error = error or ValueError("boom")
        self.at: list[float] = []

    def __call__(self) -> int:
        self.at.append((self._world.clock.now() - self._begin) / 1000)
        if len(self.at) <= self._failures:
            raise self._error
        return 7


def local(flaky: Flaky, **options: Any) -> Any:
    @workflow
    async def body(ctx: Context) -> Any:
        return await ctx.local_step("flaky", flaky, **options)

    return body


def declared(flaky: Flaky, **options: Any) -> Any:
    @step(name="flaky", **options)
    async def call() -> int:
        return flaky()

    @workflow
    async def body(ctx: Context) -> int:
        return await call()

    return body


def threaded(flaky: Flaky, **options: Any) -> Any:
    @step(name="flaky", **options)
    def call() -> int:
        return flaky()

    @workflow
    async def body(ctx: Context) -> int:
        return await ctx.step(call)

    return body


kinds_of_step = pytest.mark.parametrize("make", [local, declared, threaded])


@kinds_of_step
async def test_local_01_a_step_is_tried_until_it_succeeds(world: World, make: Any) -> None:
    flaky = Flaky(world, failures=2)
    body = make(flaky, max_attempts=3)
    async with world.app(body) as app:
        run = await app.start(body)
        await app.tick(60)
        assert await run.result() == 7
        [only] = await run.steps()
        assert (only.name, only.state, only.attempts, only.output) == ("flaky", State.COMPLETED, 3, b"7")


@kinds_of_step
async def test_local_02_and_its_error_fails_the_run_when_all_attempts_are_used_up(world: World, make: Any) -> None:
    flaky = Flaky(world, failures=99)
    body = make(flaky, max_attempts=2)
    async with world.app(body) as app:
        run = await app.start(body)
        await app.tick(3600)
        with pytest.raises(RunFailed, match="boom") as caught:
            await run.result()
        assert isinstance(caught.value.__cause__, ValueError)
        assert len(flaky.at) == 2
        [only] = await run.steps()
        assert (only.state, only.attempts) == (State.FAILED, 2)
        assert await run.status() is Status.FAILED


@kinds_of_step
async def test_local_03_one_attempt_is_the_default(world: World, make: Any) -> None:
    for options in ({}, {"max_attempts": 1}):
        flaky = Flaky(world, failures=99)
        body = make(flaky, **options)
        async with world.app(body) as app:
            run = await app.start(body)
            await app.tick(3600)
            assert await run.status() is Status.FAILED
            assert len(flaky.at) == 1


async def test_local_03_and_none_is_a_mistake() -> None:
    with pytest.raises(UsageError, match="at least 1"):

        @step(max_attempts=0)
        async def never() -> None: ...


class NotAgain(Exception):
    retryable = False


@kinds_of_step
@pytest.mark.parametrize("error", [FatalError("never", "declined", {"left": 3}), NotAgain("never")])
async def test_local_04_a_fatal_error_ends_it_at_once(world: World, make: Any, error: Exception) -> None:
    flaky = Flaky(world, failures=99, error=error)
    body = make(flaky, max_attempts=5)
    async with world.app(body) as app:
        run = await app.start(body)
        await app.tick(3600)
        with pytest.raises(RunFailed, match="never") as caught:
            await run.result()
        assert len(flaky.at) == 1
        if isinstance(error, FatalError):
            cause = caught.value.__cause__
            assert isinstance(cause, FatalError)
            assert (cause.code, cause.details) == ("declined", {"left": 3})


@kinds_of_step
async def test_local_05_exponential_waits(world: World, make: Any) -> None:
    flaky = Flaky(world, failures=99)
    body = make(flaky, max_attempts=3, backoff="exp", base=0.02)
    async with world.app(body) as app:
        await app.start(body)
        await app.tick(60)
    assert flaky.at == [0, 20, 60]


async def test_local_06_up_to_the_cap(world: World) -> None:
    flaky = Flaky(world, failures=99)
    body = local(flaky, max_attempts=5, backoff="exp", base=timedelta(milliseconds=100), cap=0.25)
    async with world.app(body) as app:
        await app.start(body)
        await app.tick(60)
    assert flaky.at == [0, 100, 300, 550, 800]


async def test_local_06_fixed_waits(world: World) -> None:
    flaky = Flaky(world, failures=99)
    body = local(flaky, max_attempts=4, backoff="fixed", base=0.5)
    async with world.app(body) as app:
        await app.start(body)
        await app.tick(60)
    assert flaky.at == [0, 500, 1000, 1500]


async def test_local_a_wait_between_attempts_is_durable(world: World) -> None:
    flaky = Flaky(world, failures=2)
    body = declared(flaky, max_attempts=3, backoff="fixed", base=60)
    async with world.app(body) as app:
        run = await app.start(body, id="r1")
        await app.settle()
        [only] = await run.steps()
        assert (only.state, only.attempts, only.due) == (State.RETRYING, 1, world.after(60))
        assert await run.status() is Status.SUSPENDED
    async with world.app(body) as app:
        await app.tick(59)
        assert len(flaky.at) == 1
        await app.tick(1)
        assert len(flaky.at) == 2
    world.clock.advance(3600)  # nobody is there when the next attempt is due
    async with world.app(body) as app:
        await app.settle()
        assert await app.get_run("r1").result() == 7
        assert flaky.at == [0, 60_000, 3_660_000]
        assert (await app.get_run("r1").steps())[0].attempts == 3


@pytest.mark.parametrize("kind", ["declared", "local", "threaded"])
async def test_local_09_a_step_is_on_record_before_it_begins(world: World, kind: str) -> None:
    barrier, reached, go = Barrier(), threading.Event(), threading.Event()

    @step(name="look")
    async def on_loop() -> None:
        await barrier.wait()

    @step(name="look_in_thread")
    def in_thread() -> None:
        reached.set()
        assert go.wait(10)

    @workflow
    async def body(ctx: Context) -> None:
        if kind == "local":
            await ctx.local_step("look", barrier.wait)
        else:
            await (on_loop() if kind == "declared" else ctx.step(in_thread))

    async with world.app(body) as app:
        events = events_of(app)
        run = await app.start(body)
        if kind == "threaded":
            assert await asyncio.to_thread(reached.wait, 10)
        else:
            await barrier.reached.wait()
        [only] = await run.steps()
        assert (only.seq, only.name[:4], only.state, only.attempts) == (0, "look", State.PENDING, 0)
        assert await run.status() is Status.RUNNING
        assert kinds(events) == ["run.started", "step.started"]
        go.set()
        barrier.open()
        assert await run.wait() is Status.COMPLETED


# ---------------------------------------------------------------- what a step is told, and what it may ask


async def test_a_step_knows_its_key_which_all_attempts_share(world: World) -> None:
    keys: list[tuple[str, int]] = []

    @step(max_attempts=3, base=1)
    async def ask() -> None:
        mine = current_step()
        keys.append((mine.key, mine.attempt))
        if mine.attempt < 3:
            raise ValueError("again")

    @workflow
    async def asks() -> None:
        await ask()

    async with world.app(asks) as app:
        run = await app.start(asks, id="r1")
        await app.tick(60)
        incarnation = (await run.info()).incarnation
        assert keys == [(f"r1:{incarnation}:0", attempt) for attempt in (1, 2, 3)]


async def test_f49_a_sync_step_sees_the_context_of_whoever_opened_the_app_and_leaks_nothing(world: World) -> None:
    tenant: ContextVar[str] = ContextVar("tenant", default="nobody")
    seen: list[str] = []

    @step
    def look() -> str:
        seen.append(tenant.get())
        tenant.set("leaked")
        return current_step().run_id

    @workflow
    async def looks(ctx: Context) -> list[str]:
        return [await ctx.step(look), await ctx.step(look)]

    tenant.set("blue")
    async with world.app(looks, max_threads=1) as app:
        for run_id in ("r1", "r2"):
            assert await (await app.start(looks, id=run_id)).result() == [run_id, run_id]
    assert seen == ["blue"] * 4
    assert tenant.get() == "blue"


async def test_f50_the_error_of_a_step_in_a_thread_is_the_one_that_was_raised(world: World) -> None:
    @step
    def fails() -> None:
        try:
            raise KeyError("inner")
        except KeyError as e:
            raise RuntimeError("outer") from e

    @workflow
    async def catches(ctx: Context) -> str:
        try:
            await ctx.step(fails)
        except RuntimeError as error:
            return f"{error} from {error.__cause__!r}"
        return "nothing"

    async with world.app(catches) as app:
        assert await (await app.start(catches)).result() == "outer from KeyError('inner')"


@pytest.mark.parametrize("kind", ["async", "sync"])
async def test_a_steps_stopiteration_is_an_error_like_others(world: World, kind: str) -> None:
    @step
    async def over() -> None:
        raise StopIteration("empty")

    @step
    def over_in_thread() -> None:
        next(iter([]))

    @workflow
    async def body(ctx: Context) -> None:
        await (over() if kind == "async" else ctx.step(over_in_thread))

    async with world.app(body) as app:
        with pytest.raises(RunFailed, match="StopIteration"):
            await (await app.start(body)).result()


# ---------------------------------------------------------------- F44: what stops the interpreter is no step's failure


@pytest.mark.parametrize("kind", ["async", "sync", "local"])
@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit, GeneratorExit])
async def test_f44_what_stops_the_interpreter_leaves_no_trace_and_the_step_is_redone(
    world: World, kind: str, error: type[BaseException]
) -> None:
    attempts: list[int] = []

    def act() -> int:
        attempts.append(current_step().attempt)
        if len(attempts) == 1:
            raise error
        return 7

    @step
    async def on_loop() -> int:
        return act()

    @step
    def in_thread() -> int:
        return act()

    @workflow
    async def body(ctx: Context) -> int:
        if kind == "local":
            return int(await ctx.local_step("act", act))
        return await (on_loop() if kind == "async" else ctx.step(in_thread))

    async with world.app(body) as app:
        run = await app.start(body)
        await app.settle()
        [only] = await run.steps()
        assert (only.state, only.attempts, only.error) == (State.PENDING, 0, None)
        await app.tick(31)  # the lease runs out: the process was taken for dead
        assert await run.result() == 7
        assert attempts == [1, 2]


async def test_f44_a_step_cancelled_by_shutdown_leaves_no_trace(world: World) -> None:
    barrier = Barrier()
    cancelled: list[str] = []

    @step
    async def wait() -> int:
        try:
            await barrier.wait()
        except asyncio.CancelledError:
            cancelled.append("cancelled")
            raise
        return 7

    @workflow
    async def body(ctx: Context) -> int:
        return await wait()

    async with world.app(body, drain=0.001) as app:
        await app.start(body, id="r1")
        await barrier.reached.wait()
    assert cancelled == ["cancelled"]
    barrier.open()
    async with world.app(body) as app:
        await app.settle()
        run = app.get_run("r1", body)
        assert await run.result() == 7
        [only] = await run.steps()
        assert (only.state, only.attempts, only.cut, only.error) == (State.COMPLETED, 2, 1, None)


async def test_f44_a_cancelled_error_that_nobody_asked_for_is_the_steps_own(world: World) -> None:
    @step(max_attempts=2, base=1)
    async def odd() -> int:
        if current_step().attempt == 1:
            raise asyncio.CancelledError
        return 7

    @workflow
    async def body(ctx: Context) -> int:
        return await odd()

    async with world.app(body) as app:
        run = await app.start(body)
        await app.tick(1)
        assert await run.result() == 7


# ---------------------------------------------------------------- F58, F65: results that cannot be kept


async def test_f58_a_step_that_yields_is_refused_where_it_is_decorated() -> None:
    with pytest.raises(UsageError, match="generator"):

        @step
        def yields() -> Iterator[int]:
            yield 1

    with pytest.raises(UsageError, match="generator"):

        @step
        async def async_yields() -> AsyncIterator[int]:
            yield 1


@pytest.mark.parametrize("result", [iter([1]), (n for n in range(3)), open], ids=["iterator", "generator", "function"])
async def test_f58_and_one_that_returns_an_iterator_fails_with_the_reason(world: World, result: Any) -> None:
    @step(max_attempts=5)
    async def returns():  # type: ignore[no-untyped-def]
        return result

    @workflow
    async def body(ctx: Context) -> Any:
        return await ctx.step(returns)

    async with world.app(body) as app:
        run = await app.start(body)
        with pytest.raises(RunFailed, match="'returns'") as caught:
            await run.result()
        assert isinstance(caught.value.__cause__, InvalidValue)
        assert (await run.steps())[0].attempts == 1


@pytest.mark.parametrize("where", ["step", "local step", "argument", "result", "value", "signal"])
async def test_f65_what_is_too_large_is_refused_for_good_and_says_what_and_how_large(world: World, where: str) -> None:
    large = "x" * 2 * 1024 * 1024

    @step(max_attempts=5)
    async def gives() -> str:
        return large

    @step
    async def takes(text: str) -> None: ...

    @workflow
    async def body(ctx: Context) -> str:
        if where == "step":
            return await gives()
        if where == "local step":
            return str(await ctx.local_step("gives", lambda: large, max_attempts=5))
        if where == "argument":
            await takes(large)
        if where == "value":
            ctx.set_value("key", large)
        if where == "signal":
            await ctx.wait_for_signal("go")
        return large

    async with world.app(body) as app:
        run = await app.start(body)
        await app.settle()
        if where == "signal":
            with pytest.raises(ValueTooLarge, match=r"signal .go..* 2,097,154 bytes"):
                await run.signal("go", large)
            assert await run.status() is Status.SUSPENDED
            return
        with pytest.raises(RunFailed, match=r"2,097,1.. bytes") as caught:
            await run.result()
        assert isinstance(caught.value.__cause__, ValueTooLarge)
        assert all(one.attempts <= 1 for one in await run.steps())


# ---------------------------------------------------------------- limits: how long, and how many


@pytest.mark.parametrize("kind", ["async", "sync", "local"])
async def test_f74_an_attempt_that_takes_too_long_is_stopped_and_tried_again(world: World, kind: str) -> None:
    go = threading.Event()
    begun, loop = asyncio.Event(), asyncio.get_running_loop()
    attempts: list[int] = []

    async def act() -> int:
        attempts.append(current_step().attempt)
        begun.set()
        if len(attempts) == 1:
            await asyncio.Event().wait()
        return 7

    @step(max_attempts=2, base=1, timeout=30)
    async def on_loop() -> int:
        return await act()

    @step(max_attempts=2, base=1, timeout=30)
    def in_thread() -> int:
        attempts.append(current_step().attempt)
        loop.call_soon_threadsafe(begun.set)
        if len(attempts) == 1:
            go.wait(10)
        return 7

    @workflow
    async def body(ctx: Context) -> int:
        if kind == "local":
            return int(await ctx.local_step("act", act, max_attempts=2, base=1, timeout=30))
        return await (on_loop() if kind == "async" else ctx.step(in_thread))

    async with world.app(body) as app:
        run = await app.start(body)
        await begun.wait()  # a thread may take its time to begin, which does not count
        await app.tick(29, steps=False)
        assert (await run.steps())[0].state is State.PENDING
        await app.tick(1, steps=False)
        go.set()
        assert (await run.steps())[0].state is State.RETRYING
        await app.tick(1)
        assert await run.result() == 7
        assert attempts == [1, 2]


async def test_f74_and_its_error_says_so(world: World) -> None:
    @step(timeout=30)
    async def slow() -> None:
        await asyncio.Event().wait()

    @workflow
    async def body(ctx: Context) -> None:
        await slow()

    async with world.app(body) as app:
        run = await app.start(body, id="r1")
        await app.tick(30, steps=False)
        with pytest.raises(RunFailed, match="step 'slow' of run 'r1' took longer than its timeout of 30 s") as caught:
            await run.result()
        assert isinstance(caught.value.__cause__, StepTimeout)
        assert isinstance(caught.value.__cause__, TimeoutError)


async def test_f74_time_spent_waiting_for_room_does_not_count(world: World) -> None:
    barrier = Barrier()
    ran: list[int] = []

    @step(timeout=30)
    async def hold(n: int) -> None:
        ran.append(n)
        if n == 0:
            await barrier.wait()

    @workflow
    async def body(ctx: Context, n: int) -> str:
        try:
            await hold(n)
        except StepTimeout:
            return "too slow"
        return "done"

    async with world.app(body, max_steps=1) as app:
        first = await app.start(body, 0)
        second = await app.start(body, 1)
        await app.tick(29, steps=False)
        assert ran == [0]
        await app.tick(1, steps=False)
        assert await first.result() == "too slow"
        assert await second.result() == "done"
        assert ran == [0, 1]


@pytest.mark.parametrize("kind", ["async", "sync"])
async def test_no_more_steps_run_at_once_than_allowed(world: World, kind: str) -> None:
    lock, three = threading.Lock(), threading.Barrier(3)
    barrier = Barrier()
    going: set[int] = set()
    most = 0

    def enter(n: int) -> None:
        nonlocal most
        with lock:
            going.add(n)
            most = max(most, len(going))

    @step
    async def on_loop(n: int) -> int:
        enter(n)
        await barrier.wait()
        going.remove(n)
        return n

    @step
    def in_thread(n: int) -> int:
        enter(n)
        three.wait(10)  # nobody goes on before three are in
        with lock:
            going.remove(n)
        three.wait(10)
        return n

    @workflow
    async def fan(ctx: Context) -> list[int]:
        if kind == "async":
            return list(await asyncio.gather(*(on_loop(n) for n in range(9))))
        return list(await asyncio.gather(*(ctx.step(in_thread, n) for n in range(9))))

    async with world.app(fan, max_steps=3 if kind == "async" else 9, max_threads=3) as app:
        run = await app.start(fan)
        if kind == "async":
            await app.settle(steps=False)
            barrier.open()
        assert await run.result() == list(range(9))
    assert most == 3


async def test_a_step_failed_whose_class_is_not_known_says_all_there_is(world: World) -> None:
    @step
    async def fails() -> None:
        class Hidden(Exception):
            code = "hidden"

        raise Hidden("of no module")

    @workflow
    async def catches(ctx: Context) -> list[str]:
        try:
            await fails()
        except StepFailed as error:
            return [
                str(error),
                error.code,
                error.type.rpartition(".")[2],
                str("of no module" in (error.traceback or "")),
            ]
        return []

    async with world.app(catches) as app:
        assert await (await app.start(catches)).result() == ["of no module", "hidden", "Hidden", "True"]


async def test_local_a_step_is_tried_again_while_another_still_runs(world: World) -> None:
    barrier = Barrier()
    tries: list[int] = []

    @step(max_attempts=3, base=10, backoff="fixed")
    async def fails() -> str:
        tries.append(world.clock.now())
        if len(tries) < 3:
            raise ValueError("again")
        return "third time"

    @step
    async def hold() -> str:
        await barrier.wait()
        return "held"

    @workflow
    async def both(ctx: Context) -> list[str]:
        return list(await asyncio.gather(hold(), fails()))

    async with world.app(both) as app:
        run = await app.start(both)
        await app.tick(20, steps=False)
        assert [s.state for s in await run.steps()] == [State.PENDING, State.COMPLETED]
        barrier.open()
        assert await run.result() == ["held", "third time"]
        assert [after - before for before, after in itertools.pairwise(tries)] == [10_000_000] * 2


async def test_a_step_that_waits_for_room_is_forgotten_with_its_run(world: World) -> None:
    barrier = Barrier()
    ran: list[str] = []

    @step
    async def hold(who: str) -> None:
        ran.append(who)
        await barrier.wait()

    @workflow
    async def holds(ctx: Context) -> None:
        await hold(ctx.run_id)

    async with world.app(holds, max_steps=1) as app:
        runs = [await app.start(holds, id=f"r{n}") for n in range(4)]
        await app.settle(steps=False)
        assert ran == ["r0"]
        await runs[1].cancel()
        await runs[0].cancel()
        await app.settle(steps=False)
        assert ran == ["r0", "r2"]
        barrier.open()
        await runs[3].result()
        assert ran == ["r0", "r2", "r3"]
