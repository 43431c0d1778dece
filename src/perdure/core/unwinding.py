"""Ending the frames of an instance that is being dropped."""

from __future__ import annotations

from typing import Any

#: How many awaits a dying frame may try on its way out, before it is given up.
LAST_AWAITS = 100


class Closing(BaseException):
    """Unwinds the frames. Users never see it."""


def unwind(coro: Any) -> bool:
    """False for a body that cannot be ended."""
    # Not `close`, which drops the inner frames of one that awaits on its way out: they would end somewhere else, complaining.
    # Such a frame is suspended again, and is told again, at that await.
    for _ in range(LAST_AWAITS):
        try:
            coro.throw(Closing())
        except BaseException:
            return True
    return False
