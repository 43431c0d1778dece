"""What can be set about an engine. Durations are microseconds unless they say seconds."""

from __future__ import annotations

from msgspec import Struct

from perdure.model.errors import UsageError

_SECOND = 1_000_000


class Settings(Struct, frozen=True, kw_only=True):
    """The defaults suit one process on a laptop and on a server alike."""

    #: The namespace of runs started here, and the only one driven here. None: an operator, drives all.
    namespace: str | None = None
    #: Runs held (claimed and not parked) at once.
    max_runs: int = 1000
    #: Async steps running at once, and threads for sync steps.
    max_steps: int = 1000
    max_threads: int = 32
    #: Parked instances kept in memory, ready to go on without a replay.
    cache: int = 10_000
    #: How long a claim holds without renewal.
    lease: int = 30 * _SECOND
    #: Claims of a lost run without progress before it is dead.
    max_recoveries: int = 10
    #: How often to look for due runs when nothing says there are any: what bounds the delay when hints are lost.
    poll: int = _SECOND
    #: Between two audits of the store.
    audit: int = 60 * _SECOND
    #: Code that does not fit a run's history: "block" the run until fitting code comes, or "fail" it.
    on_nondeterminism: str = "block"
    #: Seconds: a blocked event loop is reported after, and its leases given up after.
    slow_loop: float = 1.0
    dead_loop: float = 60.0
    #: Seconds that stopping waits for what runs.
    drain: float = 10.0

    def __post_init__(self) -> None:
        for name in ("max_runs", "max_steps", "max_threads", "lease", "max_recoveries", "poll", "audit"):
            if getattr(self, name) < 1:
                raise UsageError(f"{name} must be at least 1, not {getattr(self, name)}")
        if self.cache < 0:
            raise UsageError(f"cache must not be negative, not {self.cache}")
        if self.on_nondeterminism not in ("block", "fail"):
            raise UsageError(f'on_nondeterminism must be "block" or "fail", not {self.on_nondeterminism!r}')
