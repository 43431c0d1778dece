"""The ends of waits, for tokens and for events: what came for them and lies unread is given back."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from perdure.model.messages import MessageKind
from perdure.stores.sqlite import events, inboxes
from perdure.stores.sqlite.rows import Letter
from perdure.stores.sqlite.sized import execute_sized, parts
from perdure.stores.sqlite.transaction import Transaction

_WAITS: Final = """
    SELECT json_group_array(json_array(place, incarnation, seq, namespace, served, back)) FROM waits
    WHERE incarnation IN (@rows)
"""
_LETTER: Final = "SELECT kind, name, token, payload, failed, at, arrival FROM messages"
_EVENT: Final = MessageKind.EVENT.value


class Waiting(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """One wait, as `_WAITS` reads it."""

    place: int
    incarnation: int
    seq: int
    namespace: str
    #: The number of the message it was served.
    served: int | None
    #: Of an event that is to be given back: see `events`.
    back: str | None


_decode_waits = msgspec.json.Decoder(list[Waiting]).decode


def end_waits(tx: Transaction, incarnations: Sequence[int], seqs: Sequence[int] | None = None) -> None:
    """Take waits (those of operations `seqs`, or all) out of their lines; give back what came for them and lies unread."""
    back: list[tuple[Waiting, Letter]] = []
    for wait in _waits(tx, incarnations):
        if seqs is not None and wait.seq not in seqs:
            continue
        tx.execute("DELETE FROM waits WHERE place = ?", (wait.place,))
        where = " WHERE incarnation = ? AND number = ?"
        message = (wait.incarnation, wait.served)
        row = None if wait.served is None else tx.execute(_LETTER + where, message).fetchone()
        if row is not None:
            tx.execute("DELETE FROM messages" + where, message)
            back.append((wait, Letter(*row)))
    # Only now, so that nothing is given to a wait that ends with it.
    for wait, letter in sorted(back, key=lambda pair: pair[1].arrival or 0):
        if letter.kind != _EVENT:
            inboxes.give(tx, wait.namespace, letter)
        elif wait.back is not None:
            events.offer(tx, wait.namespace, letter, wait.back)


def _waits(tx: Transaction, incarnations: Sequence[int]) -> list[Waiting]:
    found: list[Waiting] = []
    for part in parts([(incarnation,) for incarnation in incarnations]):
        found += _decode_waits(execute_sized(tx.connection, _WAITS, 1, part).fetchone()[0])
    return found
