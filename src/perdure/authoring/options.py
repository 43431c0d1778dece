"""Start options: what a caller decides about a run besides its input."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from functools import partial
from typing import Any, Final, TypedDict, cast

import msgspec

from perdure.authoring.gating import queue_name
from perdure.model.carrier import check_carrier, encode_carrier
from perdure.model.durations import instant, positive_micros, unsigned_micros
from perdure.model.errors import UsageError
from perdure.model.ids import check_name, check_run_id
from perdure.model.shown import shown
from perdure.model.values import encode

#: A priority beyond this, in either direction, is taken for this.
MAX_PRIORITY = 1000


class StartKeywords(TypedDict, total=False):
    """The keywords of `app.start` and `workflow.using`. `None` means not given."""

    #: Starting the same id twice starts once.
    id: str | None
    #: Greater first; absent counts as 0.
    priority: int | None
    #: Added to the workflow's own.
    tags: Iterable[str] | None
    #: Any JSON object of yours, stored with the run.
    attributes: Mapping[str, Any] | None
    #: Not before this time: an aware datetime or seconds since the epoch. Or `delay`, not both.
    start_at: datetime | float | None
    delay: float | timedelta | None
    origin: str | None
    #: Texts that go with the run to its steps, children and next links, {"traceparent": ...} for one.
    carrier: Mapping[str, str] | None
    namespace: str | None
    #: How long the run may take from its due start (its execution timeout).
    timeout: float | timedelta | None
    #: The queue that the whole run goes through before it begins, and the key by which a fair one takes turns.
    queue: str | None
    queue_key: str | None


class StartOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Checked start options. Durations and times are microseconds; `attributes` is JSON."""

    id: str | None = None
    priority: int | None = None
    tags: tuple[str, ...] = ()
    attributes: bytes | None = None
    start_at: int | None = None
    delay: int | None = None
    origin: str | None = None
    carrier: bytes | None = None
    namespace: str | None = None
    timeout: int | None = None
    queue: str | None = None
    queue_key: str | None = None

    def using(self, keywords: StartKeywords, owner: str) -> StartOptions:
        """These options with the given ones in place of their own. Raises `UsageError` naming `owner`."""
        changed: dict[str, Any] = {}
        for name, value in keywords.items():
            check = _CHECKS.get(name)
            if check is None:
                raise UsageError(f"{owner} has no option {name!r}; there are {', '.join(_CHECKS)}. {_INPUTS}")
            if value is not None:
                try:
                    changed[name] = check(value)
                except UsageError as error:
                    raise type(error)(f"{owner}: {error}") from error
        if "start_at" in changed and "delay" in changed:
            raise UsageError(f"{owner} was given both start_at and delay; give one of them")
        if "start_at" in changed:
            changed["delay"] = None
        elif "delay" in changed:
            changed["start_at"] = None
        return msgspec.structs.replace(self, **changed)

    def over(self, declared: StartOptions) -> StartOptions:
        """These options on top of a workflow's declared ones: tags add up, the rest falls back to what was declared."""
        tags = tuple(dict.fromkeys((*declared.tags, *self.tags)))
        timeout = declared.timeout if self.timeout is None else self.timeout
        return msgspec.structs.replace(self, tags=tags, timeout=timeout, origin=self.origin or declared.origin)


_INPUTS = (
    "A workflow's inputs are positional; to give some by keyword, write workflow.using(id=...).start(order, note=...)"
)


def _priority(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise UsageError(f"priority must be a whole number, not {shown(value)}")
    return max(-MAX_PRIORITY, min(value, MAX_PRIORITY))


def _tags(value: object) -> tuple[str, ...]:
    if isinstance(value, str | bytes) or not isinstance(value, Iterable):
        raise UsageError(f'tags must be a list of strings, like ["billing"], not {shown(value)}')
    return tuple(dict.fromkeys(check_name(tag, "a tag") for tag in cast("Iterable[object]", value)))


def attributes_json(value: object) -> bytes:
    """A mapping of names to values as JSON. Raises `UsageError` and `InvalidValue`."""
    if not isinstance(value, Mapping):
        raise UsageError(f"attributes must be a mapping of names to JSON values, not {shown(value)}")
    attributes = dict(cast("Mapping[object, object]", value))
    for name in attributes:
        check_name(name, "an attribute's name")
    return encode(attributes, what="attributes")


def _carrier(value: object) -> bytes | None:
    return encode_carrier(check_carrier(value))


_CHECKS: Final[Mapping[str, Any]] = {
    "id": check_run_id,
    "priority": _priority,
    "tags": _tags,
    "attributes": attributes_json,
    "start_at": partial(instant, what="start_at"),
    "delay": partial(unsigned_micros, what="delay"),
    "origin": partial(check_name, what="an origin"),
    "carrier": _carrier,
    "namespace": partial(check_name, what="a namespace"),
    "timeout": partial(positive_micros, what="timeout"),
    "queue": queue_name,
    "queue_key": partial(check_name, what="a queue key"),
}
