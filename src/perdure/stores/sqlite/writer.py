"""The one writer of a store: everything that came while a commit was in flight shares the next transaction.

A transaction is first tried without savepoints. If the data of some write is at fault, it is rolled back and done again
with a savepoint a write, so that only that write is refused. If the disk is at fault, nothing of it is written.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Sequence
from typing import Any

from perdure.model.commit import Answer, Missing, Unstorable, Write
from perdure.model.errors import StoreError
from perdure.ports.clock import Clock
from perdure.stores.sqlite import connection as connections
from perdure.stores.sqlite import schema, writes
from perdure.stores.sqlite.bulk import Bulk
from perdure.stores.sqlite.connection import Fault, fault_of, unavailable
from perdure.stores.sqlite.place import Place
from perdure.stores.sqlite.thread import Batch, Job, Outcome
from perdure.stores.sqlite.transaction import Transaction

#: What stands in a list of answers until the answer is there.
_UNANSWERED = Missing("")


class Writer:
    """A desk (see `thread`)."""

    def __init__(self, place: Place, clock: Clock, *, migrate: bool) -> None:
        self._place = place
        self._clock = clock
        self._migrate = migrate
        self._connection: sqlite3.Connection | None = None

    def open(self) -> None:
        schema.check_file(self._place.path, migrate=self._migrate)
        connection = connections.connect(self._place.path, self._place.synchronous)
        try:
            schema.prepare(connection, self._place.path, migrate=self._migrate)
        except BaseException:
            connection.close()
            raise
        self._connection = connection

    def close(self) -> None:
        if self._connection is None:
            return
        try:
            self._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
        except sqlite3.Error:
            pass  # Somebody else is at it, or the disk is full: the log stays, and loses nothing.
        self._connection.close()
        self._connection = None

    def serve(self, jobs: Sequence[Job]) -> list[Outcome]:
        with self._place.turnstile.ordinary():
            try:
                return self._transact(_together, jobs)
            except Exception as error:
                if fault_of(error) is not Fault.DATA:
                    return self._refuse(jobs, error)
            try:
                return self._transact(_apart, jobs)
            except Exception as error:
                return self._refuse(jobs, error)

    def _transact(
        self, apply: Callable[[Transaction, Sequence[Job]], list[Outcome]], jobs: Sequence[Job]
    ) -> list[Outcome]:
        if self._connection is None:
            self._connection = connections.connect(self._place.path, self._place.synchronous)
        connection = self._connection
        connections.begin(connection, self._place.patience)
        try:
            tx = Transaction(connection, self._clock.now())
            outcomes = apply(tx, jobs)
            tx.flush()
            connection.execute("COMMIT")
        except BaseException:
            if not connections.rollback(connection):
                self._connection = None
            raise
        return outcomes

    def _refuse(self, jobs: Sequence[Job], error: Exception) -> list[Outcome]:
        refusal = error if isinstance(error, StoreError) else unavailable(self._place.path, error)
        return [(job.future, None, refusal) for job in jobs]


def _together(tx: Transaction, jobs: Sequence[Job]) -> list[Outcome]:
    """The fast way; raises on the first fault."""
    bulk = Bulk(tx)
    outcomes: list[Outcome] = []
    for job in jobs:
        if isinstance(job, Batch):
            answers: list[Answer] = [_UNANSWERED] * len(job.writes)
            for position, write in enumerate(job.writes):
                bulk.add(write, answers, position)
            outcomes.append((job.future, answers, None))
        else:
            bulk.flush()
            outcomes.append((job.future, job.action(tx), None))
    bulk.flush()
    return outcomes


def _apart(tx: Transaction, jobs: Sequence[Job]) -> list[Outcome]:
    """With a savepoint a write: a fault of its data takes back that write alone."""
    outcomes: list[Outcome] = []
    for job in jobs:
        if isinstance(job, Batch):
            outcomes.append((job.future, [_apply_alone(tx, write) for write in job.writes], None))
        else:
            try:
                outcomes.append((job.future, _alone(tx, job.action), None))
            except Exception as error:
                if fault_of(error) is not Fault.DATA:
                    raise
                outcomes.append((job.future, None, error))
    return outcomes


def _apply_alone(tx: Transaction, write: Write) -> Answer:
    try:
        answer: Answer = _alone(tx, lambda tx: writes.apply(tx, write))
    except Exception as error:
        if fault_of(error) is not Fault.DATA:
            raise
        return Unstorable(f"{type(error).__name__}: {error}")
    return answer


def _alone(tx: Transaction, action: Callable[[Transaction], Any]) -> Any:
    tx.execute("SAVEPOINT alone")
    try:
        result = action(tx)
        tx.flush()
    except BaseException:
        tx.history.clear()
        tx.execute("ROLLBACK TO alone")
        tx.execute("RELEASE alone")
        raise
    tx.execute("RELEASE alone")
    return result
