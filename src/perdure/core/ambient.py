"""Which workflow instance is running on this thread: the one that owns the running loop."""

from __future__ import annotations

from asyncio import events

from perdure.core.instance import Instance
from perdure.core.loop import WorkflowLoop


def current() -> Instance | None:
    """The instance whose body is running on this thread now; None outside workflow bodies (in steps too)."""
    loop = events._get_running_loop()
    if type(loop) is WorkflowLoop:
        assert isinstance(loop.host, Instance)
        return loop.host
    return None
