"""Requeueing a run, and the children that it waits for then."""

from __future__ import annotations

from perdure.core.replay import revive
from perdure.engine.engine import Engine
from perdure.model.commit import Changed, Missing, Requeue
from perdure.model.errors import RunNotFound
from perdure.model.history import Event, Op
from perdure.model.run import TERMINAL, Run, Status

_AWAITED = frozenset({Op.CHILD, Op.JOIN})
_CLOSED = frozenset({Event.RESOLVED, Event.FAILED, Event.ABANDONED})


async def requeue(engine: Engine, run_id: str, incarnation: int | None, *, children: bool) -> Status:
    """See `RunHandle.requeue`. Parents first: what is cut short by a crash is gone on with by asking again."""
    run = await _requeue_one(engine, run_id, incarnation)
    if children:
        met = {run.incarnation}
        parents = [run]
        while parents:
            parent = parents.pop()
            for child in await _awaited_children(engine, parent):
                if child.incarnation not in met:
                    met.add(child.incarnation)
                    parents.append(await _requeue_one(engine, child.id, child.incarnation))
    return run.status


async def _requeue_one(engine: Engine, run_id: str, incarnation: int | None) -> Run:
    answer = await engine.ask(Requeue(run_id, incarnation))
    if isinstance(answer, Changed) and answer.runs:
        return answer.runs[0]
    run = None if isinstance(answer, Missing) else await engine.reads.get(run_id)
    if run is None or incarnation not in (None, run.incarnation):
        raise RunNotFound(f"there is no run {run_id!r}" + ("" if incarnation is None else " any more"))
    return run


async def _awaited_children(engine: Engine, parent: Run) -> list[Run]:
    """The last links of the children that a live run waits for."""
    if parent.status in TERMINAL:
        return []
    kept, again = revive(await engine.reads.history(parent.key))
    closed = {entry.seq for entry in (*kept, *again) if entry.event in _CLOSED}
    names = [
        entry.name
        for entry in kept
        if entry.event is Event.SCHEDULED and entry.op in _AWAITED and entry.seq not in closed
    ]
    found: list[Run] = []
    for name in dict.fromkeys(names):
        child = await engine.reads.get(name)
        if child is None or child.parent is None or child.parent.incarnation != parent.incarnation:
            continue  # another's child, which this one cannot wait for
        while child is not None and child.continued_to is not None:
            child = await engine.reads.get(child.continued_to)
        if child is not None:
            found.append(child)
    return found
