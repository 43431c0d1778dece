"""The Store port on one SQLite file, which any number of processes may share."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import cast

from perdure.model.commit import Answer, Write
from perdure.model.errors import StoreUnavailable
from perdure.model.events import Subscription
from perdure.model.history import Entry
from perdure.model.messages import Message
from perdure.model.run import Run
from perdure.model.stream import StoredChunk
from perdure.ports.clock import Clock
from perdure.ports.fleet import Member, Serves
from perdure.ports.gates import Gate
from perdure.ports.store import Claimed, ClaimRequest, Count, Facet, Finding, Held, RunQuery, Standing
from perdure.stores.sqlite import audits, claims, events, fleet, gaterows, listing, reads, schema, streams
from perdure.stores.sqlite.connection import BUSY_DEADLINE, check_arguments
from perdure.stores.sqlite.joined import SqlitePartner
from perdure.stores.sqlite.migrations import Migration
from perdure.stores.sqlite.place import Place
from perdure.stores.sqlite.reader import Reader
from perdure.stores.sqlite.renewer import SqliteRenewer
from perdure.stores.sqlite.thread import ConnectionThread
from perdure.stores.sqlite.transaction import Transaction
from perdure.stores.sqlite.turnstile import Turnstile
from perdure.stores.sqlite.watch import Watch
from perdure.stores.sqlite.writer import Writer


class SqliteStore:
    """Runs in a SQLite file. Making one opens nothing; `open` does.

    `synchronous` is SQLite's setting: FULL keeps every answered write through a power cut; NORMAL may lose the last ones in
    one (never in a crash of the process), and is faster where the disk is slow to flush. `patience` is how many seconds a
    verb asks for the file's write lock while other processes hold it, before it raises `StoreUnavailable`.

    After a fork the child must open a store of its own: every verb of an inherited one raises `StoreUnavailable`.
    """

    def __init__(self, path: str, *, clock: Clock, synchronous: str = "FULL", patience: float = BUSY_DEADLINE) -> None:
        check_arguments(path, synchronous)
        self._place = Place(os.path.abspath(path), synchronous.upper(), patience, Turnstile())
        self._clock = clock
        self._writer: ConnectionThread | None = None
        self._reader: ConnectionThread | None = None
        self._watch = Watch(self._place.path, self._ask_version)
        self._pid = 0
        #: Whoever opened it and did not close it yet: several apps may be given one store.
        self._openings = 0

    async def open(self, *, migrate: bool = True) -> None:
        if self._writer is not None:
            self._check()
            self._openings += 1
            return
        writer = ConnectionThread("perdure-sqlite-writer", Writer(self._place, self._clock, migrate=migrate))
        reader = ConnectionThread("perdure-sqlite-reader", Reader(self._place.path))
        await writer.start()
        try:
            await reader.start()
        except BaseException:
            await writer.stop()
            raise
        self._writer, self._reader, self._pid = writer, reader, os.getpid()
        self._openings = 1

    async def close(self) -> None:
        writer, reader = self._writer, self._reader
        if writer is None or reader is None or os.getpid() != self._pid:
            return
        self._openings -= 1
        if self._openings:
            return
        self._writer = self._reader = None
        await asyncio.get_running_loop().run_in_executor(None, self._watch.close)  # it waits for a thread
        await reader.stop()
        await writer.stop()

    def plan(self) -> Sequence[Migration]:
        """The migrations that `open` would apply; for a file that does not exist yet, all. Blocks; changes nothing."""
        return schema.plan(self._place.path)

    async def pragma(self, name: str) -> object:
        """What SQLite says a setting of the writing connection is: for benchmarks and checks to print."""
        return await self._writing().call(lambda tx: tx.execute(f"PRAGMA {name}").fetchone()[0])

    def now(self) -> int:
        return self._clock.now()

    # ------------------------------------------------------------ writing

    async def write(self, batch: Sequence[Write]) -> Sequence[Answer]:
        return cast("Sequence[Answer]", await self._writing().write(batch))

    async def partner(self) -> SqlitePartner:
        self._check()
        return SqlitePartner(self._place, self._clock)

    async def claim(self, request: ClaimRequest) -> Sequence[Claimed]:
        return cast("Sequence[Claimed]", await self._writing().call(partial(claims.claim, request=request)))

    async def release(self, owner: str, held: Sequence[Held]) -> None:
        await self._writing().call(partial(claims.release, owner=owner, held=held))

    async def unblock(self, serves: Sequence[Serves]) -> int:
        return cast("int", await self._writing().call(partial(claims.unblock, serves=serves)))

    async def audit(self, *, heal: bool = True) -> Sequence[Finding]:
        return cast("Sequence[Finding]", await self._writing().call(partial(audits.audit, heal=heal)))

    async def subscribe(self, subscriptions: Sequence[Subscription]) -> None:
        await self._writing().call(partial(events.subscribe, subscriptions=subscriptions))

    async def block_unserved(self, grace: int) -> Sequence[Finding]:
        look = partial(fleet.unserved, now=self.now(), grace=grace)
        if not await self._reading().call(look):  # as nearly always: then nobody need wait for it
            return []
        return cast("Sequence[Finding]", await self._writing().call(partial(fleet.block_unserved, grace=grace)))

    def renewer(self) -> SqliteRenewer:
        self._check()
        return SqliteRenewer(self._place, self._clock, self._check)

    # ------------------------------------------------------------ reading

    async def next_wake(self, request: ClaimRequest) -> int | None:
        return cast("int | None", await self._reading().call(partial(claims.next_wake, request=request)))

    async def subscriptions(self) -> Sequence[Subscription]:
        return cast("Sequence[Subscription]", await self._reading().call(events.subscriptions))

    async def gates(self, *, namespace: str | None = None, name: str | None = None, limit: int = 20) -> Sequence[Gate]:
        call = partial(gaterows.listed, namespace=namespace, name=name, limit=limit)
        return cast("Sequence[Gate]", await self._reading().call(call))

    async def fleet(self) -> Sequence[Member]:
        return cast("Sequence[Member]", await self._reading().call(partial(fleet.fleet, now=self.now())))

    async def history(self, incarnations: Sequence[int]) -> Mapping[int, Sequence[Entry]]:
        call = partial(reads.history, incarnations=incarnations)
        return cast("Mapping[int, Sequence[Entry]]", await self._reading().call(call))

    async def get(self, run_id: str) -> Run | None:
        return cast("Run | None", await self._reading().call(partial(reads.get, run_id=run_id)))

    async def standing(self, incarnations: Sequence[int]) -> Mapping[int, Standing]:
        call = partial(reads.standing, incarnations=incarnations)
        return cast("Mapping[int, Standing]", await self._reading().call(call))

    async def runs(self, query: RunQuery) -> Sequence[Run]:
        return cast("Sequence[Run]", await self._reading().call(partial(listing.runs, query=query)))

    async def count(self, query: RunQuery, by: Sequence[Facet]) -> Sequence[Count]:
        return cast("Sequence[Count]", await self._reading().call(partial(listing.count, query=query, by=by)))

    async def messages(self, incarnation: int) -> Sequence[Message]:
        call = partial(reads.messages, incarnation=incarnation)
        return cast("Sequence[Message]", await self._reading().call(call))

    async def values(self, incarnation: int, keys: Sequence[str]) -> Mapping[str, bytes]:
        call = partial(reads.values, incarnation=incarnation, keys=keys)
        return cast("Mapping[str, bytes]", await self._reading().call(call))

    async def chunks(self, incarnation: int, stream: str, after: int, limit: int) -> Sequence[StoredChunk]:
        call = partial(streams.chunks, incarnation=incarnation, stream=stream, after=after, limit=limit)
        return cast("Sequence[StoredChunk]", await self._reading().call(call))

    async def heads(self, asked: Sequence[tuple[int, str]]) -> Sequence[int]:
        return cast("Sequence[int]", await self._reading().call(partial(streams.heads, asked=asked)))

    def on_change(self, callback: Callable[[], None]) -> Callable[[], None]:
        self._check()
        return self._watch.add(callback)

    # ------------------------------------------------------------ inside

    def _writing(self) -> ConnectionThread:
        self._check()
        return cast("ConnectionThread", self._writer)

    def _reading(self) -> ConnectionThread:
        self._check()
        return cast("ConnectionThread", self._reader)

    def _check(self) -> None:
        if self._writer is None:
            raise StoreUnavailable(f"the store {self._place.path} is not open; call open() first")
        if os.getpid() != self._pid:
            raise StoreUnavailable(
                f"the store {self._place.path} was opened by process {self._pid}, which this one was forked from; "
                "SQLite connections do not survive a fork: make and open a store of your own in the child"
            )

    def _ask_version(self, then: Callable[[int], None]) -> None:
        """Call `then`, on the writer's thread, with the number that changes when another connection has written."""
        writer = self._writer
        if writer is not None:

            def ask(tx: Transaction) -> None:
                then(int(tx.execute("PRAGMA data_version").fetchone()[0]))

            writer.tell(ask)
