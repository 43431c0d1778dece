"""What code refers to: the steps and workflows among the values of a module, and those that a workflow's body names."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Iterator
from types import CodeType, FunctionType, ModuleType
from typing import Any, TypeAlias, cast

from perdure.authoring.step import StepDefinition
from perdure.authoring.workflow import BoundWorkflow, WorkflowDefinition

#: Classes in classes in classes... may be a circle.
_NESTING = 10

Definition: TypeAlias = StepDefinition[..., Any] | WorkflowDefinition[..., Any]


def in_module(module: ModuleType) -> Iterator[Definition]:
    """The definitions among a module's attributes, and in the classes that are written there."""
    for value in list(vars(module).values()):
        yield from _definitions(value)
        if isinstance(value, type) and value.__module__ == module.__name__:
            yield from _in_class(value)


def in_body(function: Any) -> Iterator[Definition]:
    """The definitions that a function's code names, also through helper functions of the same module."""
    pending, seen = [function], set[int]()
    while pending:
        plain = pending.pop()
        if not isinstance(plain, FunctionType) or id(plain) in seen:
            continue
        seen.add(id(plain))
        for value in _named(plain):
            found = list(_definitions(value))
            yield from found
            if not found and getattr(value, "__module__", None) == plain.__module__:
                pending.append(value)


def _named(function: FunctionType) -> Iterator[object]:
    """The values of the global, enclosed and dotted names in a function's code."""
    names = set(_names(function.__code__))
    for name in sorted(names):
        if name in function.__globals__:
            value = function.__globals__[name]
            yield value
            if isinstance(value, ModuleType | type):
                yield from (inspect.getattr_static(value, attribute, None) for attribute in sorted(names))
    for cell in function.__closure__ or ():
        try:
            value = cell.cell_contents
        except ValueError:  # Not assigned yet.
            continue
        if isinstance(value, tuple):  # functions that it was made for
            yield from cast("tuple[object, ...]", value)
        else:
            yield value


def _names(code: CodeType) -> Iterator[str]:
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names(constant)


def _in_class(owner: type, depth: int = 0) -> Iterator[Definition]:
    for base in owner.__mro__:
        for value in list(vars(base).values()):
            yield from _definitions(value)
            if isinstance(value, type) and value.__module__ == owner.__module__ and depth < _NESTING:
                yield from _in_class(value, depth + 1)


def _definitions(value: object) -> Iterator[Definition]:
    """The definition behind a value: itself, or what a wrapper, partial or staticmethod holds."""
    for _ in range(100):  # A chain of wrappers that long is a circle.
        if isinstance(value, BoundWorkflow):
            value = cast("BoundWorkflow[..., Any]", value).definition
        if isinstance(value, StepDefinition | WorkflowDefinition):
            yield value
            return
        if isinstance(value, functools.partial):
            value = value.func
        elif isinstance(value, staticmethod | classmethod):
            value = cast("Any", value).__func__
        elif isinstance(value, FunctionType) and hasattr(value, "__wrapped__"):
            value = cast("Any", value).__wrapped__
        else:
            return
