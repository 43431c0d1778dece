"""The history that a fork begins with: another run's, up to where that one issued an operation. Pure.

Everything before operation `seq` is kept as it was: the results that the body had seen by then, in their order, and also those
that came later to operations before it. (Of three steps that were issued together, a fork from the third keeps the results of
the first two.) A failure that came later is not kept: nothing that is kept was built on it, so that operation is open again.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from perdure.core.replay import revive
from perdure.model.attributes import merged
from perdure.model.history import Entry, Event, Op
from perdure.model.run import RunKey

_CLOSED = frozenset({Event.RESOLVED, Event.FAILED, Event.ABANDONED})


class Copied(Struct, frozen=True):
    """What a fork begins with."""

    entries: tuple[Entry, ...]
    #: The newest values that were published in it.
    values: tuple[tuple[str, bytes], ...]
    attributes: bytes | None


def forked(of: RunKey, attributes: bytes | None, entries: Sequence[Entry], seq: int, now: int) -> Copied | None:
    """What a fork from operation `seq` of a run begins with; None if the run has not issued it."""
    place = next((i for i, e in enumerate(entries) if e.event is Event.SCHEDULED and e.seq == seq), None)
    if place is None:
        return None
    before = entries[:place]
    late = _late(before, entries)
    values: dict[str, bytes] = {}
    for entry in before:
        if entry.event is Event.SCHEDULED and entry.payload is not None:
            if entry.op is Op.VALUE:
                values[entry.name] = entry.payload
            elif entry.op is Op.ATTRIBUTES:
                attributes = merged(attributes, entry.payload)
    marker = Entry(Event.FORKED, seq, None, of.id, b"%d" % len(late), now)
    return Copied((*before, *late, marker), tuple(values.items()), attributes)


def _late(before: Sequence[Entry], entries: Sequence[Entry]) -> list[Entry]:
    """Results of operations that were open at the end of `before`."""
    kept, again = revive(before)
    settled = {entry.seq for entry in (*kept, *again) if entry.event in _CLOSED}
    open_then = {entry.seq for entry in kept if entry.event is Event.SCHEDULED} - settled
    kept, again_later = revive(entries)
    return [entry for entry in (*kept, *again_later) if entry.event is Event.RESOLVED and entry.seq in open_then]
