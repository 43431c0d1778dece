"""Which workflows ask for the context: those whose first parameter is annotated `Context`, or unannotated and named `ctx`."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any, get_args

from perdure.authoring.function import parameters_of
from perdure.authoring.hints import Unresolved, locals_around, resolve
from perdure.authoring.marker import ContextMarker
from perdure.model.errors import UsageError


def takes_context(function: Callable[..., Any], owner: str) -> bool:
    """True if the first parameter asks for the context. Raises `UsageError` if another one does."""
    local = locals_around(function)
    asks = [_asks_for_context(p, function, local) for p in parameters_of(function, owner).parameters.values()]
    if any(asks[1:]):
        raise UsageError(f"{owner} takes its Context as a later parameter; it must be the first one")
    return asks[:1] == [True]


def _asks_for_context(parameter: inspect.Parameter, function: Callable[..., Any], local: Mapping[str, Any]) -> bool:
    annotation = parameter.annotation
    if annotation is inspect.Parameter.empty:
        return parameter.name == "ctx"
    try:
        hint = resolve(annotation, function, local)
    except Unresolved:
        # Imported for type checkers only, as a context may be: it is known by its name.
        return _source(annotation).rpartition(".")[2] == "Context"
    if any(_is_context(part) for part in get_args(hint)):
        raise UsageError(f"{parameter.name!r} of {function.__qualname__} must be annotated plainly: Context")
    return _is_context(hint)


def _is_context(hint: object) -> bool:
    return isinstance(hint, type) and issubclass(hint, ContextMarker)


def _source(annotation: object) -> str:
    """A hint that cannot be resolved, as it was written."""
    text = getattr(annotation, "__forward_arg__", annotation)
    return text.strip("\"' ") if isinstance(text, str) else ""
