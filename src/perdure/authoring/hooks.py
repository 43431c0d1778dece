"""What the context offers for meeting the world at a place of its own: webhooks, breakpoints, external tasks."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from datetime import timedelta
from typing import Any, TypeVar, Unpack, overload

import msgspec

from perdure.authoring.issuing import inside
from perdure.authoring.retry import RetryOptions
from perdure.authoring.working import Working
from perdure.core.instance import Instance
from perdure.core.loop import OpFuture
from perdure.model import values
from perdure.model.durations import unsigned_micros
from perdure.model.errors import FatalError, UsageError
from perdure.model.ids import check_name
from perdure.model.links import Links
from perdure.model.shown import shown
from perdure.model.tokens import breakpoint_token, task_token, webhook_token

T = TypeVar("T")


class TaskEnd(msgspec.Struct, frozen=True, omit_defaults=True):
    """What comes for an external task: its result, or why it failed."""

    result: msgspec.Raw = msgspec.Raw(b"null")
    error: str | None = None
    code: str | None = None
    details: Any = None


_task_end = msgspec.json.Decoder(TaskEnd).decode


class Webhook:
    """A place where the world can reach the run, from when it was made until the run ends."""

    __slots__ = ("_first", "_instance", "_links", "token")

    def __init__(self, instance: Instance, links: Links) -> None:
        self._instance = instance
        self._links = links
        token = webhook_token(instance.run.id, instance.reserve())
        #: It waits from now on: what comes before somebody calls `wait` is taken, too.
        self._first: OpFuture[bytes] | None = instance.signal("webhook", token=token, timeout=None, decode=bytes)
        operation = instance.pending.get(self._first.seq)
        #: Its name, for `app.signal(token=...)`: the same in every replay. No secret; the `url` is.
        self.token = token if operation is None or operation.key is None else operation.key[1]

    def __repr__(self) -> str:
        return f"<webhook {self.token}>"

    @property
    def url(self) -> str:
        """Where to post to. Whoever knows it may post there. Raises `UsageError` where the app cannot make links."""
        return self._links.url(self._instance.run.namespace, self.token)

    @overload
    async def wait(self, *, type: type[T], timeout: float | timedelta | None = ...) -> T: ...
    @overload
    async def wait(self, *, type: Any = ..., timeout: float | timedelta | None = ...) -> Any: ...
    async def wait(self, *, type: Any = Any, timeout: float | timedelta | None = None) -> Any:
        """Wait for the next thing that is posted there, restored by `type`; each is taken once, first in, first out.

        `timeout` (seconds or `timedelta`) raises `SignalTimeout`; with 0, only what is there already is taken. Raises
        `InvalidValue` for what does not fit.
        """
        limit = None if timeout is None else unsigned_micros(timeout, "timeout")
        values.check_hint(type, "what a webhook waits for")
        inside(self._instance)
        data = await self._next(limit)
        return values.decode(data, type, what=f"what came to {self!r}")

    def _next(self, limit: int | None) -> OpFuture[bytes]:
        first, self._first = self._first, None
        if first is not None and not first.cancelled() and (first.done() or limit is None):
            return first
        bounded = self._instance.signal("webhook", token=self.token, timeout=limit, decode=bytes)
        if first is not None:
            first.cancel()
        return bounded


class Hooking(Working):
    """The part of the context that meets the world."""

    __slots__ = ()

    def webhook(self) -> Webhook:
        """A new place where the world can reach this run: give away its `url`, and `await hook.wait()`."""
        return Webhook(self._inside(), self._links)

    async def breakpoint(self, label: str | None = None) -> None:
        """Wait until somebody calls `run.resume()`, or `run.resume(label)`."""
        name = "breakpoint"
        if label is not None:
            name = f"breakpoint:{check_name(label, 'the label of a breakpoint')}"
        instance = self._inside()
        token = breakpoint_token(self.run_id, instance.reserve())
        await instance.signal(name, token=token, timeout=None, decode=values.decoder(Any))

    @overload
    async def task(
        self,
        name: str,
        dispatch: Callable[[], Any],
        *,
        type: type[T],
        within: float | timedelta | None = ...,
        **options: Unpack[RetryOptions],
    ) -> T: ...
    @overload
    async def task(
        self,
        name: str,
        dispatch: Callable[[], Any],
        *,
        type: Any = ...,
        within: float | timedelta | None = ...,
        **options: Unpack[RetryOptions],
    ) -> Any: ...
    def task(
        self,
        name: str,
        dispatch: Callable[[], Any],
        *,
        type: Any = Any,
        within: float | timedelta | None = None,
        **options: Unpack[RetryOptions],
    ) -> Coroutine[Any, Any, Any]:
        """Have something done elsewhere: `dispatch` asks for it, and the run waits until `run.complete_task(name, result)`.

        `dispatch` is a closure that runs as the local step `task:dispatch:<name>`, with these retry options. The run can be
        told of the end from when it begins. `run.fail_task(name, error)` raises `FatalError` here. `within` (seconds or
        `timedelta`, from now) raises `SignalTimeout`. `type` restores the result.
        """
        check_name(name, "a task's name")
        if not callable(dispatch):
            raise UsageError(f"task {name!r} needs a function that asks for it, not {shown(dispatch)}")
        values.check_hint(type, f"the result of task {name!r}")
        limit = None if within is None else unsigned_micros(within, "within")
        return self._task(self._inside(), name, dispatch, type, limit, options)

    async def _task(
        self,
        instance: Instance,
        name: str,
        dispatch: Callable[[], Any],
        type: Any,
        limit: int | None,
        options: RetryOptions,
    ) -> Any:
        token = task_token(self.run_id, instance.reserve())
        # First the wait, then what is answered by it: they become durable together, before the dispatch begins.
        end = instance.signal(f"task:{name}", token=token, timeout=limit, decode=_task_end)
        try:
            await self.local_step(f"task:dispatch:{name}", dispatch, **options)
        except BaseException:
            end.cancel()
            if end.done() and not end.cancelled():
                end.exception()  # seen
            raise
        told = await end
        if told.error is not None:
            raise FatalError(
                f'task "{name}" failed: {told.error}', code=told.code or "task_failed", details=told.details
            )
        return values.decode(bytes(told.result), type, what=f"the result of task {name!r} of {instance.describe()}")
