"""Transactions: a step commits together with what it writes to the user's database. TASK-05, TASK-06, TX."""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
import threading
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import asyncpg
import pytest
import sqlalchemy as sa
from sqlalchemy.ext.asyncio import create_async_engine

from perdure import Context, CurrentStep, RunFailed, RunNotFound, Status, UsageError, current_step, workflow
from perdure.drivers.alchemy import AlchemyLink, AwaitedAlchemyLink
from perdure.drivers.links import AsyncpgLink
from perdure.model.history import Event, Op
from tests.behaviours.ledgers import SOME, WAYS, Ledger, ledger_in
from tests.behaviours.world import World

every_way = pytest.mark.parametrize(("world", "way"), WAYS, indirect=["world"])
some_ways = pytest.mark.parametrize(("world", "way"), SOME, indirect=["world"])
on_sqlite = pytest.mark.parametrize("world", ["sqlite"], indirect=True)
on_postgres = pytest.mark.parametrize("world", ["postgres"], indirect=True)
in_a_database = pytest.mark.parametrize("world", ["sqlite", "postgres"], indirect=True)


class Pay:
    """A workflow of one transaction, which writes one line."""

    def __init__(self, ledger: Ledger, way: str, source: Any, **options: Any) -> None:
        self.calls = 0
        #: Done inside the transaction, after the write.
        self.then: Any = lambda: None

        @workflow
        async def pay(ctx: Context) -> str:
            await ctx.wait_for_signal("begin")
            paid: str = await ctx.transaction("pay", self.fn, on=source, type=str, **options)
            await ctx.wait_for_signal("end")
            return paid

        self.workflow = pay
        self.fn = ledger.writing(way, "paid", self._then)

    def _then(self) -> Any:
        self.calls += 1
        return self.then()


@contextlib.asynccontextmanager
async def paying(world: World, way: str, **options: Any) -> AsyncIterator[tuple[Ledger, Pay]]:
    async with world.client(), ledger_in(world.url) as ledger, ledger.source(way) as source:
        yield ledger, Pay(ledger, way, source, **options)


@every_way
async def test_task05_the_write_and_the_result_commit_together(world: World, way: str) -> None:
    async with paying(world, way) as (ledger, pay), world.app(pay.workflow) as app:
        run = await app.start(pay.workflow, id="r1")
        await run.signal("begin")
        await app.settle()
        assert await ledger.lines() == ["paid"]
        [_, step, _] = await run.steps()
        assert (step.name, step.attempts) == ("pay", 1)
        await run.signal("end")
        assert await run.result() == "paid"
    async with paying(world, way):
        assert pay.calls == 1


@some_ways
async def test_task05_replay_gives_the_recorded_result(world: World, way: str) -> None:
    async with paying(world, way) as (ledger, pay):
        async with world.app(pay.workflow) as app:
            run = await app.start(pay.workflow, id="r1")
            await run.signal("begin")
            await app.settle()
        async with world.app(pay.workflow) as app:  # a cache of its own: it replays
            run = app.get_run("r1", pay.workflow)
            await run.signal("end")
            assert await run.result() == "paid"
        assert pay.calls == 1
        assert await ledger.lines() == ["paid"]


@every_way
async def test_task05_a_process_lost_after_the_commit_and_before_the_turn(world: World, way: str) -> None:
    async with paying(world, way) as (ledger, pay):
        gate = world.gate()
        gate.mute("release")
        gate.mute("depart")
        async with world.app(pay.workflow, store=gate, drain=0.001) as lost:
            run = await lost.start(pay.workflow, id="r1")
            await lost.settle()
            stop = gate.stop("before", "write", _records_a_step)
            await run.signal("begin")
            await stop.reached.wait()
            assert await ledger.lines() == ["paid"]
            gate.mute("write")
            stop.release()
        async with world.app(pay.workflow) as app:
            await app.tick(60)
            await app.get_run("r1").signal("end")
            assert await app.get_run("r1").result() == "paid"
            assert [step.name for step in await app.get_run("r1").steps()] == ["begin", "pay", "end"]
        assert pay.calls == 1
        assert await ledger.lines() == ["paid"]


def _records_a_step(batch: Any) -> bool:
    entries = [entry for write in batch for entry in getattr(write, "entries", ())]
    return any(entry.event is Event.RESOLVED and entry.op is Op.LOCAL for entry in entries)


