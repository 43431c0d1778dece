"""Opening the app: where a URL becomes a running engine."""

from __future__ import annotations

import asyncio
import os
import secrets
import socket
import time  # noqa: TID251  (a monotonic clock for the watchdog; all other time is the store's)
from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import Any, Self, Unpack

from perdure.app.urls import open_store
from perdure.authoring import ambient
from perdure.authoring.options import StartOptions
from perdure.authoring.registry import Registry, listed
from perdure.authoring.step import StepDefinition
from perdure.authoring.workflow import WorkflowDefinition
from perdure.engine import door
from perdure.engine.engine import Engine
from perdure.engine.handle import RunHandle
from perdure.engine.hooks import Hooks
from perdure.engine.means import Means
from perdure.engine.settings import SettingsKeywords, settings
from perdure.engine.systemclock import SystemClock
from perdure.model.errors import UsageError
from perdure.ports.clock import Clock
from perdure.ports.store import Store


class Opened(ABC):
    """An app as far as it is opened and closed: see `Perdure`."""

    @abstractmethod
    async def launch(self, definition: Any, input: bytes, options: StartOptions) -> RunHandle[Any]:
        """See `perdure.authoring.ambient.Launcher`."""

    @abstractmethod
    async def _declare_queues(self, engine: Engine) -> None:
        """Have the store know what queues let through, before anybody works."""

    @abstractmethod
    async def deliver(self, question: Any, update_id: str, reply: str | None) -> None:
        """See `perdure.authoring.ambient.Launcher`."""

    def __init__(
        self,
        url: str = "sqlite:///perdure.db",
        *,
        include: Iterable[Any] = (),
        store: Store | None = None,
        clock: Clock | None = None,
        consume: bool = True,
        registry: Registry | None = None,
        **options: Unpack[SettingsKeywords],
    ) -> None:
        self.url = url
        self.registry = Registry() if registry is None else registry
        self.settings = settings(options)
        self.registry.plan(listed(include))
        self._clock = clock or SystemClock()
        self._given_store: Store | None = store
        self._consume = consume
        self._engine: Engine | None = None
        self._hooks = Hooks()
        self._opening = False
        #: True if something was registered that the engine was not told of.
        self._news = False
        if store is None:
            open_store(url, self._clock)  # a bad URL is told here, not at the first use; nothing is opened yet

    # -- opening ------------------------------------------------------------------------------------------------------

    async def __aenter__(self) -> Self:
        if self._engine is not None or self._opening:
            raise UsageError("this app is open already; make another one for another `async with`")
        self._opening = True
        try:
            return await self._open()
        finally:
            self._opening = False

    async def _open(self) -> Self:
        from perdure.drivers import Drivers  # only now: it needs sqlite3, and importing us does not

        self.registry.load()
        self._news = False  # the engine begins with all that was registered until here
        store = self._given_store or open_store(self.url, self._clock)
        await store.open()
        ambient.enter(self)
        engine: Engine | None = None
        try:
            means = Means(
                store=store,
                databases=Drivers(),
                clock=self._clock,
                registry=self.registry,
                settings=self.settings,
                hooks=self._hooks,
                owner=f"{socket.gethostname()}:{os.getpid()}:{secrets.token_hex(4)}",
                pid=os.getpid(),
                chance=secrets.SystemRandom().random,
                monotonic=time.monotonic,
                loop=asyncio.get_running_loop(),
            )
            engine = Engine(means, consume=self._consume)
            await self._declare_queues(engine)
            await engine.start()
        except (Exception, asyncio.CancelledError):  # a coroutine that is being dropped cannot await
            ambient.leave(self)
            if engine is not None:
                await engine.stop()
            await store.close()
            raise
        self._engine = engine
        return self

    async def __aexit__(self, *raised: object) -> None:
        if self._engine is not None and door.inherited(self._engine):
            return  # nothing of it is ours
        engine = self.engine
        try:
            await engine.stop()  # steps that are still at work may use the app meanwhile
        finally:
            self._engine = None
            ambient.leave(self)
            await engine.means.store.close()

    @property
    def engine(self) -> Engine:
        """The running engine. Raises `UsageError` while the app is not open, and where it may not be used."""
        if self._engine is None:
            raise UsageError("this app is not open; write `async with app:` around its use")
        return door.enter(self._engine)

    def register(self, *definitions: StepDefinition[..., Any] | WorkflowDefinition[..., Any]) -> None:
        """Serve these too. On an open app it counts from the next start on."""
        if self.registry.add(*definitions):
            self._news = True
