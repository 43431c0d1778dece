"""Functions that check updates where they are sent, before anything is written."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, TypeVar, cast

from perdure.authoring.signature import Signature
from perdure.authoring.workflow import WorkflowDefinition
from perdure.model.errors import InvalidArguments, InvalidValue, NameTaken, UsageError
from perdure.model.ids import check_name
from perdure.model.shown import shown, told

#: A function of the argument: a reason to reject it, or None.
Validator = TypeVar("Validator", bound=Callable[[Any], "str | None"])


class Validators:
    """By workflow (all its versions) and update."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, str], tuple[Callable[[Any], str | None], Signature]] = {}

    def adder(self, workflow: object, name: str) -> Callable[[Validator], Validator]:
        """What decorates a validator. Raises `UsageError` and `InvalidId`."""
        check_name(name, "an update's name")
        if not isinstance(workflow, str | WorkflowDefinition):
            raise UsageError(f"an update is validated for a workflow or its name, not for {shown(workflow)}")
        title = workflow if isinstance(workflow, str) else cast("WorkflowDefinition[..., Any]", workflow).name
        check_name(title, "a workflow's name")

        def add(fn: Validator) -> Validator:
            owner = f"the validator of update {name!r} of workflow {title!r}"
            if not callable(fn) or inspect.iscoroutinefunction(fn):
                raise UsageError(
                    f"{owner} must be a plain function of the argument, not {shown(fn)}; it is not awaited"
                )
            signature = Signature(fn, owner)
            if len(signature.parameters) != 1:
                raise UsageError(f"{owner} must take one argument, the update's; it takes {signature}")
            older = self._known.get((title, name))
            if older is not None and older[0] is not fn:
                raise NameTaken(f"update {name!r} of workflow {title!r} has a validator already")
            self._known[title, name] = (fn, signature)
            return fn

        return add

    def reason(self, workflow: str, name: str, arg: Any) -> str | None:
        """Why this argument is rejected; None if it is not. Raises `UsageError` for a validator that returns neither."""
        known = self._known.get((workflow, name))
        if known is None:
            return None
        fn, signature = known
        try:
            [given], _ = signature.unbind(signature.bind((arg,), {}))
        except (InvalidArguments, InvalidValue) as error:
            return str(error)
        try:
            reason = fn(given)
        except Exception as error:  # it is the user's: it may raise anything
            return told(error)
        if reason is not None and not isinstance(reason, str):
            raise UsageError(f"{signature.owner} must return a reason or None, not {shown(reason)}")
        return reason
