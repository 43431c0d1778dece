"""Events: who waits for one, what is kept of those that reached nobody, and what a publish does."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from typing import Final

import msgspec

from perdure.model.bounds import out_of_bounds
from perdure.model.commit import Answer, Published
from perdure.model.events import MOST_CANDIDATES, EventWait, Feed, Publish, Subscription, line
from perdure.model.ids import next_link
from perdure.model.messages import MessageKind
from perdure.model.run import NewRun, RunKey
from perdure.stores.sqlite import inboxes
from perdure.stores.sqlite.newruns import insert_run
from perdure.stores.sqlite.rows import FIRST_TERMINAL, Letter
from perdure.stores.sqlite.transaction import Transaction

#: So much at most of what nobody may see any more is cleared away with each publish.
_SWEPT: Final = 20

_KIND: Final = MessageKind.EVENT.value

# By the index for each first facet; the few that have it are compared here.
_CANDIDATES: Final = """
    SELECT json_group_array(json_array(place, incarnation, json(facets))) FROM (
        SELECT w.place, w.incarnation, w.facets FROM json_each(?) AS f CROSS JOIN waits AS w INDEXED BY waits_by_event
        WHERE w.namespace = ? AND w.token = ? AND w.probe = f.value AND w.served IS NULL AND w.probe IS NOT NULL
        ORDER BY w.place
    )
"""
#: Parameters: the event's name, payload, at, arrival, places.
_PUT: Final = f"""
    INSERT INTO messages (incarnation, number, kind, name, token, payload, failed, at, arrival)
    SELECT w.incarnation, r.inbox + row_number() OVER (PARTITION BY w.incarnation ORDER BY w.place), '{_KIND}', ?,
        CAST(w.seq AS TEXT), ?, 0, ?, ?
    FROM json_each(?) AS p CROSS JOIN waits AS w ON w.place = p.value CROSS JOIN runs AS r ON r.incarnation = w.incarnation
"""
_SERVED: Final = """
    UPDATE waits SET back = ?, served = (
        SELECT m.number FROM messages AS m JOIN runs AS r ON r.incarnation = m.incarnation
        WHERE m.incarnation = waits.incarnation AND m.number > r.inbox AND m.token = CAST(waits.seq AS TEXT)
    )
    WHERE place IN (SELECT value FROM json_each(?))
"""
_RAISE: Final = """
    UPDATE runs SET
        inbox = (SELECT max(m.number) FROM messages AS m WHERE m.incarnation = runs.incarnation),
        updated_at = ?,
        wake_at = CASE WHEN status = 2 AND listening = 1 THEN min(coalesce(wake_at, ?), ?) ELSE wake_at END
    WHERE incarnation IN (SELECT value FROM json_each(?))
"""
#: The oldest kept copies, or those of them that have a facet.
_OLDEST: Final = f"""
    SELECT arrival, payload, facets, at, expires_at FROM kept_events
    WHERE namespace = ? AND event = ? AND expires_at > ? ORDER BY arrival LIMIT {MOST_CANDIDATES}
"""
_OLDEST_WITH: Final = f"""
    SELECT k.arrival, k.payload, k.facets, k.at, k.expires_at FROM kept_facets AS f
    CROSS JOIN kept_events AS k ON k.namespace = f.namespace AND k.event = f.event AND k.arrival = f.arrival
    WHERE f.namespace = ? AND f.event = ? AND f.facet = ? AND k.expires_at > ? ORDER BY f.arrival LIMIT {MOST_CANDIDATES}
