"""The fleet: who works here, and which runs nobody among them can take. `at`: the time to do it at; None: the server's own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from perdure.model.endings import unserved_failure
from perdure.model.failure import encode_failure
from perdure.model.run import RunKey
from perdure.ports.fleet import Member, Process
from perdure.ports.store import MOST_UNSERVED, Finding
from perdure.stores.postgres.connections import Connections
from perdure.stores.postgres.place import Place

_decode_process: Final = msgspec.json.Decoder(Process).decode


class Fleet:
    """One place's."""

    def __init__(self, place: Place, connections: Connections) -> None:
        self._schema = place.quoted
        self._fetch = connections.fetch

    async def beat(self, process: Process, ttl: int, at: int | None) -> None:
        await self._fetch(
            f"SELECT {self._schema}.beat_1($1, $2, $3, $4, $5, $6, $7)",
            at,
            ttl,
            process.owner,
            msgspec.json.encode(process),
            None if process.namespaces is None else list(process.namespaces),
            [each.workflow for each in process.serves],
            [each.version for each in process.serves],
            again=True,
        )

    async def depart(self, owner: str) -> None:
        await self._fetch(f"DELETE FROM {self._schema}.processes WHERE owner = $1", owner, again=True)

    async def members(self, at: int | None) -> Sequence[Member]:
        rows = await self._fetch(
            f"SELECT process, seen_at, expires_at FROM {self._schema}.processes "
            f"WHERE expires_at > coalesce($1, {self._schema}.clock_1())",
            at,
            again=True,
        )
        members: list[Member] = []
        for process, seen_at, expires_at in rows:
            try:
                members.append(Member(_decode_process(process), seen_at, expires_at))
            except msgspec.DecodeError:
                pass  # Of a newer Perdure: it counts in SQL, and hides no other here.
        return sorted(members, key=lambda member: (member.process.started_at, member.process.owner))

    async def block_unserved(self, grace: int, at: int | None) -> Sequence[Finding]:
        """Looks without a lock first: nearly always there is nothing."""
        rows = await self._fetch(
            f"SELECT u.* FROM (SELECT coalesce($1, {self._schema}.clock_1()) AS now) AS t "
            f"CROSS JOIN LATERAL {self._schema}.unserved_1(t.now, t.now - $2, $3) AS u",
            at,
            grace,
            MOST_UNSERVED,
            again=True,
        )
        if not rows:
            return []
        failures = {row[0]: unserved_failure(row[2], row[3]) for row in rows}
        blocked = await self._fetch(
            f"SELECT * FROM {self._schema}.block_unserved_1($1, $2, $3, $4, $5)",
            at,
            grace,
            MOST_UNSERVED,
            list(failures),
            [encode_failure(failure) for failure in failures.values()],
        )
        done = {row[0] for row in blocked}
        return [Finding(RunKey(row[1], row[0]), failures[row[0]].message) for row in rows if row[0] in done]
