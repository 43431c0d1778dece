"""A fork waits until no thread of ours is inside SQLite.

SQLite has locks of its own, for the whole process. One that another thread holds at the moment of a fork stays locked in the
child for ever, and the child hangs at the first file it opens, though it opens a store of its own. So threads say when they
are inside, and a fork (from any thread, by whatever means) first waits for them to come out, and keeps them out meanwhile.

State of the process, not of a store, because SQLite's is.
"""

from __future__ import annotations

import os
from collections.abc import Generator
from contextlib import contextmanager
from threading import Condition
from typing import Final

#: Seconds. A thread that waits for another process's lock may be inside for long; then the fork is made all the same.
_PATIENCE: Final = 5.0


class Crossing:
    """Many may be inside at a time; a fork waits for all, and holds the lock from before it to after it."""

    def __init__(self) -> None:
        self._lock = Condition()
        self._count = 0
        self._registered = False

    @contextmanager
    def inside(self) -> Generator[None]:
        with self._lock:
            self._count += 1
        try:
            yield
        finally:
            with self._lock:
                self._count -= 1
                if not self._count:
                    self._lock.notify_all()

    def guard(self) -> None:
        """See to it that forks wait. Any number of times."""
        with self._lock:
            if not self._registered and hasattr(os, "register_at_fork"):
                self._registered = True
                os.register_at_fork(
                    before=self._before, after_in_parent=self._after_in_parent, after_in_child=self._after_in_child
                )

    def _before(self) -> None:
        self._lock.acquire()
        self._lock.wait_for(lambda: not self._count, _PATIENCE)

    def _after_in_parent(self) -> None:
        self._lock.release()

    def _after_in_child(self) -> None:
        # The threads that were inside, or wait for the lock, are not here.
        self._lock = Condition()
        self._count = 0


CROSSING: Final = Crossing()
