"""What the store has of a run that is held: for going back to the log after a turn that was refused."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from msgspec import Struct

from perdure.engine.pauses import pauses, sleep_until
from perdure.model.errors import StoreError, StoreUnavailable
from perdure.model.history import Entry
from perdure.model.messages import Message
from perdure.model.run import RunKey
from perdure.ports.clock import Clock
from perdure.ports.store import Store

log = logging.getLogger("perdure.engine")


class Stored(Struct, frozen=True):
    """What a replay needs."""

    history: Sequence[Entry]
    started_at: int
    seen: int
    unread: Sequence[Message]


async def reread(store: Store, clock: Clock, key: RunKey) -> Stored | None:
    """None if the run is gone. Waits for a store that cannot be reached: the run is held, and its lease is renewed meanwhile.

    None, too, if it cannot be read: then its lease runs out, and whoever claims it reads it.
    """
    for pause in pauses():
        try:
            return await _reread(store, key)
        except StoreUnavailable as error:
            log.warning("perdure: cannot read run %r again, trying again: %s", key.id, error)
        except StoreError as error:
            log.warning("perdure: cannot read run %r again; its lease runs out: %s", key.id, error)
            break
        await sleep_until(clock, clock.now() + pause)
    return None


async def _reread(store: Store, key: RunKey) -> Stored | None:
    history = (await store.history([key.incarnation]))[key.incarnation]
    run = await store.get(key.id)
    if run is None or run.key != key or run.started_at is None:
        return None
    return Stored(history, run.started_at, run.seen, await store.messages(key.incarnation))
