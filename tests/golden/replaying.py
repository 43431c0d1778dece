"""A golden history: a recording, and how its run stood at each of its commits; and what today's code makes of it."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Raw, Struct

from perdure import Registry
from perdure.authoring.body import WorkflowBody
from perdure.core.instance import Instance
from perdure.core.operation import Operation
from perdure.core.turn import Blocked, Cancelled, Completed, Continued, Failed, Outcome
from perdure.model.history import Entry
from perdure.testing import Recording

HISTORIES = Path(__file__).parent / "histories"


class Golden(Struct, frozen=True):
    """What a file holds."""

    #: As `Recording.dump` wrote it.
    recording: Raw
    #: For each commit: how many entries the history had by then, and how the run stood.
    standings: list[tuple[int, Any]]

    def dump(self) -> bytes:
        return msgspec.json.format(msgspec.json.encode(self)) + b"\n"


def load(name: str) -> tuple[Recording, list[tuple[int, Any]]]:
    """The golden history of that name."""
    golden = msgspec.json.decode((HISTORIES / f"{name}.json").read_bytes(), type=Golden)
    return Recording.load(bytes(golden.recording)), golden.standings


def standings(workflow: Any, recording: Recording) -> list[tuple[int, Any]]:
    """How the run stands after each of its commits, as plain JSON."""
    history = recording.history
    ends = [len(list(group)) for _, group in itertools.groupby(history, lambda entry: entry.commit)]
    return [(end, standing(workflow, recording, history[:end])) for end in itertools.accumulate(ends)]


def standing(workflow: Any, recording: Recording, history: tuple[Entry, ...]) -> Any:
    """How a run with this history stands: its outcome, and what it waits for."""
    registry = Registry()
    registry.suppose_queues()
    registry.add(workflow)
    instance = Instance(recording.run, WorkflowBody(workflow, registry))
    try:
        turn = instance.replay(history, recording.started_at)
        found = {
            "now": instance.now,
            "position": instance.reserve(),
            "outcome": _outcome(turn.outcome),
            "pending": [_pending(operation) for operation in instance.pending.values()],
            "new": [_pending(operation) for operation in turn.issued],
        }
    finally:
        instance.close()
    return msgspec.json.decode(msgspec.json.encode(found))


def _outcome(outcome: Outcome | None) -> Any:
    if isinstance(outcome, Completed):
        return {"completed": msgspec.json.decode(outcome.output)}
    if isinstance(outcome, Failed):
        failure = outcome.failure
        return {"failed": [failure.type, failure.message, failure.code, failure.details]}
    if isinstance(outcome, Continued):
        run = outcome.successor
        return {"continued": [run.id, run.seed, msgspec.json.decode(run.input)]}
    if isinstance(outcome, Blocked):
        return {"blocked": str(outcome.error)}
    return "cancelled" if isinstance(outcome, Cancelled) else None


def _pending(operation: Operation) -> list[Any]:
    """Everything about an open operation that was recorded, or that others rely on."""
    payload = None if operation.payload is None else operation.payload.decode()
    return [
        operation.seq,
        str(operation.op),
        operation.name,
        payload,
        operation.due,
        operation.key,
        None if operation.child is None else operation.child.seed,
        operation.attempts,
        operation.failures,
        operation.next_at,
    ]
