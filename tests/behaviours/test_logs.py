"""LOCAL-10 to 14: what steps and bodies say, where it is kept, and that a replay says nothing."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Generator
from typing import Any

import pytest

from perdure import (
    Context,
    ForbiddenInWorkflow,
    InvalidValue,
    RunFailed,
    ValueTooLarge,
    log,
    logging_filter,
    step,
    workflow,
)
from perdure.model.history import Event
from perdure.model.steplog import LONGEST, MOST_LINES, LogLine
from perdure.model.steps import State
from tests.behaviours.world import Barrier, World, ends, parks


class Records(logging.Handler):
    """What was logged."""

    def __init__(self) -> None:
        super().__init__()
        self.all: list[logging.LogRecord] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.all.append(record)

    def texts(self) -> list[str]:
        return [record.getMessage() for record in self.all]


@pytest.fixture
def records() -> Generator[Records]:
    handler = Records()
    loggers = [logging.getLogger(name) for name in ("perdure.workflow", "perdure.step", "mine")]
    for logger in loggers:
        logger.addHandler(handler)
        logger.setLevel(logging.DEBUG)
    yield handler
    for logger in loggers:
        logger.removeHandler(handler)
        logger.setLevel(logging.NOTSET)


def say_all() -> str:
    log.debug("looking")
    log.info("charging %s for %d", "ada", 5)
    log.warning("slow")
    log.error("odd")
    with log.sub_process("print"):
        pass
    return "done"


@step(name="says")
async def says() -> str:
    return say_all()


@step
def says_in_thread() -> str:
    return say_all()


@step
async def silent() -> None: ...


@pytest.mark.parametrize("kind", ["async", "sync", "local"])
async def test_local_10_what_a_step_says_is_kept_with_it_in_order(world: World, records: Records, kind: str) -> None:
    @workflow
    async def body(ctx: Context) -> None:
        if kind == "local":
            await ctx.local_step("says", say_all)
        else:
            await (says() if kind == "async" else ctx.step(says_in_thread))
        await silent()

    async with world.app(body) as app:
        run = await app.start(body, id="r1")
        await run.result()
        first, second = await run.steps()
        now = world.clock.now()
        assert [(line.level, line.message, line.at, line.attempt) for line in first.log] == [
            (level, message, now, 1)
            for level, message in [
                ("debug", "looking"),
                ("info", "charging ada for 5"),
                ("warning", "slow"),
                ("error", "odd"),
                ("info", ""),
            ]
        ]
        assert (first.log[-1].process, first.log[-1].outcome, first.log[-1].took) == ("print", "ok", 0)
        assert (first.state, first.attempts, first.output) == (State.COMPLETED, 1, b'"done"')
        assert (second.log, second.progress) == ((), None)
        events = [entry.event for entry in await run.history() if entry.seq == second.seq]
        assert Event.LOGGED not in events
    assert records.texts() == ["looking", "charging ada for 5", "slow", "odd", "print: ok after 0 ms"]
    facts = {(r.run_id, r.workflow, r.step[:4], r.seq, r.attempt) for r in records.all}  # type: ignore[attr-defined]
    assert facts == {("r1", "body", "says", 0, 1)}
    assert {(r.name, r.funcName, r.filename) for r in records.all} == {("perdure.step", "say_all", "test_logs.py")}


async def test_local_11_each_attempts_lines_are_kept_with_its_number(world: World) -> None:
    @step(max_attempts=3, base=1)
    async def flaky() -> int:
        log.info("trying")
        if (await_ := len(tried)) < 2:
            tried.append(await_)
            raise ValueError("not yet")
        log.info("there")
        return 7

    tried: list[int] = []

    @workflow
    async def body() -> int:
        return await flaky()

    async with world.app(body) as app:
        run = await app.start(body)
        await app.tick(60)
        assert await run.result() == 7
        [only] = await run.steps()
        said = [(line.attempt, line.message) for line in only.log]
        assert said == [(1, "trying"), (2, "trying"), (3, "trying"), (3, "there")]
        assert only.attempts == 3


async def test_local_11_a_failed_steps_lines_are_kept_too(world: World) -> None:
    @step
    async def fails() -> None:
        log.warning("this will not go well")
        raise ValueError("boom")

    @workflow
    async def body() -> None:
        await fails()

    async with world.app(body) as app:
        run = await app.start(body)
        with pytest.raises(RunFailed):
            await run.result()
        [only] = await run.steps()
        assert (only.state, [line.message for line in only.log]) == (State.FAILED, ["this will not go well"])
        await run.requeue()
        await app.settle()
        [only] = await run.steps()
        assert [line.attempt for line in only.log] == [1, 2]


async def test_local_12_a_sub_process_says_how_it_ended_and_how_long_it_took(world: World) -> None:
    @step
    async def parts() -> str:
        with log.sub_process("upload"):
            world.clock.advance(0.25)
        with log.sub_process("nothing to do") as part:
            part.skip()
        with pytest.raises(ValueError, match="no paper"), log.sub_process("print"):
            raise ValueError("no paper")
        with pytest.raises(KeyError):
            fail_after_skipping()
        return "value"

    def fail_after_skipping() -> None:
        with log.sub_process("skipped, but failed") as part:
            part.skip()
            raise KeyError("x")

    @workflow
    async def body() -> str:
        return await parts()

    async with world.app(body) as app:
        run = await app.start(body)
        assert await run.result() == "value"
        [only] = await run.steps()
        assert [(line.process, line.outcome, line.took, line.level, line.message) for line in only.log] == [
            ("upload", "ok", 250_000, "info", ""),
            ("print", "failed", 0, "error", "ValueError: no paper"),
            ("skipped, but failed", "failed", 0, "error", "KeyError: 'x'"),
        ]


async def test_local_13_the_newest_heartbeat_is_kept(world: World) -> None:
    @step
    async def works() -> None:
        log.heartbeat()
        log.heartbeat({"done": 1, "of": 2})
        world.clock.advance(1)
        log.heartbeat({"done": 2, "of": 2})

    @workflow
    async def body() -> None:
        await works()

    async with world.app(body) as app:
        run = await app.start(body)
        await run.result()
        [only] = await run.steps()
        assert only.log == ()
        assert only.progress is not None
        assert (bytes(only.progress.value), only.progress.at) == (b'{"done":2,"of":2}', world.clock.now())


async def test_local_14_a_step_that_never_stops_talking_is_cut_short(world: World) -> None:
    @step
    def talks() -> None:
        for number in range(MOST_LINES + 7):
            log.debug("line %d", number)

    @step
    def shouts() -> None:
        for _ in range(100):
            log.error("x" * (2 * LONGEST))

    @step
    def odd() -> None:
        log.info("a\ud800b\0c")
        log.info("%d", "no number")
        log.info(Unspeakable())

    @workflow
    async def body(ctx: Context) -> None:
        for each in (talks, shouts, odd):
            await ctx.step(each)

    async with world.app(body) as app:
        run = await app.start(body)
        await run.result()
        talked, shouted, oddly = await run.steps()
        assert [line.message for line in talked.log][MOST_LINES - 1 :] == [
            f"line {MOST_LINES - 1}",
            "(7 more lines were not kept)",
        ]
        assert len(talked.log) == MOST_LINES + 1
        assert sum(len(line.message) for line in shouted.log) < 70_000
        assert {len(line.message) for line in shouted.log[:-1]} == {LONGEST}
        assert [line.message[:24] for line in oddly.log] == [
            "a\\ud800b\0c",
            "'%d' 'no number'",
            "<Unspeakable instance at",
        ]


class Unspeakable:
    def __str__(self) -> str:
        raise RuntimeError("no")

    __repr__ = __str__


async def test_what_a_step_says_after_its_end_is_not_kept_but_said(world: World, records: Records) -> None:
    barrier = Barrier()
    later: list[asyncio.Task[None]] = []

    async def afterwards() -> None:
        await barrier.wait()
        log.info("late")

    @step
    async def leaves_a_task() -> None:
        later.append(asyncio.ensure_future(afterwards()))
        await barrier.reached.wait()

    @workflow
    async def body() -> None:
        await leaves_a_task()

    async with world.app(body) as app:
        run = await app.start(body, id="r1")
        await run.result()
        barrier.open()
        await later[0]
        assert [each.log for each in await run.steps()] == [()]
    assert records.texts() == ["late"]


async def test_threads_that_a_step_starts_may_say_something_too(world: World) -> None:
    @step
    def starts_threads() -> None:
        import contextvars

        def say(number: int) -> None:
            log.info("thread %d", number)

        for number in range(5):
            thread = threading.Thread(target=contextvars.copy_context().run, args=(say, number))
            thread.start()
            thread.join()

    @workflow
    async def body(ctx: Context) -> None:
        await ctx.step(starts_threads)

    async with world.app(body) as app:
        run = await app.start(body)
        await run.result()
        assert [line.message for line in (await run.steps())[0].log] == [f"thread {n}" for n in range(5)]


# ---------------------------------------------------------------- bodies


mine = logging.getLogger("mine")


@workflow
async def talkative(ctx: Context) -> str:
    log.info("begun")
    mine.info("begun")
    await silent()
    log.info("after the step")
    mine.info("after the step")
    await ctx.wait_for_signal("go")
    log.warning("gone %s", "on")
    mine.info("gone on")
    return "done"


async def test_a_body_says_each_line_once_and_a_replay_none(world: World, records: Records) -> None:
    records.addFilter(logging_filter())
    async with world.app(talkative) as app:
        await app.start(talkative, id="r1")
        await app.settle()
    async with world.app(talkative) as app:
        await app.get_run("r1").signal("go")
        assert await app.get_run("r1").result() == "done"
    by_logger = {name: [r.getMessage() for r in records.all if r.name == name] for name in ("mine", "perdure.workflow")}
    assert by_logger == {
        "mine": ["begun", "after the step", "gone on"],
        "perdure.workflow": ["begun", "after the step", "gone on"],
    }
    facts = {(r.run_id, r.workflow, r.step, r.seq, r.attempt) for r in records.all}  # type: ignore[attr-defined]
    assert facts == {("r1", "talkative", "", None, None)}
    assert {(r.funcName, r.filename) for r in records.all} == {("talkative", "test_logs.py")}


async def test_a_bodys_line_is_said_when_its_turn_is_committed_and_not_before(world: World, records: Records) -> None:
    gate = world.gate()
    async with world.app(talkative, store=gate) as app:
        stop = gate.stop("before", "write", parks)
        await app.start(talkative, id="r1")
        await stop.reached.wait()
        assert [r.getMessage() for r in records.all if r.name == "perdure.workflow"] == ["begun"]
        stop.release()
        await app.settle()
        assert [r.getMessage() for r in records.all if r.name == "perdure.workflow"] == ["begun", "after the step"]


async def test_a_users_handler_that_raises_does_not_keep_the_run_from_going_on(world: World, records: Records) -> None:
    class Broken(logging.Filter):
        def filter(self, record: logging.LogRecord) -> bool:
            raise RuntimeError("a broken filter")

    @workflow
    async def body(ctx: Context) -> str:
        log.info("before")
        await ctx.local_step("work", lambda: None)
        return "done"

    broken = Broken()
    records.addFilter(broken)
    async with world.app(body) as app:
        run = await app.start(body)
        assert await run.result(timeout=20) == "done"


async def test_a_start_on_an_id_that_is_there_says_nothing(world: World, records: Records) -> None:
    async with world.app(talkative) as app:
        for _ in range(3):
            await app.start(talkative, id="r1")
        await app.settle()
    assert [r.getMessage() for r in records.all if r.name == "perdure.workflow"] == ["begun", "after the step"]


async def test_the_filter_says_where_a_steps_own_records_come_from(world: World, records: Records) -> None:
    records.addFilter(logging_filter())

    @step
    async def on_loop() -> None:
        mine.info("loop")

    @step
    def in_thread() -> None:
        mine.info("thread")

    @workflow
    async def body(ctx: Context) -> None:
        await on_loop()
        await ctx.step(in_thread)

    async with world.app(body) as app:
        await (await app.start(body, id="r1")).result()
    mine.info("outside")
    facts = [(r.getMessage(), r.run_id, r.workflow, r.step, r.seq, r.attempt) for r in records.all]  # type: ignore[attr-defined]
    assert facts == [
        ("loop", "r1", "body", "on_loop", 0, 1),
        ("thread", "r1", "body", "in_thread", 1, 1),
        ("outside", "", "", "", None, None),
    ]


async def test_the_filter_lets_replays_through_if_asked_to(world: World, records: Records) -> None:
    records.addFilter(logging_filter(replays=True))
    async with world.app(talkative) as app:
        await app.start(talkative, id="r1")
        await app.settle()
    async with world.app(talkative) as app:
        await app.get_run("r1").signal("go")
        await app.get_run("r1").result()
    said = [r.getMessage() for r in records.all if r.name == "mine"]
    assert said == ["begun", "after the step", "begun", "after the step", "gone on"]


# ---------------------------------------------------------------- crashes, and misuse


async def test_what_an_attempt_said_that_was_cut_off_is_said_but_not_kept(world: World, records: Records) -> None:
    barrier = Barrier()

    @step
    async def hangs() -> str:
        log.info("here")
        await barrier.wait()
        return "done"

    @workflow
    async def body() -> str:
        return await hangs()

    async with world.doomed(body) as doomed:
        await doomed.start(body, id="r1")
        await barrier.reached.wait()
    barrier.open()
    async with world.app(body) as app:
        await app.tick(31)
        assert await app.get_run("r1").result() == "done"
        [only] = await app.get_run("r1").steps()
        assert (only.attempts, only.cut, [(line.attempt, line.message) for line in only.log]) == (2, 1, [(2, "here")])
    assert records.texts() == ["here", "here"]


async def test_a_result_that_was_lost_with_its_commit_loses_its_log_too(world: World) -> None:
    gate = world.gate()
    gate.mute("release")
    async with world.app(talkative, says, store=gate, drain=0.001) as doomed:

        @workflow(name="one")
        async def one() -> str:
            return await says()

        doomed.register(one)
        stop = gate.stop("before", "write", ends)
        await doomed.start(one, id="r1")
        await stop.reached.wait()
    async with world.app(one) as app:
        await app.tick(31)
        assert await app.get_run("r1").result() == "done"
        [only] = await app.get_run("r1").steps()
        assert len(only.log) == 5
        assert {line.attempt for line in only.log} == {only.attempts}


async def test_sub_processes_and_heartbeats_belong_into_steps(world: World) -> None:
    @workflow
    async def parts(ctx: Context) -> None:
        with log.sub_process("upload"):
            pass

    @workflow
    async def beats(ctx: Context) -> None:
        log.heartbeat(1)

    async with world.app(parts, beats) as app:
        for body in (parts, beats):
            with pytest.raises(RunFailed, match="belongs into a step") as caught:
                await (await app.start(body)).result()
            assert isinstance(caught.value.__cause__, ForbiddenInWorkflow)


def test_outside_a_run_a_step_can_be_called_as_it_is(records: Records) -> None:
    assert says_in_thread() == "done"
    log.heartbeat(1)
    assert records.texts()[-1] == "print: ok"
    assert records.all[0].run_id == ""  # type: ignore[attr-defined]


async def test_what_a_heartbeat_cannot_say_is_refused(world: World) -> None:
    wrong: list[Any] = [object(), float("nan"), "\ud800"]
    for each in wrong:
        with pytest.raises(InvalidValue):
            log.heartbeat(each)
    with pytest.raises(ValueTooLarge):
        log.heartbeat("x" * 20_000)
    with pytest.raises(Exception, match="sub-process"), log.sub_process(""):
        pass


def test_a_line_is_as_it_is_shown() -> None:
    assert LogLine(at=1, level="info", message="x", attempt=2).process is None
