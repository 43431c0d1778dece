"""Recordings: what a run lived through, kept to be replayed on the code of another day.

    recording = await record(run)
    Path("checkout.json").write_bytes(recording.dump())
    ...
    replay(checkout, Recording.load(Path("checkout.json").read_bytes()))

`replay` raises `NonDeterminismError` where the code would block runs that are under way: a step renamed, moved, new or gone.
"""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from perdure.authoring.body import WorkflowBody
from perdure.authoring.registry import Registry
from perdure.authoring.step import StepDefinition
from perdure.authoring.workflow import WorkflowDefinition
from perdure.core.instance import Instance
from perdure.core.turn import Blocked, Completed, Continued, Failed, Outcome
from perdure.engine.handle import RunHandle
from perdure.model.errors import NonDeterminismError, UsageError
from perdure.model.history import Entry, Event, Op
from perdure.model.run import NewRun, Status


class _Line(Struct, omit_defaults=True):
    """An entry as the file has it: payloads as the JSON they are, but for the token of a wait, which is none."""

    event: str
    seq: int
    at: int
    op: Op | None = None
    name: str = ""
    payload: Raw | UnsetType = UNSET
    token: str | UnsetType = UNSET
    due: int | None = None
    began: int | None = None
    commit: int = 0


class _File(Struct, omit_defaults=True):
    id: str
    workflow: str
    version: str
    input: Raw
    seed: int
    namespace: str
    started_at: int
    history: list[_Line]


class Recording(Struct, frozen=True):
    """A run's facts and history."""

    run: NewRun
    #: Microseconds: the first `now` of the body.
    started_at: int
    history: tuple[Entry, ...]

    def dump(self) -> bytes:
        """As JSON, to be kept in a file."""
        run = self.run
        lines = [_line(entry) for entry in self.history]
        file = _File(run.id, run.workflow, run.version, Raw(run.input), run.seed, run.namespace, self.started_at, lines)
        return msgspec.json.format(msgspec.json.encode(file)) + b"\n"

    @staticmethod
    def load(data: bytes) -> Recording:
        """What `dump` made. Raises `UsageError` for anything else."""
        try:
            file = msgspec.json.decode(data, type=_File)
            history = tuple(_entry(line) for line in file.history)
        except (msgspec.MsgspecError, KeyError) as error:
            raise UsageError(f"this is no recording of a run: {error}") from error
        run = NewRun(
            id=file.id,
            workflow=file.workflow,
            version=file.version,
            input=_compact(file.input),
            seed=file.seed,
            namespace=file.namespace,
        )
        return Recording(run, file.started_at, history)


async def record(run: RunHandle[Any]) -> Recording:
    """What a run has lived through so far. Raises `RunNotFound`, and `UsageError` for a run that has not begun."""
    facts = await run.info()
    if facts.started_at is None:
        raise UsageError(f"run {run.id!r} has not begun yet: there is nothing to record")
    new = NewRun(
        id=facts.id,
        workflow=facts.workflow,
        version=facts.version,
        input=facts.input,
        seed=facts.seed,
        namespace=facts.namespace,
    )
    return Recording(new, facts.started_at, tuple(await run.history()))


def replay(
    workflow: WorkflowDefinition[..., Any],
    recording: Recording,
    *others: StepDefinition[..., Any] | WorkflowDefinition[..., Any],
) -> None:
    """Replay a recording on this code; nothing is run, and nothing written. Raises `NonDeterminismError` if it does not fit.

    `others`: what the body starts by name only.
    """
    if workflow.name != recording.run.workflow:
        raise UsageError(f"the recording is of workflow {recording.run.workflow!r}, not of {workflow}")
    registry = Registry()
    registry.suppose_queues()
    registry.add(workflow, *others)
    instance = Instance(recording.run, WorkflowBody(workflow, registry))
    try:
        outcome = instance.replay(recording.history, recording.started_at).outcome
    finally:
        instance.close()
    if isinstance(outcome, Blocked):
        raise outcome.error
    _check_end(recording, outcome)


def _check_end(recording: Recording, outcome: Outcome | None) -> None:
    """The body must end as it did, where it did end by itself."""
    last = next((entry for entry in reversed(recording.history) if entry.event in (Event.END, Event.REQUEUED)), None)
    recorded = "" if last is None else last.name  # A requeue took back the end before it.
    issued = _end(outcome)
    if recorded not in (Status.COMPLETED, Status.FAILED) or issued == recorded:
        return
    run_id, seq = recording.run.id, 1 + max(entry.seq for entry in recording.history)
    error = f"; its body raised: {outcome.failure.message}" if isinstance(outcome, Failed) else ""
    raise NonDeterminismError(
        f"non-determinism at {run_id}#{seq}: recorded the end ({recorded}), issued {issued}{error}",
        run_id=run_id,
        seq=seq,
        recorded=recorded,
        issued=issued,
    )


def _end(outcome: Outcome | None) -> str:
    if outcome is None:
        return "no end"
    if isinstance(outcome, Completed | Continued):
        return Status.COMPLETED
    return Status.FAILED if isinstance(outcome, Failed) else Status.CANCELLED


def _line(entry: Entry) -> _Line:
    line = _Line(
        entry.event.name,
        entry.seq,
        entry.at,
        entry.op,
        entry.name,
        due=entry.due,
        began=entry.began,
        commit=entry.commit,
    )
    if entry.payload is None:
        return line
    if entry.op is Op.SIGNAL and entry.event is Event.SCHEDULED:
        return msgspec.structs.replace(line, token=entry.payload.decode())
    return msgspec.structs.replace(line, payload=Raw(entry.payload))


def _compact(json: Raw) -> bytes:
    return msgspec.json.format(bytes(json), indent=-1)


def _entry(line: _Line) -> Entry:
    payload = None if line.payload is UNSET else _compact(line.payload)
    payload = payload if line.token is UNSET else line.token.encode()
    return Entry(Event[line.event], line.seq, line.op, line.name, payload, line.at, line.due, line.began, line.commit)


__all__ = ["Recording", "record", "replay"]
