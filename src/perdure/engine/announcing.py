"""What follows in this process from a write that came from outside a run: whoever it concerns here hears of it."""

from __future__ import annotations

from perdure.engine.committer import Outcome
from perdure.engine.executor import Executor
from perdure.model.commit import Cancel, Changed, Delete, Exists, Published, Send, Steer, Way, Write


def announce(executor: Executor, write: Write, outcome: Outcome) -> None:
    """`write` was answered. Event loop."""
    if isinstance(outcome, Changed):
        if isinstance(write, Cancel):
            executor.cancelled(outcome.runs)
        elif isinstance(write, Delete) or (isinstance(write, Steer) and write.way is Way.REDISPATCH):
            executor.changed(outcome.runs)
        else:
            for run in outcome.runs:
                executor.tell.endings.touched(run.key)
    if isinstance(outcome, Published):
        for reached in outcome.runs:
            executor.nudges.run(reached.incarnation)
        return
    key = outcome.run.key if isinstance(outcome, Exists) else getattr(outcome, "key", None)
    if key is not None:
        executor.nudges.run(key.incarnation)
    elif isinstance(write, Send) and write.message.token is not None:
        executor.nudges.token(write.message.token)
