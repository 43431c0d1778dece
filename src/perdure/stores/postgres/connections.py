"""Connections to one place: how they are opened and shared, and what PostgreSQL's errors mean to us.

asyncpg's own pool gives a connection back in a task of its own, and cleans it with a round trip; we keep nothing in a session,
and a commit is one round trip in all. So ours is a stack of connections: the one used last is used next, idle ones stay idle.
"""

from __future__ import annotations

import asyncio
import random
import time  # noqa: TID251  # how long a lock is waited for is elapsed time, not the store's
from collections.abc import Awaitable, Callable, Sequence
from enum import Enum, auto
from typing import Any, Final, TypeVar
from urllib.parse import urlsplit

import asyncpg
from asyncpg import exceptions as pg

from perdure.model.errors import StoreError, StoreMismatch, StoreUnavailable
from perdure.stores.postgres.place import Place
from perdure.stores.postgres.rows import Row

T = TypeVar("T")

#: Seconds. How long one call may take before the connection counts as lost.
PATIENCE: Final = 30.0
_CONNECT: Final = 10.0

#: Seconds: between two attempts at a batch that met a lock out of order.
_SHORTEST_PAUSE, _LONGEST_PAUSE = 0.001, 0.05


class Fault(Enum):
    """What an exception says about the world."""

    BUSY = auto()  # rolled back, since somebody else was at it: begin anew
    DATA = auto()  # this write's data cannot be stored
    FULL = auto()  # rolled back: the server had no room for it, in memory or among its locks
    LOST = auto()  # the server or the way to it: what became of the call is unknown
    STORE = auto()  # it will not work next time either: privileges, a schema that is not there


class ServerFull(StoreUnavailable):
    """The server had no room for what was asked, which was not done."""


#: For each session. Whoever is stopped or cut off within a transaction must not keep its locks: others need the rows, and could
#: not even take them over. All that we ask for is found by an index. But plans are kept, and those made while the tables were
#: empty would go on to walk through them when they have filled, until somebody analyzes them.
_SETTINGS: Final = {
    "lock_timeout": "10s",
    "idle_in_transaction_session_timeout": "10s",
    "jit": "off",
    "enable_seqscan": "off",
    "enable_bitmapscan": "off",
    "enable_material": "off",
    "enable_hashjoin": "off",
    "enable_mergejoin": "off",
}
_SET_LOCAL: Final = "; ".join(f"SET LOCAL {name} = '{value}'" for name, value in _SETTINGS.items())

_BUSY: Final = (pg.SerializationError, pg.DeadlockDetectedError, pg.LockNotAvailableError)
_DATA: Final = (pg.DataError, pg.IntegrityConstraintViolationError, pg.ProgramLimitExceededError, UnicodeError)
#: To begin anew at once would not help.
_TOLD: Final = (Fault.STORE, Fault.FULL)
#: What making our tables meets where there are others of the same names.
_NOT_OURS: Final = (pg.DuplicateTableError, pg.DuplicateFunctionError)
_STORE: Final = (
    asyncpg.ClientConfigurationError,
    pg.InsufficientPrivilegeError,
    pg.InvalidAuthorizationSpecificationError,
    pg.InvalidCatalogNameError,
    pg.InvalidSchemaNameError,
    pg.UndefinedFunctionError,
    pg.UndefinedTableError,
    pg.InvalidSQLStatementNameError,
    pg.DuplicatePreparedStatementError,
    *_NOT_OURS,
)


def fault_of(error: BaseException) -> Fault:
    """Everything that is plainly neither the lock, the data nor the schema is taken for a lost connection."""
    if isinstance(error, _BUSY):
        return Fault.BUSY
    if isinstance(error, _STORE) or _is_unasked_bouncer(error):
        return Fault.STORE
    if isinstance(error, _DATA):
        return Fault.DATA
    if isinstance(error, pg.OutOfMemoryError):
        return Fault.FULL
    return Fault.LOST


def _is_unasked_bouncer(error: BaseException) -> bool:
    """Settings of a session are what a PgBouncer refuses to take. (What else it says with this code will pass.)"""
    return isinstance(error, pg.ProtocolViolationError) and "startup parameter" in str(error)


def said(error: BaseException) -> str:
    """What happened, in words where the driver has none, or others than ours."""
    if isinstance(error, TimeoutError) and not str(error):
        return "it did not answer in time"
    if isinstance(error, asyncpg.InterfaceError) and not isinstance(error, asyncpg.ClientConfigurationError):
        return "the connection was lost"  # "another operation is in progress", "connection is closed"...
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__


def told(place: Place, error: BaseException) -> StoreError:
    """The error to give to a caller."""
    what = said(error)
    match fault_of(error):
        case Fault.STORE:
            return StoreMismatch(f"the store {place} cannot be used: {what}; {_advice(place, error)}")
        case Fault.BUSY:
            return StoreUnavailable(
                f"the store {place} stayed locked by others for too long ({what}); look for a long transaction on its tables"
            )
        case Fault.FULL:
            return ServerFull(
                f"the server of the store {place} has no room: {what}; look for transactions that hold many locks, or raise "
                "max_locks_per_transaction"
            )
        case _ if isinstance(error, pg.ReadOnlySQLTransactionError):
            # Mostly after a failover: what was the primary will be one again, or another server has its name by then.
            return StoreUnavailable(f"the server of the store {place} takes no writes: {what}; is it a replica?")
        case _:
            return StoreUnavailable(f"the store {place} cannot be reached: {what}; check the server and the way to it")


