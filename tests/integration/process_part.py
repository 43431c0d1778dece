"""One process of a test: `python -m tests.integration.process_part VERB NAME URL OPTIONS [BLOCKER]`. See `process_load`."""

from __future__ import annotations

import asyncio
import importlib
import json
import logging
import signal
import sys
import threading
from collections.abc import Awaitable, Callable
from typing import Any

from perdure import Perdure
from tests.integration import process_load as load


async def serve(url: str, options: dict[str, Any]) -> None:
    """Works until SIGTERM, then closes its app. `include`: what it serves, in place of `process_load`."""
    loop, leave = asyncio.get_running_loop(), asyncio.Event()
    loop.add_signal_handler(signal.SIGTERM, leave.set)
    threading.Thread(target=_listen, args=(loop,), daemon=True).start()
    include = [importlib.import_module(module) for module in options.pop("include", [load.__name__])]
    app = Perdure(url, include=include, **options)
    for module in include:
        getattr(module, "declare", _nothing)(app)
    async with app:
        load.tell("ready")
        await leave.wait()
        load.tell("leaving")
    load.tell("left")


def _nothing(app: Perdure) -> None:
    """Most modules have nothing to declare."""


def _listen(loop: asyncio.AbstractEventLoop) -> None:
    for _ in sys.stdin:
        loop.call_soon_threadsafe(load.go.set)


async def enqueue(url: str, options: dict[str, Any]) -> None:
    """Starts `count` runs that others will run, and says so after each."""
    count = options.pop("count")
    async with Perdure(url, include=[load], consume=False, **options) as app:
        load.tell("ready")
        for number in range(count):
            await app.start(load.counted, id=f"{load.name}:{number}")
            load.tell("started", number)
    load.tell("left")


VERBS: dict[str, Callable[[str, dict[str, Any]], Awaitable[None]]] = {"serve": serve, "enqueue": enqueue}


async def main() -> None:
    verb, load.name, url, options, *rest = sys.argv[1:]
    if rest:
        load.blocker = int(rest[0])
    await VERBS[verb](url, json.loads(options))


if __name__ == "__main__":
    logging.basicConfig(level=logging.WARNING)
    asyncio.run(main())
