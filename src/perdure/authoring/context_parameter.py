"""Which functions ask for the context: a parameter annotated `Context`, or a first one unannotated and named `ctx`."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any, get_args

from perdure.authoring.function import parameters_of
from perdure.authoring.hints import Unresolved, locals_around, resolve
from perdure.authoring.marker import ContextMarker
from perdure.model.errors import UsageError


def takes_context(function: Callable[..., Any], owner: str) -> bool:
    """True if a workflow's first parameter asks for the context. Raises `UsageError` if another one does."""
    parameters = list(parameters_of(function, owner).parameters.values())
    asking = _annotated(parameters, function, owner)
    if any(parameter is not parameters[0] for parameter in asking):
        raise UsageError(f"{owner} takes its Context as a later parameter; it must be the first one")
    first = parameters[0] if parameters else None
    return bool(asking) or (first is not None and first.annotation is first.empty and first.name == "ctx")


def refuse_context(function: Callable[..., Any], owner: str) -> None:
    """Raise `UsageError` if a step asks for a context."""
    if _annotated(list(parameters_of(function, owner).parameters.values()), function, owner):
        raise UsageError(f"{owner} asks for a Context, which only workflows have; use perdure.current_step()")


def _annotated(
    parameters: list[inspect.Parameter], function: Callable[..., Any], owner: str
) -> list[inspect.Parameter]:
    local = locals_around(function)
    return [parameter for parameter in parameters if _asks(parameter, function, local, owner)]


def _asks(parameter: inspect.Parameter, function: Callable[..., Any], local: Mapping[str, Any], owner: str) -> bool:
    annotation = parameter.annotation
    if annotation is parameter.empty:
        return False
    try:
        hint = resolve(annotation, function, local)
    except Unresolved:
        # Imported for type checkers only, as a context may be: it is known by its name, or by the parameter's.
        return _source(annotation).rpartition(".")[2] == "Context" or parameter.name == "ctx"
    if any(_is_context(part) for part in get_args(hint)):
        raise UsageError(f"parameter {parameter.name!r} of {owner} must be annotated plainly: Context")
    return _is_context(hint)


def _is_context(hint: object) -> bool:
    return isinstance(hint, type) and issubclass(hint, ContextMarker)


def _source(annotation: object) -> str:
    """A hint that cannot be resolved, as it was written."""
    text = getattr(annotation, "__forward_arg__", annotation)
    return text.strip("\"' ") if isinstance(text, str) else ""
