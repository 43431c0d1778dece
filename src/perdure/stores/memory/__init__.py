"""The memory store: plain dicts behind the Store port. The oracle for every other store, and the store of tests.

`tables` holds the data and undoes what failed; `rules` decides (pure); `inboxes` and `writes` apply; `store` is the port.
"""

from __future__ import annotations

from perdure.stores.memory.store import MemoryStore

__all__ = ["MemoryStore"]