def _advice(place: Place, error: BaseException) -> str:
    if isinstance(error, pg.InsufficientPrivilegeError):
        return f"give the role the right to create in the database or in schema {place.schema}, or migrate as one that has it"
    if isinstance(error, pg.InvalidAuthorizationSpecificationError):
        return "check user and password"
    if isinstance(error, asyncpg.ClientConfigurationError):
        return "check the URL"
    if isinstance(error, pg.InvalidCatalogNameError):
        return "create the database first, or check its name"
    if isinstance(error, _NOT_OURS):
        return f"schema {place.schema} holds something that is not ours; choose another one: ?schema=..."
    if isinstance(
        error, pg.InvalidSQLStatementNameError | pg.DuplicatePreparedStatementError | pg.ProtocolViolationError
    ):
        return "if there is a PgBouncer in transaction mode between, say so: add pgbouncer=true to the URL"
    return "run `perdure migrate`"


class Connections:
    """At most `most` connections, opened when they are needed. One event loop.

    Seconds: a call that may be begun anew is, for `patience`; a connection that does not answer for `limit` counts as lost.
    """

    def __init__(self, place: Place, most: int, *, patience: float = PATIENCE, limit: float | None = None) -> None:
        self._place = place
        self._patience = patience
        self._limit = patience if limit is None else limit
        self._free: list[asyncpg.Connection[Any]] = []
        self._room = asyncio.Semaphore(most)
        self._chance = random.Random()
        self._closed = False
        self._ending: set[asyncio.Task[None]] = set()
        #: How often work was begun anew because others were at it.
        self.begun_anew = 0

    async def call(self, work: Callable[[asyncpg.Connection[Any]], Awaitable[T]], *, again: bool = False) -> T:
        """What `work` returns; it may be begun anew. With `again` also where the connection was lost on the way.

        Raises `StoreUnavailable`, `StoreMismatch`, and the driver's own errors for data that cannot be stored.
        """
        deadline = time.monotonic() + self._patience
        pause = _SHORTEST_PAUSE
        while True:
            try:
                return await self._once(work)
            except StoreError:
                raise
            except Exception as error:
                fault = fault_of(error)
                if fault is Fault.DATA:
                    raise
                if fault in _TOLD or time.monotonic() >= deadline or (fault is Fault.LOST and not again):
                    raise told(self._place, error) from error
                again = again and fault is Fault.BUSY  # lost: once more, on a new connection
                self.begun_anew += fault is Fault.BUSY
            await asyncio.sleep(self._chance.uniform(0, pause))
            pause = min(pause * 2, _LONGEST_PAUSE)

    async def fetch(self, text: str, *parameters: Any, again: bool = False) -> Sequence[Row]:
        """The rows of one statement, as `call`."""

        async def work(connection: asyncpg.Connection[Any]) -> Sequence[Row]:
            return await connection.fetch(text, *parameters)

        return await self.call(work, again=again)

    async def alone(self, work: Callable[[asyncpg.Connection[Any]], Awaitable[T]]) -> T:
        """What `work` returns, which sees to its own transactions and is begun once. Raises what it raises."""
        async with self._room:
            connection = await self._take()
            try:
                result = await work(connection)
            except BaseException:
                self._give_back(connection, clean=False)
                raise
            self._give_back(connection)
            return result

    async def _once(self, work: Callable[[asyncpg.Connection[Any]], Awaitable[T]]) -> T:
        async with self._room:
            connection = await self._take()
            try:
                if self._place.pgbouncer:
                    async with connection.transaction():
                        await connection.execute(_SET_LOCAL)
                        result = await work(connection)
                else:
                    result = await work(connection)
            except BaseException as error:
                # Not only what was lost: after a cancel nobody knows what the server is still at.
                self._give_back(connection, clean=isinstance(error, Exception) and fault_of(error) is not Fault.LOST)
                raise
            self._give_back(connection)
            return result

    def _give_back(self, connection: asyncpg.Connection[Any], *, clean: bool = True) -> None:
        if clean and not self._closed and not connection.is_closed():
            self._free.append(connection)
            return
        # The driver may still be asking the server to give up what was cancelled: that is waited for, by nobody here.
        ending = asyncio.get_running_loop().create_task(let_go(connection))
        self._ending.add(ending)
        ending.add_done_callback(self._ending.discard)

    async def _take(self) -> asyncpg.Connection[Any]:
        while self._free:
            connection = self._free.pop()
            if not connection.is_closed():
                return connection
        if self._closed:
            raise StoreUnavailable(f"the store {self._place} was closed")
        return await connect(self._place, command_timeout=self._limit)

    async def close(self) -> None:
        """What is at work is cut off. Idempotent."""
        self._closed = True
        free, self._free = self._free, []
        await asyncio.gather(*map(let_go, free), *self._ending, return_exceptions=True)


async def let_go(connection: asyncpg.Connection[Any]) -> None:
    """Close a connection, whatever state it is in; not longer than a second or two."""
    try:
        await connection.close(timeout=1)
    except (Exception, asyncio.CancelledError):
        connection.terminate()


async def connect(
    place: Place, *, command_timeout: float | None = PATIENCE, dsn: str | None = None
) -> asyncpg.Connection[Any]:
    """A connection. Raises `StoreUnavailable` and `StoreMismatch`."""
    pooled = place.pgbouncer and dsn is None
    settings = {} if pooled else dict(_SETTINGS)
    if not pooled and "application_name=" not in urlsplit(dsn or place.dsn).query:
        settings["application_name"] = "perdure"
    try:
        return await asyncpg.connect(
            dsn or place.dsn,
            timeout=_CONNECT,
            command_timeout=command_timeout,
            statement_cache_size=0 if pooled else 200,
            server_settings=settings,
        )
    except Exception as error:
        raise told(place, error) from error
