"""Parked instances, kept so that a run that wakes soon need not be replayed. The least lately parked goes first.

Cached or replayed must be indistinguishable: an instance is used again only if it stands exactly where the store's run stands.
"""

from __future__ import annotations

from collections import OrderedDict

from perdure.core.instance import Instance


class Cache:
    """Event loop only."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._parked: OrderedDict[int, tuple[int, str, Instance]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._parked)

    def put(self, incarnation: int, n: int, fingerprint: str, instance: Instance) -> None:
        """Keep a parked instance, or close it if there is no room at all."""
        if self._limit == 0:
            instance.close()
            return
        self._parked[incarnation] = (n, fingerprint, instance)
        if len(self._parked) > self._limit:
            self.evict()

    def take(self, incarnation: int, n: int, fingerprint: str) -> Instance | None:
        """The instance of a run, out of the cache; None if it is not there or is not what the store has."""
        parked = self._parked.pop(incarnation, None)
        if parked is None:
            return None
        if parked[:2] == (n, fingerprint):
            return parked[2]
        parked[2].close()
        return None

    def look(self, incarnation: int, n: int, fingerprint: str) -> Instance | None:
        """As `take`, but it stays there."""
        parked = self._parked.get(incarnation)
        return parked[2] if parked is not None and parked[:2] == (n, fingerprint) else None

    def forget(self, incarnation: int) -> None:
        """Drop one, if it is there."""
        parked = self._parked.pop(incarnation, None)
        if parked is not None:
            parked[2].close()

    def evict(self) -> None:
        """Drop the least lately parked."""
        self._parked.popitem(last=False)[1][2].close()

    def clear(self) -> None:
        """Drop all."""
        while self._parked:
            self.evict()
