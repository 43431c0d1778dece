"""Letting a run go on from where it stands: at a breakpoint, or waiting for an external task."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from perdure.authoring.hooks import TaskEnd
from perdure.engine.engine import Engine
from perdure.engine.sending import send
from perdure.model.history import Op
from perdure.model.messages import MessageKind, Outgoing
from perdure.model.run import TERMINAL, Run
from perdure.model.steps import State, Step, fold
from perdure.model.tokens import shown_token


async def resume(engine: Engine, run: Run, label: str | None) -> bool:
    """Let the run go on from the breakpoint that it came to first; False if it stands at none."""
    name = None if label is None else f"breakpoint:{label}"
    found = await _open(engine, run, lambda step, what: what == "breakpoint" and name in (None, step.name))
    return found is not None and await _tell(engine, run, found, b"null")


async def end_task(engine: Engine, run: Run, name: str, end: TaskEnd) -> bool:
    """Tell the run how the oldest task `name` that it waits for has ended; False if it waits for none."""
    found = await _open(engine, run, lambda step, what: what == "task" and step.name == f"task:{name}")
    return found is not None and await _tell(engine, run, found, msgspec.json.encode(end))


async def _open(engine: Engine, run: Run, fits: Callable[[Step, str], bool]) -> str | None:
    """The token of the oldest wait that fits."""
    if run.status in TERMINAL:
        return None
    for step in fold(await engine.reads.history(run.key)):
        if step.op is Op.SIGNAL and step.state is State.PENDING and step.input is not None:
            token = step.input.decode()
            if fits(step, shown_token(token).what):
                return token
    return None


async def _tell(engine: Engine, run: Run, token: str, payload: bytes) -> bool:
    # The token is of one wait, so it is message enough to tell once, whoever else tells it.
    message = Outgoing(
        kind=MessageKind.SIGNAL, token=token, payload=payload, dedup="the only one", namespace=run.namespace
    )
    await send(engine, message)
    return True
