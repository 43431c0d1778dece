"""Where asyncio itself would let addresses into a workflow: sets of things that hash by address. Refused, with a way out.

Tasks, and futures made by the loop, hash the same in every replay (see `loop`); coroutines do not, nor do the futures that
`asyncio.gather` or a bare `asyncio.Future()` make without asking the loop.
"""

from __future__ import annotations

import asyncio
from asyncio import tasks
from types import CodeType, FrameType
from typing import Any

from perdure.model.errors import ForbiddenInWorkflow


def _codes(*names: str) -> frozenset[CodeType]:
    """The code of asyncio's functions of these names, as far as this Python has them."""
    return frozenset(function.__code__ for name in names if (function := getattr(tasks, name, None)) is not None)


_WAIT = _codes("_wait")
_ENSURE_FUTURE = _codes("ensure_future", "_ensure_future")
#: What hashes by address has this as its `__hash__`.
_BY_ADDRESS: object = object.__hash__


def check_new_future(caller: FrameType) -> None:
    """Raise `ForbiddenInWorkflow` where `asyncio.wait` has just made a set of futures whose order is by address."""
    if caller.f_code not in _WAIT:
        return
    futures: set[Any] = caller.f_locals["fs"]
    if len(futures) > 1 and any(type(future).__hash__ is _BY_ADDRESS for future in futures):
        raise ForbiddenInWorkflow(
            "asyncio.wait over the results of gather(), or over asyncio.Future(), gives sets whose order changes from process "
            "to process. Give it tasks of coroutines that await them, or futures of loop.create_future()."
        )


def check_new_task(caller: FrameType, coro: Any) -> None:
    """Raise `ForbiddenInWorkflow` where `asyncio.as_completed` makes its tasks in the order of a set of coroutines."""
    if caller.f_code not in _ENSURE_FUTURE:
        return
    frame = caller.f_back
    while frame is not None and frame.f_globals.get("__name__") == tasks.__name__:
        if frame.f_code.co_qualname.startswith(("as_completed", "_AsCompleted")):
            if asyncio.iscoroutine(coro):
                coro.close()
            raise ForbiddenInWorkflow(
                "asyncio.as_completed over coroutines starts them in an order that changes from process to process. "
                "Use perdure.as_completed, or give it tasks."
            )
        frame = frame.f_back
