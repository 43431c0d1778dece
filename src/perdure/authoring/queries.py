"""Queries: functions of a body that read its state for whoever asks, outside of any turn."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any, cast

from perdure.authoring.signature import Signature
from perdure.model.errors import UsageError
from perdure.model.ids import check_name
from perdure.model.shown import shown


class Query:
    """One query of one run."""

    __slots__ = ("_fn", "signature")

    def __init__(self, name: str, fn: object, run: str) -> None:
        check_name(name, "a query's name")
        owner = f"query {name!r} of {run}"
        if not callable(fn) or inspect.iscoroutinefunction(fn):
            raise UsageError(
                f"{owner} needs a plain function that returns what is asked for, not {shown(fn)}; it cannot wait for anything"
            )
        self._fn = cast("Callable[..., Any]", fn)
        #: What it takes and returns.
        self.signature = Signature(self._fn, owner)

    def answer(self, args: Sequence[Any]) -> bytes:
        """Call it with copies of these arguments. Raises `InvalidArguments`, `InvalidValue`, and what the function raises."""
        given, named = self.signature.unbind(self.signature.bind(args, {}))
        return self.signature.encode_result(self._fn(*given, **named))
