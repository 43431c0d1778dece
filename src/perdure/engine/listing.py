"""What `app.runs` was asked for, checked."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import cast

from perdure.model.attributes import MAX_SEARCHED, searchable
from perdure.model.errors import UsageError
from perdure.model.ids import check_name
from perdure.model.run import Status
from perdure.model.shown import shown
from perdure.model.values import encode
from perdure.ports.store import RunQuery

#: So many runs at most are listed at once, and incarnations go no further: what every store's integers hold.
_MOST = 2**63 - 1


def run_query(
    status: object,
    workflow: object,
    namespace: object,
    tag: object,
    attributes: object,
    limit: object,
    before: object,
) -> RunQuery:
    """The query. Raises `UsageError` naming what is wrong."""
    return RunQuery(
        statuses=tuple(_status(each) for each in _several(status)),
        workflow=None if workflow is None else check_name(workflow, "a workflow's name"),
        namespace=None if namespace is None else check_name(namespace, "a namespace"),
        tag=None if tag is None else check_name(tag, "a tag"),
        attributes=_attributes(attributes),
        limit=_whole(limit, "limit", 1),
        before=None if before is None else _whole(before, "before", 0),
    )


def _several(status: object) -> Iterable[object]:
    if isinstance(status, str):
        return (status,)
    if isinstance(status, Iterable):
        return cast("Iterable[object]", status)
    raise UsageError(f'status must be one like "failed", or a list of them, not {shown(status)}')


def _attributes(wanted: object) -> tuple[tuple[str, str], ...]:
    if wanted is None:
        return ()
    if not isinstance(wanted, Mapping):
        raise UsageError(f"attributes must be a mapping of names to values, not {shown(wanted)}")
    mapping = dict(cast("Mapping[object, object]", wanted))
    for name in mapping:
        check_name(name, "an attribute's name")
    found = searchable(encode(mapping, what="attributes"))
    for name in mapping.keys() - dict(found).keys():
        raise UsageError(
            f"no run can be found by attribute {name!r} being {shown(mapping[name])}; give a text, a number, a boolean or "
            f"None, of at most {MAX_SEARCHED} bytes as JSON"
        )
    return tuple(found)


def _status(name: object) -> Status:
    try:
        return Status(cast("str", name))
    except ValueError:
        raise UsageError(f"there is no status {shown(name)}; there are {', '.join(Status)}") from None


def _whole(value: object, name: str, least: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= _MOST:
        raise UsageError(f"{name} must be a whole number of at least {least}, not {shown(value)}")
    return value
