"""Events: what is published to whom it may concern, by name and by what is in it.

An event reaches every wait whose match fits its payload. A match names fields and the values they must have; a payload fits if
it has all of them. Both are cut into *facets*, one for each field with its value, so that a store compares sets of short texts
and needs to know nothing of JSON: a match fits a payload if its facets are among the payload's.

A field is named by its path: the names on the way to it, joined by dots. Values are equal if their canonical JSON is: objects
whatever the order of their members, numbers by their value (1 is 1.0), texts letter by letter. Lists are compared as wholes.
"""

from __future__ import annotations

from collections.abc import Iterator
from hashlib import blake2b
from typing import Any, Final, TypeAlias, cast

import msgspec
from msgspec import Struct

from perdure.model.messages import Outgoing
from perdure.model.run import NewRun

#: One field with its value, as a short text: equal if both are.
Facet: TypeAlias = str

#: Fields that a payload can be matched by, nested ones too.
MAX_FACETS: Final = 10_000
#: So many kept copies at most are held against a match, the oldest first (of those that have its first field).
MOST_CANDIDATES: Final = 50

#: Above it a float stands for several integers.
_EXACT: Final = 2**53

_decode: Final = msgspec.json.Decoder().decode
_encode: Final = msgspec.json.Encoder(order="deterministic").encode


class EventWait(Struct, frozen=True, gc=False):
    """Operation `seq` waits for an event whose payload has all of these facets."""

    seq: int
    event: str
    facets: tuple[Facet, ...] = ()


class Feed(Struct, frozen=True, gc=False):
    """A signal for a run that collects events, and that run, in case there is none."""

    run: NewRun
    message: Outgoing


class Publish(Struct, frozen=True, kw_only=True):
    """Give an event to all whom it concerns, in one transaction. The rules are at the head of `perdure.ports.store`."""

    name: str
    namespace: str = "default"
    #: Names the event within its namespace: published again, it reaches nobody.
    id: str
    payload: bytes
    facets: tuple[Facet, ...] = ()
    #: The runs that it starts. Those whose ids are taken are passed over.
    starts: tuple[NewRun, ...] = ()
    feeds: tuple[Feed, ...] = ()
    #: Microseconds that one copy is kept if it concerns nobody; None: not at all.
    keep: int | None = None
    #: Microseconds after which the id may be forgotten; None: never.
    remember: int | None = None


class Trigger(Struct, frozen=True, omit_defaults=True):
    """An event starts runs of a workflow: one each, or with `window` (microseconds) one for several.

    Up to `most` events that came within a window are collected; without `most` the last one counts, once it has been quiet for
    a window. `key` is the path of a field: events are collected by its value.
    """

    event: str
    window: int | None = None
    most: int | None = None
    key: str | None = None


class Subscription(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What starts runs of one version of a workflow, and how they start. Of several versions the newest one's counts."""

    #: Only of events of this namespace; None: of all.
    namespace: str | None = None
    workflow: str
    version: str
    triggers: tuple[Trigger, ...] = ()
    tags: tuple[str, ...] = ()
    #: Microseconds.
    timeout: int | None = None
    origin: str | None = None


def line(event: str) -> str:
    """The name under which stores keep waits for an event among those for tokens. (A token has only printable characters.)"""
    return f"\x1f{event}"


def payload_facets(payload: bytes) -> tuple[Facet, ...]:
    """Of all fields of a payload, nested ones too; none if it is no JSON object. Raises `ValueError` for too many."""
    value = _decode(payload)
    found: dict[Facet, None] = {}
    for path, member in _fields(value, ()):
        found[facet(".".join(path), member)] = None
        if len(found) > MAX_FACETS:
            raise ValueError(
                f"it has more than {MAX_FACETS:,} fields; put what is not matched by into a list or a text"
            )
    return tuple(found)


def match_facets(match: bytes | None) -> tuple[Facet, ...]:
    """Of the JSON of a match: an object of paths and values."""
    if match is None:
        return ()
    return tuple(facet(path, value) for path, value in cast("dict[str, Any]", _decode(match)).items())


def facet(path: str, value: Any) -> Facet:
    """Of the field at a path."""
    return blake2b(_encode((path, _plain(value))), digest_size=12).hexdigest()


def field_text(payload: bytes, path: str) -> str:
    """The canonical JSON of the field at a path; that of null if there is none."""
    value = _decode(payload)
    for found, member in _fields(value, ()):
        if ".".join(found) == path:
            return _encode(_plain(member)).decode()
    return "null"


def _fields(value: Any, above: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Any]]:
    if isinstance(value, dict):
        for name, member in cast("dict[str, Any]", value).items():
            path = (*above, name)
            yield path, member
            yield from _fields(member, path)


def _plain(value: Any) -> Any:
    """With whole floats as integers, of which JSON has but one kind."""
    if isinstance(value, float) and abs(value) < _EXACT and value.is_integer():
        return int(value)
    if isinstance(value, list):
        return [_plain(item) for item in cast("list[object]", value)]
    if isinstance(value, dict):
        return {name: _plain(member) for name, member in cast("dict[str, Any]", value).items()}
    return value
