"""What an app is made of: URLs, options, modules, files. Each mistake is told where it is made, and touches nothing."""

from __future__ import annotations

import asyncio
import logging
import os
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from perdure import Context, Perdure, PerdureError, StoreUnavailable, UsageError, step, workflow
from perdure.model.errors import StoreMismatch
from perdure.testing import TestApp
from tests.bad_input.hostile import hostile

WHOLE = frozenset({"one", "thousands of digits"})
LONG = frozenset({"one", "fraction"})

#: The settings and the hostile values that they take.
SETTINGS: dict[str, frozenset[str]] = {
    "namespace": frozenset({"word"}),
    "max_runs": WHOLE,
    "max_steps": WHOLE,
    "max_threads": WHOLE,
    "max_recoveries": WHOLE,
    "cache": WHOLE | {"zero"},
    "lease": LONG,
    "poll": LONG,
    "audit": LONG,
    "slow_loop": LONG,
    "dead_loop": LONG,
    "drain": LONG,
    "on_nondeterminism": frozenset(),
    "colour": frozenset(),
}


@pytest.mark.parametrize("setting", SETTINGS)
def test_a_setting_takes_what_it_says_and_names_itself_otherwise(setting: str) -> None:
    wrong: list[str] = []
    for name, value in hostile().items():
        try:
            Perdure("memory://", **{setting: value})
        except UsageError as error:
            if name in SETTINGS[setting] or setting.replace("_", " ") not in str(error).replace("_", " "):
                wrong.append(f"{name}: {error}")
        except Exception as error:
            wrong.append(f"{name}: {error!r}")
        else:
            if name not in SETTINGS[setting]:
                wrong.append(f"{name} was taken")
    assert wrong == []


URLS = [
    *(value for name, value in hostile().items() if name not in ("mute", "generator")),
    "orders.db",
    "sqlite://orders.db",
    "sqlite:///",
    "sqlite:///a%00b.db",
    "sqlite:///a%0Ab.db",
    "sqlite:///x.db#here",
    "sqlite:///x.db?colour=red",
    "sqlite://[",
    "memory:///x",
    "memory://?synchronous=OFF",
    "mysql://localhost/orders",
    "postgresql://",
    "postgresql://localhost/orders?colour=red",
    "postgresql://localhost/orders?schema=",
    "postgresql://localhost/orders?schema=pg_mine",
    "postgresql://localhost/orders?pgbouncer=perhaps",
    "postgresql://localhost/orders?listen=nowhere",
    "postgresql://localhost:port/orders",
]


def test_a_url_that_is_none_is_told_when_the_app_is_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for url in URLS:
        with pytest.raises(UsageError, match="URL"):
            Perdure(url)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("include", [*hostile()])
def test_what_cannot_be_included_is_told(include: str) -> None:
    async def opened(modules: Any) -> None:
        async with Perdure("memory://", include=modules):
            raise AssertionError("it was included")

    value = hostile()[include]
    for modules in (value, [value]):
        if isinstance(modules, set | dict) or modules == [1]:
            continue
        with pytest.raises(UsageError, match=r"include|module"):
            _run(opened(modules))


@pytest.mark.parametrize(
    ("module", "says"),
    [
        ("no.such.module", "there is no module no.such.module"),
        ("json", "module json has no workflow and no step"),
        (".relative", "no module's name"),
        ("with space", "no module's name"),
    ],
)
def test_a_module_with_nothing_in_it_is_named(module: str, says: str) -> None:
    async def opened() -> None:
        async with Perdure("memory://", include=[module]):
            raise AssertionError("it was included")

    with pytest.raises(UsageError, match=says):
        _run(opened())


def _run(coroutine: Any) -> None:
    asyncio.run(coroutine)


# ---------------------------------------------------------------- files


def _folder(path: Path) -> None:
    path.mkdir()


def _text(path: Path) -> None:
    path.write_text("Dear diary,\n" * 100)


def _short(path: Path) -> None:
    path.write_bytes(b"S")


def _zeros(path: Path) -> None:
    path.write_bytes(bytes(8192))


