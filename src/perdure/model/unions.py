"""Unions: which member a value is of, by its JSON alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from perdure.model.shape import ANY_TEXT, FORMS, INT, OBJECT, TEXT, Shape, describe, refuse
from perdure.model.storable import Misfit, is_a


def check_apart(one: Shape, other: Shape) -> None:
    """Refuse two members of a union whose values look the same in JSON."""
    shared = one.forms & other.forms
    clash = (
        (TEXT in shared and ANY_TEXT in one.forms | other.forms and not (one.literal or other.literal))
        or (INT in shared and not (one.literal or other.literal))
        or (OBJECT in shared and not _objects_differ(one, other))
    )
    if clash:
        refuse(
            f"{one.name} and {other.name} look the same in JSON, so that a union of them cannot be told apart: "
            "give them different fields, wrap one in a dataclass, or tag them as msgspec.Struct"
        )


def _objects_differ(one: Shape, other: Shape) -> bool:
    if one.names is None or other.names is None:
        # Two dicts are told apart by their items; a dict and a class are not.
        return one.names is other.names
    return one.names != other.names or (one.discriminated and other.discriminated)


def restore_union(members: Sequence[Shape], value: Any) -> Any:
    candidates = [member for member in members if FORMS[type(value)] in member.forms or type(value) is int]
    if is_a(value, dict):
        candidates = _closest(candidates, value)
    found: list[tuple[Shape, Any]] = []
    misfits: list[tuple[Shape, Misfit]] = []
    for member in candidates:
        try:
            found.append((member, member.restore(value)))
        except Misfit as misfit:
            misfits.append((member, misfit))
    if type(value) is int:  # which fits a float too, and a Decimal
        found = [pair for pair in found if type(pair[1]) is int] or found
    if not found:
        if len(misfits) == 1:
            raise misfits[0][1]
        raise Misfit(_none_of(members, value, misfits))
    first, result = found[0]
    for member, another in found[1:]:
        if type(another) is not type(result) or another != result:
            raise Misfit(
                f"it could be {first.name} or {member.name}, which look the same in JSON: wrap one in a dataclass"
            )
    return result


def _closest(members: Sequence[Shape], value: Any) -> list[Shape]:
    """Those whose field names fit best: fewest keys unknown to them, then fewest of theirs missing."""

    def distance(member: Shape) -> tuple[int, int]:
        names = member.names
        return (0, 0) if names is None else (len(value.keys() - names), len(names - value.keys()))

    best = min(map(distance, members), default=(0, 0))
    return [member for member in members if distance(member) == best]


def _none_of(members: Sequence[Shape], value: Any, misfits: Sequence[tuple[Shape, Misfit]]) -> str:
    reasons = "; ".join(f"no {member.name}, for at {misfit.where()}: {misfit.reason}" for member, misfit in misfits[:4])
    expected = " | ".join(member.name for member in members)
    return f"expected {expected}, found {describe(value)}" + (f" ({reasons})" if reasons else "")
