"""The fingerprint of a workflow's code: a run that this code could not replay is tried again when it changes.

It covers the bytecode, names and constants of the function, of functions written inside it, and of the helper functions of
the same module that it calls, directly or through each other; not line numbers, file names or comments, nor steps (their
results are recorded). The same code has the same fingerprint in every process of one Python version.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from types import CodeType, FunctionType
from typing import cast

_DIGITS = 16


def fingerprint(function: object) -> str:
    """16 hexadecimal digits; the same ones for all callables without Python code."""
    codes = [_code(helper.__code__) for helper in _with_helpers(function)]
    return hashlib.sha256(repr(codes).encode("utf-8", "backslashreplace")).hexdigest()[:_DIGITS]


def _with_helpers(function: object) -> list[FunctionType]:
    """The function and the helpers of its module that it reaches, in an order that code alone decides."""
    found: list[FunctionType] = []
    pending = [function]
    while pending:
        plain = pending.pop(0)
        if isinstance(plain, FunctionType) and plain not in found:
            if found and plain.__module__ != found[0].__module__:
                continue
            found.append(plain)
            pending += _called(plain)
    return found


def _called(function: FunctionType) -> Iterator[object]:
    for name in _names(function.__code__):
        yield function.__globals__.get(name)
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


def _code(code: CodeType) -> object:
    shape = (code.co_argcount, code.co_posonlyargcount, code.co_kwonlyargcount, code.co_flags)
    names = (code.co_names, code.co_varnames, code.co_freevars, code.co_cellvars)
    # The table of exception handlers decides what a `try` covers, so it is code too.
    return code.co_name, shape, names, code.co_code, code.co_exceptiontable, tuple(map(_constant, code.co_consts))


def _constant(value: object) -> object:
    """A constant as something whose `repr` is the same everywhere, and differs where the constants do."""
    if isinstance(value, CodeType):
        return _code(value)
    if isinstance(value, tuple):
        return "tuple", tuple(map(_constant, cast("tuple[object, ...]", value)))
    if isinstance(value, frozenset):
        # Its order depends on the process's hash seed.
        return "frozenset", tuple(sorted(repr(_constant(item)) for item in cast("frozenset[object]", value)))
    return type(value).__name__, repr(value)
