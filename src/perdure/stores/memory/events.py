"""Events: who waits for one, what is kept of those that reached nobody, and what a publish does."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec.structs import replace

from perdure.model.commit import Answer, Ended, Published
from perdure.model.events import MOST_CANDIDATES, EventWait, Feed, Publish, line
from perdure.model.ids import next_link
from perdure.model.messages import Message, MessageKind
from perdure.model.run import TERMINAL, NewRun, RunKey
from perdure.stores.memory import inboxes, rules
from perdure.stores.memory.tables import Actor, KeptEvent, Letter, Line, PublishedId, Tables, Token, Wait


def publish(tables: Tables, event: Publish, now: int) -> Answer:
    """Give an event to all whom it concerns, once for its id."""
    if any(not run.id.strip() for run in (*event.starts, *(feed.run for feed in event.feeds))):
        raise rules.DataRefused("a run's id is blank")
    key = (event.namespace, event.id)
    before = tables.published.get(key)
    if before is not None and (before.forget_at is None or before.forget_at > now):
        if before.event != event.name:
            raise rules.DataRefused(
                f"the event id {event.id!r} was published before as {before.event!r}; give each event an id of its own"
            )
        return Published(before.reached)
    new = KeptEvent(
        event.namespace, event.name, event.payload, event.facets, tables.next_number(), now, now + (event.keep or 0)
    )
    waits = list(_fitting(tables, new))
    keys = [_begin(tables, run, now) for run in event.starts if tables.find(run.id) is None]
    keys += [_fed(tables, feed, now) for feed in event.feeds]
    reached = len(waits) + len(keys)
    for wait in waits:
        _serve(tables, wait, new, now, sole=event.keep is not None and reached == 1)
        keys.append(tables.actors[wait.incarnation].run.key)
    if reached == 0 and event.keep is not None:
        _keep(tables, new)
    forget_at = None if event.remember is None else now + event.remember
    tables.put(tables.published, key, PublishedId(event.name, reached, forget_at))
    return Published(reached, tuple(dict.fromkeys(keys)))


def wait(tables: Tables, incarnation: int, asked: EventWait, now: int) -> None:
    """Take the oldest kept copy that fits, or wait for the next event that does."""
    actor = tables.actors[incarnation]
    namespace = actor.run.namespace
    probe = asked.facets[0] if asked.facets else ""
    place = (namespace, f"{line(asked.event)}\x1f{probe}")
    new = Wait(incarnation, asked.seq, place, tables.next_number(), asked.event, asked.facets)
    tables.put_line(place, _joined(tables, place, new))
    tables.put_actor(replace(actor, waits=(*actor.waits, new)))
    kept = tables.kept_events.get((namespace, asked.event), ())
    candidates = [each for each in kept if each.expires_at > now and (not probe or probe in each.facets)]
    for each in candidates[:MOST_CANDIDATES]:
        if set(asked.facets) <= set(each.facets):
            _unkeep(tables, each)
            _serve(tables, new, each, now, sole=True)
            return


def offer(tables: Tables, event: KeptEvent, now: int) -> None:
    """One copy: to the oldest wait that fits, else kept."""
    if event.expires_at <= now:
        return
    for found in _fitting(tables, event):
        _serve(tables, found, event, now, sole=True)
        return
    _keep(tables, event)


def _fitting(tables: Tables, event: KeptEvent) -> Iterator[Wait]:
    """The waits that it fits, oldest first."""
    facets = set(event.facets)
    lines = ((event.namespace, f"{line(event.event)}\x1f{probe}") for probe in ("", *event.facets))
    found = (wait for place in lines for wait in tables.lines.get(place, Line()).waits)
    yield from sorted((wait for wait in found if set(wait.facets) <= facets), key=lambda wait: wait.place)


def _joined(tables: Tables, place: Token, new: Wait) -> Line:
    there = tables.lines.get(place, Line())
    return replace(there, waits=(*there.waits, new))


def _serve(tables: Tables, wait: Wait, event: KeptEvent, now: int, *, sole: bool) -> None:
    there = tables.lines[wait.token]
    tables.put_line(wait.token, replace(there, waits=tuple(each for each in there.waits if each != wait)))
    actor = tables.actors[wait.incarnation]
    tables.put_actor(replace(actor, waits=tuple(each for each in actor.waits if each != wait)))
    message = Message(0, MessageKind.EVENT, event.event, str(wait.seq), event.payload, False, event.at)
    letter = Letter(message, event.arrival, wait, event if sole else None)
    inboxes.deliver(tables, wait.incarnation, letter, now)


# ---------------------------------------------------------------- what is kept


def _keep(tables: Tables, event: KeptEvent) -> None:
    place = (event.namespace, event.event)
    kept = (*tables.kept_events.get(place, ()), event)
    tables.put(tables.kept_events, place, tuple(sorted(kept, key=lambda each: each.arrival)))


def _unkeep(tables: Tables, event: KeptEvent) -> None:
    place = (event.namespace, event.event)
    left = tuple(each for each in tables.kept_events[place] if each != event)
    if left:
        tables.put(tables.kept_events, place, left)
    else:
        tables.drop(tables.kept_events, place)


# ---------------------------------------------------------------- runs


def _begin(tables: Tables, new: NewRun, now: int) -> RunKey:
    run = rules.new_run(replace(new, gate=None), tables.next_number(), now, None)
    tables.add_actor(Actor(run))
    return run.key


def _fed(tables: Tables, feed: Feed, now: int) -> RunKey:
    """The run that got the feed's message, or has it already."""
    there = tables.find(feed.run.id)
    if there is None:
        _begin(tables, feed.run, now)
    else:
        if there.workflow != feed.run.workflow:
            raise rules.DataRefused(f"the id {there.id!r} of a run that collects events is taken by {there.workflow!r}")
        last = tables.last_link(there.incarnation)
        if last.status in TERMINAL:
            _follow(tables, last.incarnation, feed.run, now)
    sent = inboxes.send(tables, feed.message, now)
    assert not isinstance(sent, Ended)
    return tables.last_link(tables.ids[feed.run.id]).key


def _follow(tables: Tables, incarnation: int, new: NewRun, now: int) -> None:
    """Begin the next link of a chain whose last one has ended."""
    last = tables.actors[incarnation]
    following = replace(new, id=next_link(last.run.id))
    if tables.find(following.id) is not None:
        raise rules.DataRefused(
            f"the run {last.run.id!r} cannot be continued as {following.id!r}: another run has that id"
        )
    key = _begin(tables, following, now)
    run = replace(last.run, continued_to=following.id, updated_at=now)
    tables.put_actor(replace(last, run=run, successor=key.incarnation))
