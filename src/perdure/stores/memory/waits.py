"""The ends of waits, for tokens and for events: what came for them and lies unread is given back."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from msgspec.structs import replace

from perdure.stores.memory import events, inboxes
from perdure.stores.memory.tables import Letter, Tables, Wait


def end_waits(tables: Tables, incarnations: Iterable[int], over: Callable[[Wait], bool], now: int) -> None:
    """Take waits out of their lines and give back what came for them and lies unread."""
    back: list[Letter] = []
    for incarnation in incarnations:
        actor = tables.actors[incarnation]
        for ended in filter(over, actor.waits):
            line = tables.lines[ended.token]
            tables.put_line(ended.token, replace(line, waits=tuple(each for each in line.waits if each != ended)))
        returned = [letter for letter in actor.inbox if letter.wait is not None and over(letter.wait)]
        back += returned
        tables.put_actor(
            replace(
                actor,
                waits=tuple(each for each in actor.waits if not over(each)),
                inbox=tuple(letter for letter in actor.inbox if letter not in returned),
            )
        )
    # Only now, so that nothing is given to a wait that ends with it.
    for letter in sorted(back, key=lambda letter: letter.arrival):
        if letter.wait is None:
            continue
        if letter.wait.event is None:
            message = replace(letter.message, number=0)
            inboxes.give(tables, letter.wait.token, replace(letter, message=message, wait=None), now)
        elif letter.back is not None:
            events.offer(tables, letter.back, now)
