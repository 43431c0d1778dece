"""What every part of an engine is given: the ports, the definitions, the settings, and the loop they all work on."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from perdure.authoring.registry import Registry
from perdure.engine.hooks import Hooks
from perdure.engine.settings import Settings
from perdure.ports.clock import Clock
from perdure.ports.databases import Databases
from perdure.ports.store import Store


@dataclass(frozen=True, slots=True, kw_only=True)
class Means:
    """Made once, for one engine, on its event loop."""

    store: Store
    #: Knows the drivers of users' own connections.
    databases: Databases
    clock: Clock
    registry: Registry
    settings: Settings
    #: Who hears of what happens here, and what is put around it: the app's, so that it outlives this engine.
    hooks: Hooks
    #: Names this engine in leases. No two ever have the same.
    owner: str
    #: The process that made it: none that was forked from it may use it.
    pid: int
    #: Uniform in [0, 1).
    chance: Callable[[], float]
    #: Seconds that only ever grow, whatever the machine's clock does.
    monotonic: Callable[[], float]
    loop: asyncio.AbstractEventLoop
