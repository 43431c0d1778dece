"""What starts runs: kept for those who publish."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from perdure.model.events import Subscription
from perdure.stores.postgres.connections import Connections
from perdure.stores.postgres.place import Place

_decode: Final = msgspec.json.Decoder(Subscription).decode


class Subscriptions:
    """One place's."""

    def __init__(self, place: Place, connections: Connections) -> None:
        self._table = f"{place.quoted}.subscriptions"
        self._fetch = connections.fetch

    async def put(self, subscriptions: Sequence[Subscription]) -> None:
        """Each in place of what was there. One after the other, in the order of their keys."""
        for each in sorted(subscriptions, key=lambda each: (each.namespace or "", each.workflow, each.version)):
            await self._fetch(
                f"INSERT INTO {self._table} VALUES ($1, $2, $3, $4) "
                "ON CONFLICT (namespace, workflow, version) DO UPDATE SET subscription = excluded.subscription",
                each.namespace or "",
                each.workflow,
                each.version,
                msgspec.json.encode(each),
                again=True,
            )

    async def all(self) -> Sequence[Subscription]:
        """One that cannot be read is passed over: it must not keep others from being published to."""
        found: list[Subscription] = []
        for [text] in await self._fetch(f"SELECT subscription FROM {self._table}", again=True):
            try:
                found.append(_decode(text))
            except msgspec.MsgspecError:
                continue
        return found