"""

_encode = msgspec.json.Encoder().encode
_decode_candidates = msgspec.json.Decoder(list[tuple[int, int, list[str]]]).decode
_decode_facets = msgspec.json.Decoder(tuple[str, ...]).decode
_decode_back = msgspec.json.Decoder(tuple[tuple[str, ...], int]).decode
_decode_subscription = msgspec.json.Decoder(Subscription).decode


class Kept(msgspec.Struct, frozen=True, gc=False):
    """An event that reached nobody."""

    namespace: str
    event: str
    payload: bytes
    facets: tuple[str, ...]
    arrival: int
    at: int
    expires_at: int


def publish(tx: Transaction, event: Publish) -> Answer:
    """Give an event to all whom it concerns, once for its id."""
    fault = out_of_bounds(event)
    if fault is not None:
        raise ValueError(fault)
    if any(not run.id.strip() for run in (*event.starts, *(feed.run for feed in event.feeds))):
        raise ValueError("a run's id is blank")
    _sweep(tx)
    before = tx.execute(
        "SELECT event, reached FROM published WHERE namespace = ? AND id = ? AND (forget_at IS NULL OR forget_at > ?)",
        (event.namespace, event.id, tx.now),
    ).fetchone()
    if before is not None:
        if before[0] != event.name:
            raise ValueError(
                f"the event id {event.id!r} was published before as {before[0]!r}; give each event an id of its own"
            )
        return Published(before[1])
    new = Kept(
        event.namespace, event.name, event.payload, event.facets, tx.next_arrival(), tx.now, tx.now + (event.keep or 0)
    )
    waits = _fitting(tx, new)
    keys = [key for run in event.starts if (key := _begin(tx, run)) is not None]
    keys += [_fed(tx, feed) for feed in event.feeds]
    reached = len(waits) + len(keys)
    keys += _serve(tx, waits, new, sole=event.keep is not None and reached == 1)
    if reached == 0 and event.keep is not None:
        _keep(tx, new)
    tx.execute(
        "INSERT OR REPLACE INTO published VALUES (?, ?, ?, ?, ?)",
        (event.namespace, event.id, event.name, reached, None if event.remember is None else tx.now + event.remember),
    )
    return Published(reached, tuple(dict.fromkeys(keys)))


def wait(tx: Transaction, incarnation: int, namespace: str, asked: EventWait) -> None:
    """Take the oldest kept copy that fits, or wait for the next event that does."""
    probe = asked.facets[0] if asked.facets else ""
    cursor = tx.execute(
        "INSERT INTO waits (namespace, token, incarnation, seq, probe, facets) VALUES (?, ?, ?, ?, ?, ?)",
        (namespace, line(asked.event), incarnation, asked.seq, probe, _encode(asked.facets).decode()),
    )
    wanted = set(asked.facets)
    for arrival, payload, facets, at, expires_at in _kept(tx, namespace, asked.event, probe):
        found = _decode_facets(facets)
        if wanted <= set(found):
            event = Kept(namespace, asked.event, payload, found, arrival, at, expires_at)
            _unkeep(tx, event)
            assert cursor.lastrowid is not None
            _serve(tx, [(cursor.lastrowid, incarnation)], event, sole=True)
            return


def offer(tx: Transaction, namespace: str, letter: Letter, back: str) -> None:
    """One copy, given back by a wait that was served this letter: to the oldest wait that fits, else kept."""
    facets, expires_at = _decode_back(back)
    if expires_at <= tx.now:
        return
    event = Kept(namespace, letter.name, letter.payload or b"", facets, letter.arrival or 0, letter.at, expires_at)
    waits = _fitting(tx, event)
    if waits:
        _serve(tx, waits[:1], event, sole=True)
    else:
        _keep(tx, event)


def _fitting(tx: Transaction, event: Kept) -> list[tuple[int, int]]:
    """Place and run of the waits that it fits, oldest first."""
    values = (_encode(("", *event.facets)).decode(), event.namespace, line(event.event))
    [text] = tx.execute(_CANDIDATES, values).fetchone()
    there = set(event.facets)
    return [(place, incarnation) for place, incarnation, asked in _decode_candidates(text) if there.issuperset(asked)]


def _serve(tx: Transaction, waits: Sequence[tuple[int, int]], event: Kept, *, sole: bool) -> list[RunKey]:
    """Give the event to these waits, in a few statements however many they are. Returns their runs."""
    if not waits:
        return []
    places = _encode([place for place, _ in waits]).decode()
    incarnations = list(dict.fromkeys(incarnation for _, incarnation in waits))
    runs = _encode(incarnations).decode()
    back = _encode((event.facets, event.expires_at)).decode() if sole else None
    tx.execute(_PUT, (event.event, event.payload, event.at, event.arrival, places))
    tx.execute(_SERVED, (back, places))
    tx.execute(_RAISE, (tx.now, tx.now, tx.now, runs))
    tx.touched.update(incarnations)
    rows = tx.execute("SELECT id, incarnation FROM runs WHERE incarnation IN (SELECT value FROM json_each(?))", (runs,))
    return [RunKey(run_id, incarnation) for run_id, incarnation in rows.fetchall()]


# ---------------------------------------------------------------- what is kept


def _kept(tx: Transaction, namespace: str, event: str, probe: str) -> list[tuple[int, bytes, str, int, int]]:
    if not probe:
        return tx.execute(_OLDEST, (namespace, event, tx.now)).fetchall()
    return tx.execute(_OLDEST_WITH, (namespace, event, probe, tx.now)).fetchall()


def _keep(tx: Transaction, event: Kept) -> None:
    facets = _encode(event.facets).decode()
    tx.execute(
        "INSERT INTO kept_events VALUES (?, ?, ?, ?, ?, ?, ?)",
        (event.namespace, event.event, event.arrival, event.payload, facets, event.at, event.expires_at),
    )
    tx.execute(
        "INSERT INTO kept_facets SELECT ?, ?, value, ? FROM json_each(?)",
        (event.namespace, event.event, event.arrival, facets),
    )


def _unkeep(tx: Transaction, event: Kept) -> None:
    where = "namespace = ? AND event = ? AND arrival = ?"
    values = (event.namespace, event.event, event.arrival)
    tx.execute(f"DELETE FROM kept_events WHERE {where}", values)
    tx.execute(
        f"DELETE FROM kept_facets WHERE {where} AND facet IN (SELECT value FROM json_each(?))",
        (*values, _encode(event.facets).decode()),
    )


def _sweep(tx: Transaction) -> None:
    """Clear away some of what nobody may see any more."""
    over = tx.execute(
        "SELECT namespace, event, facets, arrival FROM kept_events WHERE expires_at <= ? ORDER BY expires_at LIMIT ?",
        (tx.now, _SWEPT),
    ).fetchall()
    for namespace, event, facets, arrival in over:
        _unkeep(tx, Kept(namespace, event, b"", _decode_facets(facets), arrival, 0, 0))
    tx.execute(
        "DELETE FROM published WHERE (namespace, id) IN ("
        "SELECT namespace, id FROM published WHERE forget_at <= ? ORDER BY forget_at LIMIT ?)",
        (tx.now, _SWEPT),
    )


# ---------------------------------------------------------------- runs


def _begin(tx: Transaction, new: NewRun) -> RunKey | None:
    """None: its id is taken."""
    if tx.execute("SELECT 1 FROM runs WHERE id = ?", (new.id,)).fetchone() is not None:
        return None
    return RunKey(new.id, insert_run(tx, new, None))


def _fed(tx: Transaction, feed: Feed) -> RunKey:
    """The run that got the feed's message, or has it already."""
    run_id = feed.run.id
    there = tx.execute("SELECT incarnation, workflow FROM runs WHERE id = ?", (run_id,)).fetchone()
    if there is None:
        last = insert_run(tx, feed.run, None)
    else:
        first, workflow = there
        if workflow != feed.run.workflow:
            raise ValueError(f"the id {run_id!r} of a run that collects events is taken by {workflow!r}")
        last = tx.last_link(first)
        if not tx.is_live(last):
            last = _follow(tx, last, feed.run)
    inboxes.send(tx, feed.message)
    [name] = tx.execute("SELECT id FROM runs WHERE incarnation = ?", (last,)).fetchone()
    return RunKey(name, last)


