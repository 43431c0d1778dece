"""Within a transaction of the user's own: see `migrations/0001_g_joined.sql`, and `perdure.ports.databases` for the scripts."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator
from typing import Any, Final

import asyncpg
import msgspec

from perdure.model.commit import Create, Send
from perdure.model.errors import StoreUnavailable, UsageError
from perdure.model.run import RunKey
from perdure.ports.databases import Ask, Joined, Script, Ticket
from perdure.stores.postgres.encoding import Touched, Unfit, encoded
from perdure.stores.postgres.hints import channel_of
from perdure.stores.postgres.place import Place
from perdure.stores.postgres.rows import STATUSES

#: So often is a write begun anew within a transaction; each time it waits for others before it gives up.
_MOST_TRIES: Final = 50

_encode = msgspec.json.Encoder().encode


class _Place(msgspec.Struct, frozen=True):
    """Where a connection is, and in which transaction."""

    #: Together they tell a schema from every other one: the server's own number, the database's, the table's.
    system: str
    database: str
    table: str | None
    xact: str
    isolation: str
    #: For people.
    name: str
    host: str

    def is_that_of(self, other: _Place) -> bool:
        return (self.system, self.database, self.table) == (other.system, other.database, other.table)


class _Answer(msgspec.Struct, frozen=True):
    answer: str
    reason: str = ""
    output: bytes = b""
    id: str | None = None
    incarnation: int | None = None
    workflow: str | None = None
    status: int | None = None


_HEAD: Final = """
    SELECT json_build_object(
        'system', (SELECT system_identifier::text FROM pg_control_system()),
        'database', (SELECT oid::text FROM pg_database WHERE datname = current_database()),
        'xact', txid_current()::text, 'isolation', current_setting('transaction_isolation'), 'name', current_database(),
        'host', coalesce(host(inet_server_addr()) || ':' || inet_server_port(), 'a local socket'),
        'table', to_regclass(CAST(
"""
_TAIL: Final = " AS text))::oid::text)::text"

_decode_place = msgspec.json.Decoder(_Place).decode
_decode_answer = msgspec.json.Decoder(_Answer).decode


class PostgresPartner:
    """See `perdure.ports.databases.Partner`. `at`: the time that the server is to take for now; None: its own."""

    exclusive = False

    def __init__(self, place: Place, there: _Place, at: Callable[[], int | None]) -> None:
        self._place = place
        self._there = there
        self._at = at

    def enter(self, ticket: Ticket) -> Script[bytes | None]:
        here = yield from self._look()
        answer = yield from self._call("enter_step_1", _ticket(ticket, here))
        if answer.answer == "fenced":
            raise _fenced(ticket)
        return answer.output if answer.answer == "done" else None

    def leave(self, ticket: Ticket, output: bytes) -> Script[None]:
        here = yield from self._look()
        answer = yield from self._call("leave_step_1", _ticket(ticket, here) | {"output": output})
        if answer.answer == "fenced":
            raise _fenced(ticket)
        if answer.answer == "lost":
            raise UsageError(
                f"the function of transaction {ticket.name!r} of run {ticket.run.id!r} ended the transaction itself; leave "
                "commit and rollback to Perdure, which must commit its own record with it (raise an error to roll back)"
            )

    def write(self, write: Create | Send) -> Script[Joined]:
        try:
            text, storable = encoded(write)
        except Unfit as refusal:
            raise UsageError(f"the store cannot take this: {refusal}; nothing was written") from None
        if storable is not write:
            reason = msgspec.json.decode(text)[2]["unstorable"]
            raise UsageError(f"the store cannot take this: {reason}; nothing was written")
        here = yield from self._look()
        if here.isolation != "read committed" and isinstance(write, Send) and write.message.token is not None:
            raise UsageError(
                f"a signal to a token needs a READ COMMITTED transaction, and this one is {here.isolation.upper()}: it would "
                "not see who waits by now"
            )
        touched = Touched()
        touched.add(write)
        call = {
            "xact": here.xact,
            "at": self._at(),
            "channel": channel_of(self._place.schema),
            "write": msgspec.Raw(text),
            "touched": touched.parameters(),
        }
        answer = yield from self._call("outbox_1", call)
        for _ in range(_MOST_TRIES):
            if answer.answer != "busy":
                return _joined(answer)
            answer = yield from self._call("outbox_1", call)
        raise StoreUnavailable(
            f"the store {self._place} stayed locked by others for too long ({answer.reason}); roll back and try again"
        )

    def source(self) -> Callable[[], Any]:
        place = self._place

        def opening() -> Awaitable[asyncpg.Connection[Any]]:
            return asyncpg.connect(place.dsn, statement_cache_size=0 if place.pgbouncer else 100)

        return opening

    def _look(self) -> Generator[Any, Any, _Place]:
        """Where the connection is. Raises `UsageError` if it is not where we are."""
        here = yield from look(self._place)
        if not here.is_that_of(self._there):
            raise UsageError(
                f"the connection is to database {here.name} on {here.host}, and the store is {self._place}; a transaction that "
                "Perdure takes part in must be on the store's own database"
            )
        return here

    def _call(self, function: str, argument: dict[str, Any]) -> Generator[Any, Any, _Answer]:
        text: str = yield Ask(f"SELECT {self._place.quoted}.{function}(", _encode(argument).decode(), ")")
        answer = _decode_answer(text)
        if answer.answer == "alone":
            raise UsageError(
                "the connection is not in a transaction: each of its statements is committed by itself; begin a transaction, "
                "or do not use AUTOCOMMIT"
            )
        return answer


def look(place: Place) -> Generator[Any, Any, _Place]:
    """Where a connection is, as far as our schema is concerned."""
    text: str = yield Ask(_HEAD, f"{place.quoted}.runs", _TAIL)
    return _decode_place(text)


async def look_with(place: Place, fetch: Callable[[str, str], Awaitable[str]]) -> _Place:
    """As `look`, on a connection of ours."""
    return _decode_place(await fetch(f"{_HEAD}$1{_TAIL}", f"{place.quoted}.runs"))


def _ticket(ticket: Ticket, here: _Place) -> dict[str, Any]:
    return {
        "run": ticket.run.incarnation,
        "id": ticket.run.id,
        "seed": ticket.seed,
        "seq": ticket.seq,
        "name": ticket.name,
        "owner": ticket.owner,
        "epoch": ticket.epoch,
        "xact": here.xact,
    }


def _fenced(ticket: Ticket) -> StoreUnavailable:
    return StoreUnavailable(
        f"run {ticket.run.id!r} is not held by this process any more; transaction {ticket.name!r} was rolled back, and is made "
        "by whoever holds the run"
    )


def _joined(answer: _Answer) -> Joined:
    if answer.answer == "unstorable":
        raise UsageError(f"the store cannot take this: {answer.reason}; nothing was written")
    key = None if answer.incarnation is None or answer.id is None else RunKey(answer.id, answer.incarnation)
    status = None if answer.status is None else STATUSES[answer.status]
    return Joined(answer.answer, key, answer.workflow or "", status)
