"""The gate that a new run has to pass as a whole: that of a singleton, or a queue."""

from __future__ import annotations

from typing import Any

import msgspec

from perdure.authoring.gating import SINGLETON
from perdure.authoring.options import StartOptions
from perdure.authoring.registry import Registry
from perdure.authoring.workflow import WorkflowDefinition
from perdure.model.errors import UsageError
from perdure.model.gates import WHOLE_RUN, Ask
from perdure.model.run import NewRun


def gated(run: NewRun, registry: Registry, definition: WorkflowDefinition[Any, Any], options: StartOptions) -> NewRun:
    """The run with its gate, if it has one, and a singleton's tag.

    Raises `InvalidArguments` and `InvalidId` for a singleton's key, `NotRegistered` for a queue that is not declared.
    """
    singleton, queue = definition.singleton, options.queue
    if queue is None and options.queue_key is not None:
        raise UsageError(f"queue_key of {definition} is for a run that is started in a queue; give it queue=... too")
    priority = run.priority or 0
    if queue is not None:
        if singleton is not None:
            raise UsageError(
                f"{definition} is a singleton, whose runs have a line of their own; start it without queue="
            )
        rules = registry.queue(queue)
        fairness = options.queue_key or run.id
        gate = Ask(seq=WHOLE_RUN, name=queue, rules=rules, priority=priority, fairness=fairness)
        return msgspec.structs.replace(run, gate=gate)
    if singleton is None:
        return run
    key = singleton.key_of(definition.name, *definition.signature.unbind(run.input))
    gate = Ask(
        seq=WHOLE_RUN,
        name=f"{SINGLETON}{definition.name}",
        key=key,
        rules=singleton.rules(registry.stamp),
        priority=priority,
        fairness=run.id,
    )
    tags = tuple(dict.fromkeys((*run.tags, f"{SINGLETON}{key}")))
    return msgspec.structs.replace(run, gate=gate, tags=tags)


def check_not_own(run: NewRun, parent: NewRun) -> None:
    """Raise `UsageError` for a child that would wait for the slot that its parent, which waits for it, holds."""
    mine, held = run.gate, parent.gate
    if mine is None or held is None or run.awaited_as is None or run.namespace != parent.namespace:
        return
    if (mine.name, mine.key) == (held.name, held.key) and mine.rules.limit == 1:
        raise UsageError(
            f"run {parent.id!r} holds the one slot of {mine.name!r} that its child {run.id!r} would wait for, for ever; "
            "start the child detached, or give it another key"
        )
