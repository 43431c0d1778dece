"""Interceptors: what a user puts around each real attempt of a step. A replay attempts nothing, so they do not hear of it."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from typing import Any, TypeAlias, cast

from perdure.authoring.current import CurrentStep
from perdure.model.errors import UsageError
from perdure.model.shown import shown

#: Runs what is inside: the next interceptor, or the step itself. Returns what that returned.
Proceed: TypeAlias = Callable[[], Awaitable[Any]]

#: What it returns is the step's result, what it raises the attempt's failure.
Interceptor: TypeAlias = Callable[[CurrentStep, Proceed], Awaitable[Any]]


class Around:
    """The interceptors of one app, whether or not it is open. Event loop only, once it is."""

    def __init__(self) -> None:
        #: By registration, so that an interceptor used twice is taken away one by one.
        self._interceptors: dict[object, Interceptor] = {}

    def use(self, interceptor: Interceptor) -> Callable[[], None]:
        """Put `interceptor` inside those that are there; returns what takes it away, but not from attempts that run."""
        if not _is_async(interceptor):
            raise UsageError(
                f"an interceptor must be an async function of (step, proceed), not {shown(cast('object', interceptor))}"
            )
        place = object()
        self._interceptors[place] = interceptor

        def remove() -> None:
            self._interceptors.pop(place, None)

        return remove

    def __bool__(self) -> bool:
        return bool(self._interceptors)

    def wrapped(self, step: CurrentStep, proceed: Proceed) -> Proceed:
        """`proceed` with all interceptors around it, the first registered outermost."""
        for interceptor in reversed(self._interceptors.values()):
            proceed = _inside(interceptor, step, proceed)
        return proceed


def _inside(interceptor: Interceptor, step: CurrentStep, proceed: Proceed) -> Proceed:
    def call() -> Awaitable[Any]:
        return interceptor(step, proceed)

    return call


def _is_async(interceptor: object) -> bool:
    return inspect.iscoroutinefunction(interceptor) or (
        callable(interceptor) and inspect.iscoroutinefunction(getattr(interceptor, "__call__", None))  # noqa: B004
    )
