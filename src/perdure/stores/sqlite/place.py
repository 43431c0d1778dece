"""The file that all connections of one store share, and how they get along on it."""

from __future__ import annotations

from msgspec import Struct

from perdure.stores.sqlite.turnstile import Turnstile


class Place(Struct, frozen=True):
    path: str
    #: SQLite's setting, in capitals.
    synchronous: str
    #: Seconds that the write lock is asked for.
    patience: float
    turnstile: Turnstile
