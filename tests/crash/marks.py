"""Where a worker of the crash test is, told in a map that its killer shares; and what becomes of its lost runs and answers."""

from __future__ import annotations

import itertools
import mmap
import os
import re
from collections.abc import Callable
from typing import Any

from perdure import Status
from perdure.engine import committer, executor
from perdure.stores.sqlite import writer
from tests.crash import load

SLOTS = 64
SIZE = 2 * SLOTS

#: Of so many commits of a worker, the answer to one is lost after the server has given it.
_LOSE_EACH = 50

#: The functions of PostgreSQL that apply writes.
_WRITES = re.compile(r"\.(write|plain|turn)_\d+\(")


class Marks:
    """One slot. Its worker writes, everybody may read, also after the worker's death."""

    def __init__(self, shared: mmap.mmap, slot: int) -> None:
        self._shared = shared
        self._opening, self._commits = 2 * slot, 2 * slot + 1

    def opening(self, is_so: bool) -> None:
        """A new worker begins to open its app (called before its birth), or has done so."""
        self._shared[self._opening] = is_so
        if is_so:
            self._shared[self._commits] = 0

    def is_opening(self) -> bool:
        return bool(self._shared[self._opening])

    def in_commit(self) -> bool:
        """True if a commit has begun and its answer has not come."""
        return bool(self._shared[self._commits])

    def _begin(self) -> None:
        self._shared[self._commits] += 1

    def _end(self) -> None:
        self._shared[self._commits] -= 1

    def watch(self, url: str) -> None:
        """In the worker, before it opens its app: mark from now on, and tell what becomes of lost runs and lost answers."""
        if url.startswith("sqlite:"):
            self._watch_sqlite()
        else:
            self._watch_postgres()
        _watch_engine()

    def _watch_sqlite(self) -> None:
        transact: Any = writer.Writer._transact

        def marked(transaction: Any, *arguments: Any) -> Any:
            self._begin()
            try:
                return transact(transaction, *arguments)
            finally:
                self._end()

        _put(writer.Writer, "_transact", marked)

    def _watch_postgres(self) -> None:
        import asyncpg

        fetch: Any = asyncpg.Connection.fetch

        async def marked(connection: Any, text: str, *arguments: Any, **options: Any) -> Any:
            if not _WRITES.search(text):
                return await fetch(connection, text, *arguments, **options)
            self._begin()
            try:
                answer = await fetch(connection, text, *arguments, **options)
                if next(writes) % _LOSE_EACH == 0:
                    connection.terminate()
                    raise ConnectionResetError("the answer to a commit was lost")
                return answer
            finally:
                self._end()

        writes = itertools.count(1)
        _put(asyncpg.Connection, "fetch", marked)


def _watch_engine() -> None:
    lost: Any = executor.Executor._lost
    known: Any = committer._known

    def watched_lost(self: Any, held: Any, run: Any) -> None:
        # Not what was cancelled from outside: what another process has taken over.
        if run is not None and run.epoch > held.epoch and run.status is not Status.CANCELLED:
            _tell("fenced", held.key.id)
        lost(self, held, run)

    def watched_known(write: Any, answer: Any) -> Any:
        adopted = known(write, answer)
        _tell("asked" if adopted is answer else "adopted", write.run.id)
        return adopted

    _put(executor.Executor, "_lost", watched_lost)
    _put(committer, "_known", watched_known)


def _tell(what: str, run_id: str) -> None:
    os.write(load.pipe, f"{os.getpid()} {what} {run_id} 0 0 -\n".encode())


def _put(where: Any, name: str, function: Callable[..., Any]) -> None:
    setattr(where, name, function)
