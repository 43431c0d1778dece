"""What a step's attempt said with `perdure.log`: kept in the run's history, in an entry of its own beside that of its result.

Bounded, whatever a step says: `MOST_LINES` an attempt, `MOST_BYTES` of them together, `LONGEST` characters each.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec
from msgspec import Raw, Struct

MOST_LINES: Final = 200
MOST_BYTES: Final = 64 * 1024
LONGEST: Final = 2000
#: Bytes of JSON of what a heartbeat says.
MOST_PROGRESS: Final = 16 * 1024


class LogLine(Struct, frozen=True, omit_defaults=True, kw_only=True):
    """One line of a step's log, or the end of a part of it (`log.sub_process`)."""

    #: Microseconds, the store's clock.
    at: int
    #: debug, info, warning or error.
    level: str
    message: str
    #: The attempt that said it.
    attempt: int = 0
    #: Of a part of the step: its name, "ok" or "failed", and the microseconds it took.
    process: str | None = None
    outcome: str | None = None
    took: int | None = None


class Progress(Struct, frozen=True, omit_defaults=True):
    """What a step's last heartbeat said."""

    at: int
    #: JSON.
    value: Raw
    attempt: int = 0


class Logged(Struct, frozen=True, omit_defaults=True, kw_only=True):
    """All that one attempt said."""

    attempt: int
    lines: tuple[LogLine, ...] = ()
    #: How many more lines there were than could be kept.
    dropped: int = 0
    progress: Progress | None = None


def encode_logged(logged: Logged) -> bytes:
    """As it is stored."""
    return msgspec.json.encode(logged)


def decode_logged(data: bytes | None) -> Logged | None:
    """What was stored; None if that cannot be read."""
    try:
        logged = msgspec.json.decode(data or b"", type=Logged)
    except msgspec.MsgspecError:
        return None
    replace, attempt = msgspec.structs.replace, logged.attempt
    lines = tuple(replace(line, attempt=attempt) for line in logged.lines)
    progress = None if logged.progress is None else replace(logged.progress, attempt=attempt)
    return replace(logged, lines=_with_dropped(lines, logged.dropped, attempt), progress=progress)


def _with_dropped(lines: Sequence[LogLine], dropped: int, attempt: int) -> tuple[LogLine, ...]:
    if not dropped:
        return tuple(lines)
    last = lines[-1].at if lines else 0
    note = LogLine(at=last, level="warning", message=f"({dropped:,} more lines were not kept)", attempt=attempt)
    return (*lines, note)


def clean(text: str) -> str:
    """What of a line is kept."""
    if len(text) > LONGEST:
        text = text[: LONGEST - 1] + "…"
    return text.encode(errors="backslashreplace").decode()
