"""Approvals: people are asked, each by a link of their own, reminded, and the first answer counts."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from perdure.authoring.context import Context
from perdure.authoring.hooks import Webhook
from perdure.model.durations import positive_micros
from perdure.model.errors import InvalidValue, SignalTimeout, UsageError
from perdure.model.ids import check_name
from perdure.model.shown import shown


@dataclass(frozen=True)
class ApprovalRequest:
    """What a person is asked: the argument of the steps that ask and remind."""

    #: Whom to ask.
    who: str
    #: What about, in words.
    question: str
    #: What may be answered.
    options: tuple[str, ...]
    #: For `app.signal(token=...)`, inside your own processes.
    token: str
    #: Where this person's answer is posted: `{"option": ...}`, or the same as a form. None where the app has no links.
    url: str | None
    #: 0 when it is first asked, then counts the reminders.
    reminder: int = 0


@dataclass(frozen=True)
class Reply:
    """What is posted."""

    option: str
    comment: str = ""


@dataclass(frozen=True)
class Decision:
    """How it was decided."""

    option: str
    #: Of those who were asked: whose link it was.
    by: str
    comment: str = ""


async def approval(
    ctx: Context,
    *,
    who: str | Iterable[str],
    ask: Any,
    question: str = "",
    options: Iterable[str] = ("approve", "reject"),
    timeout: float | timedelta | None = None,
    reminder: float | timedelta | None = None,
    remind: Any = None,
) -> Decision:
    """Ask these people, and wait for the first who answers with one of the options; what is no option is passed over.

    `ask` is a step (or the name of one) that gets an `ApprovalRequest` for each person and tells them: by mail, chat, a list.
    Every `reminder` without an answer, `remind` (if not given: `ask` again) does that once more. `timeout` raises
    `SignalTimeout`. Durations are seconds or `timedelta`, from when all were asked.
    """
    people, choices = _names(who, "who"), _names(options, "options")
    limit = None if timeout is None else positive_micros(timeout, "timeout")
    pause = None if reminder is None else positive_micros(reminder, "reminder")
    hooks = [(person, ctx.webhook()) for person in people]
    requests = [ApprovalRequest(person, question, choices, hook.token, _url(hook)) for person, hook in hooks]
    replies: asyncio.Queue[Decision] = asyncio.Queue()
    listening = [asyncio.create_task(_listen(person, hook, choices, replies)) for person, hook in hooks]
    try:
        await _tell(ctx, ask, requests, 0)
        async with asyncio.timeout(None if limit is None else limit / 1_000_000):
            return await _first(ctx, replies, pause, remind or ask, requests)
    except TimeoutError as error:
        if isinstance(error, SignalTimeout):
            raise
        seconds = (limit or 0) / 1_000_000
        raise SignalTimeout(
            f"nobody of {', '.join(people)} has answered within {seconds:g} seconds", signal="approval", timeout=seconds
        ) from None
    finally:
        for task in listening:
            task.cancel()


async def _first(
    ctx: Context, replies: asyncio.Queue[Decision], pause: int | None, remind: Any, requests: list[ApprovalRequest]
) -> Decision:
    count = 0
    while pause is not None:
        try:
            async with asyncio.timeout(pause / 1_000_000):
                return await replies.get()
        except TimeoutError:
            count += 1
        await _tell(ctx, remind, requests, count)
    return await replies.get()


async def _tell(ctx: Context, step: Any, requests: list[ApprovalRequest], count: int) -> None:
    asked = [
        ApprovalRequest(one.who, one.question, one.options, one.token, one.url, count) if count else one
        for one in requests
    ]
    await asyncio.gather(*(ctx.step(step, one) for one in asked))


async def _listen(person: str, hook: Webhook, options: tuple[str, ...], replies: asyncio.Queue[Decision]) -> None:
    while True:
        try:
            reply = await hook.wait(type=Reply)
        except InvalidValue:
            continue  # whoever has the link may post anything
        if reply.option in options:
            replies.put_nowait(Decision(reply.option, person, reply.comment))


def _url(hook: Webhook) -> str | None:
    try:
        return hook.url
    except UsageError:
        return None  # then only signals can answer


def _names(given: Any, what: str) -> tuple[str, ...]:
    """Some names, each once. Raises `UsageError`."""
    names: list[Any] = []
    if isinstance(given, str):
        names.append(given)
    elif hasattr(given, "__iter__"):
        names += given
    if not names:
        raise UsageError(f"an approval needs {what}: a text, or a list of them, not {shown(given)}")
    return tuple(dict.fromkeys(check_name(name, f"one of {what}") for name in names))