def _foreign(path: Path) -> None:
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("CREATE TABLE diary (day, text)")
        connection.execute("INSERT INTO diary VALUES (1, 'rain')")


def _foreign_with_a_log(path: Path) -> None:
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("PRAGMA journal_mode=WAL")
    _foreign(path)


async def _ours(path: Path) -> None:
    async with TestApp(url=f"sqlite:///{path}"):
        pass


async def _newer(path: Path) -> None:
    await _ours(path)
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("PRAGMA user_version=99")


async def _cut_off(path: Path) -> None:
    await _ours(path)
    os.truncate(path, os.stat(path).st_size // 2)


FILES: dict[str, tuple[Callable[[Path], Any], type[PerdureError], str]] = {
    "a folder": (_folder, StoreUnavailable, "it is a folder"),
    "a text": (_text, StoreMismatch, "not a SQLite database"),
    "one byte": (_short, StoreMismatch, "not a SQLite database"),
    "zeros": (_zeros, StoreMismatch, "not a SQLite database"),
    "somebody else's database": (_foreign, StoreMismatch, "not a Perdure store"),
    "somebody else's database with a log": (_foreign_with_a_log, StoreMismatch, "not a Perdure store"),
    "a newer store": (_newer, StoreMismatch, "has schema 99"),
    "a damaged store": (_cut_off, StoreUnavailable, "malformed"),
}


@pytest.mark.parametrize("kind", FILES)
async def test_a_file_that_is_no_store_of_ours_is_named_and_left_as_it_is(kind: str, tmp_path: Path) -> None:
    make, error, says = FILES[kind]
    path = tmp_path / "store.db"
    made = make(path)
    if made is not None:
        await made
    before = _contents(tmp_path)
    with pytest.raises(error, match=says) as raised:
        async with Perdure(f"sqlite:///{path}"):
            raise AssertionError("it was opened")
    assert str(path) in str(raised.value)
    assert _contents(tmp_path) == before


async def test_a_folder_that_is_missing_is_named_and_not_made(tmp_path: Path) -> None:
    with pytest.raises(StoreUnavailable, match=f"no folder {tmp_path / 'no'}"):
        async with Perdure(f"sqlite:///{tmp_path / 'no' / 'store.db'}"):
            raise AssertionError("it was opened")
    assert os.listdir(tmp_path) == []


def _contents(folder: Path) -> dict[str, bytes | None]:
    return {path.name: path.read_bytes() if path.is_file() else None for path in sorted(folder.iterdir())}


@step
async def note(n: int) -> int:
    return n


@workflow
async def grows(ctx: Context, text: str) -> int:
    await note(1)
    await ctx.wait_for_signal("go")
    return len(text) + await note(2)


class Told(logging.Handler):
    """Waits for a warning. On the loop's thread."""

    def __init__(self, text: str) -> None:
        super().__init__(logging.WARNING)
        self.heard = asyncio.Event()
        self._text = text

    def emit(self, record: logging.LogRecord) -> None:
        if self._text in record.getMessage():
            self.heard.set()


async def test_on_a_full_disk_runs_wait_and_lose_nothing(tmp_path: Path) -> None:
    async with TestApp(grows, url=f"sqlite:///{tmp_path / 'store.db'}") as app:
        run = await app.start(grows, "x" * 10_000, id="first")
        await app.settle()
        pages = await _pragma(app, "page_count")
        await _pragma(app, f"max_page_count={pages}")
        told = Told("disk is full")
        logging.getLogger("perdure.engine").addHandler(told)
        starting = asyncio.create_task(app.start(grows, "y" * 1_000_000, id="second"))
        await told.heard.wait()
        logging.getLogger("perdure.engine").removeHandler(told)
        assert not starting.done()
        assert await app.get_run("first").status() == "suspended"
        assert [found.id for found in await app.runs()] == ["first"]
        await _pragma(app, "max_page_count=1000000")
        app.clock.advance(10)
        await starting
        await app.settle()
        assert {found.id for found in await app.runs()} == {"first", "second"}
        await run.signal("go")
        await app.settle()
        assert await run.result() == 10_002


async def _pragma(app: TestApp, name: str) -> Any:
    store: Any = app.store
    return await store.pragma(name)
