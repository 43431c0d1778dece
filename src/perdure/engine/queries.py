"""Asking a run what its body says of itself.

Where the run is held or parked here, and stands exactly where the store has it, that instance answers; else one is replayed
from the history, asked, and dropped: nothing is written, and nobody claims anything. So it is always committed state.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from perdure.authoring.context import Context
from perdure.authoring.queries import Query
from perdure.core.instance import Instance
from perdure.core.turn import Blocked
from perdure.engine.engine import Engine
from perdure.engine.loading import as_new
from perdure.model import values
from perdure.model.errors import ForbiddenInWorkflow, RunNotFound, UnknownQuery
from perdure.model.ids import check_name
from perdure.model.run import Run

#: Stands for "whatever the query's own hint says".
AS_HINTED: Any = object()


async def query(engine: Engine, run: Run, name: str, args: Sequence[Any], type: Any) -> Any:
    """What the query `name` of `run` answers, restored by `type`.

    Raises `UnknownQuery`, `NotRegistered` where the run's code is not here, `NonDeterminismError` where it does not fit the
    history, `InvalidArguments`, `InvalidValue`, and whatever the query itself raises.
    """
    check_name(name, "a query's name")
    definition = engine.means.registry.workflow(run.workflow, run.version)
    if run.started_at is None:
        raise UnknownQuery(f"run {run.id!r} has not begun yet, so it answers no query; ask again when it has")
    live = _live(engine, run, definition.fingerprint)
    if live is not None:
        found = _find(live, name)
        data = found.answer(args)
        if live.loop.stirred():
            # It would go on by something that is in no history.
            engine.executor.cache.forget(run.incarnation)
            raise ForbiddenInWorkflow(f"query {name!r} of {live.describe()} woke its body; a query may only read")
    else:
        history = await engine.reads.history(run.key)
        if len(history) < run.n:
            raise RunNotFound(f"there is no run {run.id!r} any more")
        replayed = engine.executor.instance(definition, as_new(run))
        try:
            turn = replayed.replay(history, run.started_at)
            if isinstance(turn.outcome, Blocked):
                raise turn.outcome.error
            found = _find(replayed, name)
            data = found.answer(args)
        finally:
            replayed.close()
    if type is AS_HINTED:
        return found.signature.decode_result(data)
    return values.decode(data, type, what=f"what query {name!r} of run {run.id!r} answered")


def _live(engine: Engine, run: Run, fingerprint: str) -> Instance | None:
    """The instance that is here, if it stands where the store's run does: it is ahead while a turn is being committed."""
    held = engine.executor.holdings.get(run.incarnation)
    if held is None:
        return engine.executor.cache.look(run.incarnation, run.n, fingerprint)
    return held.instance if held.at_rest() and (held.epoch, held.n) == (run.epoch, run.n) else None


def _find(instance: Instance, name: str) -> Query:
    context = instance.context
    queries = context.queries if isinstance(context, Context) else {}
    found = queries.get(name)
    if found is None:
        there = f"there are {', '.join(map(repr, sorted(queries)))}" if queries else "it has none"
        raise UnknownQuery(
            f"{instance.describe()} has no query {name!r} (yet): {there}. Its body offers one with ctx.on_query(name, fn)"
        )
    return found
