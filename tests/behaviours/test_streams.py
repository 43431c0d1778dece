"""Streams: what runs write while they run, and who reads it, from wherever and whenever."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence
from typing import Any

import pytest

from perdure import (
    Chunk,
    Context,
    InvalidId,
    InvalidValue,
    NotInWorkflow,
    RunFailed,
    RunHandle,
    RunNotFound,
    Status,
    StoreUnavailable,
    StreamWriter,
    UsageError,
    ValueTooLarge,
    current_step,
    step,
    stream,
    workflow,
)
from perdure.engine import outlet
from perdure.model.commit import Append
from perdure.model.history import Op
from tests.behaviours.world import Barrier, World, parks

WORDS = ["once", "upon", "a", "time"]


@step
async def tell(words: list[str]) -> int:
    tokens = stream("tokens")
    for word in words:
        tokens.write(word)
    return len(words)


@step
def tell_in_thread(words: list[str]) -> int:
    for word in words:
        stream("tokens").write(word)
    return len(words)


@workflow
async def story(ctx: Context, words: list[str]) -> int:
    return await tell(words)


async def read(run: RunHandle[Any], name: str = "tokens", after: int = 0) -> list[Chunk[Any]]:
    return [chunk async for chunk in run.stream(name, after=after)]


def texts(chunks: Sequence[Chunk[Any]]) -> list[Any]:
    return [chunk.value for chunk in chunks]


# ---------------------------------------------------------------- writing


@pytest.mark.parametrize("kind", ["async", "sync", "local"])
async def test_a_step_writes_and_a_reader_gets_it_in_order_until_the_end(world: World, kind: str) -> None:
    def closure() -> None:
        for word in WORDS:
            stream("tokens").write(word)

    @workflow
    async def body(ctx: Context) -> None:
        if kind == "async":
            await tell(WORDS)
        elif kind == "sync":
            await ctx.step(tell_in_thread, WORDS)
        else:
            await ctx.local_step("tell", closure)

    async with world.app(body) as app:
        run = await app.start(body)
        chunks = await asyncio.wait_for(read(run), 30)
        assert texts(chunks) == WORDS
        assert [(c.seq, c.attempt, c.index) for c in chunks] == [(0, 1, index) for index in range(4)]
        offsets = [c.offset for c in chunks]
        assert offsets == sorted(set(offsets))
        assert {c.at for c in chunks} == {world.clock.now()}
        assert texts(await read(run)) == WORDS  # again, after the end
        assert await read(run, "other") == []


async def test_a_chunk_can_be_read_before_the_step_has_ended(world: World) -> None:
    barrier = Barrier()

    @step
    async def slow() -> None:
        stream("tokens").write("first")
        await barrier.wait()
        stream("tokens").write("second")

    @workflow
    async def body() -> None:
        await slow()

    async with world.app(body) as app, world.client(body) as client:
        await app.start(body, id="r1")
        here = aiter(app.get_run("r1").stream("tokens"))
        there = aiter(client.get_run("r1").stream("tokens"))
        for reader in (here, there):
            assert (await asyncio.wait_for(anext(reader), 30)).value == "first"
        assert await app.get_run("r1").status() is Status.RUNNING
        barrier.open()
        for reader in (here, there):
            assert (await asyncio.wait_for(anext(reader), 30)).value == "second"
            with pytest.raises(StopAsyncIteration):
                await asyncio.wait_for(anext(reader), 30)


async def test_a_body_writes_with_its_turn_and_a_replay_nothing(world: World) -> None:
    @workflow
    async def body(ctx: Context) -> str:
        ctx.stream("log").write({"at": "begin"})
        await ctx.wait_for_signal("go")
        stream("log").write({"at": "end"})
        return "done"

    gate = world.gate()
    async with world.app(body, store=gate) as app:
        stop = gate.stop("before", "write", parks)
        starting = asyncio.ensure_future(app.start(body, id="r1"))
        await stop.reached.wait()
        assert await gate.heads([(1, "log")]) == [0]
        stop.release()
        await starting
        await app.settle()
        reader = aiter(app.get_run("r1").stream("log"))
        assert (await anext(reader)).value == {"at": "begin"}
        await reader.aclose()  # type: ignore[attr-defined]
    async with world.app(body) as app:
        run = app.get_run("r1")
        await run.signal("go")
        assert await run.result() == "done"
        chunks = await read(run, "log")
        assert [(c.value["at"], c.attempt, c.index) for c in chunks] == [("begin", 0, 0), ("end", 0, 0)]
        assert [(s.op, s.name) for s in await run.steps()] == [
            (Op.STREAM, "log"),
            (Op.SIGNAL, "go"),
            (Op.STREAM, "log"),
        ]


async def test_many_chunks_are_few_writes(world: World) -> None:
    gate, batches = world.gate(), list[int]()

    def see(batch: Any) -> None:
        batches.extend(len(write.chunks) for write in batch if isinstance(write, Append))

    gate.watch("write", see)
    words = [str(n) for n in range(2000)]
    async with world.app(story, store=gate) as app:
        run = await app.start(story, words)
        assert await run.result() == 2000
        assert texts(await read(run)) == words
    assert sum(batches) == 2000
    assert len(batches) <= 6
    assert max(batches) <= 500


async def test_a_steps_result_is_recorded_after_all_that_it_wrote(world: World) -> None:
    gate = world.gate()

    def appends(batch: Any) -> bool:
        return any(isinstance(write, Append) for write in batch)

    async with world.app(story, store=gate) as app:
        stop = gate.stop("before", "write", appends)
        run = await app.start(story, WORDS)
        await stop.reached.wait()
        for _ in range(20):
            await asyncio.sleep(0)
        assert (await run.steps())[0].attempts == 0
        stop.release()
        assert await run.result() == 4
        assert texts(await read(run)) == WORDS


# ---------------------------------------------------------------- attempts


async def test_a_retry_writes_anew_and_says_so(world: World) -> None:
    @step(max_attempts=3, base=1)
    async def flaky() -> None:
        words = stream("tokens")
        words.write(f"attempt {current_step().attempt}")
        words.write("...")
        if current_step().attempt < 3:
            raise ValueError("again")

    @workflow
    async def body(ctx: Context) -> None:
        ctx.stream("tokens").write("title")
        await flaky()
        await tell(["the", "end"])

    async with world.app(body) as app:
        run = await app.start(body)
        await app.tick(60)
        chunks = await read(run)
        assert [(c.value, c.attempt, c.index) for c in chunks] == [
            ("title", 0, 0),
            ("attempt 1", 1, 0),
            ("...", 1, 1),
            ("attempt 2", 2, 0),
            ("...", 2, 1),
            ("attempt 3", 3, 0),
            ("...", 3, 1),
            ("the", 1, 0),
            ("end", 1, 1),
        ]
        assert await run.stream("tokens").collect() == ["title", "attempt 3", "...", "the", "end"]


async def test_after_a_crash_the_step_begins_its_stream_again(world: World) -> None:
    barrier = Barrier()

    @step
    async def hangs() -> None:
        stream("tokens").write(f"attempt {current_step().attempt}")
        await stream("tokens").flush()
        await barrier.wait()
        stream("tokens").write("done")

    @workflow
    async def body() -> None:
        await hangs()

    async with world.doomed(body) as doomed:
        await doomed.start(body, id="r1")
        await barrier.reached.wait()
    barrier.open()
    async with world.app(body) as app:
        reading = asyncio.ensure_future(read(app.get_run("r1")))
        await app.tick(31)
        chunks = await asyncio.wait_for(reading, 30)
        assert [(c.value, c.index) for c in chunks] == [("attempt 1", 0), ("attempt 2", 0), ("done", 1)]
        assert await app.get_run("r1").stream("tokens").collect() == ["attempt 2", "done"]


async def test_a_run_given_back_in_the_middle_of_a_step_writes_again_under_the_same_number(world: World) -> None:
    barrier = Barrier()

    @step
    async def hangs() -> None:
        stream("tokens").write("begun")
        await stream("tokens").flush()
        await barrier.wait()
        stream("tokens").write("done")

    @workflow
    async def body() -> None:
        await hangs()

    async with world.app(body, drain=0.001) as first:
        await first.start(body, id="r1")
        await barrier.reached.wait()
    barrier.open()
    async with world.app(body) as app:
        await app.settle()
        run = app.get_run("r1")
        assert [(c.value, c.index) for c in await read(run)] == [("begun", 0), ("begun", 0), ("done", 1)]
        assert await run.stream("tokens").collect() == ["begun", "done"]


async def test_whoever_lost_the_run_writes_no_more(world: World) -> None:
    barrier, wrote = Barrier(), list[str]()

    @step
    async def hangs() -> None:
        stream("tokens").write("mine")
        await stream("tokens").flush()
        try:
            await barrier.wait()
        finally:
            try:
                stream("tokens").write("late")
                await stream("tokens").flush()
            except UsageError:
                wrote.append("refused")

    @workflow
    async def body() -> None:
        await hangs()

    async with world.app(body) as app:
        run = await app.start(body, id="r1")
        await barrier.reached.wait()
        reading = asyncio.ensure_future(read(run))
        await run.cancel()
        barrier.open()
        assert texts(await asyncio.wait_for(reading, 30)) == ["mine"]
        await app.settle()
        assert texts(await read(run)) == ["mine"]


async def test_an_answer_that_was_lost_doubles_nothing(world: World) -> None:
    gate = world.gate()

    def appends(batch: Any) -> bool:
        return any(isinstance(write, Append) for write in batch)

    async with world.app(story, store=gate) as app:
        gate.fail("after", "write", StoreUnavailable("the line went dead"), appends, times=2)
        run = await app.start(story, WORDS)
        assert await world.pass_time(run.result()) == 4
        assert texts(await read(run)) == WORDS


# ---------------------------------------------------------------- reading


async def test_reading_goes_on_after_an_offset(world: World) -> None:
    async with world.app(story) as app:
        run = await app.start(story, WORDS)
        chunks = await read(run)
        for position, chunk in enumerate(chunks):
            assert await read(run, after=chunk.offset) == chunks[position + 1 :]


async def test_the_last_words_are_read_also_by_who_comes_to_the_end_first(world: World) -> None:
    """What is written between the reader's look and the run's end is not lost."""
    gate = world.gate()
    go = Barrier()

    @step
    async def last_words() -> None:
        await go.wait()
        stream("tokens").write("rosebud")

    @workflow
    async def body() -> None:
        await last_words()

    async with world.app(body) as app, world.client(body, store=gate) as client:
        run = await app.start(body, id="r1")
        await go.reached.wait()
        stop = gate.stop("after", "chunks")
        reading = asyncio.ensure_future(read(client.get_run("r1")))
        await stop.reached.wait()  # it has seen nothing yet
        go.open()
        await run.result()
        stop.release()
        assert texts(await asyncio.wait_for(reading, 30)) == ["rosebud"]


async def test_a_reader_that_waits_asks_nothing(world: World) -> None:
    async with world.app(story) as app:

        @workflow
        async def waits(ctx: Context) -> None:
            ctx.stream("tokens").write("one")
            await ctx.wait_for_signal("go")

        app.register(waits)
        gate = world.gate()
        async with world.client(waits, store=gate) as client:
            run = await app.start(waits, id="r1")
            await app.settle()
            stop = gate.stop("after", "standing")
            reading = asyncio.ensure_future(read(client.get_run("r1")))
            await stop.reached.wait()
            stop.release()
            await client.settle()
            calls = sum(gate.calls.get(verb, 0) for verb in ("chunks", "standing", "heads"))
            for _ in range(200):
                await asyncio.sleep(0)
            now = sum(gate.calls.get(verb, 0) for verb in ("chunks", "standing", "heads"))
            assert now - calls <= 2
            await run.signal("go")
            assert texts(await asyncio.wait_for(reading, 30)) == ["one"]


async def test_it_goes_on_through_a_chain(world: World) -> None:
    @workflow
    async def links(ctx: Context, n: int) -> str:
        await tell([f"{n}a", f"{n}b"])
        ctx.stream("tokens").write(f"{n}c")
        if n < 3:
            ctx.continue_as_new(n + 1)
        return "done"

    async with world.app(links) as app:
        run = await app.start(links, 1, id="p")
        chunks = await asyncio.wait_for(read(run), 30)
        assert texts(chunks) == [f"{n}{x}" for n in (1, 2, 3) for x in "abc"]
        offsets = [c.offset for c in chunks]
        assert offsets == sorted(offsets)
        assert texts(await read(run, after=chunks[4].offset)) == texts(chunks)[5:]
        assert texts(await read(app.get_run("p~2"))) == [f"{n}{x}" for n in (3,) for x in "abc"]
        assert await run.stream("tokens").collect() == texts(chunks)


@pytest.mark.parametrize("end", ["fails", "is cancelled", "times out"])
async def test_it_ends_with_the_run_however_that_ends(world: World, end: str) -> None:
    @workflow
    async def body(ctx: Context) -> None:
        ctx.stream("tokens").write("one")
        await ctx.wait_for_signal("go")
        raise ValueError("boom")

    async with world.app(body) as app:
        run = await app.start(body, timeout=60)
        reading = asyncio.ensure_future(read(run))
        await app.settle()
        if end == "fails":
            await run.signal("go")
        elif end == "is cancelled":
            await run.cancel()
        else:
            await app.tick(60)
        assert texts(await asyncio.wait_for(reading, 30)) == ["one"]


async def test_a_deleted_run_ends_its_readers_with_an_error(world: World) -> None:
    @workflow
    async def body(ctx: Context) -> None:
        ctx.stream("tokens").write("one")
        await ctx.wait_for_signal("go")

    async with world.app(body) as app, world.client(body) as client:
        run = await app.start(body, id="r1")
        await app.settle()
        readings = [asyncio.ensure_future(read(each.get_run("r1"))) for each in (app, client)]
        await app.settle()
        await run.delete()
        for reading in readings:
            with pytest.raises(RunNotFound):
                await asyncio.wait_for(reading, 30)
        with pytest.raises(RunNotFound):
            await read(app.get_run("r1"))


async def test_values_are_restored_by_their_type(world: World) -> None:
    @workflow
    async def body(ctx: Context) -> None:
        ctx.stream("bytes").write(b"\x00\xff")
        ctx.stream("bytes").write(1)

    async with world.app(body) as app:
        run = await app.start(body)
        reader = aiter(run.stream("bytes", type=bytes))
        assert (await anext(reader)).value == b"\x00\xff"
        with pytest.raises(InvalidValue, match="stream 'bytes'"):
            await anext(reader)


async def test_closing_the_app_ends_those_who_wait(world: World) -> None:
    @workflow
    async def waits(ctx: Context) -> None:
        await ctx.wait_for_signal("go")

    async with world.app(waits) as app:
        run = await app.start(waits)
        await app.settle()
        reading = asyncio.ensure_future(read(run))
        await app.settle()
    with pytest.raises(UsageError, match="closed"):
        await asyncio.wait_for(reading, 30)


async def test_who_stops_reading_leaves_nothing_behind(world: World) -> None:
    @workflow
    async def waits(ctx: Context) -> None:
        await ctx.wait_for_signal("go")

    gate = world.gate()
    async with world.app(waits, store=gate) as app:
        run = await app.start(waits)
        await app.settle()
        stop = gate.stop("before", "chunks")
        reading = asyncio.ensure_future(read(run))
        await stop.reached.wait()
        assert app.engine.executor.tell.tails.waiting()
        reading.cancel()
        await asyncio.wait([reading])
        assert not app.engine.executor.tell.tails.waiting()
        assert not app.engine.executor.tell.endings.waiting()


# ---------------------------------------------------------------- too much, and misuse


async def test_an_async_step_that_writes_too_fast_is_told_to_wait(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outlet, "_ROOM", 10)

    @step
    async def rushes() -> None:
        for n in range(11):
            stream("tokens").write(n)

    @step
    async def waits_now_and_then() -> None:
        for n in range(100):
            stream("tokens").write(n)
            if n % 10 == 9:
                await stream("tokens").flush()

    @workflow
    async def body(polite: bool) -> None:
        await (waits_now_and_then() if polite else rushes())

    async with world.app(body) as app:
        with pytest.raises(RunFailed, match="flush"):
            await (await app.start(body, False)).result()
        run = await app.start(body, True)
        assert texts(await read(run)) == list(range(100))


async def test_a_thread_that_writes_too_fast_waits(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outlet, "_ROOM", 10)
    words = [str(n) for n in range(200)]

    @workflow
    async def body(ctx: Context) -> int:
        return await ctx.step(tell_in_thread, words)

    async with world.app(body) as app:
        run = await app.start(body)
        assert await run.result() == 200
        assert texts(await read(run)) == words


async def test_a_thread_that_waits_is_let_go_with_its_run(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outlet, "_ROOM", 2)
    gate, ended = world.gate(), threading.Event()

    def appends(batch: Any) -> bool:
        return any(isinstance(write, Append) for write in batch)

    @step
    def floods() -> None:
        try:
            for n in range(10):
                stream("tokens").write(n)
        except UsageError:
            ended.set()
            raise

    @workflow
    async def body(ctx: Context) -> None:
        await ctx.step(floods)

    async with world.app(body, store=gate) as app:
        stop = gate.stop("before", "write", appends)
        run = await app.start(body)
        await stop.reached.wait()
        async with world.client(body) as client:
            await client.get_run(run.id).cancel()
        stop.release()
        assert await asyncio.to_thread(ended.wait, 30)
        await app.settle()


async def test_what_cannot_be_written_is_refused_at_the_call(world: World) -> None:
    refused: list[str] = []

    def all_wrong(words: StreamWriter) -> None:
        wrong: list[tuple[Any, type[Exception]]] = [
            (object(), InvalidValue),
            (float("nan"), InvalidValue),
            ("\ud800", InvalidValue),
            ("x" * 300_000, ValueTooLarge),
        ]
        for value, error in wrong:
            with pytest.raises(error, match="tokens"):
                words.write(value)
            refused.append(error.__name__)
        for name in ("", "a\0b", 7, "x" * 300):
            with pytest.raises(InvalidId):
                stream(name)  # type: ignore[arg-type]

    @step
    async def in_step() -> None:
        all_wrong(stream("tokens"))

    @workflow
    async def body(ctx: Context) -> None:
        all_wrong(ctx.stream("tokens"))
        await in_step()

    async with world.app(body) as app:
        run = await app.start(body)
        await run.result()
        assert await read(run) == []
        assert [s.op for s in await run.steps()] == [Op.STEP]
    assert len(refused) == 8


async def test_where_there_is_no_stream_it_says_so(world: World) -> None:
    kept: list[Any] = []

    @step
    async def keeps() -> None:
        kept.append(stream("tokens"))

    @step
    async def uses(what: str) -> None:
        (kept[0] if what == "a step's" else kept[1].stream("tokens") if what == "a context" else kept[2]).write(1)

    @workflow
    async def body(ctx: Context, what: str) -> None:
        await keeps()
        kept.extend([ctx, ctx.stream("tokens")])
        await uses(what)

    with pytest.raises(UsageError, match="only works inside a step"):
        stream("tokens")
    async with world.app(body) as app:
        for what, error in [("a step's", UsageError), ("a context", NotInWorkflow), ("a body's", NotInWorkflow)]:
            kept.clear()
            run = await app.start(body, what)
            with pytest.raises(RunFailed) as caught:
                await run.result()
            assert isinstance(caught.value.__cause__, error)
            assert await read(run) == []


async def test_a_stream_that_is_asked_for_wrongly(world: World) -> None:
    async with world.app(story) as app:
        run = await app.start(story, WORDS)
        for name in ("", "a\0b", 7):
            with pytest.raises(InvalidId):
                run.stream(name)  # type: ignore[arg-type]
        for after in (-1, 1.5, "1", True, None, 2**63):
            with pytest.raises(UsageError, match="after"):
                run.stream("tokens", after=after)  # type: ignore[arg-type]
        with pytest.raises(RunNotFound):
            await read(app.get_run("nobody"))
