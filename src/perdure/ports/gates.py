"""How gates stand, as a store tells it."""

from __future__ import annotations

from typing import Final

from msgspec import Struct

from perdure.model.gates import GateKey, Rules
from perdure.model.run import RunKey

#: So many gates at most are listed by one call of `Store.gates`.
MOST_GATES: Final = 1_000


class Ticket(Struct, frozen=True, kw_only=True):
    """Who holds a gate, or waits for it."""

    run: RunKey
    workflow: str
    #: The operation's position, or `WHOLE_RUN`.
    seq: int
    held: bool
    priority: int
    fairness: str
    #: When it was admitted, or came.
    since: int


class Gate(Struct, frozen=True, kw_only=True):
    """How a gate stands."""

    key: GateKey
    rules: Rules
    #: How many hold it, and how many wait.
    held: int
    waiting: int
    #: When somebody looks at it though nobody releases it; None: not.
    wake_at: int | None
    #: The first of those that hold it, oldest first; then the first of those that wait, by priority and arrival.
    tickets: tuple[Ticket, ...]
