"""New runs that are made from others: with another input, or from a place in a history."""

from __future__ import annotations

import secrets
from typing import Any, Final

from msgspec.structs import replace

from perdure.authoring.gated import gated
from perdure.authoring.gating import SINGLETON
from perdure.authoring.options import StartOptions
from perdure.authoring.workflow import WorkflowDefinition
from perdure.core.forking import forked
from perdure.engine.engine import Engine
from perdure.engine.loading import as_new
from perdure.engine.sending import check_stored, queue_full
from perdure.model.commit import Applied, Create, Exists, Full, Moved, TurnCommit
from perdure.model.errors import UsageError
from perdure.model.ids import again_id
from perdure.model.run import NewRun, Run, RunKey, Status
from perdure.model.shown import shown

#: So often an id is drawn anew that somebody has.
_DRAWS: Final = 5


async def retry_with_input(engine: Engine, run: Run, inputs: tuple[Any, ...], fields: dict[str, Any]) -> RunKey:
    """Start the run's workflow, in its version, with another input. Raises `NotRegistered`, `InvalidArguments`."""
    definition: WorkflowDefinition[..., Any] = engine.means.registry.workflow(run.workflow, run.version)
    new = replace(_from_scratch(run), input=definition.encode_input(inputs, fields), seed=secrets.randbits(62))
    if definition.singleton is not None:
        tags = tuple(tag for tag in new.tags if not tag.startswith(SINGLETON))
        new = gated(replace(new, gate=None, tags=tags), engine.means.registry, definition, StartOptions())
    return await _create(engine, run, "retry", new, None)


async def fork(engine: Engine, run: Run, seq: object) -> RunKey:
    """Start a run that goes on from where `run` issued operation `seq`. Raises `UsageError`."""
    if isinstance(seq, bool) or not isinstance(seq, int):
        raise UsageError(f"from_step must be the seq of one of the run's steps, a whole number, not {shown(seq)}")
    entries = await engine.reads.history(run.key)
    copied = forked(run.key, run.attributes, entries, seq, engine.store.now())
    if copied is None or run.started_at is None:
        issued = 1 + max((entry.seq for entry in entries), default=-1)
        there = f"it has issued {issued}, from 0 on" if issued else "it has not issued any yet"
        raise UsageError(f"run {run.id!r} has no operation {shown(seq)} to fork from; {there} (see run.steps())")
    turn = TurnCommit(
        run=RunKey("", 0),
        owner=engine.means.owner,
        epoch=1,
        n=0,
        entries=copied.entries,
        status=Status.SUSPENDED,
        wake_at=engine.store.now(),
        values=copied.values,
        started_at=run.started_at,
    )
    return await _create(engine, run, "fork", replace(_from_scratch(run), attributes=copied.attributes), turn)


def _from_scratch(run: Run) -> NewRun:
    """Nobody's child, with all else that the caller of its start chose."""
    return replace(as_new(run), parent=None, awaited_as=None, depth=0)


async def _create(engine: Engine, run: Run, how: str, new: NewRun, turn: TurnCommit | None) -> RunKey:
    for _ in range(_DRAWS):
        new = replace(new, id=again_id(run.id, how, secrets.randbits(32)))
        create = Create(run=new, turn=None if turn is None else replace(turn, run=RunKey(new.id, 0)))
        answer = await engine.ask(create)
        if not isinstance(answer, Exists):
            check_stored(answer)
            if isinstance(answer, Full):
                raise queue_full(new, answer.waiting)
            assert isinstance(answer, Applied | Moved)
            assert answer.key is not None
            return answer.key
    raise UsageError(f"every id that was drawn for a {how} of run {run.id!r} is taken; try again")
