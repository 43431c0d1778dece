"""Who of one process may ask for the file's write lock next: renewals before everything else."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from threading import Event, Lock


class Turnstile:
    """One at a time, the urgent first. Threads of one process only; other processes meet at SQLite's own lock.

    A lease that is not renewed in time costs a whole run; an ordinary transaction that waits costs a millisecond.
    """

    def __init__(self) -> None:
        self._lock = Lock()
        self._waiting = 0
        self._count = Lock()
        self._clear = Event()
        self._clear.set()

    @contextmanager
    def ordinary(self) -> Generator[None]:
        self._clear.wait()
        with self._lock:
            yield

    @contextmanager
    def urgent(self) -> Generator[None]:
        with self._count:
            self._waiting += 1
            self._clear.clear()
        try:
            with self._lock:
                yield
        finally:
            with self._count:
                self._waiting -= 1
                if not self._waiting:
                    self._clear.set()

    def urgent_waiting(self) -> bool:
        """Whether somebody urgent is inside or waits to be."""
        return not self._clear.is_set()
