"""The renewer: leases are pushed on from a thread, a loop and a connection of their own, however busy everything else is."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from threading import Thread
from typing import Any, TypeVar

from perdure.ports.fleet import Process
from perdure.ports.store import Held, Renewal
from perdure.stores.postgres.claims import Claims
from perdure.stores.postgres.connections import Connections
from perdure.stores.postgres.fleet import Fleet
from perdure.stores.postgres.place import Place

T = TypeVar("T")

#: Seconds: a renewal that takes longer comes too late anyway. A connection that is silent for less is given up for another one,
#: so that one that died without saying so does not cost the leases that it was to renew.
_PATIENCE = 10.0
_LIMIT = 3.0


class PostgresRenewer:
    """The Renewer port. Connects when first used; to be used from one thread, also an event loop's. Raises `StoreUnavailable`.

    `at`: the time to take for now, None is the server's own; `check` raises where the store may not be used (closed, or in a
    forked process); `limit` is how many seconds a connection may be silent.
    """

    def __init__(
        self, place: Place, at: Callable[[], int | None], check: Callable[[], None], *, limit: float = _LIMIT
    ) -> None:
        self._at = at
        self._check = check
        self._connections = Connections(place, 1, patience=_PATIENCE, limit=limit)
        self._claims = Claims(place, self._connections)
        self._fleet = Fleet(place, self._connections)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: Thread | None = None

    def renew(self, owner: str, lease: int, held: Sequence[Held]) -> Sequence[Renewal]:
        self._check()
        return self._run(self._claims.renew(owner, lease, held, self._at())) if held else ()

    def release(self, owner: str, held: Sequence[Held]) -> None:
        self._check()
        if held:
            self._run(self._claims.release(owner, held, self._at()))

    def beat(self, process: Process, ttl: int) -> None:
        self._check()
        self._run(self._fleet.beat(process, ttl, self._at()))

    def depart(self, owner: str) -> None:
        self._check()
        self._run(self._fleet.depart(owner))

    def close(self) -> None:
        """Idempotent."""
        if self._loop is None or self._thread is None:
            return
        self._run(self._connections.close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
        self._loop = self._thread = None

    def _run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        if self._loop is None:
            self._loop = asyncio.new_event_loop()
            self._thread = Thread(target=self._loop.run_forever, name="perdure-postgres-renewer", daemon=True)
            self._thread.start()
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result()
