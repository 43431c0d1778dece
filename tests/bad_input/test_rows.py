"""F10, F64: rows that a bad disk spoiled. Lists still work, such a run ends or is blocked and says why, others go on."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from perdure import Context, RunFailed, Status, step, workflow
from perdure.testing import TestApp


class Order:
    """Of a class that nobody has any more, when it comes back."""


@step
async def note(n: int) -> int:
    return n


@workflow
async def waits(ctx: Context, n: int) -> int:
    first = await note(n)
    return first + await ctx.wait_for_signal("go", type=int)


#: What is spoiled, and how.
SPOILED: dict[str, str] = {
    "input that is cut off": "UPDATE runs SET input = '{\"n\": ' WHERE id = 'bad'",
    "input of another type": "UPDATE runs SET input = '\"word\"' WHERE id = 'bad'",
    "input that is no text": "UPDATE runs SET input = x'ff00ff' WHERE id = 'bad'",
    "a result that is cut off": "UPDATE history SET payload = '[1' WHERE event = 3 AND incarnation = 1",
    "a result of another type": "UPDATE history SET payload = '\"word\"' WHERE event = 3 AND incarnation = 1",
    "a result that is no text": "UPDATE history SET payload = x'ff' WHERE event = 3 AND incarnation = 1",
    "an operation of no kind": "UPDATE history SET op = 'dance' WHERE n = 0 AND incarnation = 1",
    "an entry of no kind": "UPDATE history SET event = 77 WHERE n = 0 AND incarnation = 1",
    "tags that are no list": "UPDATE runs SET tags = '{' WHERE id = 'bad'",
    "attributes that are cut off": "UPDATE runs SET attributes = '{' WHERE id = 'bad'",
    "a message that is cut off": "UPDATE messages SET payload = '{'",
    "a message of no kind": "UPDATE messages SET kind = 'dance'",
    "an unknown workflow": "UPDATE runs SET workflow = 'gone' WHERE id = 'bad'",
    "an unknown version": "UPDATE runs SET version = '99' WHERE id = 'bad'",
    "a newer format": "UPDATE runs SET format = 99 WHERE id = 'bad'",
    "fewer entries than it says": "UPDATE runs SET n = n + 1 WHERE id = 'bad'",
    "a history that is gone": "DELETE FROM history WHERE incarnation = 1",
}

#: Those that nobody here can run, or that wait for a message that can be read.
LEFT_ALONE = frozenset({"an unknown workflow", "an unknown version", "a newer format", "a message of no kind"})
#: Those that do not touch what the body needs.
HARMLESS = frozenset({"attributes that are cut off", "tags that are no list"})


@pytest.mark.parametrize("what", SPOILED)
async def test_f64_a_spoiled_row_hurts_only_its_run(what: str, tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'store.db'}?synchronous=OFF"
    async with TestApp(waits, url=url) as app:
        for name in ("bad", "good"):
            await app.start(waits, 1, id=name, tags=["t"], attributes={"a": 1})
        await app.settle()
    async with TestApp(waits, url=url, consume=False) as client:
        await client.get_run("bad").signal("go", 1)
    _spoil(tmp_path / "store.db", SPOILED[what])
    async with TestApp(waits, url=url, max_recoveries=3) as app:
        await app.get_run("good").signal("go", 2)
        await app.tick(600)
        assert await app.get_run("good").result(timeout=5) == 3
        assert {run.id for run in await app.runs()} == {"bad", "good"}
        await _look_at(app, what)


async def _look_at(app: TestApp, what: str) -> None:
    run = app.get_run("bad")
    info = await run.info()
    if what in LEFT_ALONE:
        assert info.status is Status.SUSPENDED
    elif what in HARMLESS:
        assert await run.result(timeout=5) == 2
    else:
        assert info.status in (Status.FAILED, Status.BLOCKED, Status.DEAD), info
        if info.status is Status.FAILED:
            with pytest.raises(RunFailed):
                await run.result(timeout=5)
    await run.history()
    await run.steps()


def _spoil(path: Path, statement: str) -> None:
    with closing(sqlite3.connect(path)) as connection, connection:
        done: Any = connection.execute(statement)
        assert done.rowcount, "nothing was spoiled"
