"""Starts and signals within the caller's own transaction: they exist if and only if he commits. TX."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from perdure import Context, QueueFull, RunEnded, RunNotFound, Singleton, Status, UsageError, workflow
from perdure.testing import TestApp
from tests.behaviours.ledgers import CONNECTIONS, SOME, Ledger, ledger_in
from tests.behaviours.world import World

every_way = pytest.mark.parametrize(("world", "way"), CONNECTIONS, indirect=["world"])
some_ways = pytest.mark.parametrize(("world", "way"), SOME, indirect=["world"])
on_postgres = pytest.mark.parametrize("world", ["postgres"], indirect=True)
on_sqlite = pytest.mark.parametrize("world", ["sqlite"], indirect=True)


@workflow
async def ship(ctx: Context, order: int) -> str:
    return f"shipped {order}"


@workflow
async def bill(ctx: Context) -> str:
    return f"paid by {await ctx.wait_for_signal('paid')}"


@workflow
async def watch(ctx: Context) -> str:
    return f"heard {await ctx.wait_for_signal('news', token='news')}"


@contextlib.asynccontextmanager
async def shop(world: World, way: str) -> AsyncIterator[tuple[TestApp, Ledger, Any]]:
    """An app, the user's table, and one connection to it."""
    async with (
        world.app(ship, bill, watch) as app,
        ledger_in(world.url) as ledger,
        ledger.connection(way) as connection,
    ):
        yield app, ledger, connection


@every_way
async def test_a_run_exists_if_the_caller_commits(world: World, way: str) -> None:
    async with shop(world, way) as (app, ledger, connection):
        await ledger.write(connection, "order 7")
        run = await app.start(ship, 7, id="ship:7", connection=connection)
        with pytest.raises(RunNotFound):
            await app.get_run("ship:7").status()
        await ledger.end(connection, "commit")
        assert await run.result() == "shipped 7"  # found by itself: nobody tells the app, and it polls never
        assert await ledger.lines() == ["order 7"]


@every_way
async def test_a_run_does_not_exist_if_the_caller_rolls_back(world: World, way: str) -> None:
    async with shop(world, way) as (app, ledger, connection):
        run = await app.start(ship, 7, id="ship:7", tags=["t"], attributes={"a": 1}, connection=connection)
        await ledger.write(connection, "order 7")
        await ledger.end(connection, "rollback")
        await app.settle()
        with pytest.raises(RunNotFound):
            await run.status()
        assert await ledger.lines() == []
        assert await (await app.start(ship, 8, id="ship:7")).result() == "shipped 8"


@some_ways
async def test_signals_arrive_if_the_caller_commits(world: World, way: str) -> None:
    async with shop(world, way) as (app, ledger, connection):
        billed, watching = await app.start(bill, id="b"), await app.start(watch, id="w")
        await app.settle()
        await ledger.write(connection, "paid")
        await billed.signal("paid", "ada", id="1", connection=connection)
        await billed.signal("paid", "bob", id="1", connection=connection)
        await app.signal(payload="it rains", token="news", connection=connection)
        await ledger.end(connection, "commit")
        assert await billed.result() == "paid by ada"
        assert await watching.result() == "heard it rains"


@some_ways
async def test_signals_do_not_arrive_if_the_caller_rolls_back(world: World, way: str) -> None:
    async with shop(world, way) as (app, ledger, connection):
        billed, watching = await app.start(bill, id="b"), await app.start(watch, id="w")
        await app.settle()
        await billed.signal("paid", "ada", id="1", connection=connection)
        await app.signal(payload="it rains", token="news", id="1", connection=connection)
        await ledger.end(connection, "rollback")
        await billed.signal("paid", "bob", id="1")  # the same ids: nothing remembers the first ones
        await app.signal(payload="it snows", token="news", id="1")
        assert await billed.result() == "paid by bob"
        assert await watching.result() == "heard it snows"


@some_ways
async def test_signal_with_start_in_one_transaction(world: World, way: str) -> None:
    async with shop(world, way) as (app, ledger, connection):
        run = await app.signal_with_start(bill, id="b", signal="paid", payload="eve", connection=connection)
        await ledger.end(connection, "commit")
        assert await run.result() == "paid by eve"


@some_ways
async def test_what_is_refused_leaves_the_transaction_as_it_was(world: World, way: str) -> None:
    async with shop(world, way) as (app, ledger, connection):
        done = await app.start(ship, 1, id="done")
        await done.result()
        await ledger.write(connection, "one")
        with pytest.raises(RunEnded, match="'done' has ended"):
            await done.signal("more", connection=connection)
        with pytest.raises(RunNotFound, match="no run 'nobody'"):
            await app.get_run("nobody").signal("more", connection=connection)
        with pytest.raises(UsageError, match="taken by a run of workflow 'ship'"):
            await app.start(bill, id="done", connection=connection)
        start: Any = app.start
        for wrong in ("no number", object()):
            with pytest.raises(UsageError):
                await start(ship, wrong, connection=connection)
        with pytest.raises(UsageError, match="not printable"):
            await start(ship, 1, id="a\0b", connection=connection)
        again = await app.start(ship, 2, id="done", connection=connection)
        await ledger.write(connection, "two")
        await ledger.end(connection, "commit")
        assert await again.result() == "shipped 1"
        assert await ledger.lines() == ["one", "two"]


