"""What a run waits for, in words. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from msgspec import Struct

from perdure.model.endings import UNSERVED
from perdure.model.failure import decode_failure
from perdure.model.history import Op
from perdure.model.run import TERMINAL, Run, Status
from perdure.model.steps import State, Step
from perdure.model.tokens import shown_token

_CHILDREN = frozenset({Op.CHILD, Op.JOIN})


class Wait(Struct, frozen=True):
    """One thing that a run waits for. Times are microseconds."""

    #: `unpause`, `worker`, `code`, `start`, `queue`, or the kind of an operation: `step`, `timer`, `signal`, `update`, `child`,
    #: or that of a token: `webhook`, `breakpoint`, `task`, `event`, `token`.
    what: str
    #: The signal's, step's or child's name; the workflow's for a worker or code.
    name: str
    since: int
    #: When it gives up, fires, or tries again.
    until: int | None = None
    #: More, in words: why, or how the child stands.
    detail: str = ""


def waits(run: Run, steps: Sequence[Step], children: Mapping[str, Run], now: int) -> list[Wait]:
    """What has to happen before the run can go on; nothing of a run that has ended. `children` by id, those that are known."""
    if run.status in TERMINAL:
        return []
    if run.paused_at is not None and run.status is not Status.RUNNING:
        name = f"{run.workflow} {run.version}"
        return [
            Wait("unpause", name, run.paused_at, None, f"it is paused; perdure runs unpause {run.id} lets it go on")
        ]
    if run.status is Status.BLOCKED:
        failure = decode_failure(run.error or b"")
        what = "worker" if failure.code == UNSERVED else "code"
        return [Wait(what, f"{run.workflow} {run.version}", run.updated_at, run.deadline, failure.message)]
    held_up = list(_for_a_worker(run, now))
    # Of a run that nobody has taken, what its operations wait for is not what holds it up.
    return held_up or list(_operations(steps, children, running=run.status is Status.RUNNING))


def _for_a_worker(run: Run, now: int) -> Iterable[Wait]:
    name, due = f"{run.workflow} {run.version}", run.wake_at
    if run.status is Status.PENDING:
        yield Wait("worker", name, run.updated_at, None, "no worker has taken it yet")
    elif due is not None and due <= now:
        lost = run.status is Status.RUNNING
        yield Wait("worker", name, due, None, "its worker was lost; the next one takes it" if lost else "it is due")
    elif run.status is Status.SUSPENDED and run.gate is not None and run.listening:
        gate = run.gate.name if not run.gate.key else f"{run.gate.name} {run.gate.key}"
        if run.started_at is None:
            yield Wait("queue", gate, run.updated_at, None, "it begins when its turn comes")
    elif run.status is Status.SUSPENDED and run.started_at is None:
        yield Wait("start", name, run.created_at, due, "it begins then")


def _operations(steps: Sequence[Step], children: Mapping[str, Run], *, running: bool) -> Iterable[Wait]:
    for step in steps:
        if step.state is State.RETRYING:
            error = decode_failure(step.error or b"").message
            yield Wait("step", step.name, step.issued_at, step.due, f"next attempt after: {error}")
        elif step.state is not State.PENDING:
            continue
        elif step.op in _CHILDREN:
            child = children.get(step.name)
            yield Wait("child", step.name, step.issued_at, None, f"is {child.status}" if child else "")
        elif step.op is Op.SIGNAL and step.input is not None:
            token = shown_token(step.input.decode("utf-8", "replace"))
            name = step.name.partition(":")[2] or token.name if token.what in ("breakpoint", "task") else token.name
            yield Wait(token.what, name, step.issued_at, step.due)
        elif step.op is Op.EVENT:
            fitting = "" if step.input is None else f"that fits {step.input.decode('utf-8', 'replace')}"
            yield Wait("event", step.name, step.issued_at, step.due, fitting)
        elif step.op in (Op.SIGNAL, Op.UPDATE, Op.TIMER):
            yield Wait(step.op, step.name, step.issued_at, step.due)
        elif step.queue is not None and not running:
            yield Wait("queue", step.queue, step.issued_at, None, f"step {step.name} waits in line")
        else:
            yield Wait("step", step.name, step.issued_at, None, "is running" if running else "")
