"""Hints over LISTEN and NOTIFY: another process may have written. Best effort; polling is the truth.

Each process that wants hints listens on a connection of its own, and pings itself on it now and then: a ping that does not come
back finds a connection that is dead without saying so. Pings tell the others, too, that somebody listens; who has heard of
nobody tells nothing. What there is to tell is told after its commit, on another connection that does not wait for the disk
(inside the commit it would take a lock of the whole database), and not more often than every few milliseconds.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import time  # noqa: TID251  # pings and pauses are elapsed time, not the store's
from collections.abc import Callable
from hashlib import sha256
from typing import Any, Final

import asyncpg

from perdure.model.errors import StoreError
from perdure.stores.postgres.connections import connect, let_go, said
from perdure.stores.postgres.place import Place

log = logging.getLogger("perdure.store")

#: Seconds: between two pings; until one must be back; for how long somebody counts as there.
PING: Final = 5.0
_ECHO: Final = 5.0
#: Seconds between two hints of one process.
_PAUSE: Final = 0.004
_FIRST_BACK_OFF, _LONGEST_BACK_OFF = 0.1, 5.0

Listener = Callable[[], None]

_FAULTS: Final = (StoreError, asyncpg.PostgresError, asyncpg.InterfaceError, OSError, TimeoutError)


class Hints:
    """From `start` to `stop`; event loop only."""

    def __init__(self, place: Place, *, ping: float = PING, echo: float = _ECHO) -> None:
        self._place = place
        self._ping, self._echo = ping, echo
        self._listeners: list[Listener] = []
        self._teller = Teller(place)
        self._task: asyncio.Task[None] | None = None
        self._echoed = asyncio.Event()
        #: Set by whatever ends the pause between two pings: the connection was closed, or listening is to stop.
        self._wake = asyncio.Event()
        self._stopping = False
        #: Set while the listening connection is up: for whoever waits for it.
        self.listening = asyncio.Event()

    def add(self, listener: Listener) -> Callable[[], None]:
        """Returns what removes it again. The first one starts the listening."""
        self._listeners.append(listener)
        if self._task is None and self._place.listen is not None:
            self._task = asyncio.get_running_loop().create_task(self._listen())
            self._teller.start()

        def remove() -> None:
            if listener in self._listeners:
                self._listeners.remove(listener)

        return remove

    def changed(self) -> None:
        """Something was committed that others may want to know."""
        self._teller.changed()

    async def stop(self) -> None:
        """Nobody is told any more. Idempotent."""
        self._listeners.clear()
        self._stopping = True
        self._wake.set()
        task, self._task = self._task, None
        await _end(task)
        await self._teller.stop()

    # ------------------------------------------------------------ listening

    async def _listen(self) -> None:
        back_off = _FIRST_BACK_OFF
        lost = False
        while not self._stopping:
            try:
                connection = await connect(self._place, command_timeout=self._echo, dsn=self._place.listen)
                try:
                    await connection.add_listener(self._teller.channel, self._heard)
                    self.listening.set()
                    if lost:
                        log.info("perdure: hears of changes in %s again", self._place)
                    back_off, lost = _FIRST_BACK_OFF, False
                    await say(connection, self._teller.channel, "hello", self._teller.me)
                    self._pass_on()  # What was told while nobody listened.
                    await self._ping_on(connection)
                    await say(connection, self._teller.channel, "bye", self._teller.me)
                finally:
                    self.listening.clear()
                    await let_go(connection)
            except _FAULTS as error:
                if not lost:
                    log.warning(
                        "perdure: hears of changes in %s by polling only, for now: %s", self._place, said(error)
                    )
                lost = True
                await self._pause(back_off)
                back_off = min(back_off * 2, _LONGEST_BACK_OFF)

    async def _ping_on(self, connection: asyncpg.Connection[Any]) -> None:
        """Until it is stopped. Raises `TimeoutError` if a ping does not come back, `OSError` if the connection is closed."""
        connection.add_termination_listener(self._closed)
        while not self._stopping:
            self._echoed.clear()
            await say(connection, self._teller.channel, "ping", self._teller.me)
            async with asyncio.timeout(self._echo):
                await self._echoed.wait()
            self._teller.forget_silent(3 * (self._ping + self._echo))
            await self._pause(self._ping)
            self._teller.acquainted = True
            if connection.is_closed():
                raise ConnectionResetError("the connection was closed")

    def _closed(self, connection: object) -> None:
        self._wake.set()

    async def _pause(self, seconds: float) -> None:
        """Not longer than until something happens."""
        try:
            async with asyncio.timeout(seconds):
                await self._wake.wait()
        except TimeoutError:
            pass
        if not self._stopping:
            self._wake.clear()

    def _heard(self, connection: Any, pid: int, channel: str, payload: object) -> None:
        what, _, who = str(payload).partition(" ")
        if who == self._teller.me:
            if what == "ping":
                self._echoed.set()
            return
        if who:  # a transaction of a user's that we had a part in has no name, and does not listen
            self._teller.heard(what, who)
        if what == "changed":
            self._pass_on()

    def _pass_on(self) -> None:
        for listener in tuple(self._listeners):
            listener()


class Teller:
    """Tells the others, as far as there are any. From `start` to `stop`; event loop only."""

    def __init__(self, place: Place) -> None:
        self._place = place
        self.channel = channel_of(place.schema)
        #: What this process is called on the channel.
        self.me = secrets.token_hex(8)
        #: Who else listens, and when they were last heard of.
        self._others: dict[str, float] = {}
        #: False: whoever is there may not have said so yet, and is told in any case.
        self.acquainted = False
        #: There is something to tell; if nothing has changed, only that we are here.
        self._news = asyncio.Event()
        self._changed = False
        self._stopping = False
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._tell())

    async def stop(self) -> None:
        self._stopping = True
        self._news.set()
        task, self._task = self._task, None
        await _end(task)

    def changed(self) -> None:
        """There is something to tell, if there is somebody to tell it to."""
        if self._others or not self.acquainted:
            self._changed = True
            self._news.set()

    def heard(self, what: str, who: str) -> None:
        """Somebody else is there, or takes leave."""
        if what == "bye":
            self._others.pop(who, None)
            return
        self._others[who] = time.monotonic()
        if what == "hello":
            self._news.set()  # Whoever came shall know of us at once; nobody has to look for that.

    def forget_silent(self, seconds: float) -> None:
        """Whoever was not heard of for so long is gone."""
        silent = time.monotonic() - seconds
        for who in [who for who, heard in self._others.items() if heard < silent]:
            del self._others[who]

    async def _tell(self) -> None:
        connection: asyncpg.Connection[Any] | None = None
        try:
            while True:
                await self._news.wait()
                if self._stopping:
                    return
                self._news.clear()
                what, self._changed = "changed" if self._changed else "here", False
                try:
                    if connection is None or connection.is_closed():
                        connection = await connect(self._place, command_timeout=_ECHO, dsn=self._place.listen)
                        await connection.execute("SET synchronous_commit = off")
                    await say(connection, self.channel, what, self.me)
                except _FAULTS as error:
                    log.debug("perdure: others were not told of a change, and find it by polling: %s", said(error))
                    if connection is not None:
                        lost, connection = connection, None
                        await let_go(lost)
                await asyncio.sleep(_PAUSE)
        finally:
            if connection is not None:
                await let_go(connection)


def channel_of(schema: str) -> str:
    """The schema's own. (Channels have names of at most 63 bytes: that of a longer one is its digest.)"""
    name = f"perdure.{schema}"
    return name if len(name.encode()) < 64 else f"perdure.{sha256(schema.encode()).hexdigest()[:40]}"


async def say(connection: asyncpg.Connection[Any], channel: str, what: str, who: str) -> None:
    """To all that listen, ourselves too."""
    await connection.execute("SELECT pg_notify($1, $2)", channel, f"{what} {who}")


async def _end(task: asyncio.Task[None] | None) -> None:
    """Give a task that was told to stop a moment: what it is at on its connection should not be cut off."""
    if task is None:
        return
    await asyncio.wait([task], timeout=1)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