@every_way
async def test_task05_what_raises_is_rolled_back_and_tried_again(world: World, way: str) -> None:
    async with paying(world, way, max_attempts=3, base=1) as (ledger, pay), world.app(pay.workflow) as app:

        def fail_once() -> None:
            if pay.calls == 1:
                raise ValueError("no")

        pay.then = fail_once
        run = await app.start(pay.workflow, id="r1")
        await run.signal("begin")
        await app.settle()
        assert await ledger.lines() == []
        await app.tick(1)
        assert await ledger.lines() == ["paid"]
        await run.signal("end")
        assert await run.result() == "paid"
        assert pay.calls == 2


@some_ways
async def test_task05_a_requeued_run_makes_a_failed_transaction_again(world: World, way: str) -> None:
    async with paying(world, way) as (ledger, pay), world.app(pay.workflow) as app:

        def fail_once() -> None:
            if pay.calls == 1:
                raise ValueError("no")

        pay.then = fail_once
        run = await app.start(pay.workflow, id="r1")
        await run.signal("begin")
        with pytest.raises(RunFailed, match="no"):
            await run.result()
        assert await run.requeue() is Status.PENDING
        await run.signal("end")
        assert await run.result() == "paid"
        assert await ledger.lines() == ["paid"]


@some_ways
async def test_task05_two_executors_make_one_row(world: World, way: str) -> None:
    """The first loses its lease in the middle of its transaction; the second adopts its result, or its own counts."""
    entered, go = threading.Event(), threading.Event()
    async with paying(world, way) as (ledger, pay):
        gate = world.gate()

        async def hold() -> None:
            entered.set()
            await asyncio.to_thread(go.wait, 10)

        def hold_thread() -> None:
            entered.set()
            assert go.wait(10)

        pay.then = lambda: (hold() if way.startswith("async") else hold_thread()) if pay.calls == 1 else None
        async with world.app(pay.workflow, store=gate) as first:
            run = await first.start(pay.workflow, id="r1")
            await run.signal("begin")
            await asyncio.to_thread(entered.wait)
            gate.frozen = True
            stop = gate.stop("before", "write", _records_a_step)
            if ledger.on_sqlite:  # there, the transaction has the whole file: nobody can claim before it ends
                go.set()
                await stop.reached.wait()
            async with world.app(pay.workflow) as second:
                world.clock.advance(31)
                await second.settle(steps=False)
                assert (await run.info()).owner == second.engine.means.owner or ledger.on_sqlite
                stop.release()
                go.set()
                await second.settle()
                await second.get_run("r1").signal("end")
                assert await second.get_run("r1").result() == "paid"
                assert await ledger.lines() == ["paid"]
                assert pay.calls == (1 if ledger.on_sqlite else 2)


