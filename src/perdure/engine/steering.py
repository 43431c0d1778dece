"""Pausing, unpausing and redispatching a run."""

from __future__ import annotations

from typing import NamedTuple

from perdure.engine.engine import Engine
from perdure.engine.sending import check_stored
from perdure.model.commit import Changed, Ended, Missing, Steer, Way
from perdure.model.errors import RunEnded, RunNotFound
from perdure.model.history import Op
from perdure.model.run import Run, Status
from perdure.model.steps import State, fold

_STEPS = frozenset({Op.STEP, Op.LOCAL})
_DOING = {Way.PAUSE: "paused", Way.UNPAUSE: "unpaused", Way.REDISPATCH: "redispatched"}


class Redispatched(NamedTuple):
    """How the run stands, and how many of its steps will be tried again."""

    status: Status
    steps: int


async def steer(engine: Engine, run_id: str, incarnation: int | None, way: Way) -> Run | None:
    """The run, if it changed. Raises `RunNotFound` and `RunEnded`."""
    answer = await engine.ask(Steer(run_id, way, incarnation))
    if isinstance(answer, Changed):
        return answer.runs[0] if answer.runs else None
    if isinstance(answer, Ended):
        raise RunEnded(f"run {answer.run.id!r} has ended ({answer.run.status}); it cannot be {_DOING[way]}")
    if isinstance(answer, Missing):
        raise RunNotFound(f"there is no run {run_id!r}" + ("" if incarnation is None else " any more"))
    check_stored(answer)
    return None


async def redispatch(engine: Engine, run_id: str, incarnation: int | None) -> Redispatched:
    """See `RunHandle.redispatch`."""
    run = await steer(engine, run_id, incarnation, Way.REDISPATCH)
    if run is None:
        there = await engine.reads.get(run_id)
        while there is not None and there.continued_to is not None:
            there = await engine.reads.get(there.continued_to)
        if there is None:
            raise RunNotFound(f"there is no run {run_id!r} any more")
        return Redispatched(there.status, 0)
    steps = [each for each in fold(await engine.reads.history(run.key)) if each.op in _STEPS]
    return Redispatched(run.status, sum(each.state in (State.PENDING, State.RETRYING) for each in steps))
