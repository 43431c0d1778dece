"""What authors say about events: what a wait's match is, and which events start a workflow."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from typing import Any, TypeAlias, cast

from perdure.model import values
from perdure.model.errors import UsageError
from perdure.model.events import Trigger
from perdure.model.ids import check_name
from perdure.model.shown import shown


class Accumulator(ABC):
    """Collects events, and starts one run for several. See `perdure.patterns.accumulate`."""

    @property
    @abstractmethod
    def trigger(self) -> Trigger:
        """What is collected, and when it is enough."""

    @property
    @abstractmethod
    def collector(self) -> Any:
        """The workflow that does it, which is served wherever the one that is started is."""


#: What can stand in `@workflow(on_event=...)`, by itself or in a list.
OnEvent: TypeAlias = str | Accumulator


def encode_match(match: Any, what: str) -> bytes:
    """The JSON of a match. Raises `UsageError` and `InvalidValue`."""
    if not isinstance(match, Mapping):
        raise UsageError(
            f'{what} must be a mapping of fields to their values, like {{"orderId": 1}}, not {shown(match)}'
        )
    fields = cast("Mapping[object, object]", match)
    for field in fields:
        check_field(field, what)
    return values.encode(dict(fields), what=what)


def check_field(field: object, what: str) -> str:
    """The path of a field. Raises `UsageError`."""
    if not isinstance(field, str) or not all(field.split(".")):
        raise UsageError(
            f'{what} names fields by their names, joined by dots for one inside another, like "customer.id"; '
            f"{shown(field)} is no such name"
        )
    return field


def check_event(name: object) -> str:
    """An event's name. Raises `InvalidId`."""
    return check_name(name, "an event's name")


def listed_events(on_event: Any, owner: str) -> tuple[OnEvent, ...]:
    """What `@workflow(on_event=...)` was given, each event once. Raises `UsageError`."""
    if on_event is None:
        return ()
    if isinstance(on_event, str | Accumulator):
        on_event = [on_event]
    if not isinstance(on_event, Iterable) or isinstance(on_event, bytes | Mapping):
        raise UsageError(
            f'on_event of {owner} must be the name of an event, like "order.paid", a Batch or Debounce, or a list of such, '
            f"not {shown(cast('object', on_event))}"
        )
    found: dict[str, OnEvent] = {}
    for each in cast("Iterable[object]", on_event):
        if not isinstance(each, str | Accumulator):
            raise UsageError(
                f"on_event of {owner} holds {shown(each)}, which is neither an event's name nor a Batch or Debounce"
            )
        name = each.trigger.event if isinstance(each, Accumulator) else check_event(each)
        if name in found:
            raise UsageError(f"on_event of {owner} has event {name!r} twice; say once what it starts")
        found[name] = each
    return tuple(found.values())


def trigger_of(each: OnEvent) -> Trigger:
    """As the store has it."""
    return Trigger(each) if isinstance(each, str) else each.trigger