@some_ways
async def test_task05_a_commit_whose_answer_was_lost(world: World, way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What came of it is looked for: it was committed, so the function is not called again."""
    lost: list[str] = []
    for link in (AlchemyLink, AwaitedAlchemyLink, AsyncpgLink):
        _lose_an_answer(link, lost, monkeypatch)
    async with paying(world, way) as (ledger, pay), world.app(pay.workflow) as app:
        run = await app.start(pay.workflow, id="r1")
        await run.signal("begin")
        await run.signal("end")
        assert await run.result() == "paid"
        assert lost == ["after"]
        assert pay.calls == 1
        assert await ledger.lines() == ["paid"]
        assert [step.attempts for step in await run.steps() if step.name == "pay"] == [1]


def _lose_an_answer(link: Any, lost: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    commit = link.commit
    if asyncio.iscoroutinefunction(commit):

        async def commit_and_lose_awaited(self: Any) -> None:
            await commit(self)
            if not lost:
                lost.append("after")
                raise ConnectionError("the answer was lost")

        monkeypatch.setattr(link, "commit", commit_and_lose_awaited)
    else:

        def commit_and_lose(self: Any) -> None:
            commit(self)
            if not lost:
                lost.append("after")
                raise ConnectionError("the answer was lost")

        monkeypatch.setattr(link, "commit", commit_and_lose)


@pytest.mark.parametrize(("world", "way"), [("postgres", "engine"), ("postgres", "asyncpg pool")], indirect=["world"])
async def test_task05_what_the_commit_refuses_was_not_written(world: World, way: str) -> None:
    """A constraint that is looked at by the commit only."""
    async with paying(world, way) as (ledger, pay), world.app(pay.workflow) as app:
        await ledger.execute(f"ALTER TABLE {ledger.table} ADD UNIQUE (line) DEFERRABLE INITIALLY DEFERRED")
        await ledger.execute(f"{ledger.insert}('paid')")
        run = await app.start(pay.workflow, id="r1")
        await run.signal("begin")
        with pytest.raises(RunFailed, match="duplicate key"):
            await run.result()
        assert await ledger.lines() == ["paid"]
        await ledger.execute(f"DELETE FROM {ledger.table}")
        await run.requeue()
        await run.signal("end")
        assert await run.result() == "paid"
        assert await ledger.lines() == ["paid"]


@pytest.mark.parametrize(
    ("world", "way"), [("sqlite", "engine"), ("sqlite", "sqlite3"), ("postgres", "engine")], indirect=["world"]
)
async def test_task05_a_thread_that_was_given_up_does_not_commit(world: World, way: str) -> None:
    """Its attempt ran out of time, and its failure is recorded: what it does later must not count."""
    entered, go = threading.Event(), threading.Event()
    async with paying(world, way, timeout=5, max_attempts=2, base=100) as (ledger, pay), world.app(pay.workflow) as app:

        def hold() -> None:
            entered.set()
            assert go.wait(20)

        pay.then = lambda: hold() if pay.calls == 1 else None
        run = await app.start(pay.workflow, id="r1")
        await run.signal("begin")
        await asyncio.to_thread(entered.wait)
        world.clock.advance(5)
        while not ledger.on_sqlite and len(await run.history()) < 4:  # there, nobody else can write before it ends
            await app.settle(steps=False)
        for _ in range(10):  # the alarm, the timeout, the cancel
            await asyncio.sleep(0)
        go.set()
        await app.settle()
        assert await ledger.lines() == []
        await app.tick(100)
        assert await ledger.lines() == ["paid"]
        await run.signal("end")
        assert await run.result() == "paid"
        assert pay.calls == 2


@pytest.mark.parametrize("world", ["memory"], indirect=True)
async def test_task06_a_store_without_transactions_suggests_a_plain_step(world: World) -> None:
    @workflow
    async def pay(ctx: Context) -> None:
        await ctx.transaction("pay", lambda connection: None, max_attempts=5)

    async with world.app(pay) as app:
        run = await app.start(pay, id="r1")
        with pytest.raises(RunFailed, match=r"memory store has no database.* use a plain step"):
            await run.result()
        assert [step.attempts for step in await run.steps()] == [1]


@in_a_database
async def test_another_database_is_refused_before_anything_is_done(world: World, tmp_path: Path) -> None:
    called: list[Any] = []
    others: dict[str, Any] = {
        "a file": lambda: sqlite3.connect(tmp_path / "other.db"),
        "memory": lambda: sqlite3.connect(":memory:"),
        "engine": sa.create_engine(f"sqlite:///{tmp_path / 'other.db'}"),
        "async engine": create_async_engine(f"sqlite+aiosqlite:///{tmp_path / 'other.db'}"),
    }
    if world.url.startswith("postgres"):
        others["database"] = lambda: asyncpg.connect(Ledger(world.url).address, database="postgres")
    names: list[str] = []

    @workflow
    async def pay(ctx: Context, other: str) -> None:
        await ctx.transaction("pay", called.append, on=others[other], max_attempts=5)

    async with world.app(pay) as app:
        for other in others:
            run = await app.start(pay, other, id=f"run on {other}")
            with pytest.raises(RunFailed, match="the store is") as raised:
                await run.result()
            names.append(str(raised.value))
            assert [step.attempts for step in await run.steps()] == [1]
    assert called == []
    assert all(
        "other.db" in text or "memory" in text or "sqlite3" in text or "database postgres" in text for text in names
    )
    others["engine"].dispose()
    await others["async engine"].dispose()


@on_sqlite
async def test_a_server_in_place_of_the_file_is_refused_without_its_password(world: World) -> None:
    engine = sa.create_engine("postgresql+psycopg://postgres:secret@127.0.0.1:5432/postgres")

    @workflow
    async def pay(ctx: Context) -> None:
        await ctx.transaction("pay", lambda connection: None, on=engine)

    async with world.app(pay) as app:
        run = await app.start(pay, id="r1")
        with pytest.raises(RunFailed) as raised:
            await run.result()
        assert "secret" not in str(raised.value)
        [step] = await run.steps()
        assert b"secret" not in (step.error or b"")
    engine.dispose()


@in_a_database
async def test_a_function_that_commits_by_itself_is_told_so(world: World) -> None:
    def commit(handle: Any) -> None:
        handle.execute("COMMIT")

    async def commit_awaited(handle: Any) -> None:
        await handle.execute("COMMIT")

    @workflow
    async def pay(ctx: Context) -> None:
        await ctx.transaction("pay", commit if world.url.startswith("sqlite") else commit_awaited, max_attempts=5)

    async with world.app(pay) as app:
        run = await app.start(pay, id="r1")
        with pytest.raises(RunFailed, match="ended the transaction itself"):
            await run.result()
        assert [step.attempts for step in await run.steps()] == [1]


@on_postgres
async def test_an_engine_that_commits_each_statement_is_refused(world: World) -> None:
    called: list[Any] = []
    engine = sa.create_engine(Ledger(world.url).sqlalchemy(asynchronous=False), isolation_level="AUTOCOMMIT")

    @workflow
    async def pay(ctx: Context) -> None:
        await ctx.transaction("pay", called.append, on=engine)

    async with world.app(pay) as app:
        run = await app.start(pay, id="r1")
        with pytest.raises(RunFailed, match="not in a transaction"):
            await run.result()
    engine.dispose()
    assert called == []


@some_ways
async def test_a_result_that_cannot_be_stored_is_rolled_back(world: World, way: str) -> None:
    async with world.client(), ledger_in(world.url) as ledger, ledger.source(way) as source:
        write = ledger.writing(way, "paid")

        def bad(handle: Any) -> Any:
            write(handle)
            return float("nan")

        async def bad_awaited(handle: Any) -> Any:
            await write(handle)
            return float("nan")

        @workflow
        async def pay(ctx: Context) -> None:
            await ctx.transaction("pay", bad_awaited if way.startswith("async") else bad, on=source)

        async with world.app(pay) as app:
            run = await app.start(pay, id="r1")
            with pytest.raises(RunFailed, match="result of transaction 'pay'"):
                await run.result()
            assert await ledger.lines() == []


async def test_bad_use_is_told_at_the_call(world: World) -> None:
    engine = sa.create_engine("sqlite://")
    told: list[str] = []

    async def awaited(connection: Any) -> None: ...

    @workflow
    async def pay(ctx: Context) -> None:
        plain = awaited
        transaction: Any = ctx.transaction
        calls: list[Any] = [
            lambda: transaction("pay", awaited, on=42),
            lambda: transaction("pay", awaited, on=engine),
            lambda: transaction("pay", 42),
            lambda: transaction("", plain),
            lambda: transaction("pay", plain, attempts=3),
            lambda: transaction("pay", plain, max_attempts=0),
        ]
        for call in calls:
            with pytest.raises(UsageError) as raised:
                await call()
            told.append(str(raised.value))
        connection = sqlite3.connect(":memory:")
        with contextlib.closing(connection), pytest.raises(UsageError, match="give where it comes from"):
            await ctx.transaction("pay", plain, on=connection)

    async with world.app(pay) as app:
        run = await app.start(pay, id="r1")
        await run.result()
        assert await run.steps() == []
    assert "cannot be run on builtins.int" in told[0]
    assert "must be a plain one" in told[1]
    assert "needs a function" in told[2]
    assert "a transaction's name" in told[3]
    assert "no option 'attempts'" in told[4]
    assert "max_attempts" in told[5]


@in_a_database
async def test_a_factory_that_gives_something_else(world: World) -> None:
    @workflow
    async def pay(ctx: Context) -> None:
        await ctx.transaction("pay", lambda connection: None, on=lambda: 42, max_attempts=5)

    async with world.app(pay) as app:
        run = await app.start(pay, id="r1")
        with pytest.raises(RunFailed, match="42 is no connection that Perdure knows"):
            await run.result()
        assert [step.attempts for step in await run.steps()] == [1]


@some_ways
async def test_the_step_is_known_inside_and_interceptors_stand_around(world: World, way: str) -> None:
    steps: list[CurrentStep] = []
    async with paying(world, way) as (ledger, pay), world.app(pay.workflow) as app:
        pay.then = lambda: steps.append(current_step())

        async def shout(step: CurrentStep, proceed: Any) -> Any:
            return str(await proceed()).upper()

        app.use(shout)
        run = await app.start(pay.workflow, id="r1")
        await run.signal("begin")
        await run.signal("end")
        assert await run.result() == "PAID"
        assert [(step.name, step.attempt, step.local) for step in steps] == [("pay", 1, True)]
        assert await ledger.lines() == ["paid"]


@some_ways
async def test_a_deleted_run_leaves_no_row(world: World, way: str) -> None:
    async with paying(world, way) as (ledger, pay), world.app(pay.workflow) as app:
        run = await app.start(pay.workflow, id="r1")
        await run.signal("begin")
        await run.signal("end")
        await run.result()
        table = "transactions" if ledger.on_sqlite else f'"{world.url.partition("schema=")[2]}".transactions'
        assert await ledger.execute(f"SELECT count(*) FROM {table}") == [(1,)]
        await run.delete()
        assert await ledger.execute(f"SELECT count(*) FROM {table}") == [(0,)]


@some_ways
async def test_a_run_deleted_in_the_middle_rolls_back(world: World, way: str) -> None:
    """Where the transaction has the whole file, it comes first."""
    entered, go = threading.Event(), threading.Event()
    async with paying(world, way) as (ledger, pay), world.app(pay.workflow) as app:

        async def hold() -> None:
            entered.set()
            await asyncio.to_thread(go.wait, 10)

        def hold_thread() -> None:
            entered.set()
            assert go.wait(10)

        pay.then = hold if way.startswith("async") else hold_thread
        run = await app.start(pay.workflow, id="r1")
        await run.signal("begin")
        await asyncio.to_thread(entered.wait)
        deleting = asyncio.ensure_future(run.delete())
        if not ledger.on_sqlite:
            assert await deleting == 1
        go.set()
        assert await deleting == 1
        await app.settle()
        assert len(await ledger.lines()) == (1 if ledger.on_sqlite else 0)


@pytest.mark.parametrize("world", ["sqlite"], indirect=True)
async def test_using_the_app_inside_would_wait_for_itself(world: World) -> None:
    told: list[str] = []

    @workflow
    async def other(ctx: Context) -> str:
        return "done"

    async with world.client(), ledger_in(world.url) as ledger, ledger.source("async engine") as engine:

        @workflow
        async def pay(ctx: Context) -> None:
            async def fn(connection: Any) -> None:
                for use in (
                    lambda: app.start(other, id="o1"),
                    lambda: app.signal("s", token="t"),
                    lambda: app.get_run("r1").cancel(),
                ):
                    with pytest.raises(UsageError, match="give it connection") as raised:
                        await use()
                    told.append(str(raised.value))
                await app.start(other, id="o2", connection=connection)

            await ctx.transaction("pay", fn, on=engine)

        async with world.app(pay, other) as app:
            await (await app.start(pay, id="r1")).result()
            assert await app.get_run("o2").result() == "done"
            with pytest.raises(RunNotFound):
                await app.get_run("o1").status()
    assert len(told) == 3


@on_postgres
async def test_transactions_of_many_runs_at_once(world: World) -> None:
    async with world.client(), ledger_in(world.url) as ledger, ledger.source("asyncpg pool") as pool:

        @workflow
        async def pay(ctx: Context, number: int) -> int:
            async def fn(connection: Any) -> int:
                await connection.execute(f"{ledger.insert}('{number:03}')")
                return number

            both = await asyncio.gather(
                ctx.transaction("pay", fn, on=pool, type=int), ctx.transaction("again", fn, on=pool, type=int)
            )
            return sum(both)

        async with world.app(pay) as app:
            runs = [await app.start(pay, number, id=f"r{number}") for number in range(30)]
            assert [await run.result() for run in runs] == [2 * number for number in range(30)]
        assert await ledger.lines() == [f"{number:03}" for number in range(30) for _ in range(2)]
