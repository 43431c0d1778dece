"""MODULE:APP: from a name on the command line to an app of the user's."""

from __future__ import annotations

import importlib
import inspect
import os
import sys
from types import ModuleType, TracebackType
from typing import Any

from perdure.app import Perdure
from perdure.authoring.references import in_module
from perdure.cli.exits import users_fault
from perdure.model.errors import UsageError

_FORM = "write MODULE:APP, for example orders.main:app, where orders/main.py has `app = Perdure(...)`"


def load_app(reference: str) -> Perdure:
    """The app that `reference` names: a `Perdure`, or a function that makes one, in a module below this folder or on the path.

    Workflows and steps of that module are served as well as what the app includes. Raises `UsageError` if there is no such
    app, `Refusal` with the traceback for what the module itself raises.
    """
    name, colon, path = reference.partition(":")
    if not (colon and path and all(part.isidentifier() for part in name.split("."))):
        raise UsageError(f"{reference!r} names no app; {_FORM}")
    module = _import(name)
    target: Any = module
    for part in path.split("."):
        target = getattr(target, part, None)
        if target is None:
            raise UsageError(f"module {name} has no {path!r}; {_FORM}")
    app = target if isinstance(target, Perdure) else _made(target, reference)
    app.register(*in_module(module))
    return app


def _import(name: str) -> ModuleType:
    here = os.getcwd()
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        return importlib.import_module(name)
    except Exception as error:
        if _is_missing(error, name):
            raise UsageError(f"there is no module {name}, neither below {here} nor on the path; {_FORM}") from error
        raise users_fault(f"importing {name}", error, _own_frames(error)) from error


def _is_missing(error: Exception, name: str) -> bool:
    """True if it is this module that is missing, or a package around it; else its own import failed."""
    if not isinstance(error, ModuleNotFoundError) or error.name is None:
        return False
    return name == error.name or name.startswith(f"{error.name}.")


def _made(factory: Any, reference: str) -> Perdure:
    if not callable(factory):
        raise UsageError(f"{reference} is a {type(factory).__name__}, not an app; {_FORM}")
    try:
        app = factory()
    except Exception as error:
        raise users_fault(f"{reference}()", error, _own_frames(error)) from error
    if not isinstance(app, Perdure):
        if inspect.iscoroutine(app):
            app.close()  # else it complains that nobody awaited it
        raise UsageError(f"{reference}() returned a {type(app).__name__}, not an app; {_FORM}")
    return app


def _own_frames(error: BaseException) -> TracebackType | None:
    """The traceback from the user's first frame on: neither ours nor the import machinery's."""
    frames = error.__traceback__
    while frames is not None:
        file = frames.tb_frame.f_code.co_filename
        if file != __file__ and not file.startswith("<frozen importlib") and file != importlib.__file__:
            return frames
        frames = frames.tb_next
    return None
