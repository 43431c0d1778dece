"""A workflow of one transaction, in a process that its parent kills.

`python -m tests.integration.transaction_load URL TABLE WHERE`: the process stops "inside" the transaction, or "after" the
commit and before the turn, says so, and waits to be killed. With "nowhere" it works until the run has ended.
"""

from __future__ import annotations

import asyncio
import os
import sys
import threading
from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa

from perdure import Context, Perdure, workflow
from perdure.app import open_store
from perdure.engine.systemclock import SystemClock
from perdure.model.history import Event, Op
from perdure.stores.postgres.place import place_of

url, table, where = sys.argv[1:] if __name__ == "__main__" else ("sqlite://", "", "")


def tell(what: str) -> None:
    """One line to the parent, at once and whole."""
    os.write(sys.stdout.fileno(), f"{what}\n".encode())


def sqlalchemy_url(url: str) -> str:
    if url.startswith("sqlite"):
        return url.partition("?")[0]
    return place_of(url).dsn.replace("postgresql://", "postgresql+psycopg://")


engine = sa.create_engine(sqlalchemy_url(url))


@workflow
async def pay(ctx: Context) -> str:
    def write(connection: sa.Connection) -> str:
        connection.execute(sa.text(f"INSERT INTO {table} (line) VALUES ('paid by {os.getpid()}')"))
        tell("wrote")
        if where == "inside":
            threading.Event().wait()
        return f"paid by {os.getpid()}"

    return str(await ctx.transaction("pay", write, on=engine, type=str))


class Stopping:
    """A store that never writes the turn which takes the step's result into history."""

    def __init__(self, store: Any) -> None:
        self._store = store

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def write(self, batch: Sequence[Any]) -> Any:
        entries = [entry for write in batch for entry in getattr(write, "entries", ())]
        if any(entry.event is Event.RESOLVED and entry.op is Op.LOCAL for entry in entries):
            tell("committed")
            threading.Event().wait()
        return await self._store.write(batch)


async def main() -> None:
    clock = SystemClock()
    store: Any = open_store(url, clock)
    if where == "after":
        store = Stopping(store)
    app = Perdure(url, store=store, clock=clock, lease=0.5, poll=0.1)
    app.register(pay)
    async with app:
        run = await app.start(pay, id="r1")
        tell(f"result {await run.result()}")
    engine.dispose()


if __name__ == "__main__":
    asyncio.run(main())
