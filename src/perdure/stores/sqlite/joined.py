"""Within a transaction of the user's own, on his connection to the store's file: see `perdure.ports.databases`.

Who writes to a SQLite file has it to himself until he commits. So the lock is taken before anything is looked at, and what was
seen then holds to the end: nobody can claim the run meanwhile.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Generator
from functools import partial
from typing import Any, Final, TypeVar, cast

from perdure.model.bounds import out_of_bounds
from perdure.model.commit import Answer, Applied, Create, Ended, Exists, Full, Send
from perdure.model.errors import StoreUnavailable, UsageError
from perdure.ports.clock import Clock
from perdure.ports.databases import Hands, Joined, Pause, Script, Ticket, Within
from perdure.stores.sqlite import writes
from perdure.stores.sqlite.connection import Fault, fault_of
from perdure.stores.sqlite.place import Place
from perdure.stores.sqlite.rows import RUNNING
from perdure.stores.sqlite.transaction import Transaction

T = TypeVar("T")

#: Seconds between two tries at the file's lock: the user's connection must not wait for it by itself, perhaps on an event loop.
_PAUSE: Final = 0.002
#: Seconds that the lock is asked for.
_PATIENCE: Final = 10.0

_HELD: Final = """
    SELECT 1 FROM runs WHERE incarnation = ? AND id = ? AND seed = ? AND status = ? AND owner = ? AND epoch = ?
"""
#: It ends with the transaction: whoever commits or rolls back in between has it no more.
_MARK: Final = "perdure_step"


class SqlitePartner:
    """See `perdure.ports.databases.Partner`."""

    exclusive = True

    def __init__(self, place: Place, clock: Clock) -> None:
        self._place = place
        self._clock = clock

    def enter(self, ticket: Ticket) -> Script[bytes | None]:
        yield from self._lock(own=True)
        output: bytes | None = yield Within(partial(_enter, ticket))
        return output

    def leave(self, ticket: Ticket, output: bytes) -> Script[None]:
        yield Within(partial(_leave, ticket, output))

    def write(self, write: Create | Send) -> Script[Joined]:
        reason = out_of_bounds(write)
        if reason is not None:
            raise UsageError(f"the store cannot take this: {reason}; nothing was written")
        yield from self._lock(own=False)
        answer: Answer = yield Within(partial(_write, write, self._clock.now()))
        return _joined(answer)

    def source(self) -> Callable[[], Any]:
        return partial(_open, self._place)

    def _lock(self, *, own: bool) -> Generator[Any, Any, None]:
        """Take the file's lock, if it is our file. Raises `UsageError` and `StoreUnavailable`."""
        yield Within(self._check)
        left = round(_PATIENCE / _PAUSE)
        while True:
            try:
                yield Within(partial(_take, own))
                return
            except sqlite3.OperationalError as error:
                if fault_of(error) is not Fault.BUSY:
                    raise
                if getattr(error, "sqlite_errorcode", 0) == sqlite3.SQLITE_BUSY_SNAPSHOT:
                    raise StoreUnavailable(
                        f"the transaction has read from {self._place.path}, and somebody has written to it since; roll back "
                        "and try again, or begin with BEGIN IMMEDIATE"
                    ) from error
                left -= 1
                if left <= 0:
                    raise StoreUnavailable(
                        f"the store {self._place.path} stayed locked by others for too long ({error}); roll back and try again"
                    ) from error
            yield Pause(_PAUSE)

    def _check(self, hands: Hands) -> None:
        """Raise `UsageError` if the connection is not to our file."""
        files = [str(file) for _, name, file in hands.execute("PRAGMA database_list").fetchall() if name == "main"]
        file = files[0] if files else ""
        if not file or not os.path.exists(file) or not os.path.samefile(file, self._place.path):
            raise UsageError(
                f"the connection is to {file or 'a database in memory'}, and the store is {self._place.path}; a transaction "
                "that Perdure takes part in must be on the store's own file"
            )


def _take(own: bool, hands: Hands) -> None:
    """The file's lock, or an error at once."""
    waits = hands.execute("PRAGMA busy_timeout").fetchone()[0]
    hands.execute("PRAGMA busy_timeout = 0").close()
    try:
        if hands.in_transaction:
            hands.execute("UPDATE arrivals SET last = last WHERE one = 0").close()
        elif own or not hands.autocommit:
            hands.execute("BEGIN IMMEDIATE").close()
        else:
            raise UsageError(
                "the connection is not in a transaction, and each of its statements is committed by itself: execute BEGIN "
                "IMMEDIATE first, or do not use AUTOCOMMIT"
            )
    finally:
        hands.execute(f"PRAGMA busy_timeout = {waits}").close()


def _enter(ticket: Ticket, hands: Hands) -> bytes | None:
    run = ticket.run
    values = (run.incarnation, run.id, ticket.seed, RUNNING, ticket.owner, ticket.epoch)
    if hands.execute(_HELD, values).fetchone() is None:
        raise StoreUnavailable(
            f"run {run.id!r} is not held by this process any more; transaction {ticket.name!r} was not begun, and is made by "
            "whoever holds the run"
        )
    place = (run.incarnation, ticket.seq)
    there = hands.execute("SELECT name, output FROM transactions WHERE incarnation = ? AND seq = ?", place).fetchone()
    if there is not None and there[0] == ticket.name and there[1] is not None:
        return bytes(there[1])
    hands.execute("INSERT OR REPLACE INTO transactions VALUES (?, ?, ?, NULL)", (*place, ticket.name)).close()
    hands.execute(f"SAVEPOINT {_MARK}").close()
    return None


def _leave(ticket: Ticket, output: bytes, hands: Hands) -> None:
    try:
        hands.execute(f"RELEASE {_MARK}").close()
    except sqlite3.OperationalError as error:
        if "no such savepoint" not in str(error):
            raise
        raise UsageError(
            f"the function of transaction {ticket.name!r} of run {ticket.run.id!r} ended the transaction itself; leave commit "
            "and rollback to Perdure, which must commit its own record with it (raise an error to roll back)"
        ) from error
    values = (output, ticket.run.incarnation, ticket.seq)
    hands.execute("UPDATE transactions SET output = ? WHERE incarnation = ? AND seq = ?", values).close()


def _write(write: Create | Send, now: int, hands: Hands) -> Answer:
    """What it cannot do leaves the transaction as it was."""
    tx = Transaction(cast("sqlite3.Connection", hands), now)
    hands.execute("SAVEPOINT perdure_write").close()
    try:
        answer = writes.apply(tx, write)
        tx.flush()
    except Exception as error:
        hands.execute("ROLLBACK TO perdure_write").close()
        hands.execute("RELEASE perdure_write").close()
        if fault_of(error) is not Fault.DATA:
            raise
        raise UsageError(f"the store cannot take this: {type(error).__name__}: {error}; nothing was written") from error
    hands.execute("RELEASE perdure_write").close()
    return answer


def _joined(answer: Answer) -> Joined:
    match answer:
        case Applied(key):
            return Joined("applied", key)
        case Exists(run):
            return Joined("exists", run.key, run.workflow, run.status)
        case Ended(run):
            return Joined("ended", run.key, run.workflow, run.status)
        case Full():
            return Joined("full")
        case _:
            return Joined("missing")


def _open(place: Place) -> sqlite3.Connection:
    connection = sqlite3.connect(place.path)
    connection.execute(f"PRAGMA synchronous={place.synchronous}")
    return connection
