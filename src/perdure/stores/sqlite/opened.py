"""How many connections this process has on each file.

POSIX locks belong to a process: when it closes *any* descriptor of a file, it loses all its locks on that file, also those
that SQLite holds for its connections (https://sqlite.org/howtocorrupt.html, 2.2). Another process that closes its connection
then takes itself for the last one and deletes the write-ahead log, to which we go on writing for nobody. So a file may be
opened other than through SQLite only while no connection of ours is on it.
"""

from __future__ import annotations

import os
import sqlite3
from collections import Counter
from collections.abc import Callable
from threading import Lock
from typing import Any

_lock = Lock()
_count: Counter[str] = Counter()


class Counted(sqlite3.Connection):
    """A connection that is counted until it is closed. Made by `connect` only."""

    file = ""

    def close(self) -> None:
        """Idempotent."""
        super().close()
        if self.file:
            with _lock:
                _count[self.file] -= 1
            self.file = ""


def connect(path: str, **options: Any) -> Counted:
    """As `sqlite3.connect`."""
    file = os.path.realpath(path)
    with _lock:
        _count[file] += 1
    try:
        connection = sqlite3.connect(path, factory=Counted, **options)
    except BaseException:
        with _lock:
            _count[file] -= 1
        raise
    connection.file = file
    return connection


def if_unused(path: str, look: Callable[[], None]) -> None:
    """Call `look`, which may open and close the file, unless this process has a connection on it. Raises what it raises."""
    with _lock:
        if not _count[os.path.realpath(path)]:
            look()