def _follow(tx: Transaction, last: int, new: NewRun) -> int:
    """Begin the next link of a chain whose last one has ended."""
    [name] = tx.execute("SELECT id FROM runs WHERE incarnation = ?", (last,)).fetchone()
    following = msgspec.structs.replace(new, id=next_link(name))
    key = _begin(tx, following)
    if key is None:
        raise ValueError(f"the run {name!r} cannot be continued as {following.id!r}: another run has that id")
    tx.touched.add(last)
    tx.execute(
        f"UPDATE runs SET continued_to = ?, successor = ?, updated_at = ? "
        f"WHERE incarnation = ? AND status >= {FIRST_TERMINAL}",
        (following.id, key.incarnation, tx.now, last),
    )
    return key.incarnation


# ---------------------------------------------------------------- subscriptions


def subscribe(tx: Transaction, subscriptions: Sequence[Subscription]) -> None:
    """Keep them, each in place of what was there."""
    for each in subscriptions:
        tx.execute(
            "INSERT OR REPLACE INTO subscriptions VALUES (?, ?, ?, ?)",
            (each.namespace or "", each.workflow, each.version, _encode(each)),
        )


def subscriptions(connection: sqlite3.Connection) -> list[Subscription]:
    """All. One that cannot be read is passed over: it must not keep others from being published to."""
    found: list[Subscription] = []
    for [text] in connection.execute("SELECT subscription FROM subscriptions").fetchall():
        try:
            found.append(_decode_subscription(text))
        except (msgspec.MsgspecError, TypeError):
            continue
    return found
