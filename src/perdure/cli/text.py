"""Text for people: times, durations, and what others have written, shown so that it can do a terminal no harm.

Names, errors and values come from anywhere. Everything in them that is not printable (escape sequences, line breaks, marks that
turn the direction of reading) is shown as its escape. `rich` is given `Text`, never markup.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from rich.text import Text

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_SECOND = 1_000_000


def plain(text: str, limit: int | None = None) -> str:
    r"""One printable line; longer than `limit` characters it is cut.

    >>> plain("a\x1b[31mb\n")
    'a\\x1b[31mb\\n'
    """
    if limit is not None and len(text) > limit:
        text = text[: max(limit - 1, 0)] + "…"
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text)


def styled(text: str, style: str = "", limit: int | None = None) -> Text:
    """As `plain`, for rich. Breaks anywhere rather than lose a part."""
    return Text(plain(text, limit), style=style, overflow="fold")


def paragraph(text: str, style: str = "") -> Text:
    """Several lines, each as `plain`: a traceback."""
    return Text("\n".join(plain(line.expandtabs(4)) for line in text.split("\n")), style=style, overflow="fold")


def duration(micros: int) -> str:
    """Two units at most.

    >>> [duration(n) for n in (0, 740, 12_000, 1_234_000, 61_000_000, 90_061_000_000)]
    ['0 ms', '0.7 ms', '12 ms', '1.2 s', '1 min 1 s', '1 d 1 h']
    """
    if micros < 0:
        return "-" + duration(-micros)
    if micros < 60 * _SECOND:
        return _short(micros)
    seconds = micros // _SECOND
    for unit, size, lower, lower_size in (
        ("d", 86400, "h", 3600),
        ("h", 3600, "min", 60),
        ("min", 60, "s", 1),
    ):
        if seconds >= size:
            rest = seconds % size // lower_size
            return f"{seconds // size:,} {unit}" + (f" {rest} {lower}" if rest else "")
    raise AssertionError(micros)


def _short(micros: int) -> str:
    if micros == 0:
        return "0 ms"
    if micros < 9_950:
        return f"{micros / 1000:.1f} ms"
    if micros < 999_500:
        return f"{micros / 1000:.0f} ms"
    return f"{micros / _SECOND:.1f} s" if micros < 9_950_000 else f"{micros / _SECOND:.0f} s"


def instant(micros: int) -> str:
    """A time in the machine's own zone, to the second. Times beyond the calendar are given as seconds since the epoch."""
    try:
        return (_EPOCH + timedelta(microseconds=micros)).astimezone().isoformat(" ", "seconds")
    except (OverflowError, OSError, ValueError):
        return f"@{micros // _SECOND}"


def relative(micros: int, now: int) -> str:
    """`3 min 2 s ago`, or `in 5 d`."""
    return f"{duration(now - micros)} ago" if micros <= now else f"in {duration(micros - now)}"


def iso(micros: int | None) -> str | None:
    """A time for machines: ISO 8601 in UTC, to the microsecond. Times beyond the calendar are given as `@` and seconds."""
    if micros is None:
        return None
    try:
        return (_EPOCH + timedelta(microseconds=micros)).isoformat(timespec="microseconds").replace("+00:00", "Z")
    except OverflowError:
        return f"@{micros / _SECOND:.6f}"
