"""What one attempt of a step says, collected until the attempt is over. Any thread that the step runs in may write."""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar

from msgspec import Raw

from perdure.model.steplog import MOST_BYTES, MOST_LINES, Logged, LogLine, Progress, clean, encode_logged


class Journal:
    """Of one attempt. `now` is the store's clock, microseconds."""

    __slots__ = ("_attempt", "_bytes", "_closed", "_dropped", "_lines", "_progress", "now")

    def __init__(self, attempt: int, now: Callable[[], int]) -> None:
        self.now = now
        self._attempt = attempt
        self._lines: list[LogLine] = []
        self._bytes = 0
        self._dropped = 0
        self._progress: Progress | None = None
        self._closed = False

    def add(self, level: str, message: str, *, process: str | None = None, outcome: str = "", took: int = 0) -> None:
        """Keep a line, as far as there is room. After the attempt's end nothing is kept any more."""
        if self._closed:
            return
        message = clean(message)
        self._bytes += len(message.encode()) + 80
        if len(self._lines) >= MOST_LINES or self._bytes > MOST_BYTES:
            self._dropped += 1
        elif process is None:
            self._lines.append(LogLine(at=self.now(), level=level, message=message))
        else:
            line = LogLine(at=self.now(), level=level, message=message, process=process, outcome=outcome, took=took)
            self._lines.append(line)

    def beat(self, progress: bytes) -> None:
        """Keep the newest progress (JSON)."""
        self._progress = Progress(self.now(), Raw(progress))

    def close(self) -> bytes | None:
        """All that was said, as it is stored; None if nothing was. Nothing is kept from now on."""
        self._closed = True
        if not self._lines and not self._dropped and self._progress is None:
            return None
        return encode_logged(
            Logged(attempt=self._attempt, lines=tuple(self._lines), dropped=self._dropped, progress=self._progress)
        )


#: That of the attempt which runs here.
journal: ContextVar[Journal | None] = ContextVar("perdure_journal", default=None)
