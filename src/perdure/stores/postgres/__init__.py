"""The Store port on PostgreSQL, with asyncpg (the extra `perdure[postgres]`).

The rules are SQL functions, numbered with the migrations (`migrations/`): a batch of writes is one call, one transaction, one
round trip. This side says what a batch touches, reads answers, and knows what an error means.
"""

from __future__ import annotations

from perdure.stores.postgres.store import PostgresStore

__all__ = ["PostgresStore"]