async def test_what_is_no_connection_is_refused(world: World) -> None:
    async with world.app(ship) as app:
        for wrong in (42, "sqlite:///x.db", sa.create_engine("sqlite://"), object):
            with pytest.raises(UsageError) as raised:
                await app.start(ship, 1, connection=wrong)
            assert "connection must be one" in str(raised.value) or "memory store has no database" in str(raised.value)
        await app.settle()
        assert await app.runs() == []


@pytest.mark.parametrize("world", ["memory"], indirect=True)
async def test_task06_the_memory_store_has_no_database(world: World) -> None:
    async with world.app(bill) as app:
        connection = sqlite3.connect(":memory:")
        with contextlib.closing(connection), pytest.raises(UsageError, match="memory store has no database"):
            await app.start(bill, connection=connection)


@pytest.mark.parametrize("world", ["sqlite", "postgres"], indirect=True)
async def test_another_database_is_refused(world: World, tmp_path: Path) -> None:
    async with world.app(bill) as app:
        run = await app.start(bill, id="b")
        engine = sa.create_engine(f"sqlite:///{tmp_path / 'other.db'}")
        connections: list[Any] = [sqlite3.connect(tmp_path / "other.db"), engine.connect()]
        if world.url.startswith("postgres"):
            address = Ledger(world.url).sqlalchemy(asynchronous=False)
            elsewhere = sa.create_engine(sa.make_url(address).set(database="postgres"), poolclass=sa.NullPool)
            connections.append(elsewhere.connect())
        for connection in connections:
            with contextlib.closing(connection):
                with pytest.raises(UsageError, match="the store is"):
                    await app.start(bill, id="x", connection=connection)
                with pytest.raises(UsageError, match="the store is"):
                    await run.signal("paid", connection=connection)
        engine.dispose()
        await app.settle()
        assert [each.id for each in await app.runs()] == ["b"]


@on_postgres
async def test_a_connection_that_commits_each_statement_is_refused(world: World) -> None:
    async with world.app(bill) as app, ledger_in(world.url) as ledger, ledger.source("asyncpg pool") as pool:
        async with pool.acquire() as connection:
            with pytest.raises(UsageError, match="begin a transaction"):
                await app.start(bill, id="x", connection=connection)
        await app.settle()
        assert await app.runs() == []


@on_sqlite
async def test_a_connection_that_commits_each_statement_is_refused_on_sqlite(world: World) -> None:
    async with world.app(bill) as app, ledger_in(world.url) as ledger:
        connection = sqlite3.connect(ledger.address, isolation_level=None)
        with contextlib.closing(connection), pytest.raises(UsageError, match="BEGIN IMMEDIATE first"):
            await app.start(bill, id="x", connection=connection)
        await app.settle()
        assert await app.runs() == []


@on_sqlite
async def test_whatever_a_users_connection_reads_rows_as(world: World) -> None:
    async with world.app(bill) as app, ledger_in(world.url) as ledger:
        run = await app.start(bill, id="b")
        await app.settle()
        with contextlib.closing(sqlite3.connect(ledger.address)) as connection:
            connection.row_factory = lambda cursor, row: {"row": row}
            connection.text_factory = bytes
            connection.execute("PRAGMA busy_timeout = 1234")
            await run.signal("paid", "ada", connection=connection)
            assert connection.text_factory is bytes
            assert connection.execute("PRAGMA busy_timeout").fetchone() == {"row": (1234,)}
            connection.commit()
        assert await run.result() == "paid by ada"


@on_postgres
async def test_the_session_keeps_its_settings(world: World) -> None:
    async with world.app(bill) as app, ledger_in(world.url) as ledger, ledger.source("asyncpg pool") as pool:
        async with pool.acquire() as connection, connection.transaction():
            settings = "SELECT name || setting FROM pg_settings WHERE name ~ '^enable_|lock_timeout|jit' ORDER BY name"
            before = await connection.fetch(settings)
            await app.signal_with_start(bill, id="b", signal="paid", payload="ada", connection=connection)
            assert await connection.fetch(settings) == before
        assert await app.get_run("b").result() == "paid by ada"


@on_postgres
async def test_a_signal_to_a_token_needs_to_see_who_waits(world: World) -> None:
    async with world.app(bill) as app, ledger_in(world.url) as ledger, ledger.source("asyncpg pool") as pool:
        async with pool.acquire() as connection, connection.transaction(isolation="repeatable_read"):
            with pytest.raises(UsageError, match="READ COMMITTED transaction, and this one is REPEATABLE READ"):
                await app.signal(token="news", connection=connection)
            await app.signal_with_start(bill, id="b", signal="paid", payload="ada", connection=connection)
        assert await app.get_run("b").result() == "paid by ada"


@some_ways
async def test_single_09_a_start_in_the_callers_transaction_gets_in_line_or_is_refused(world: World, way: str) -> None:
    @workflow(singleton=Singleton(max_queue_depth=1))
    async def alone(ctx: Context) -> str:
        return f"heard {await ctx.wait_for_signal('go')}"

    async with world.app(alone) as app, ledger_in(world.url) as ledger, ledger.connection(way) as connection:
        one = await app.start(alone, id="1")
        await ledger.write(connection, "order 2")
        two = await app.start(alone, id="2", connection=connection)
        with pytest.raises(QueueFull):
            await app.start(alone, id="3", connection=connection)
        await ledger.end(connection, "commit")
        assert await two.status() is Status.SUSPENDED
        for run in (one, two):
            await run.signal("go", 1)
            assert await run.result() == "heard 1"
