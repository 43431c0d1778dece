"""What callers send to runs, and how the store's answer is told."""

from __future__ import annotations

import secrets
from typing import Any

from perdure.engine.committer import Broken
from perdure.engine.engine import Engine
from perdure.engine.transactions import join
from perdure.model import values
from perdure.model.commit import Answer, Applied, Ended, Missing, Send
from perdure.model.errors import QueueFull, RunEnded, RunNotFound, UsageError
from perdure.model.ids import check_name
from perdure.model.messages import MessageKind, Outgoing
from perdure.model.run import NewRun, RunKey, Status


def outgoing_signal(
    name: str,
    payload: Any,
    *,
    run_id: str | None = None,
    incarnation: int | None = None,
    token: str | None = None,
    dedup: str | None = None,
    namespace: str = "default",
) -> Outgoing:
    """A signal on its way. Raises `InvalidId` and `InvalidValue`.

    It always has an id: one whose answer was lost is sent again, and must not arrive twice.
    """
    if token is not None:
        check_name(token, "a token")
    if token is None or name != "":
        check_name(name, "a signal's name")
    check_name(namespace, "a namespace")
    if dedup is None:
        dedup = secrets.token_hex(8)
    else:
        check_name(dedup, "a signal's id")
    where = f"token {token!r}" if token is not None else f"signal {name!r} to run {run_id!r}"
    data = values.encode(payload, what=f"the payload of {where}")
    return Outgoing(
        kind=MessageKind.SIGNAL,
        run_id=run_id,
        incarnation=incarnation,
        name=name,
        token=token,
        payload=data,
        dedup=dedup,
        namespace=namespace,
    )


async def send(engine: Engine, message: Outgoing, connection: Any = None) -> None:
    """Have a message accepted durably, and whoever it wakes here woken. Raises `RunNotFound` and `RunEnded`.

    With a connection: within its transaction, and whoever it wakes is woken by the commit.
    """
    if connection is None:
        await accepted(engine, message)
        return
    joined = await join(engine.means, connection, Send(message))
    if joined.answer == "missing":
        raise _not_found(message)
    if joined.answer == "ended":
        raise _too_late(message, joined.key, joined.status)


async def accepted(engine: Engine, message: Outgoing) -> RunKey | None:
    """As `send`; gives the run whose inbox it went to, None if it was there before (or is kept at its token)."""
    return delivered(await engine.ask(Send(message)), message)


def delivered(answer: Answer, message: Outgoing) -> RunKey | None:
    """What the store's answer to a message says. Raises as `send` does."""
    if isinstance(answer, Missing):
        raise _not_found(message)
    if isinstance(answer, Ended):
        raise _too_late(message, answer.run.key, answer.run.status)
    check_stored(answer)
    return answer.key if isinstance(answer, Applied) else None


def _not_found(message: Outgoing) -> RunNotFound:
    return RunNotFound(f"there is no run {message.run_id!r} to send {message.name!r} to")


def _too_late(message: Outgoing, run: RunKey | None, status: Status | None) -> RunEnded:
    run_id = message.run_id if run is None else run.id
    return RunEnded(f"run {run_id!r} has ended ({status}); {message.name!r} was not delivered")


def check_stored(answer: object) -> None:
    """Raise `UsageError` for what the store could not take, and what the store itself raised."""
    if isinstance(answer, Broken):
        raise answer.error
    reason = getattr(answer, "reason", None)
    if reason is not None:
        raise UsageError(f"the store cannot take this: {reason}; nothing was written")


def queue_full(run: NewRun, waiting: int) -> QueueFull:
    """The error of a start that found as many runs in line as may be."""
    key = "" if run.gate is None else run.gate.key
    return QueueFull(
        f"workflow {run.workflow!r} takes no more runs of key {key!r}: {waiting} wait in line already. Nothing was "
        "started; try again later, or give its Singleton a greater max_queue_depth",
        workflow=run.workflow,
        key=key,
        depth=waiting,
    )
