"""Messages and waits: how a message finds an inbox, and what becomes of it when nobody waits any more."""

from __future__ import annotations

from msgspec.structs import replace

from perdure.model.commit import Answer, Applied, Ended, Missing, TokenWait
from perdure.model.messages import Message, MessageKind, Outgoing
from perdure.model.run import TERMINAL, RunKey
from perdure.stores.memory import rules
from perdure.stores.memory.tables import Letter, Line, Tables, Token, Wait


def send(tables: Tables, out: Outgoing, now: int) -> Answer:
    """One message from outside or from a turn, once for each id of its own."""
    rules.check_storable(out)
    message = Message(
        number=0, kind=out.kind, name=out.name, token=out.token, payload=out.payload, failed=out.failed, at=now
    )
    if out.run_id is not None:
        return _send_to_run(tables, out.run_id, out, message, now)
    if out.token is None:
        raise rules.DataRefused("a message names neither a run nor a token")
    token = (out.namespace, out.token)
    if not _first(tables, token, out.dedup):
        return Applied()
    return Applied(give(tables, token, Letter(message, tables.next_number()), now))


def _send_to_run(tables: Tables, run_id: str, out: Outgoing, message: Message, now: int) -> Answer:
    incarnation = tables.ids.get(run_id)
    if incarnation is None or out.incarnation not in (None, incarnation):
        return Missing(run_id)
    if out.dedup is not None and (incarnation, out.dedup) in tables.dedups:
        return Applied()  # Also where the run has ended since: this very message did arrive.
    target = tables.last_link(incarnation)
    if target.status in TERMINAL:
        return Ended(target)
    _first(tables, incarnation, out.dedup)
    deliver(tables, target.incarnation, Letter(message, tables.next_number()), now)
    return Applied(target.key)


def _first(tables: Tables, address: int | Token, dedup: str | None) -> bool:
    """Whether this message was not sent to this address before; remembers it."""
    if dedup is None:
        return True
    if (address, dedup) in tables.dedups:
        return False
    tables.put(tables.dedups, (address, dedup), None)
    return True


def deliver(tables: Tables, incarnation: int, letter: Letter, now: int) -> None:
    """Put a message into a live run's inbox, and wake the run if it listens, or must listen."""
    actor = tables.actors[incarnation]
    run = rules.addressed(actor.run, letter.message.kind, now)
    numbered = replace(letter, message=replace(letter.message, number=run.inbox))
    tables.put_actor(replace(actor, run=run, inbox=(*actor.inbox, numbered)))


def deliver_notice(tables: Tables, incarnation: int, message: Message, now: int) -> None:
    """As `deliver`; dropped where the run has ended or is gone."""
    actor = tables.actors.get(incarnation)
    if actor is not None and actor.run.status not in TERMINAL:
        deliver(tables, incarnation, Letter(message, tables.next_number()), now)


def consume(tables: Tables, incarnation: int, numbers: tuple[int, ...]) -> None:
    actor = tables.actors[incarnation]
    left = tuple(letter for letter in actor.inbox if letter.message.number not in numbers)
    tables.put_actor(replace(actor, inbox=left))


def take_back(tables: Tables, incarnation: int, kind: MessageKind, name: str) -> None:
    """Remove a message that lies unread, as if it had not come."""
    actor = tables.actors[incarnation]
    left = tuple(each for each in actor.inbox if (each.message.kind, each.message.name) != (kind, name))
    tables.put_actor(replace(actor, inbox=left))


def unseen(tables: Tables, incarnation: int, seen: int, consumed: tuple[int, ...] = ()) -> tuple[Message, ...]:
    """The unread messages above a number, oldest first."""
    return tuple(
        letter.message
        for letter in tables.actors[incarnation].inbox
        if letter.message.number > seen and letter.message.number not in consumed
    )


# ---------------------------------------------------------------- tokens


def wait(tables: Tables, incarnation: int, asked: TokenWait, now: int) -> None:
    """Take the oldest message kept at the token, or stand in line for the next one."""
    actor = tables.actors[incarnation]
    new = Wait(incarnation, asked.seq, (actor.run.namespace, asked.token))
    line = tables.lines.get(new.token, Line())
    if line.kept:
        tables.put_line(new.token, replace(line, kept=line.kept[1:]))
        deliver(tables, incarnation, replace(line.kept[0], wait=new), now)
    else:
        tables.put_line(new.token, replace(line, waits=(*line.waits, new)))
        tables.put_actor(replace(actor, waits=(*actor.waits, new)))


def give(tables: Tables, token: Token, letter: Letter, now: int) -> RunKey | None:
    """Serve the oldest wait for the token, or keep the message there, in its place by arrival. Returns who got it."""
    line = tables.lines.get(token, Line())
    if not line.waits:
        kept = tuple(sorted((*line.kept, letter), key=lambda each: each.arrival))
        tables.put_line(token, replace(line, kept=kept))
        return None
    served = line.waits[0]
    tables.put_line(token, replace(line, waits=line.waits[1:]))
    actor = tables.actors[served.incarnation]
    tables.put_actor(replace(actor, waits=tuple(each for each in actor.waits if each != served)))
    deliver(tables, served.incarnation, replace(letter, wait=served), now)
    return actor.run.key
