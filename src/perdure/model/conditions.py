"""`attr("amount") > 100`: conditions on attributes, as users write them."""

from __future__ import annotations

from typing import Any

from perdure.model.attributes import MAX_SEARCHED, Compare, Condition, searchable
from perdure.model.errors import UsageError
from perdure.model.ids import check_name
from perdure.model.shown import shown
from perdure.model.values import encode

#: Of keys, what is greater than another of its kind.
_ORDERED = ("n", "s")


class Attribute:
    """An attribute by its name. Compare it with a text, a number, a boolean or None: that gives a condition.

    Numbers compare as numbers, texts by their characters. A run without the attribute never matches, not even `!=`; one whose
    value is of another kind is unequal, and neither greater nor less.
    """

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        self.name = check_name(name, "an attribute's name")

    def __repr__(self) -> str:
        return f"attr({self.name!r})"

    def __hash__(self) -> int:
        return hash(self.name)

    def __eq__(self, value: object) -> Condition:  # type: ignore[override]  # pyright: ignore[reportIncompatibleMethodOverride]
        return condition(self.name, Compare.EQ, value)

    def __ne__(self, value: object) -> Condition:  # type: ignore[override]  # pyright: ignore[reportIncompatibleMethodOverride]
        return condition(self.name, Compare.NE, value)

    def __gt__(self, value: float | str) -> Condition:
        return condition(self.name, Compare.GT, value)

    def __ge__(self, value: float | str) -> Condition:
        return condition(self.name, Compare.GTE, value)

    def __lt__(self, value: float | str) -> Condition:
        return condition(self.name, Compare.LT, value)

    def __le__(self, value: float | str) -> Condition:
        return condition(self.name, Compare.LTE, value)


def attr(name: str) -> Attribute:
    """An attribute to compare, for `app.runs(where=[attr("amount") > 100])`. Raises `InvalidId`."""
    return Attribute(name)


def condition(name: str, compare: Compare, value: Any) -> Condition:
    """A condition. Raises `UsageError` for a value that no run can be found by, or that has no order."""
    check_name(name, "an attribute's name")
    found = searchable(encode({name: value}, what=f"what attribute {name!r} is compared with"))
    if not found:
        raise UsageError(
            f"no run can be found by attribute {name!r} being {shown(value)}; give a text, a number, a boolean or None, "
            f"of at most {MAX_SEARCHED} bytes as JSON"
        )
    [(_, key)] = found
    if compare not in (Compare.EQ, Compare.NE) and key[0] not in _ORDERED:
        raise UsageError(
            f"attribute {name!r} cannot be {compare} {shown(value)}: only numbers and texts are greater or less"
        )
    return Condition(name, compare, key)


__all__ = ["Attribute", "attr", "condition"]
