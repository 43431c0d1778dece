"""Messages and waits: how a message finds an inbox, and what becomes of it when nobody waits any more."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from perdure.model.commit import Answer, Applied, Ended, Missing, TokenWait
from perdure.model.gates import WHOLE_RUN
from perdure.model.messages import Message, MessageKind, Outgoing
from perdure.model.run import RunKey
from perdure.stores.sqlite.rows import FIRST_TERMINAL, SELECT_MESSAGES, Letter, Row, letter_of, to_messages
from perdure.stores.sqlite.sized import execute_sized, parts
from perdure.stores.sqlite.transaction import Transaction

_CHILD: Final = MessageKind.CHILD.value
_GRANT: Final = MessageKind.GRANT.value

#: Who listens is due: now, or since longer. Everybody listens to control.
_WAKE: Final = """
    updated_at = ?, wake_at = CASE WHEN status = 2 AND listening = 1 THEN min(coalesce(wake_at, ?), ?) ELSE wake_at END
"""
_DELIVER: Final = f"UPDATE runs SET inbox = inbox + 1, {_WAKE} WHERE incarnation = ?"
_CONTROL: Final = """
    UPDATE runs SET inbox = inbox + 1, updated_at = ?,
        wake_at = CASE WHEN status = 2 THEN min(coalesce(wake_at, ?), ?) ELSE wake_at END
    WHERE incarnation = ?
"""
_PUT: Final = """
    INSERT INTO messages (incarnation, number, kind, name, token, payload, failed, at, arrival)
    SELECT incarnation, inbox, ?, ?, ?, ?, ?, ?, ? FROM runs WHERE incarnation = ?
"""
_LIVE_INBOXES: Final = f"""
    SELECT json_group_array(json_array(incarnation, inbox)) FROM runs
    WHERE incarnation IN (@rows) AND status < {FIRST_TERMINAL}
"""
_PUT_ALL: Final = """
    INSERT INTO messages (incarnation, number, kind, name, payload, failed, at)
    SELECT * FROM (VALUES @rows) WHERE column1 IS NOT NULL
"""
_DELIVER_ALL: Final = f"""
    UPDATE runs SET inbox = v.column2, {_WAKE} FROM (VALUES @rows) AS v WHERE runs.incarnation = v.column1
"""
_UNSEEN: Final = SELECT_MESSAGES + " (SELECT * FROM messages WHERE incarnation = ? AND number > ? ORDER BY number)"
#: (A pair compared with a list of pairs would walk through all messages.)
_CONSUME: Final = """
    DELETE FROM messages WHERE rowid IN (
        SELECT m.rowid FROM (VALUES @rows) AS v
        CROSS JOIN messages AS m ON m.incarnation = v.column1 AND m.number = v.column2
    )
"""
_LETTER: Final = "SELECT kind, name, token, payload, failed, at, arrival FROM messages"

_decode_inboxes = msgspec.json.Decoder(list[tuple[int, int]]).decode


def send(tx: Transaction, message: Outgoing) -> Answer:
    """One message from outside or from a turn, once for each id of its own."""
    # What cannot be stored is refused also where it would not be: sent again, or to no run.
    f"{message.name}{message.token}{message.dedup}{message.namespace}".encode()
    if message.run_id is not None:
        return _send_to_run(tx, message.run_id, message)
    if message.token is None:
        raise ValueError("a message names neither a run nor a token")
    if not _first_to_token(tx, message):
        return Applied()
    target = give(tx, message.namespace, letter_of(message, tx.now, tx.next_arrival()))
    return Applied(None if target is None else _key(tx, target))


def _send_to_run(tx: Transaction, run_id: str, message: Outgoing) -> Answer:
    row = tx.execute("SELECT incarnation, status, successor FROM runs WHERE id = ?", (run_id,)).fetchone()
    if row is None or message.incarnation not in (None, row[0]):
        return Missing(run_id)
    addressed, status, successor = row
    if message.dedup is not None and _delivered(tx, addressed, message.dedup):
        return Applied()  # Also where the run has ended since: this very message did arrive.
    target = addressed
    if successor is not None:
        target = tx.last_link(addressed)
        status = tx.execute("SELECT status FROM runs WHERE incarnation = ?", (target,)).fetchone()[0]
    if status >= FIRST_TERMINAL:
        run = tx.run(target)
        return Missing(run_id) if run is None else Ended(run)
    if message.dedup is not None:
        tx.execute("INSERT INTO deliveries VALUES (?, ?)", (addressed, message.dedup))
    deliver(tx, target, letter_of(message, tx.now))
    return Applied(RunKey(run_id, target) if target == addressed else _key(tx, target))


def _key(tx: Transaction, incarnation: int) -> RunKey:
    [run_id] = tx.execute("SELECT id FROM runs WHERE incarnation = ?", (incarnation,)).fetchone()
    return RunKey(run_id, incarnation)


def _delivered(tx: Transaction, incarnation: int, dedup: str) -> bool:
    values = (incarnation, dedup)
    return tx.execute("SELECT 1 FROM deliveries WHERE incarnation = ? AND dedup = ?", values).fetchone() is not None


def _first_to_token(tx: Transaction, message: Outgoing) -> bool:
    """Whether this message was not sent to its token before; remembers it."""
    if message.dedup is None:
        return True
    values = (message.namespace, message.token, message.dedup)
    return tx.execute("INSERT INTO token_deliveries VALUES (?, ?, ?) ON CONFLICT DO NOTHING", values).rowcount == 1


def deliver(tx: Transaction, incarnation: int, letter: Letter) -> None:
    """Put a message into a live run's inbox, and wake the run if it listens, or must listen."""
    tx.touched.add(incarnation)
    tx.execute(_CONTROL if letter.kind == MessageKind.CANCEL else _DELIVER, (tx.now, tx.now, tx.now, incarnation))
    tx.execute(
        _PUT,
        (letter.kind, letter.name, letter.token, letter.payload, letter.failed, letter.at, letter.arrival, incarnation),
    )


