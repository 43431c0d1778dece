"""A reader: answers from the last committed state, without waiting for the writer."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence

from perdure.stores.sqlite import connection as connections
from perdure.stores.sqlite.connection import Fault, Patience, fault_of, unavailable
from perdure.stores.sqlite.thread import Call, Job, Outcome


class Reader:
    """A desk (see `thread`) for calls only. Opens after the writer has: the schema is there."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._connection: sqlite3.Connection | None = None

    def open(self) -> None:
        self._connection = connections.connect(self._path, "OFF")  # It writes nothing.
        connections.patiently(self._connection, "PRAGMA query_only=ON")

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def serve(self, jobs: Sequence[Job]) -> list[Outcome]:
        return [self._answer(job) for job in jobs]

    def _answer(self, job: Job) -> Outcome:
        assert self._connection is not None
        assert isinstance(job, Call)
        patience = Patience()
        while True:
            try:
                return job.future, job.action(self._connection), None
            except Exception as error:
                # Busy only while another process recovers the log or has just switched it on.
                if not patience.again(error):
                    return job.future, None, error if fault_of(error) is Fault.DATA else unavailable(self._path, error)
