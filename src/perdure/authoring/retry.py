"""A step's retry options as its author writes them: seconds or `timedelta`, each option on its own."""

from __future__ import annotations

from datetime import timedelta
from typing import Any, TypedDict

import msgspec

from perdure.model.durations import micros, positive_micros
from perdure.model.errors import UsageError
from perdure.model.policy import Backoff, RetryPolicy
from perdure.model.shown import shown


class RetryOptions(TypedDict, total=False):
    """What `@step` and `.using` take. Each one that is given overrides the policy's own; the others stay."""

    #: Attempts in all, the first included.
    max_attempts: int
    backoff: Backoff
    #: The wait before the second attempt.
    base: float | timedelta
    #: What each further wait is multiplied by, with "exp".
    factor: float
    #: No wait is longer.
    cap: float | timedelta
    #: The part of a wait (0 to 1) that chance may take away.
    jitter: float
    #: An attempt may run so long; None: for ever.
    timeout: float | timedelta | None


def with_options(policy: RetryPolicy, options: RetryOptions, owner: str, known: type = RetryOptions) -> RetryPolicy:
    """`policy` with these options in place of its own. Raises `UsageError` naming `owner`, and the options `known` there."""
    unknown = options.keys() - RetryOptions.__annotations__.keys()
    if unknown:
        there = ", ".join(known.__annotations__)
        raise UsageError(f"{owner} has no option {min(unknown)!r}; there are {there}")
    changed: dict[str, Any] = dict(options)
    try:
        for name in ("base", "cap"):
            if name in options:
                changed[name] = micros(changed[name], name)
        if changed.get("timeout") is not None:
            changed["timeout"] = positive_micros(changed["timeout"], "timeout")
        for name in ("factor", "jitter"):
            _number(changed, name, int | float)
        _number(changed, "max_attempts", int)
        return msgspec.structs.replace(policy, **changed)
    except UsageError as error:
        raise UsageError(f"{owner}: {error}") from error


def _number(options: dict[str, Any], name: str, kind: Any) -> None:
    value = options.get(name, 0)
    if isinstance(value, bool) or not isinstance(value, kind):
        raise UsageError(f"{name} must be a number, not {shown(value)}")
