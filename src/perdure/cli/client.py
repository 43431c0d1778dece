"""Talking to a store that is there already. Nothing is created, migrated or run by it."""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from perdure.app import Perdure, open_store, parse_url
from perdure.engine.systemclock import SystemClock
from perdure.model.errors import StoreUnavailable, UsageError

#: Seconds: somebody sits there and waits.
_PATIENCE = 5.0


@asynccontextmanager
async def client(url: str) -> AsyncGenerator[Perdure]:
    """An app that only talks to the store of `url`. Raises `UsageError` and `StoreError`."""
    check_there(url)
    clock = SystemClock()
    store = open_store(url, clock)
    await store.open(migrate=False)
    try:
        async with Perdure(url, store=store, clock=clock, consume=False, patience=_PATIENCE) as app:
            yield app
    finally:
        await store.close()


def check_there(url: str) -> None:
    """Raises `StoreUnavailable` where there is no store, `UsageError` for one that no other process can see."""
    kind, path, _ = parse_url(url)
    if kind == "memory":
        raise UsageError(
            f"{url} is a store inside one process; give the URL of one that outlives it, like sqlite:///x.db"
        )
    if kind == "sqlite" and not os.path.exists(path):
        raise StoreUnavailable(
            f"there is no store {path}; give its URL with --store or PERDURE_STORE (`perdure migrate` makes a new one)"
        )