class Notice(msgspec.Struct, frozen=True, gc=False):
    """What a parent hears of a child's end."""

    parent: int
    name: str
    payload: bytes | None
    failed: bool


def tell(tx: Transaction, notices: Sequence[Notice]) -> None:
    """Put them into the parents' inboxes, in this order; dropped where a parent has ended or is gone."""
    last: dict[int, int] = {}
    for part in parts([(parent,) for parent in dict.fromkeys(notice.parent for notice in notices)]):
        last.update(_decode_inboxes(execute_sized(tx.connection, _LIVE_INBOXES, 1, part).fetchone()[0]))
    rows: list[Row] = []
    for notice in notices:
        if notice.parent in last:
            number = last[notice.parent] = last[notice.parent] + 1
            rows.append((notice.parent, number, _CHILD, notice.name, notice.payload, notice.failed, tx.now))
    for some in parts(rows):
        execute_sized(tx.connection, _PUT_ALL, 7, some)
    for counts in parts([*last.items()]):
        execute_sized(tx.connection, _DELIVER_ALL, 2, counts, tx.now, tx.now, tx.now)
    tx.touched.update(last)


def consume(tx: Transaction, numbers: Sequence[tuple[int, int]]) -> None:
    """Messages by their run's incarnation and their number."""
    for part in parts(numbers):
        execute_sized(tx.connection, _CONSUME, 2, part)


def unseen(tx: Transaction, incarnation: int, seen: int) -> tuple[Message, ...]:
    """The unconsumed messages above a number, oldest first."""
    [text] = tx.execute(_UNSEEN, (incarnation, seen)).fetchone()
    return tuple(message for _, message in to_messages(tx.connection, text))


def move_unread(tx: Transaction, old: int, new: int) -> None:
    """To the next link of a chain: all that is unread and not an answer to an operation of the old link."""
    where = f" WHERE incarnation = ? AND kind <> ? AND NOT (kind = '{_GRANT}' AND name <> '{WHOLE_RUN}')"
    letters = [Letter(*row) for row in tx.execute(_LETTER + where + " ORDER BY number", (old, _CHILD)).fetchall()]
    tx.execute("DELETE FROM messages" + where, (old, _CHILD))
    for letter in letters:
        deliver(tx, new, letter)


# ---------------------------------------------------------------- tokens


def wait(tx: Transaction, incarnation: int, namespace: str, asked: TokenWait) -> None:
    """Take the oldest message kept at the token, or stand in line for the next one."""
    kept = tx.execute(
        "SELECT kind, name, token, payload, failed, at, arrival FROM kept "
        "WHERE namespace = ? AND token = ? ORDER BY arrival LIMIT 1",
        (namespace, asked.token),
    ).fetchone()
    cursor = tx.execute(
        "INSERT INTO waits (namespace, token, incarnation, seq) VALUES (?, ?, ?, ?)",
        (namespace, asked.token, incarnation, asked.seq),
    )
    if kept is not None:
        letter = Letter(*kept)
        tx.execute(
            "DELETE FROM kept WHERE namespace = ? AND token = ? AND arrival = ?",
            (namespace, asked.token, letter.arrival),
        )
        _serve(tx, cursor.lastrowid, incarnation, letter)


def _serve(tx: Transaction, place: int | None, incarnation: int, letter: Letter) -> None:
    deliver(tx, incarnation, letter)
    tx.execute(
        "UPDATE waits SET served = (SELECT inbox FROM runs AS r WHERE r.incarnation = waits.incarnation) WHERE place = ?",
        (place,),
    )


def give(tx: Transaction, namespace: str, letter: Letter) -> int | None:
    """Serve the oldest wait for the letter's token, and return its run; or keep it there, in its place by arrival."""
    line = tx.execute(
        "SELECT place, incarnation FROM waits "
        "WHERE namespace = ? AND token = ? AND served IS NULL ORDER BY place LIMIT 1",
        (namespace, letter.token),
    ).fetchone()
    if line is not None:
        place, incarnation = line
        _serve(tx, place, incarnation, letter)
        return int(incarnation)
    tx.execute(
        "INSERT INTO kept (namespace, token, kind, name, payload, failed, at, arrival) VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
        (namespace, letter.token, letter.kind, letter.name, letter.payload, letter.failed, letter.at, letter.arrival),
    )
    return None
