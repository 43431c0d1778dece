"""Undos: what a step's author says takes its effect back, and how that becomes an operation.

An undo is a step of its own, run under the name `compensate:<step>`, with its own retries and timeout; nothing of the undone
step's options counts for it, but `compensation_attempts`. Of a local step it may also be a closure.
"""

from __future__ import annotations

import inspect
from abc import abstractmethod
from collections.abc import Callable, Mapping
from typing import Any, Final, cast

import msgspec

from perdure.authoring.gating import QueueOptions, QueueUse, step_queue
from perdure.authoring.retry import RetryOptions, with_options
from perdure.core.instance import Instance
from perdure.core.issuing import Undo as Undoer
from perdure.core.loop import OpFuture
from perdure.model import values
from perdure.model.errors import UsageError
from perdure.model.ids import check_name
from perdure.model.policy import RetryPolicy
from perdure.model.shown import shown
from perdure.model.undo import Undo

#: Before the name of the step that is undone.
PREFIX: Final = "compensate:"

_NULL: Final = b"null"


class CanUndo:
    """What may be given as `compensate=`: a step, or a reference to one."""

    @abstractmethod
    def as_undo(self, owner: str) -> tuple[str, RetryPolicy]:
        """The name and the policy that it undoes `owner` with. Raises `UsageError` if it cannot take an `Undo`."""


class StepOptions(RetryOptions, QueueOptions, total=False):
    """What `@step`, `step_ref` and `.using` take."""

    #: What undoes the step when its run fails or is cancelled with `compensate=True`: a step, a `step_ref`, or a step's name.
    #: It gets an `Undo(input, output)`. None: nothing does.
    compensate: CanUndo | str | None
    #: Attempts of the undo in all, in place of its own `max_attempts`.
    compensation_attempts: int | None


class LocalOptions(RetryOptions, total=False):
    """What `ctx.local_step` takes."""

    #: As in `StepOptions`, or a function of the body, async or plain, that is called with the `Undo`.
    compensate: CanUndo | str | Callable[[Undo[None, Any]], Any] | None
    compensation_attempts: int | None


class Compensation(msgspec.Struct, frozen=True):
    """How a step is undone."""

    #: What was given as `compensate=`.
    by: CanUndo | str | Callable[[Undo[None, Any]], Any]
    #: The registered step that does it; None: `by` is a closure.
    serves: str | None
    #: Its own policy, and what was said of its attempts where it is used.
    own: RetryPolicy
    attempts: int | None

    @property
    def policy(self) -> RetryPolicy:
        return self.own if self.attempts is None else msgspec.structs.replace(self.own, max_attempts=self.attempts)


def split(options: Mapping[str, Any]) -> tuple[RetryOptions, dict[str, Any]]:
    """A step's options: those of the step itself, and those of its undo."""
    own = {name: value for name, value in options.items() if name not in _OWN}
    return cast("RetryOptions", own), {name: value for name, value in options.items() if name in _OWN}


_OWN = LocalOptions.__annotations__.keys() - RetryOptions.__annotations__.keys()


def with_step_options(
    policy: RetryPolicy,
    use: QueueUse | None,
    undone: Compensation | None,
    options: StepOptions,
    owner: str,
) -> tuple[RetryPolicy, QueueUse | None, Compensation | None]:
    """The policy, the queue and the undo with these options in place of their own. Raises `UsageError` naming `owner`."""
    own, undo = split(options)
    rest: dict[str, Any] = dict(own)
    use = step_queue(use, rest, owner)
    policy = with_options(policy, cast("RetryOptions", rest), owner, known=StepOptions)
    return policy, use, compensation(undone, undo, owner)


def compensation(
    before: Compensation | None, options: Mapping[str, Any], owner: str, *, closures: bool = False
) -> Compensation | None:
    """The undo with these options in place of what was said before. Raises `UsageError` naming `owner`."""
    if not options:
        return before
    by: Any = options.get("compensate", before.by if before is not None else None)
    attempts = options.get("compensation_attempts", before.attempts if before is not None else None)
    if by is None:
        if attempts is not None and options.get("compensation_attempts") is not None:
            raise UsageError(
                f"{owner} was given compensation_attempts, but nothing undoes it: give it compensate=... too"
            )
        return None
    if attempts is not None:
        with_options(RetryPolicy(), {"max_attempts": attempts}, f"compensation_attempts of {owner}")
    serves, own = _undoer(by, owner, closures=closures)
    return Compensation(by, serves, own, attempts)


def _undoer(by: Any, owner: str, *, closures: bool) -> tuple[str | None, RetryPolicy]:
    if isinstance(by, str):
        return check_name(by, f"the name of the step that undoes {owner}"), RetryPolicy()
    if isinstance(by, CanUndo):
        return by.as_undo(owner)
    what = f"compensate of {owner} must be a step, a step_ref or a step's name"
    if not callable(by):
        raise UsageError(f"{what}, not {shown(by)}")
    if not closures:
        raise UsageError(
            f"{what}, and {shown(by)} is none: decorate the function with @step (only a ctx.local_step can be undone by a "
            "plain function)"
        )
    return None, RetryPolicy()


def undo_of(
    instance: Instance,
    name: str,
    found: Compensation | None,
    plain: Callable[[bytes], bytes] = bytes,
    decode: Callable[[bytes], Any] | None = None,
) -> Undoer | None:
    """What issues the undo of step `name`. `plain`: the step's input as its function got it; `decode`: restores its output, for
    a closure."""
    if found is None:
        return None

    restore = values.decoder(Any) if decode is None else decode

    def undo(input: bytes | None, output: bytes) -> OpFuture[Any]:
        called = PREFIX + name
        if found.serves is not None:
            given = _NULL if input is None else plain(input)
            payload = b'{"input":' + given + b',"output":' + output + b"}"
            return instance.step(
                called, payload, policy=found.policy, decode=_nothing, serves=found.serves, undoes=True
            )
        closure = cast("Callable[[Undo[None, Any]], Any]", found.by)

        async def call() -> bytes:
            result = closure(Undo(None, restore(output)))
            if inspect.isawaitable(result):
                await result
            return _NULL

        return instance.local(called, call, policy=found.policy, decode=_nothing, undoes=True)

    return undo


def _nothing(data: bytes) -> None:
    """What an undo returns is of no use to anybody; it stands in the history."""
