"""`ctx.step(...)`: a step in any of its forms, asked of a running workflow."""

from __future__ import annotations

from collections.abc import Coroutine, Mapping, Sequence
from typing import Any, cast

from perdure.authoring.step import StepDefinition
from perdure.authoring.step_ref import StepRef, step_ref
from perdure.authoring.workflow import BoundWorkflow, WorkflowDefinition
from perdure.core.instance import Instance
from perdure.model.errors import UsageError
from perdure.model.shown import shown


def invoke(
    instance: Instance, step: object, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> Coroutine[Any, Any, Any]:
    """Issue `step` (a definition, sync or async, a reference, or a name) now. Gives a future of the run's loop.

    Raises `UsageError` for what is no step, `InvalidArguments` and `InvalidValue` for arguments that do not fit it.
    """
    if isinstance(step, str):
        step = step_ref(step)
    if isinstance(step, StepDefinition | StepRef):
        return cast("StepRef[Any]", step).issue(instance, args, kwargs)
    raise UsageError(f"{_advice(step)} (in {instance.describe()} at position {instance.reserve()})")


def _advice(step: object) -> str:
    name = getattr(step, "__name__", None) or shown(step)
    if isinstance(step, WorkflowDefinition | BoundWorkflow):
        return "ctx.step was given a workflow; write `await workflow.run(...)` or `await ctx.child(workflow, ...)`"
    if isinstance(getattr(step, "__wrapped__", None), StepDefinition):
        return f"ctx.step was given {name}, which wraps a step; give it the step itself, or put @step on the outside"
    if callable(step):
        return f"ctx.step was given {name}, which is no step: decorate it with @step, or use ctx.local_step(name, fn)"
    return f"ctx.step needs a step, a step_ref or a step's name, not {shown(step)}"
