"""Asking another run from a workflow: an update, sent once, whose answer is waited for durably."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

from msgspec import Struct

from perdure.authoring.ambient import launcher
from perdure.authoring.context import Context
from perdure.authoring.current import current_step
from perdure.authoring.workflow import WorkflowDefinition
from perdure.core.ambient import current
from perdure.core.instance import Instance
from perdure.model.errors import NotInWorkflow
from perdure.model.tokens import reply_token
from perdure.model.updates import opened


class Question(Struct, frozen=True, kw_only=True):
    """An update for a run, which is started if it is not there."""

    workflow: WorkflowDefinition[..., Any]
    run_id: str
    name: str
    #: JSON.
    arg: bytes
    #: For messages, and the name of the step that delivers it.
    what: str


async def ask(ctx: Context, question: Question, decode: Callable[[bytes], Any]) -> Any:
    """The answer. Raises what the run answered with, and `RunEnded`. It is asked once, whatever crashes."""
    instance = _inside(ctx)
    token = reply_token(ctx.run_id, instance.reserve())
    # First the wait: it is durable before the question is delivered.
    reply = instance.signal("reply", token=token, timeout=None, decode=opened)
    try:
        await _deliver(ctx, question, token)
    except BaseException:
        reply.cancel()
        raise
    return decode(await reply)


async def tell(ctx: Context, question: Question) -> None:
    """As `ask`, but nobody waits for the answer."""
    _inside(ctx)
    await _deliver(ctx, question, None)


def _deliver(ctx: Context, question: Question, reply: str | None) -> Coroutine[Any, Any, Any]:
    async def deliver() -> None:
        app = launcher("a call of an entity", "the app with `async with` around it")
        await app.deliver(question, current_step().key, reply)

    # What may go wrong is that the store is away.
    return ctx.local_step(f"call {question.what}", deliver, max_attempts=100, cap=60)


def _inside(ctx: Context) -> Instance:
    instance = current()
    if instance is None or instance.run.id != ctx.run_id:
        raise NotInWorkflow(
            f"an entity was called with the context of run {ctx.run_id!r} outside its workflow function; in a step, use "
            "app.entity(...)"
        )
    return instance
