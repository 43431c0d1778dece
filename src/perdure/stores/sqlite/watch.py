"""Noticing that another process wrote to the file.

SQLite has no notifications; `PRAGMA data_version` changes on a connection when another connection has committed. A small
thread asks it on a connection of its own, some fifty times a second, while somebody wants to know. That also sees our own
writer's commits; so the writer's connection is asked then, on which only those of others count.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from threading import Event, Lock, Thread
from typing import Final

from perdure.stores.sqlite import connection as connections

#: Seconds.
_INTERVAL: Final = 0.02

Listener = Callable[[], None]


class Watch:
    """Runs its thread only between the first `add` and the last removal, or `close`. Any thread may call.

    `confirm(then)` must ask the writer's connection, and call `then` with its `data_version`.
    """

    def __init__(self, path: str, confirm: Callable[[Callable[[int], None]], None]) -> None:
        self._path = path
        self._confirm = confirm
        self._lock = Lock()
        self._listeners: list[Listener] = []
        self._stop: Event | None = None
        self._thread: Thread | None = None
        self._ending: list[Thread] = []
        self._confirmed: int | None = None

    def add(self, listener: Listener) -> Callable[[], None]:
        """Returns what removes it again."""
        with self._lock:
            self._listeners.append(listener)
            if self._thread is None:
                self._start()

        def remove() -> None:
            with self._lock:
                if listener in self._listeners:
                    self._listeners.remove(listener)
                if not self._listeners:
                    self._halt()

        return remove

    def close(self) -> None:
        """Forget all listeners; the thread has ended on return, after some microseconds."""
        with self._lock:
            self._listeners.clear()
            self._halt()
        for thread in self._ending:
            thread.join()
        self._ending.clear()

    def _start(self) -> None:
        self._confirm(self._note)  # What was written before counts as known; whatever comes after is heard of.
        self._stop = Event()
        self._thread = Thread(target=self._main, args=(self._stop,), name="perdure-sqlite-watch", daemon=True)
        self._thread.start()

    def _halt(self) -> None:
        if self._thread is None or self._stop is None:
            return
        self._stop.set()
        self._ending = [thread for thread in self._ending if thread.is_alive()]
        self._ending.append(self._thread)
        self._thread = None

    def _main(self, stop: Event) -> None:
        connection = connections.connect(self._path, "OFF")
        try:
            known = _version(connection)
            self._confirm(self._heard)  # What came while this thread was starting.
            while not stop.wait(_INTERVAL):
                version = _version(connection)
                if version is not None and version != known:
                    known = version
                    self._confirm(self._heard)
        finally:
            connection.close()

    def _note(self, version: int) -> None:
        """On the writer's thread."""
        self._confirmed = version

    def _heard(self, version: int) -> None:
        """On the writer's thread."""
        before, self._confirmed = self._confirmed, version
        if before is None or before == version:
            return
        with self._lock:
            listeners = tuple(self._listeners)
        for listener in listeners:
            listener()


def _version(connection: sqlite3.Connection) -> int | None:
    try:
        return int(connection.execute("PRAGMA data_version").fetchone()[0])
    except sqlite3.Error:
        return None  # Busy: the next time will tell.
