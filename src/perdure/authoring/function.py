"""A function as a decorator meets it: what can become a step or workflow, what it is called, and where it stands."""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Callable
from types import CodeType
from typing import Any, cast

from msgspec import Struct

from perdure.model.errors import UsageError
from perdure.model.ids import check_name
from perdure.model.shown import shown

_RECEIVERS = ("self", "cls")


class Function(Struct, frozen=True, eq=False):
    """A callable that may become a step or workflow."""

    call: Callable[..., Any]
    name: str
    is_async: bool
    module: str
    qualname: str
    #: None for what has no Python code (a builtin).
    code: CodeType | None

    @property
    def spelled(self) -> str:
        """As its author would write it where it is in scope: `checkout`, `Payments.charge`."""
        return self.qualname.rpartition("<locals>.")[2]

    @property
    def location(self) -> str:
        """`orders.workflows (orders/workflows.py:12)`, for messages."""
        where = f" ({self.code.co_filename}:{self.code.co_firstlineno})" if self.code else ""
        return f"{self.module}.{self.qualname}{where}"


def examine(target: object, *, kind: str, name: str | None) -> Function:
    """What `@step` or `@workflow` (`kind`) was put on. Raises `UsageError` for what cannot be one.

    A `staticmethod` is taken for its function. `name` overrides the function's own, which must be a plain one.
    """
    call: Any = cast("Any", target).__func__ if isinstance(target, staticmethod) else target
    if isinstance(getattr(call, "function", None), Function) and not inspect.isroutine(call):
        raise UsageError(f"@{kind} was put on {call}, which is one already; put it on the function itself")
    inner = plain_function(call)
    if isinstance(call, classmethod) or _takes_receiver(inner, call):
        raise UsageError(
            f"@{kind} was put on the method {_label(inner)}, whose {_RECEIVERS[isinstance(call, classmethod)]} cannot be "
            f"stored; make it a plain function or a staticmethod"
        )
    if not callable(call) or isinstance(call, type):
        raise UsageError(f"@{kind} needs a function, not {shown(call)}")
    is_async = _is_async(call)
    _refuse_generators(call, kind)
    if not is_async and _is_async(inner):
        raise UsageError(
            f"@{kind} was put on a plain function that wraps the async function {_label(inner)}; make the wrapper async "
            f"too, or put @{kind} directly on {_label(inner)} and the wrapper around it"
        )
    code = getattr(inner, "__code__", None)
    return Function(
        call,
        _name(call, name, kind),
        is_async,
        getattr(inner, "__module__", None) or "?",
        getattr(inner, "__qualname__", None) or type(inner).__qualname__,
        code if isinstance(code, CodeType) else None,
    )


def plain_function(call: object) -> Any:
    """The innermost function behind partials, bound methods, wrappers and callable objects; `call` itself if none."""
    found: Any = call
    for _ in range(100):  # A chain of wrappers that long is a circle.
        if isinstance(found, functools.partial):
            found = found.func
        elif inspect.ismethod(found) or isinstance(found, classmethod | staticmethod):
            found = cast("Any", found).__func__
        elif hasattr(found, "__wrapped__"):
            found = found.__wrapped__
        elif not inspect.isroutine(found) and not isinstance(found, type) and inspect.isroutine(_dunder_call(found)):
            found = _dunder_call(found)
        else:
            break
    return found


def _dunder_call(call: object) -> Any:
    return getattr(type(call), "__call__", None)  # noqa: B004  (the method itself is wanted, not whether it is callable)


def _is_async(call: object) -> bool:
    return inspect.iscoroutinefunction(call) or inspect.iscoroutinefunction(_dunder_call(call))


def _refuse_generators(call: Any, kind: str) -> None:
    for found in (call, _dunder_call(call)):
        if inspect.isgeneratorfunction(found) or inspect.isasyncgenfunction(found):
            raise UsageError(
                f"@{kind} was put on the generator function {_label(plain_function(call))}; an iterator cannot be stored, "
                f"so return a list instead of yielding"
            )


def _takes_receiver(function: Any, call: object) -> bool:
    """True for a function written in a class body whose first parameter is `self` or `cls` and not yet bound."""
    code = getattr(function, "__code__", None)
    if call is not function or not isinstance(code, CodeType) or not code.co_argcount:
        return False
    owner = str(getattr(function, "__qualname__", "")).rpartition(".")[0]
    return bool(owner) and not owner.endswith("<locals>") and code.co_varnames[0] in _RECEIVERS


def _label(function: Any) -> str:
    return str(getattr(function, "__qualname__", None) or repr(function))


def _name(call: object, name: str | None, kind: str) -> str:
    if name is None:
        name = getattr(call, "__name__", None)
        if name is None or name == "<lambda>":
            raise UsageError(f'@{kind} needs a name for {call!r}, which has none of its own: write {kind}(name="...")')
    return check_name(name, f"the name of a {kind}")


def look_like(definition: object, function: Function) -> None:
    """Give a definition its function's name, documentation and signature, as `functools.wraps` does.

    Also its annotations and globals, since a definition has other annotations in its class, and frameworks look for both.
    """
    plain = plain_function(function.call)
    for source, attributes in (
        (function.call, ("__module__", "__name__", "__qualname__", "__doc__")),
        (plain, ("__annotations__", "__annotate__", "__globals__")),
    ):
        for attribute in attributes:
            try:
                value = getattr(source, attribute, None)
            except NameError:  # From Python 3.14 on, annotations are made when they are asked for.
                continue
            if value is not None:
                object.__setattr__(definition, attribute, value)
    object.__setattr__(definition, "__wrapped__", function.call)


def parameters_of(function: Callable[..., Any], owner: str) -> inspect.Signature:
    """The function's signature, with hints as they were written. Raises `UsageError` naming `owner`."""
    try:
        if sys.version_info >= (3, 14):
            from annotationlib import Format

            return inspect.signature(function, annotation_format=Format.FORWARDREF)
        return inspect.signature(function)
    except (TypeError, ValueError) as error:
        raise UsageError(f"the parameters of {owner} cannot be found out: {error}; wrap it in a function") from error
