"""The SQLite store: one file, the standard library's `sqlite3`, any number of processes.

`store` is the port; `thread` runs a connection, `writer` and `reader` are the two kinds of it, `renewer` and `watch` have
connections of their own. `bulk` is the short way for plain writes; `writes`, `turns`, `families` and `inboxes` the long one;
`claims`, `audits` and `reads` the rest. `schema` and `migrations` make the tables, `rows` maps them.
"""

from __future__ import annotations

from perdure.stores.sqlite.renewer import SqliteRenewer
from perdure.stores.sqlite.store import SqliteStore

__all__ = ["SqliteRenewer", "SqliteStore"]
