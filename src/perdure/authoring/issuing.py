"""Issuing a step: from the definitions to the running workflow."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any, cast

from perdure.authoring.gating import QueueUse
from perdure.core.ambient import current
from perdure.core.instance import Instance
from perdure.core.issuing import Undo
from perdure.core.loop import stubborn
from perdure.model.errors import NotInWorkflow, UsageError
from perdure.model.policy import RetryPolicy


def issue(
    instance: Instance,
    name: str,
    data: bytes,
    policy: RetryPolicy,
    queue: QueueUse | None,
    decode: Callable[[bytes], Any],
    undo: Undo | None = None,
) -> Coroutine[Any, Any, Any]:
    """Issue the operation. Raises `NotRegistered` for a queue that is not declared."""
    gate = None
    if queue is not None:
        rules = instance.context.queue_rules(queue.name)
        gate = queue.ask(rules, instance.reserve(), instance.run.id)
    # A future of the workflow's loop, which takes futures wherever asyncio takes coroutines (`create_task`, `gather`).
    future = instance.step(name, data, policy=policy, decode=decode, undo=undo, gate=gate)
    return cast("Coroutine[Any, Any, Any]", future)


def inside(instance: Instance) -> Instance:
    """The instance itself, if its body is running here. Raises `NotInWorkflow` elsewhere: in its steps, after its end."""
    if current() is not instance and not stubborn(instance.loop):  # that one would swallow the error for ever
        raise NotInWorkflow(
            f"the context of {instance.describe()} was used outside its workflow function, in a step perhaps; ask for what "
            "you need in the function, and pass it on"
        )
    return instance


def bound(instance: Instance, bind: Callable[[], bytes]) -> bytes:
    """The bound arguments. A usage error says in which run, and at which position."""
    try:
        return bind()
    except UsageError as error:
        raise type(error)(f"{error} (in {instance.describe()} at position {instance.reserve()})") from error
