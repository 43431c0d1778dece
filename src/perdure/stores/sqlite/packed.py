"""Reading many rows in one step.

Every row that SQLite hands out is a step, which gives up Python's global lock and must win it back from the engine's thread:
ten thousand rows took nine seconds beside a busy thread. So SQLite packs them into one JSON array, with blobs in
hexadecimal. A large blob stays behind (its cell is 0), so that the text has a bound; the caller reads its row by itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import msgspec

#: Bytes of the largest blob that is packed.
LARGEST: Final = 1024

#: The cell of a blob that stayed behind.
LEFT_OUT: Final = 0

_decode = msgspec.json.Decoder(list[list[Any]]).decode


def packed(columns: Sequence[str], blobs: Sequence[str]) -> str:
    """The SQL expression that gathers these columns of a query's rows."""
    return (
        f"json_group_array(json_array({', '.join(_cell(column) if column in blobs else column for column in columns)}))"
    )


def _cell(column: str) -> str:
    return f"CASE WHEN length({column}) > {LARGEST} THEN {LEFT_OUT} WHEN {column} IS NOT NULL THEN hex({column}) END"


def unpack(text: str, blobs: Sequence[int]) -> list[list[Any]]:
    """The rows; `blobs` are the positions of those columns. Blobs that stayed behind are `LEFT_OUT`."""
    rows = _decode(text)
    for position in blobs:
        for row in rows:
            cell = row[position]
            if cell:
                row[position] = bytes.fromhex(cell)
            elif cell == "":
                row[position] = b""
    return rows
