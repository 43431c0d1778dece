"""The renewer: leases are pushed on from a thread and a connection of their own, however busy everything else is."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Sequence
from typing import TypeVar

from perdure.ports.clock import Clock
from perdure.ports.fleet import Process
from perdure.ports.store import Held, Renewal
from perdure.stores.sqlite import claims, fleet
from perdure.stores.sqlite import connection as connections
from perdure.stores.sqlite.connection import unavailable
from perdure.stores.sqlite.forking import CROSSING
from perdure.stores.sqlite.place import Place
from perdure.stores.sqlite.transaction import Transaction

T = TypeVar("T")


class SqliteRenewer:
    """The Renewer port. Connects when first used; to be used from one thread. Raises `StoreUnavailable`."""

    def __init__(self, place: Place, clock: Clock, check: Callable[[], None]) -> None:
        self._place = place
        self._clock = clock
        #: Raises where the store may not be used (closed, or in a forked process).
        self._check = check
        self._connection: sqlite3.Connection | None = None

    def renew(self, owner: str, lease: int, held: Sequence[Held]) -> Sequence[Renewal]:
        self._check()
        return self._transact(lambda tx: claims.renew(tx, owner, lease, held)) if held else ()

    def release(self, owner: str, held: Sequence[Held]) -> None:
        self._check()
        if held:
            self._transact(lambda tx: claims.release(tx, owner, held))

    def beat(self, process: Process, ttl: int) -> None:
        self._check()
        self._transact(lambda tx: fleet.beat(tx, process, ttl))

    def depart(self, owner: str) -> None:
        self._check()
        self._transact(lambda tx: fleet.depart(tx, owner))

    def close(self) -> None:
        """Idempotent."""
        if self._connection is not None:
            with CROSSING.inside():
                self._connection.close()
            self._connection = None

    def _transact(self, action: Callable[[Transaction], T]) -> T:
        with CROSSING.inside():  # before the turnstile, as the writer does
            return self._transact_inside(action)

    def _transact_inside(self, action: Callable[[Transaction], T]) -> T:
        if self._connection is None:
            self._connection = connections.connect(self._place.path, self._place.synchronous)
        connection = self._connection
        with self._place.turnstile.urgent():
            try:
                connections.begin(connection, self._place.patience, eager=True)
                result = action(Transaction(connection, self._clock.now()))
                connection.execute("COMMIT")
            except BaseException as error:
                if not connections.rollback(connection):
                    self._connection = None
                if isinstance(error, sqlite3.Error):
                    raise unavailable(self._place.path, error) from error
                raise
        return result
