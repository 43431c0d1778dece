"""Cancelling runs from outside: at once and for good, or with undo."""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator

from msgspec import Struct

from perdure.engine.bulk import walk
from perdure.engine.engine import Engine
from perdure.engine.sending import check_stored
from perdure.model.cancelling import CancelOrder
from perdure.model.commit import Answer, Cancel, Changed, Ended, Missing, Send
from perdure.model.endings import cancelled_failure
from perdure.model.errors import RunNotFound
from perdure.model.failure import encode_failure
from perdure.model.run import TERMINAL, Run, RunKey, Status
from perdure.ports.store import RunQuery


class CancelResult(Struct, frozen=True):
    """What became of one run of `cancel_where`."""

    id: str
    incarnation: int
    #: How it stands now. With `dry_run`: how it stood when it was found.
    status: Status


async def cancel(engine: Engine, run_id: str, incarnation: int | None, reason: str, *, undo: bool) -> Status:
    """Cancel a run and everything below it; how it stands then. Raises `RunNotFound`.

    With `undo` it is only asked to, durably: it goes on until all is undone.
    """
    if not undo:
        answer = await engine.ask(Cancel(run_id, encode_failure(cancelled_failure(reason)), incarnation))
        return Status.CANCELLED if isinstance(answer, Changed) else _run(answer, run_id).status
    order = CancelOrder(reason, secrets.token_hex(8))
    answer = await engine.ask(Send(order.message(run_id, incarnation)))
    if isinstance(answer, Missing | Ended):
        return _run(answer, run_id).status
    check_stored(answer)
    key = getattr(answer, "key", None)
    found = await engine.reads.get(run_id if key is None else key.id)
    if found is None:
        raise RunNotFound(f"there is no run {run_id!r} any more")
    # Each run passes the order on to its own children. Those below one that has ended would never hear of it.
    async for below in _live_below(engine, found.key):
        check_stored(await engine.ask(Send(order.message(below.id, below.incarnation))))
    return found.status


def _run(answer: Answer, run_id: str) -> Run:
    if isinstance(answer, Ended):
        return answer.run
    if isinstance(answer, Missing):
        raise RunNotFound(f"there is no run {run_id!r}")
    check_stored(answer)
    raise AssertionError(answer)


async def _live_below(engine: Engine, key: RunKey) -> AsyncIterator[Run]:
    """The live runs below a run, also below ended ones; each before those below it."""
    async for child in walk(engine, RunQuery(parent=key)):
        if child.status not in TERMINAL:
            yield child
        async for below in _live_below(engine, child.key):
            yield below


async def cancel_where(
    engine: Engine, query: RunQuery, reason: str, *, undo: bool, dry_run: bool
) -> list[CancelResult]:
    """Cancel all runs that match, each as `cancel` does; one result a match, newest first.

    Which ones match is found out before the first is cancelled. One that ended, or was deleted, meanwhile stays as it is.
    """
    found = [run async for run in walk(engine, query)]
    results: list[CancelResult] = []
    for run in found:
        status = run.status
        if not dry_run and status not in TERMINAL:
            try:
                status = await cancel(engine, run.id, run.incarnation, reason, undo=undo)
            except RunNotFound:
                continue
        results.append(CancelResult(run.id, run.incarnation, status))
    return results
