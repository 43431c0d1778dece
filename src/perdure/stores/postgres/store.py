"""The Store port on a PostgreSQL schema, which any number of processes may share."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import asyncpg

from perdure.model.commit import Answer, TurnCommit, Write
from perdure.model.errors import StoreUnavailable
from perdure.model.events import Subscription
from perdure.model.history import Entry
from perdure.model.messages import Message
from perdure.model.run import Run, Status
from perdure.model.stream import StoredChunk
from perdure.ports.clock import Clock
from perdure.ports.fleet import Member, Serves
from perdure.ports.gates import Gate
from perdure.ports.store import Claimed, ClaimRequest, Count, Facet, Finding, Held, RunQuery, Standing
from perdure.stores.postgres import schema
from perdure.stores.postgres.batches import Batches
from perdure.stores.postgres.claims import Claims
from perdure.stores.postgres.connections import PATIENCE, Connections
from perdure.stores.postgres.fleet import Fleet
from perdure.stores.postgres.hints import Hints
from perdure.stores.postgres.joined import PostgresPartner, look_with
from perdure.stores.postgres.migrations import Migration
from perdure.stores.postgres.place import Place, place_of
from perdure.stores.postgres.reads import Reads
from perdure.stores.postgres.renewer import PostgresRenewer
from perdure.stores.postgres.subscriptions import Subscriptions
from perdure.stores.postgres.timekeeping import Timekeeper

#: Connections for the engine's calls; the renewer, the listener and the teller have one each of their own.
_CONNECTIONS: Final = 6


class _Open:
    """What there is while the store is open."""

    def __init__(self, place: Place, clock: Clock, patience: float) -> None:
        self.pid = os.getpid()
        self.connections = Connections(place, _CONNECTIONS, patience=patience)
        self.batches = Batches(place, self.connections)
        self.claims = Claims(place, self.connections)
        self.fleet = Fleet(place, self.connections)
        self.subscriptions = Subscriptions(place, self.connections)
        self.reads = Reads(place, self.connections)
        self.hints = Hints(place)
        self.time = Timekeeper(clock, self._ask_time)
        self._clock_text = f"SELECT {place.quoted}.clock_1()"
        self.partner: PostgresPartner | None = None
        #: Whoever opened it and did not close it yet: several apps may be given one store.
        self.openings = 1

    async def find_partner(self, place: Place) -> PostgresPartner:
        async def fetch(statement: str, parameter: str) -> str:
            [row] = await self.connections.fetch(statement, parameter)
            return str(row[0])

        if self.partner is None:
            self.partner = PostgresPartner(place, await look_with(place, fetch), self.time.at)
        return self.partner

    async def _ask_time(self) -> int:
        [row] = await self.reads.fetch(self._clock_text)
        return int(row[0])


class PostgresStore:
    """Runs in a PostgreSQL database. Making one connects to nothing; `open` does.

    `url`: see `place_of`. `patience` is how many seconds a call may take before the connection counts as lost. A clock that can
    follow (`follow(now)`) is set by the server's; by one that cannot, the server is told the time with each call.

    After a fork the child must open a store of its own: every verb of an inherited one raises `StoreUnavailable`.
    """

    def __init__(self, url: str, *, clock: Clock, patience: float = PATIENCE) -> None:
        self._place = place_of(url)
        self._clock = clock
        self._patience = patience
        self._opened: _Open | None = None

    async def open(self, *, migrate: bool = True) -> None:
        if self._opened is not None:
            self._open.openings += 1
            return
        opened = _Open(self._place, self._clock, self._patience)
        try:

            async def prepare(connection: asyncpg.Connection[Any]) -> None:
                await schema.prepare(connection, self._place, migrate=migrate)

            await opened.connections.alone(prepare)
            await opened.time.start()
        except BaseException:
            await opened.connections.close()
            raise
        self._opened = opened

    async def close(self) -> None:
        opened = self._opened
        if opened is None or opened.pid != os.getpid():
            return
        opened.openings -= 1
        if opened.openings:
            return
        self._opened = None
        await opened.hints.stop()
        await opened.time.stop()
        await opened.connections.close()

    def plan(self) -> Sequence[Migration]:
        """The migrations that `open` would apply. Blocks, not to be called on an event loop; changes nothing."""
        return asyncio.run(schema.plan(self._place))

    def now(self) -> int:
        return self._clock.now()

    @property
    def begun_anew(self) -> int:
        """How often a call met locks of others out of order and was begun anew, since the store was opened."""
        return self._open.connections.begun_anew

    # ------------------------------------------------------------ writing

    async def write(self, batch: Sequence[Write]) -> Sequence[Answer]:
        opened = self._open
        answers = await opened.batches.write(batch, opened.time.at())
        if any(map(_concerns_others, batch)):
            opened.hints.changed()
        return answers

    async def claim(self, request: ClaimRequest) -> Sequence[Claimed]:
        return await self._open.claims.claim(request, self._open.time.at())

    async def release(self, owner: str, held: Sequence[Held]) -> None:
        opened = self._open
        if held and await opened.claims.release(owner, held, opened.time.at()):
            opened.hints.changed()

    async def unblock(self, serves: Sequence[Serves]) -> int:
        opened = self._open
        unblocked = await opened.claims.unblock(serves, opened.time.at())
        if unblocked:
            opened.hints.changed()
        return unblocked

    async def audit(self, *, heal: bool = True) -> Sequence[Finding]:
        return await self._open.claims.audit(self._open.time.at(), heal=heal)

    async def block_unserved(self, grace: int) -> Sequence[Finding]:
        return await self._open.fleet.block_unserved(grace, self._open.time.at())

    async def subscribe(self, subscriptions: Sequence[Subscription]) -> None:
        await self._open.subscriptions.put(subscriptions)

    def renewer(self) -> PostgresRenewer:
        return PostgresRenewer(self._place, self._open.time.at, self._check)

    async def partner(self) -> PostgresPartner:
        return await self._open.find_partner(self._place)

    # ------------------------------------------------------------ reading

    async def next_wake(self, request: ClaimRequest) -> int | None:
        return await self._open.claims.next_wake(request)

    async def subscriptions(self) -> Sequence[Subscription]:
        return await self._open.subscriptions.all()

    async def fleet(self) -> Sequence[Member]:
        return await self._open.fleet.members(self._open.time.at())

    async def history(self, incarnations: Sequence[int]) -> Mapping[int, Sequence[Entry]]:
        return await self._open.reads.history(incarnations)

    async def get(self, run_id: str) -> Run | None:
        return await self._open.reads.get(run_id)

    async def standing(self, incarnations: Sequence[int]) -> Mapping[int, Standing]:
        return await self._open.reads.standing(incarnations)

    async def runs(self, query: RunQuery) -> Sequence[Run]:
        return await self._open.reads.runs(query)

    async def count(self, query: RunQuery, by: Sequence[Facet]) -> Sequence[Count]:
        return await self._open.reads.count(query, by)

    async def messages(self, incarnation: int) -> Sequence[Message]:
        return await self._open.reads.messages(incarnation)

    async def values(self, incarnation: int, keys: Sequence[str]) -> Mapping[str, bytes]:
        return await self._open.reads.values(incarnation, keys)

    async def gates(self, *, namespace: str | None = None, name: str | None = None, limit: int = 20) -> Sequence[Gate]:
        return await self._open.reads.gates(namespace, name, limit)

    async def chunks(self, incarnation: int, stream: str, after: int, limit: int) -> Sequence[StoredChunk]:
        return await self._open.reads.chunks(incarnation, stream, after, limit)

    async def heads(self, asked: Sequence[tuple[int, str]]) -> Sequence[int]:
        return await self._open.reads.heads(asked)

    def on_change(self, callback: Callable[[], None]) -> Callable[[], None]:
        return self._open.hints.add(callback)

    # ------------------------------------------------------------ inside

    @property
    def _open(self) -> _Open:
        self._check()
        assert self._opened is not None
        return self._opened

    def _check(self) -> None:
        if self._opened is None:
            raise StoreUnavailable(f"the store {self._place} is not open; call open() first")
        if os.getpid() != self._opened.pid:
            raise StoreUnavailable(
                f"the store {self._place} was opened by process {self._opened.pid}, which this one was forked from; its "
                "connections are the parent's: make and open a store of your own in the child"
            )


def _concerns_others(write: Write) -> bool:
    """Not a turn that goes on by itself."""
    return not (
        isinstance(write, TurnCommit)
        and write.status is Status.RUNNING
        and not (
            write.children
            or write.joins
            or write.cancels
            or write.sends
            or write.unwaits
            or write.releases
            or write.chunks
        )
    )
