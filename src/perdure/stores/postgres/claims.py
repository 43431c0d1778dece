"""Claims and leases, by the SQL functions of the same names. `at`: the time to do it at; None is the server's own."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from perdure.model.run import RunKey, Status
from perdure.ports.store import Claimed, ClaimRequest, Finding, Held, Renewal, Serves
from perdure.stores.postgres.connections import Connections
from perdure.stores.postgres.place import Place
from perdure.stores.postgres.rows import STATUSES, Row, to_message, to_run


class Claims:
    """One place's."""

    def __init__(self, place: Place, connections: Connections) -> None:
        self._schema = place.quoted
        self._fetch = connections.fetch

    async def claim(self, request: ClaimRequest, at: int | None) -> Sequence[Claimed]:
        rows = await self._fetch(
            f"SELECT * FROM {self._schema}.claim_1($1, $2, $3, $4, $5, $6, $7, $8)",
            at,
            request.owner,
            None if request.namespaces is None else [*dict.fromkeys(request.namespaces)],
            [each.workflow for each in request.serves],
            [each.version for each in request.serves],
            request.limit,
            request.lease,
            request.format,
        )
        return list(map(_claimed, rows))

    async def next_wake(self, request: ClaimRequest) -> int | None:
        [row] = await self._fetch(
            f"SELECT {self._schema}.next_wake_1($1, $2, $3, $4)",
            [each.workflow for each in request.serves],
            [each.version for each in request.serves],
            None if request.namespaces is None else [*dict.fromkeys(request.namespaces)],
            request.format,
            again=True,
        )
        earliest: int | None = row[0]
        return earliest

    async def renew(self, owner: str, lease: int, held: Sequence[Held], at: int | None) -> Sequence[Renewal]:
        """Renewing twice does no harm, so that it is tried again on a new connection."""
        rows = await self._fetch(
            f"SELECT * FROM {self._schema}.renew_1($1, $2, $3, $4, $5)",
            at,
            owner,
            lease,
            [each.incarnation for each in held],
            [each.epoch for each in held],
            again=True,
        )
        inboxes = {(incarnation, epoch): inbox for incarnation, epoch, inbox in rows}
        return [await self._renewal(each, inboxes.get((each.incarnation, each.epoch))) for each in held]

    async def _renewal(self, held: Held, inbox: int | None) -> Renewal:
        if inbox is None:
            return Renewal(held.incarnation, lost=True)
        if inbox <= held.inbox:
            return Renewal(held.incarnation, lost=False)
        rows = await self._fetch(
            f"SELECT * FROM {self._schema}.messages WHERE incarnation = $1 AND number > $2 ORDER BY number",
            held.incarnation,
            held.inbox,
            again=True,
        )
        return Renewal(held.incarnation, lost=False, messages=tuple(map(to_message, rows)))

    async def release(self, owner: str, held: Sequence[Held], at: int | None) -> int:
        """Returns how many were still held."""
        [row] = await self._fetch(
            f"SELECT {self._schema}.release_1($1, $2, $3, $4)",
            at,
            owner,
            [each.incarnation for each in held],
            [each.epoch for each in held],
            again=True,
        )
        return int(row[0])

    async def unblock(self, serves: Sequence[Serves], at: int | None) -> int:
        [row] = await self._fetch(
            f"SELECT {self._schema}.unblock_1($1, $2, $3, $4)",
            at,
            [each.workflow for each in serves],
            [each.version for each in serves],
            [each.fingerprint for each in serves],
            again=True,
        )
        return int(row[0])

    async def audit(self, at: int | None, *, heal: bool) -> Sequence[Finding]:
        rows = await self._fetch(f"SELECT * FROM {self._schema}.audit_1($1, $2)", at, heal)
        return [
            Finding(RunKey(run_id, incarnation), _what(code, listening))
            for incarnation, run_id, code, listening in rows
        ]


def _claimed(row: Row) -> Claimed:
    code, failed_on, run, messages = row
    claimed = to_run(run)
    if failed_on is not None:
        claimed = replace(claimed, fingerprint=failed_on)
    was = STATUSES[int(code)]
    return Claimed(claimed, tuple(map(to_message, messages or ())), was is Status.RUNNING, was)


def _what(code: int, listening: bool) -> str:
    status = STATUSES[code]
    if status is not Status.SUSPENDED:
        return f"{status} without a wake time: nobody would ever look at it"
    if not listening:
        return "suspended without a wake time and not listening: nothing could ever wake it"
    return "suspended, listening, with an unseen message and no wake time: it was not woken"
