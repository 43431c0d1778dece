"""Who may use an open app and the handles it gave out: code on the app's own event loop, outside workflow bodies, in
the process that opened it."""

from __future__ import annotations

import os
from asyncio import events

from perdure.core.ambient import current
from perdure.engine.engine import Engine
from perdure.model.errors import ForbiddenInWorkflow, UsageError


def inherited(engine: Engine) -> bool:
    """True in a process that was forked from the one that opened the app."""
    return os.getpid() != engine.means.pid


def enter(engine: Engine) -> Engine:
    """The engine, for this caller. Raises `ForbiddenInWorkflow` and `UsageError`; nothing was done then."""
    if inherited(engine):
        raise UsageError(
            f"this app was opened in process {engine.means.pid}, which this one was forked from; its connections and threads "
            "stayed there. Open an app of its own here, or start processes with the method 'spawn'"
        )
    running = events._get_running_loop()
    if running is engine.means.loop or running is None:
        return engine
    instance = current()
    if instance is not None:
        raise ForbiddenInWorkflow(
            f"{instance.describe()} uses an app or a run's handle in its body, which would happen again at each replay; "
            "start runs with ctx.child, ctx.start_child or workflow.start(...), and put anything else in a step"
        )
    raise UsageError(
        "an app and its handles belong to the event loop that the app was opened on, and this is another one; hand the "
        "call over with asyncio.run_coroutine_threadsafe, or open an app of its own here"
    )
