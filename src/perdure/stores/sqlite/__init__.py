"""The SQLite store: one file, the standard library's `sqlite3`, any number of processes.

`store` is the port. `thread` runs a connection; `writer` and `reader` say what it does there; `renewer` and `watch` have
connections of their own; `turnstile` lets renewals go first. A `transaction` is what all verbs work on: `bulk` is the short
way for plain writes (in statements that are `sized`), `writes`, `turns`, `families`, `inboxes` and `newruns` the long one;
`claims`, `audits` and `reads` the rest. `schema` and `migrations` make the tables, `rows` maps them, `packed` reads many rows
in one step.
"""

from __future__ import annotations

from perdure.stores.sqlite.renewer import SqliteRenewer
from perdure.stores.sqlite.store import SqliteStore

__all__ = ["SqliteRenewer", "SqliteStore"]
