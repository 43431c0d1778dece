"""In which order a body takes in what arrived and what is due."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from perdure.core.operation import Operation
from perdure.core.pending import Pending
from perdure.core.turn import Arrival
from perdure.model.messages import Message, MessageKind


def in_order(arrivals: Sequence[Arrival], pending: Pending, now: int) -> list[Arrival | Operation]:
    """Cancels first, then by time of arrival or due time; what arrived goes before what is due at the same time."""
    events: list[tuple[int, int, int, Arrival | Operation]] = []
    messages: list[tuple[int, int, Message]] = []
    for order, arrival in enumerate(arrivals):
        if isinstance(arrival, Message):
            messages.append((arrival.number, order, arrival))
        else:
            events.append((arrival.at, 0, order, arrival))
    if messages:
        events += _unseen(sorted(messages, key=_by_number), pending)
    for operation in pending.take_due(now):
        events.append((operation.due or 0, 1, operation.seq, operation))
    events.sort(key=_by_time)
    return [event[3] for event in events]


def _unseen(messages: list[tuple[int, int, Message]], pending: Pending) -> Iterator[tuple[int, int, int, Message]]:
    """The new ones of these numbered messages, which from now on are seen.

    They keep the order of their numbers also where the clocks that stamped them disagree.
    """
    latest = place = 0
    for number, order, message in messages:
        if number > pending.inbox.seen:
            pending.inbox.seen = number
            if message.kind is MessageKind.CANCEL:
                yield (0, 0, order, message)
            else:
                latest, place = max((latest, place), (message.at, order))
                yield (latest, 0, place, message)


def _by_time(event: tuple[int, int, int, object]) -> tuple[int, int, int]:
    return event[:3]


def _by_number(message: tuple[int, int, Message]) -> int:
    return message[0]
