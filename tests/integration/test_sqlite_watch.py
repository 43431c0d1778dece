"""Hearing of others' writes, and of others' only."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from threading import Event
from threading import enumerate as threads

from perdure.model.commit import Create
from perdure.stores.sqlite import SqliteStore
from perdure.stores.sqlite.watch import Watch
from perdure.testing import ManualClock
from perdure.testing.conformance.kit import new


def commit(path: Path) -> None:
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("INSERT INTO t DEFAULT VALUES")


class Writer:
    """Stands for the writer's connection: says which commits were its own."""

    def __init__(self) -> None:
        self.version = 1
        self.asked = Event()

    def confirm(self, then: Callable[[int], None]) -> None:
        then(self.version)
        self.asked.set()

    def wait(self) -> None:
        assert self.asked.wait(30)
        self.asked.clear()


def test_only_the_commits_of_others_are_told(tmp_path: Path) -> None:
    path = tmp_path / "t.db"
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA journal_mode=WAL")
        connection.execute("CREATE TABLE t (i INTEGER PRIMARY KEY)")
    writer, heard = Writer(), Event()
    watch = Watch(str(path), writer.confirm)
    remove = watch.add(heard.set)
    writer.wait()  # What was there before counts as known.
    commit(path)
    writer.wait()
    assert not heard.is_set()  # On the writer's connection nothing had changed: it was our own.
    writer.version = 2
    commit(path)
    assert heard.wait(30)
    remove()
    watch.close()
    assert [thread.name for thread in threads() if thread.name == "perdure-sqlite-watch"] == []


def test_it_starts_again_for_the_next_listener(tmp_path: Path) -> None:
    path = tmp_path / "t.db"
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE t (i INTEGER PRIMARY KEY)")
    writer, first, second = Writer(), Event(), Event()
    watch = Watch(str(path), writer.confirm)
    watch.add(first.set)()
    watch.add(second.set)
    writer.wait()
    writer.version = 2
    commit(path)
    assert second.wait(30)
    assert not first.is_set()
    watch.close()


async def test_stores_of_one_file_hear_each_other(tmp_path: Path) -> None:
    path = str(tmp_path / "s.db")
    stores = [SqliteStore(path, clock=ManualClock(), synchronous="OFF") for _ in range(2)]
    loop = asyncio.get_running_loop()
    heard = [asyncio.Event() for _ in stores]
    for store, event in zip(stores, heard, strict=True):
        await store.open()

        def tell(event: asyncio.Event = event) -> None:
            loop.call_soon_threadsafe(event.set)

        store.on_change(tell)
    for place in (0, 1, 0):
        other = heard[1 - place]
        number = 0
        # The first write may come before the other has begun to listen.
        while not other.is_set():
            number += 1
            await stores[place].write([Create(run=new(f"{place}.{number}.{len(threads())}"))])
            await asyncio.wait([asyncio.ensure_future(other.wait())], timeout=0.05)
        other.clear()
    for store in stores:
        await store.close()
