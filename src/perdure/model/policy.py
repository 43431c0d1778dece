"""Retry policies: pure rules, no clock, no random (the caller brings both)."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from perdure.model.errors import UsageError
from perdure.model.shown import shown

Backoff = Literal["fixed", "exp"]

_SECOND = 1_000_000
_FAR = 10**15  # 31 years in microseconds: no wait is longer


class RetryPolicy(Struct, frozen=True, kw_only=True):
    """When a failed attempt is tried again. Durations are microseconds."""

    #: Attempts in all, the first included.
    max_attempts: int = 1
    backoff: Backoff = "exp"
    #: The wait before the second attempt.
    base: int = _SECOND
    #: What each further wait is multiplied by, with "exp".
    factor: float = 2.0
    #: No wait is longer.
    cap: int = 3600 * _SECOND
    #: The part of a wait (0 to 1) that chance may take away: 0.25 spreads a wait of 100 over 75 to 100.
    jitter: float = 0.0
    #: An attempt may run so long; None: for ever.
    timeout: int | None = None

    def __post_init__(self) -> None:
        if self.max_attempts < 1:
            raise UsageError(
                f"max_attempts must be at least 1 (the first attempt counts), not {shown(self.max_attempts)}"
            )
        if self.backoff not in ("fixed", "exp"):
            raise UsageError(f'backoff must be "fixed" or "exp", not {shown(self.backoff)}')
        if self.base < 0 or self.cap < 0:
            raise UsageError("a retry delay cannot be negative")
        if not 0.0 <= self.jitter <= 1.0:
            raise UsageError(f"jitter must be between 0 and 1, not {shown(self.jitter)}")
        if not 0.0 < self.factor <= 1000.0:
            raise UsageError(f"factor must be above 0 and at most 1000, not {shown(self.factor)}")
        if self.timeout is not None and self.timeout <= 0:
            raise UsageError("a step's timeout must be positive")

    def delay(self, failures: int, chance: float) -> int:
        """Microseconds to wait after the `failures`-th failure (1-based). `chance` is uniform in [0, 1)."""
        cap = min(self.cap, _FAR)
        if self.backoff == "fixed" or self.base == 0 or self.factor == 1.0:
            wait = float(min(self.base, cap))
        else:
            wait = _grow(self.base, self.factor, failures - 1, cap)
        return int(min(wait, cap) * (1.0 - self.jitter * chance))

    def again(self, failures: int, retryable: bool) -> bool:
        """Whether another attempt follows after that many failures."""
        return retryable and failures < self.max_attempts


def _grow(base: int, factor: float, exponent: int, cap: int) -> float:
    """base * factor ** exponent, without ever overflowing on the way to the cap."""
    try:
        return base * factor**exponent
    except OverflowError:
        return float(cap)
