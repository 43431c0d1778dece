"""A schema brought up to date by the store itself, for `kept_schema_on`."""

from __future__ import annotations

import asyncio

from tests.servers.databases import Schema


def migrate(schema: Schema) -> None:
    """Have the store make its tables and functions in the schema. Not within a running loop."""
    from perdure.stores.postgres import PostgresStore
    from perdure.testing import ManualClock

    async def opened() -> None:
        store = PostgresStore(schema.store, clock=ManualClock())
        await store.open()
        await store.close()

    asyncio.run(opened())
