"""What can be set about an app. Durations are microseconds here; users write seconds or `timedelta`."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any, Final, Literal, TypedDict

from msgspec import Struct

from perdure.model.durations import positive_micros
from perdure.model.errors import UsageError
from perdure.model.ids import check_name
from perdure.model.links import SHORTEST_SECRET, Links
from perdure.model.shown import shown

_SECOND: Final = 1_000_000


class SettingsKeywords(TypedDict, total=False):
    """The keywords of `Perdure(...)`. The defaults suit one process on a laptop and on a server alike."""

    #: The namespace of runs started here, and the only one driven here. None: an operator, drives all.
    namespace: str | None
    #: Runs held (claimed and not parked) at once.
    max_runs: int
    #: Async steps running at once.
    max_steps: int
    #: Threads for sync steps.
    max_threads: int
    #: Parked instances kept in memory, ready to go on without a replay.
    cache: int
    #: How long a claim holds without renewal: what a killed process's runs wait for.
    lease: float | timedelta
    #: Claims of a lost run without progress before it is dead.
    max_recoveries: int
    #: How often to look for due runs when nothing says there are any: what bounds the delay when hints are lost.
    poll: float | timedelta
    #: How long a call waits for a store that cannot be reached before it raises `StoreUnavailable`.
    patience: float | timedelta
    #: Between two audits of the store.
    audit: float | timedelta
    #: How long an attempt of an undo may take that has no timeout of its own. At least a second.
    compensation_timeout: float | timedelta
    #: Code that does not fit a run's history: "block" the run until fitting code comes, or "fail" it.
    on_nondeterminism: Literal["block", "fail"]
    #: A blocked event loop is reported after so long...
    slow_loop: float | timedelta
    #: ...and its leases are given up after so long.
    dead_loop: float | timedelta
    #: How long closing the app waits for what runs.
    drain: float | timedelta
    #: Signs links; 32 characters or more. Of several the first signs, all are believed: to change it, put the new one first.
    secret: str | Sequence[str]
    #: Where links to webhooks lead: the URL that `perdure.console.webhooks(app)` is served at.
    webhook_url: str


class Settings(Struct, frozen=True, kw_only=True):
    """Checked settings; see `SettingsKeywords`. Durations are microseconds."""

    namespace: str | None = None
    max_runs: int = 1000
    max_steps: int = 1000
    max_threads: int = 32
    cache: int = 10_000
    lease: int = 30 * _SECOND
    max_recoveries: int = 10
    poll: int = _SECOND
    patience: int = 30 * _SECOND
    audit: int = 60 * _SECOND
    compensation_timeout: int = 300 * _SECOND
    on_nondeterminism: str = "block"
    slow_loop: int = _SECOND
    dead_loop: int = 60 * _SECOND
    drain: int = 10 * _SECOND
    secret: tuple[str, ...] = ()
    webhook_url: str | None = None

    def links(self) -> Links:
        """Makes and reads the app's links."""
        return Links(self.webhook_url, self.secret)

    def __repr__(self) -> str:
        """Without the secrets."""
        return f"Settings(namespace={self.namespace!r}, ...)"


def settings(keywords: Mapping[str, Any]) -> Settings:
    """The settings that these keywords make. Raises `UsageError` naming the one that is wrong."""
    checked: dict[str, Any] = {}
    for name, value in keywords.items():
        check = _CHECKS.get(name)
        if check is None:
            raise UsageError(f"Perdure(...) has no option {name!r}; there are url, include, {', '.join(_CHECKS)}")
        checked[name] = check(name, value)
    return Settings(**checked)


def _namespace(name: str, value: object) -> str | None:
    return None if value is None else check_name(value, "a namespace")


def _count(name: str, value: object) -> int:
    return _whole(name, value, 1)


def _whole(name: str, value: object, least: int = 0) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise UsageError(f"{name} must be a whole number of at least {least}, not {shown(value)}")
    return value


def _duration(name: str, value: Any) -> int:
    return positive_micros(value, name)


def _long_enough(name: str, value: Any) -> int:
    micros = positive_micros(value, name)
    if micros < _SECOND:
        raise UsageError(f"{name} must be at least a second, not {shown(value)}: undos need the time to undo")
    return micros


def _choice(name: str, value: object) -> str:
    if value not in ("block", "fail"):
        raise UsageError(f'{name} must be "block" or "fail", not {shown(value)}')
    return str(value)


def _secret(name: str, value: object) -> tuple[str, ...]:
    given: Any = (value,) if isinstance(value, str) else value
    found: tuple[Any, ...] = tuple(given) if isinstance(value, str | list | tuple) else ()
    if not found or any(not isinstance(each, str) or len(each) < SHORTEST_SECRET for each in found):
        # Never shown: it may be nearly right.
        raise UsageError(
            f"{name} must be a text of at least {SHORTEST_SECRET} characters, or a list of them; make one with "
            "`python -c 'import secrets; print(secrets.token_hex(32))'`"
        )
    return found


def _base_url(name: str, value: object) -> str:
    if not isinstance(value, str) or not re.fullmatch(r"https?://[^\s?#]+", value):
        raise UsageError(f"{name} must be a URL like 'https://example.org/hooks', not {shown(value)}")
    return value.rstrip("/")


_CHECKS: Final[Mapping[str, Any]] = {
    "namespace": _namespace,
    "max_runs": _count,
    "max_steps": _count,
    "max_threads": _count,
    "cache": _whole,
    "lease": _duration,
    "max_recoveries": _count,
    "poll": _duration,
    "patience": _duration,
    "audit": _duration,
    "compensation_timeout": _long_enough,
    "on_nondeterminism": _choice,
    "slow_loop": _duration,
    "dead_loop": _duration,
    "drain": _duration,
    "secret": _secret,
    "webhook_url": _base_url,
}
