"""Type hints as objects, though they may be written as strings, name things that come later, or stand in a function.

A hint is looked up where it was written: in the locals around the decorator (only while decorating; frames are not kept),
in what the function closes over, and in its module. What is not there yet is looked up again when it is first needed.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from types import FrameType
from typing import Any, get_type_hints

from perdure.authoring.function import plain_function


class Unresolved(Exception):
    """A hint that cannot be resolved: not yet, or (`final`) never."""

    def __init__(self, message: str, *, final: bool = False) -> None:
        super().__init__(message)
        self.final = final


def resolve(annotation: Any, function: Any, local: Mapping[str, Any]) -> Any:
    """The hint that `annotation`, written on `function`, stands for. Raises `Unresolved`."""
    if annotation is None:
        return None
    if isinstance(annotation, type) and not hasattr(annotation, "__args__"):
        return annotation
    plain = plain_function(function)
    names = {**local, **_enclosed(plain), **{t.__name__: t for t in getattr(plain, "__type_params__", ())}}

    def holder() -> None: ...

    holder.__annotations__ = {"hint": annotation}
    try:
        return get_type_hints(holder, getattr(plain, "__globals__", {}), names, include_extras=True)["hint"]
    except Exception as error:  # A hint is an expression of the user's: it may raise anything.
        later = isinstance(error, NameError | AttributeError)
        raise Unresolved(f"{type(error).__name__}: {error}", final=not later) from error


def locals_around(function: Any) -> Mapping[str, Any]:
    """The names that are local where `function` is being decorated: of the functions and classes it is written in."""
    plain = plain_function(function)
    home, qualname = getattr(plain, "__globals__", None), str(getattr(plain, "__qualname__", ""))
    found: dict[str, Any] = {}
    frame: FrameType | None = inspect.currentframe() if "." in qualname else None
    while frame is not None:
        if frame.f_globals is home and qualname.startswith(f"{frame.f_code.co_qualname}."):
            found = {**frame.f_locals, **found}
        frame = frame.f_back
    return found


def _enclosed(function: Any) -> dict[str, Any]:
    names = getattr(getattr(function, "__code__", None), "co_freevars", ())
    found: dict[str, Any] = {}
    for name, cell in zip(names, getattr(function, "__closure__", None) or (), strict=False):
        try:
            found[name] = cell.cell_contents
        except ValueError:  # Not assigned yet.
            continue
    return found
