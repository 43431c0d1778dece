"""Statements over many rows at once, in a few fixed sizes.

Each step of a statement gives up Python's global lock and must win it back from the engine's thread, which can take a switch
interval (5 ms) each time. So what a transaction writes goes into few statements of many rows, not many of one. They are
built in the sizes below and filled up with NULL rows, so that each text stays in the connection's statement cache. (All of
them together take some 5 MB there.)
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Any, Final, TypeVar

from perdure.stores.sqlite.rows import Row

T = TypeVar("T")

_SIZES: Final = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128)
_LARGEST: Final = _SIZES[-1]

#: The size for each number of rows up to the largest.
_FITTING: Final = [next(size for size in _SIZES if size >= count) for count in range(_LARGEST + 1)]


@lru_cache(maxsize=512)
def _text(template: str, columns: int, size: int) -> str:
    row = "(" + ",".join("?" * columns) + ")" if columns > 1 else "?"
    return template.replace("@rows", ",".join([row] * size))


def parts(rows: Sequence[T]) -> Iterator[Sequence[T]]:
    """`rows`, cut to what one statement takes."""
    if len(rows) <= _LARGEST:
        if rows:
            yield rows
        return
    for start in range(0, len(rows), _LARGEST):
        yield rows[start : start + _LARGEST]


def execute_sized(
    connection: sqlite3.Connection, template: str, columns: int, part: Sequence[Row], *first: object
) -> sqlite3.Cursor:
    """Execute `template` over the rows of one part.

    `@rows` in the template stands for the list of rows (of `columns` values each; with one column, of bare values); the
    template must pass over rows of NULL. `first` are values bound before them.
    """
    size = _FITTING[len(part)]
    values: list[Any] = [*first]
    for row in part:
        values += row
    if size > len(part):
        values += (None,) * (columns * (size - len(part)))
    return connection.execute(_text(template, columns, size), values)
