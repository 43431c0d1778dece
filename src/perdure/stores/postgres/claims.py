"""Claims and leases, by the SQL functions of the same names. `at`: the time to do it at; None is the server's own."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from typing import Final

from msgspec.structs import replace

from perdure.model.run import RunKey, Status
from perdure.ports.fleet import Serves
from perdure.ports.store import Claimed, ClaimRequest, Finding, Held, Renewal
from perdure.stores.postgres.connections import Connections
from perdure.stores.postgres.place import Place
from perdure.stores.postgres.rows import STATUSES, Row, to_message, to_run

#: Seconds after each look at rows that somebody else has locked: mostly a turn, for as long as a commit takes. In the end they
#: are waited for.
_PAUSES: Final = (0.005, 0.01, 0.02, 0.04)
_LONGEST_WAIT: Final = 1.0


class Claims:
    """One place's."""

    def __init__(self, place: Place, connections: Connections) -> None:
        self._schema = place.quoted
        self._fetch = connections.fetch
        #: From which namespace on the next claim looks, where there are too many for one.
        self._after: str | None = None

    async def claim(self, request: ClaimRequest, at: int | None) -> Sequence[Claimed]:
        rows = await self._fetch(
            f"SELECT * FROM {self._schema}.claim_1($1, $2, $3, $4, $5, $6, $7, $8, $9)",
            at,
            request.owner,
            None if request.namespaces is None else [*dict.fromkeys(request.namespaces)],
            [each.workflow for each in request.serves],
            [each.version for each in request.serves],
            request.limit,
            request.lease,
            request.format,
            self._after,
        )
        self._after = None
        if rows and rows[-1][2] is None:
            *rows, (_, self._after, _, _) = rows
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
        """Renewing twice does no harm, so that it is tried again on a new connection. A row that is locked, mostly by a turn of
        its own, is asked for again a few times, and costs the others nothing."""
        found: dict[tuple[int, int], tuple[int, bool]] = {}
        left = held
        for pause, patience in _looks(lease):
            rows = await self._fetch(
                f"SELECT * FROM {self._schema}.renew_1($1, $2, $3, $4, $5, $6)",
                at,
                owner,
                lease,
                [each.incarnation for each in left],
                [each.epoch for each in left],
                patience,
                again=True,
            )
            for each in left:
                found.pop((each.incarnation, each.epoch), None)
            found.update({(incarnation, epoch): (inbox, pushed) for incarnation, epoch, inbox, pushed in rows})
            left = [each for each in left if found.get((each.incarnation, each.epoch), (0, True))[1] is False]
            if not left:
                break
            await asyncio.sleep(pause)
        return [await self._renewal(each, found.get((each.incarnation, each.epoch))) for each in held]

    async def _renewal(self, held: Held, found: tuple[int, bool] | None) -> Renewal:
        if found is None:
            return Renewal(held.incarnation, lost=True)
        inbox, pushed = found
        if inbox <= held.inbox:
            return Renewal(held.incarnation, lost=False, locked=not pushed)
        rows = await self._fetch(
            f"SELECT * FROM {self._schema}.messages WHERE incarnation = $1 AND number > $2 ORDER BY number",
            held.incarnation,
            held.inbox,
            again=True,
        )
        return Renewal(held.incarnation, lost=False, messages=tuple(map(to_message, rows)), locked=not pushed)

    async def release(self, owner: str, held: Sequence[Held], at: int | None) -> int:
        """Returns how many were given back. What stays locked by others is left to its lease."""
        released = 0
        for pause, patience in _looks(None):
            [row] = await self._fetch(
                f"SELECT * FROM {self._schema}.release_1($1, $2, $3, $4, $5)",
                at,
                owner,
                [each.incarnation for each in held],
                [each.epoch for each in held],
                patience,
                again=True,
            )
            released += int(row[0])
            locked = set(row[1])
            if not locked:
                break
            held = [each for each in held if each.incarnation in locked]
            await asyncio.sleep(pause)
        return released

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


def _looks(lease: int | None) -> Iterator[tuple[float, str | None]]:
    """Looks at rows that may be locked: seconds to pause after each, and what `still_held_1` is to wait. In all, a small part
    of the lease that the others have just been given."""
    wait = _LONGEST_WAIT if lease is None else min(_LONGEST_WAIT, lease / 16_000_000)
    yield from ((min(pause, wait / 8), None) for pause in _PAUSES)
    yield 0.0, f"{max(1, round(wait * 1000))}ms"


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
