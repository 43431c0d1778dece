"""How a body ended: what its run makes of the main task's end."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, cast

from perdure.core.explain import explained, raised_cancelled, swallowed_continue
from perdure.core.turn import Cancelled, Completed, Continued, Failed
from perdure.model.failure import capture
from perdure.model.run import NewRun


class ContinueAsNew(BaseException):
    """Unwinds the body: its run goes on as another link."""


def ending(
    main: asyncio.Task[Any],
    successor: NewRun | None,
    *,
    cancelled: str | None,
    run: str,
    encode: Callable[[Any], bytes],
) -> Completed | Failed | Cancelled | Continued:
    """The outcome of `main`, which is done. `successor`: what it last wanted to continue as; `cancelled`: why, if it
    was cancelled with undo; `run`: for messages."""
    error = None if main.cancelled() else main.exception()
    if error is not None and successor is not None:
        error = _beside(error)
        if error is None:
            return Continued(successor)
    if cancelled is not None:
        # Honoured because it was recorded before the end, also where the body returned or raised after it.
        return Cancelled(cancelled)
    if main.cancelled():
        return Failed(raised_cancelled(run))
    if error is not None:
        return Failed(capture(explained(error)))
    if successor is not None:
        return Failed(swallowed_continue(run))
    try:
        return Completed(encode(main.result()))
    except Exception as unfit:
        return Failed(capture(unfit))


def _beside(error: BaseException) -> BaseException | None:
    """What a body that wanted to continue raised beside that (a task group holds it all); None if nothing."""
    if isinstance(error, ContinueAsNew):
        return None
    if not isinstance(error, BaseExceptionGroup):
        return error
    group = cast("BaseExceptionGroup[BaseException]", error)
    return group.split(ContinueAsNew)[1]
