"""Steps that commit together with what they write to the user's database: `ctx.transaction`.

A transaction goes: take the step's row; adopt what lies in it, or call the function and put its result there; make sure that
the run is still ours; commit. Only the commit makes it so, and both sides see it at once. So, between any two lines:

* before the commit: the database rolls back, and the next attempt finds nothing;
* after it, before the turn: the next attempt, here or elsewhere, finds the result and adopts it;
* within it, if the answer is lost: we ask until we know. Taking the row waits for whoever has it, also for that commit.

An attempt that was given up must not commit behind the back of whoever gave it up: its thread asks at the gate.
"""

from __future__ import annotations

import asyncio
import contextvars
import logging
from collections.abc import Callable
from contextvars import ContextVar
from threading import Lock
from typing import Any

from perdure.authoring.transacting import Transaction
from perdure.core.operation import Operation
from perdure.engine.held import Held
from perdure.engine.means import Means
from perdure.engine.pauses import pauses, sleep_until
from perdure.engine.threads import Threads
from perdure.model.commit import Create, Send
from perdure.model.errors import UsageError
from perdure.ports.databases import Begin, Call, Commit, Joined, Partner, Script, Ticket

log = logging.getLogger("perdure.engine")

#: The transaction that has the whole store to itself and whose function is running here.
_alone: ContextVar[str | None] = ContextVar("perdure_transaction", default=None)


class Unsure(Exception):
    """The commit raised: whether it is committed is to be found out."""

    def __init__(self, error: Exception) -> None:
        self.error = error


class Gate:
    """Whether an attempt commits is settled once: by itself, or by whoever gives it up. Any thread."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._passed = False
        self._closed = False

    def enter(self) -> None:
        """Raises `asyncio.CancelledError` for an attempt that was given up."""
        with self._lock:
            if self._closed:
                raise asyncio.CancelledError
            self._passed = True

    def close(self) -> bool:
        """Give the attempt up. False: too late, it commits."""
        with self._lock:
            self._closed = not self._passed
            return self._closed


class Transactions:
    """The transactions of one engine. Event loop only."""

    def __init__(self, means: Means, threads: Threads) -> None:
        self._means = means
        self._threads = threads

    async def run(self, held: Held, operation: Operation, transaction: Transaction, begun: Callable[[], None]) -> Any:
        """The function's result, as it is recorded. Raises what it raises, and `UsageError` for a wrong database."""
        means = self._means
        partner = await means.store.partner()
        ticket = Ticket(held.key, held.instance.run.seed, operation.seq, operation.name, means.owner, held.epoch)
        on = partner.source() if transaction.on is None else transaction.on
        gate = Gate()
        before = _alone.set(ticket.name if partner.exclusive else None)
        try:
            output = await self._perform(on, _transact(partner, ticket, transaction, gate), gate, begun)
        except Unsure as unsure:
            found = await self._find_out(on, partner, ticket, unsure.error)
            if found is None:
                raise unsure.error from None
            output = found
        finally:
            _alone.reset(before)
        return transaction.decode(output)

    async def _perform(self, on: Any, script: Script[Any], gate: Gate, begun: Callable[[], None]) -> Any:
        async def in_thread(call: Callable[[], Any]) -> Any:
            future = self._threads.run(contextvars.copy_context(), call, begun)
            try:
                return await asyncio.shield(future)
            except asyncio.CancelledError:
                if future.done() or gate.close():
                    future.cancel()
                    raise
            return await future  # it is just committing

        return await self._means.databases.transact(on, script, in_thread, begun)

    async def _find_out(self, on: Any, partner: Partner, ticket: Ticket, error: BaseException) -> bytes | None:
        """What was committed by a commit that raised; None if nothing was. As long as it takes."""
        log.warning(
            "perdure: the commit of transaction %r of run %r raised %r; whether it was committed is looked for",
            ticket.name,
            ticket.run.id,
            error,
        )
        clock = self._means.clock
        for pause in pauses():
            try:
                found: bytes | None = await self._perform(on, _look(partner, ticket), Gate(), _nothing)
            except UsageError:
                raise
            except Exception as trouble:
                log.debug("perdure: it cannot be seen yet: %r", trouble)
                await sleep_until(clock, clock.now() + pause)
            else:
                return found
        raise AssertionError("pauses do not end")


def _transact(partner: Partner, ticket: Ticket, transaction: Transaction, gate: Gate) -> Script[bytes]:
    yield Begin()
    output = yield from partner.enter(ticket)
    if output is not None:
        return output
    result = yield Call(transaction.fn)
    output = transaction.encode(result)
    yield from partner.leave(ticket, output)
    gate.enter()
    try:
        yield Commit()
    except Exception as error:
        raise Unsure(error) from error
    return output


def _look(partner: Partner, ticket: Ticket) -> Script[bytes | None]:
    """Whoever has the row is waited for, and nothing is committed."""
    yield Begin()
    return (yield from partner.enter(ticket))


def _nothing() -> None:
    """It has begun already."""


def check_alone(what: str) -> None:
    """Raise `UsageError` in the function of a transaction that has the store to itself: it would wait for its own end."""
    name = _alone.get()
    if name is not None:
        raise UsageError(
            f"{what} inside transaction {name!r} would wait for the end of this very transaction, which has the SQLite file to "
            "itself; give it connection=..., or do it outside"
        )


async def join(means: Means, connection: Any, write: Create | Send) -> Joined:
    """Have a write applied within a user's transaction. Raises `UsageError`, `StoreUnavailable`, and what his driver raises."""
    partner = await means.store.partner()
    joined: Joined = await means.databases.join(connection, partner.write(write))
    return joined
