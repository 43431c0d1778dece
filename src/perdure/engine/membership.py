"""This process's place in the fleet: what it says of itself with every beat, and when it says it."""

from __future__ import annotations

import logging
import socket
from collections.abc import Callable
from typing import Final

from msgspec.structs import replace

from perdure.engine.holdings import Holdings
from perdure.engine.means import Means
from perdure.model.errors import StoreError
from perdure.ports.fleet import Process
from perdure.ports.store import Renewer

log = logging.getLogger("perdure.engine")

#: Microseconds: a process counts as gone so long after its last beat, or a lease after it, if that is longer. Short leases
#: are for taking runs over fast; that a process is gone for good need not be known as soon.
_SHORTEST_TTL: Final = 10_000_000


class Membership:
    """`ask` on the event loop, all else on the renewal thread.

    `lag` says how late, in microseconds, the event loop was at worst since it was last asked.
    """

    def __init__(self, means: Means, holdings: Holdings, lag: Callable[[], int]) -> None:
        self._means = means
        self._holdings = holdings
        self._lag = lag
        self._interval = means.settings.lease / 3 / 1_000_000
        self._ttl = max(means.settings.lease, _SHORTEST_TTL)
        self._next = means.monotonic() + self._interval
        namespace = means.settings.namespace
        self._process = Process(
            owner=means.owner,
            host=socket.gethostname(),
            pid=means.pid,
            perdure=_version(),
            namespaces=None if namespace is None else (namespace,),
            serves=(),
            held=0,
            limit=holdings.limit,
            lag=0,
            started_at=means.store.now(),
            draining=False,
        )
        #: The store's time of the last beat that succeeded; None: one failed since.
        self._beaten: int | None = self._process.started_at
        #: The last request for a beat, and the last that was answered.
        self._asked = self._answered = 0

    def ask(self, number: int) -> None:
        """A beat shall be made that begins after this call. Numbers grow."""
        self._asked = number

    def due_in(self) -> float:
        """Seconds until the next beat is due by itself."""
        return max(0.0, self._next - self._means.monotonic())

    def due(self) -> bool:
        return self._asked > self._answered or self.due_in() == 0.0

    def beat(self, renewer: Renewer) -> bool:
        """Say that we live. True if others may have taken us for gone since we last did."""
        answered = self._asked  # before we look at what we say
        self._next = self._means.monotonic() + self._interval
        now = self._means.store.now()
        try:
            renewer.beat(self._describe(), self._ttl)
        except StoreError as error:
            if self._beaten is not None:
                log.warning("perdure: cannot tell the fleet that this process lives, trying again: %s", error)
            self._beaten = None
            return False
        finally:
            self._answered = answered
        late = self._beaten is None or now - self._beaten > self._ttl
        self._beaten = now
        return late

    def miss(self) -> None:
        """Leave out a beat: the process is of no use to anybody."""
        self._next = self._means.monotonic() + self._interval
        self._answered = self._asked
        self._beaten = None

    def depart(self, renewer: Renewer) -> None:
        """The last turn is in."""
        try:
            renewer.depart(self._process.owner)
        except StoreError as error:
            log.info("perdure: cannot leave the fleet; it will notice in %g s: %s", self._ttl / 1_000_000, error)

    def _describe(self) -> Process:
        return replace(
            self._process,
            serves=self._means.registry.serves(),
            held=len(self._holdings),
            lag=self._lag(),
            draining=self._holdings.closed,
        )


def _version() -> str:
    from importlib import metadata  # slow to import, and asked for once

    try:
        return metadata.version("perdure")
    except metadata.PackageNotFoundError:
        return "unknown"  # run from its source
