"""What a workflow's context is known by, so that the decorators need not import the class that does the work."""

from __future__ import annotations

from typing import TYPE_CHECKING


class ContextMarker:
    """A first parameter of this class (the user's `Context`) receives the context and is no part of the input."""

    __slots__ = ()

    if TYPE_CHECKING:
        # Type checkers cannot say "any type but a context", which `@workflow` needs to tell its two forms apart. Every
        # other type has object's `__sizeof__`; taking it from this one says just that (see workflow.py).
        __sizeof__: None  # type: ignore[assignment]  # pyright: ignore[reportIncompatibleMethodOverride]
