"""What `app.runs` and its like were asked for, checked."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final, TypedDict, cast

import msgspec

from perdure.model.attributes import Compare, Condition
from perdure.model.conditions import condition
from perdure.model.errors import UsageError
from perdure.model.ids import check_name
from perdure.model.run import Status
from perdure.model.shown import shown
from perdure.ports.store import Count, Facet, RunQuery

#: So many runs at most are listed at once, and incarnations go no further: what every store's integers hold.
_MOST: Final = 2**63 - 1

_NO_LIST: Final = "where takes a list of conditions, like [attr('amount') > 100], not {}"


class RunFilters(TypedDict, total=False):
    """Which runs are meant: all that is given must hold. `None` means not given."""

    #: One, or any of several.
    status: Status | str | Iterable[Status | str]
    workflow: str | None
    namespace: str | None
    origin: str | None
    #: One, or all of several.
    tag: str | Iterable[str] | None
    #: Conditions like `attr("amount") > 100`.
    where: Iterable[Condition]
    #: Names and the values that all of them must have: the short way to write `where=[attr(name) == value]`.
    attributes: Mapping[str, Any] | None


def run_query(filters: RunFilters, namespace: str | None, *, limit: object = 50, before: object = None) -> RunQuery:
    """The query; `namespace`: where nothing else is asked for. Raises `UsageError` naming what is wrong."""
    for name in filters:
        if name not in RunFilters.__annotations__:
            raise UsageError(f"there is no filter {name!r}; there are {', '.join(RunFilters.__annotations__)}")
    space = filters.get("namespace")
    return RunQuery(
        statuses=tuple(
            _status(each) for each in _several(filters.get("status", ()), 'status must be one like "failed"')
        ),
        workflow=_name(filters.get("workflow"), "a workflow's name"),
        namespace=_name(namespace if space is None else space, "a namespace"),
        origin=_name(filters.get("origin"), "an origin"),
        tags=tuple(
            dict.fromkeys(
                check_name(tag, "a tag")
                for tag in _several(_given(filters.get("tag")), 'tag must be one like "billing"')
            )
        ),
        where=(*_equal(filters.get("attributes")), *_conditions(filters.get("where"))),
        limit=_whole(limit, "limit", 1),
        before=None if before is None else _whole(before, "before", 0),
    )


def facet(name: object) -> Facet:
    """Raises `UsageError`."""
    if isinstance(name, str) and name in list(Facet):
        return Facet(name)
    raise UsageError(f"runs are not counted by {shown(name)}, but by {', '.join(Facet)}")


def counted(counts: Iterable[Count], by: tuple[Facet, ...]) -> dict[Any, int]:
    """Numbers by value, or by tuples of values where there are several facets. Blank origins are as none."""
    found: dict[Any, int] = {}
    for each in counts:
        values = tuple((value.strip() or None) if value is not None else None for value in each.values)
        key = values[0] if len(by) == 1 else values
        found[key] = found.get(key, 0) + each.runs
    return found


def _given(value: object) -> object:
    return () if value is None else value


def _several(value: object, what: str) -> Iterable[object]:
    if isinstance(value, str):
        return (value,)
    if isinstance(value, Iterable) and not isinstance(value, bytes | Mapping):
        return cast("Iterable[object]", value)
    raise UsageError(f"{what}, or a list of them, not {shown(value)}")  # pyright: ignore[reportUnknownArgumentType]


def _name(value: object, what: str) -> str | None:
    return None if value is None else check_name(value, what)


def _equal(wanted: object) -> Iterable[Condition]:
    if wanted is None:
        return ()
    if not isinstance(wanted, Mapping):
        raise UsageError(f"attributes must be a mapping of names to values, not {shown(wanted)}")
    mapping = cast("Mapping[Any, object]", wanted)
    return [condition(name, Compare.EQ, value) for name, value in mapping.items()]


def _conditions(where: object) -> Iterable[Condition]:
    if where is None:
        return ()
    if isinstance(where, Condition | str | bytes | Mapping) or not isinstance(where, Iterable):
        raise UsageError(_NO_LIST.format(shown(where)))  # pyright: ignore[reportUnknownArgumentType]
    found = list(cast("Iterable[object]", where))
    for each in found:
        if not isinstance(each, Condition):
            raise UsageError(f"where takes conditions like attr('amount') > 100, and not {shown(each)}")
    return cast("list[Condition]", found)


def _status(name: object) -> Status:
    try:
        return Status(cast("str", name))
    except ValueError:
        raise UsageError(f"there is no status {shown(name)}; there are {', '.join(Status)}") from None


def _whole(value: object, name: str, least: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= _MOST:
        raise UsageError(f"{name} must be a whole number of at least {least}, not {shown(value)}")
    return value


def every(query: RunQuery, namespace: str | None) -> bool:
    """Whether the query asks for all runs there are (in the app's own namespace): nothing was filtered."""
    return msgspec.structs.replace(query, limit=0, before=None) == RunQuery(limit=0, namespace=namespace)


__all__ = ["RunFilters", "counted", "every", "facet", "run_query"]
