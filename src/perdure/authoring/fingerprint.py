"""The fingerprint of a workflow's code: a run that this code could not replay is tried again when it changes.

It covers the function's own bytecode, names and constants, and those of functions written inside it; not line numbers, file
names or comments, nor functions that it calls. The same code has the same fingerprint in every process of one Python version.
"""

from __future__ import annotations

import hashlib
from types import CodeType
from typing import cast

_DIGITS = 16


def fingerprint(code: CodeType | None) -> str:
    """16 hexadecimal digits; the same ones for all functions without Python code."""
    return hashlib.sha256(repr(_code(code)).encode("utf-8", "backslashreplace")).hexdigest()[:_DIGITS]


def _code(code: CodeType | None) -> object:
    if code is None:
        return None
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
