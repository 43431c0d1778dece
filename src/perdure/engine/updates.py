"""Updates: messages to a run that it answers. Checked here, accepted by the store, answered by the body."""

from __future__ import annotations

import asyncio
import secrets
from datetime import timedelta
from typing import Any, Literal

import msgspec

from perdure.engine.engine import Engine
from perdure.engine.sending import accepted
from perdure.model import values
from perdure.model.durations import micros
from perdure.model.errors import NotRegistered, RunEnded, RunNotFound, UsageError
from perdure.model.ids import check_name
from perdure.model.messages import MessageKind, Outgoing
from perdure.model.run import Run, RunKey
from perdure.model.shown import shown
from perdure.model.updates import Accepted, Outcome, Rejected, answer_key, decode_answered, encode_asked

#: What a caller may wait for.
Wait = Literal["accepted", "answered"]


class Asking(msgspec.Struct, frozen=True, kw_only=True):
    """An update as its caller put it."""

    name: str
    arg: Any
    id: str | None
    wait: Wait
    type: Any
    timeout: float | timedelta | None
    unvalidated: bool

    def check(self) -> None:
        """Raise `UsageError` for what cannot be asked."""
        check_name(self.name, "an update's name")
        if self.id is not None:
            check_name(self.id, "an update's id")
        if self.wait not in ("accepted", "answered"):
            raise UsageError(f'wait must be "accepted" or "answered", not {shown(self.wait)}')
        if self.timeout is not None:
            micros(self.timeout, "timeout")
        values.check_hint(self.type, f"the answer to update {self.name!r}")


def outgoing_update(
    name: str, update_id: str, arg: bytes, *, run_id: str, incarnation: int | None = None, reply: str | None = None
) -> Outgoing:
    """An update on its way; `arg` is JSON."""
    return Outgoing(
        kind=MessageKind.UPDATE,
        run_id=run_id,
        incarnation=incarnation,
        name=name,
        payload=encode_asked(update_id, arg, reply),
        dedup=answer_key(update_id),
    )


async def update(engine: Engine, run: Run, asking: Asking) -> Outcome:
    """See `RunHandle.update`. `asking` is checked."""
    where = f"update {asking.name!r} to run {run.id!r}"
    arg = values.encode(asking.arg, what=f"the argument of {where}")
    if not asking.unvalidated:
        reason = _reason(engine, run, asking)
        if reason is not None:
            return Rejected(reason)
    update_id = asking.id or secrets.token_hex(8)
    message = outgoing_update(asking.name, update_id, arg, run_id=run.id, incarnation=run.incarnation)
    # One that was sent before is looked for from the link it was sent to.
    key = await accepted(engine, message) or run.key
    if asking.wait == "accepted":
        return Accepted(update_id, None)
    limit = asyncio.timeout(None if asking.timeout is None else micros(asking.timeout, "timeout") / 1_000_000)
    try:
        async with limit:
            data = await answer(engine, key, update_id, where)
    except TimeoutError:
        if not limit.expired():
            raise
        raise TimeoutError(
            f"{where} was not answered within the timeout of {asking.timeout}, but may still be; ask again with "
            f"id={update_id!r} to wait on"
        ) from None
    return outcome(update_id, data, asking.type, f"the answer to {where}")


def _reason(engine: Engine, run: Run, asking: Asking) -> str | None:
    registry = engine.means.registry
    try:
        registry.workflow(run.workflow, run.version)
    except NotRegistered as error:
        raise NotRegistered(
            f"update {asking.name!r} to run {run.id!r} cannot be validated here, so it was not sent: {error}; or send it "
            "with unvalidated=True"
        ) from error
    return registry.validators.reason(run.workflow, asking.name, asking.arg)


async def answer(engine: Engine, key: RunKey, update_id: str, where: str) -> bytes:
    """What the run, or the link that it continues as, answers. Raises `RunEnded` if it ends without, and `RunNotFound`."""
    while True:
        found = await engine.answers.wait(key, answer_key(update_id))
        if isinstance(found, bytes):
            return found
        if found.continued_to is None:
            raise RunEnded(f"run {found.id!r} has ended ({found.status}) and never answered {where}")
        following = await engine.reads.get(found.continued_to, for_ever=True)
        if following is None:
            raise RunNotFound(f"run {found.id!r} continued as {found.continued_to!r}, which was deleted")
        key = following.key


def outcome(update_id: str, data: bytes, type: Any, what: str) -> Outcome:
    """What an answer says to its caller. Raises `InvalidValue`, and the error that the body answered with."""
    told = decode_answered(data)
    if told.rejected is not None:
        return Rejected(told.rejected)
    if told.error is not None:
        raise told.error
    return Accepted(update_id, values.decode(bytes(told.answer), type, what=what))
