"""One open write transaction: what the rules of all verbs work on."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from typing import Final

from perdure.model.history import Entry
from perdure.model.run import Run
from perdure.stores.sqlite.rows import FIRST_TERMINAL, HISTORY_COLUMNS, SELECT_RUN, Row, entry_row, to_run
from perdure.stores.sqlite.sized import execute_sized, parts

_NEXT_LINK: Final = """
    SELECT next.incarnation FROM runs AS r JOIN runs AS next ON next.incarnation = r.successor WHERE r.incarnation = ?
"""
_INSERT_HISTORY: Final = "INSERT INTO history SELECT * FROM (VALUES @rows) WHERE column1 IS NOT NULL"


class Transaction:
    """Lives from BEGIN to COMMIT or ROLLBACK, on the thread of its connection. `now` is the store's time for all of it."""

    def __init__(self, connection: sqlite3.Connection, now: int) -> None:
        self.connection = connection
        self.execute = connection.execute
        self.now = now
        #: Rows that `flush` inserts. Nothing reads history in a write transaction, so they may wait for the end.
        self.history: list[Row] = []
        #: Runs changed one at a time: what was read of them before is stale.
        self.touched: set[int] = set()

    def append(self, incarnation: int, n: int, entries: Sequence[Entry]) -> None:
        """The entries of one commit, at positions n, n+1, ..."""
        for position, entry in enumerate(entries, start=n):
            self.history.append(entry_row(incarnation, position, entry, n))

    def flush(self) -> None:
        """Write what was held back. Before COMMIT, before a savepoint is released, and before history is deleted."""
        for part in parts(self.history):
            execute_sized(self.connection, _INSERT_HISTORY, HISTORY_COLUMNS, part)
        self.history.clear()

    def run(self, incarnation: int) -> Run | None:
        row = self.execute(SELECT_RUN + " WHERE incarnation = ?", (incarnation,)).fetchone()
        return None if row is None else to_run(row)

    def run_by_id(self, run_id: str) -> Run | None:
        row = self.execute(SELECT_RUN + " WHERE id = ?", (run_id,)).fetchone()
        return None if row is None else to_run(row)

    def last_link(self, incarnation: int) -> int:
        """The end of the chain of continued runs that begins at a run, as far as it still exists."""
        row = self.execute(_LAST_LINK, (incarnation,)).fetchone()
        return incarnation if row is None else int(row[0])

    def chain(self, incarnation: int) -> list[int]:
        """The chain of continued runs that begins at a run, as far as it still exists."""
        links = [incarnation]
        while row := self.execute(_NEXT_LINK, (links[-1],)).fetchone():
            links.append(row[0])
        return links

    def next_arrival(self) -> int:
        """The place of a message among all that ever came to tokens."""
        self.execute("UPDATE arrivals SET last = last + 1")
        return int(self.execute("SELECT last FROM arrivals").fetchone()[0])

    def is_live(self, incarnation: int) -> bool:
        row = self.execute("SELECT status FROM runs WHERE incarnation = ?", (incarnation,)).fetchone()
        return row is not None and row[0] < FIRST_TERMINAL


_LAST_LINK: Final = """
    WITH RECURSIVE chain (incarnation, place) AS (
        SELECT ?, 0
        UNION ALL
        SELECT r.successor, c.place + 1 FROM chain AS c JOIN runs AS r ON r.incarnation = c.incarnation
        WHERE r.successor IS NOT NULL AND EXISTS (SELECT 1 FROM runs AS s WHERE s.incarnation = r.successor)
    )
    SELECT incarnation FROM chain ORDER BY place DESC LIMIT 1
"""
