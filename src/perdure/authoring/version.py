"""Versions side by side: which one is the newest."""

from __future__ import annotations

import re
from typing import TypeAlias

from perdure.model.errors import UsageError
from perdure.model.ids import check_name
from perdure.model.shown import shown

_PARTS = re.compile(r"[0-9]+|[^0-9]+")

VersionKey: TypeAlias = tuple[tuple[tuple[int, int, str], ...], str]


def check_version(version: object) -> str:
    """The version itself; raises `UsageError`."""
    if isinstance(version, int) and not isinstance(version, bool):
        raise UsageError(f'a version is text: write version="{shown(version)}"')
    return check_name(version, "a version")


def version_key(version: str) -> VersionKey:
    """Sorts versions, oldest first: numbers within them compare as numbers, so that 10 is above 9 and 1.10 above 1.9.

    Where a number meets text, the number comes first. Versions that differ only in how they write a number (1, 01) are told
    apart by their text.
    """
    parts = _PARTS.findall(version)
    return tuple((0, int(part), "") if part[0] in "0123456789" else (1, 0, part) for part in parts), version
