"""The side log: what the steps themselves say of when they began and ended, independent of Perdure's own books.

Each mark is one line, appended in one write and flushed to the disk before the step goes on. So whatever happens to the
process, a step that ended has both of its marks, and one that was cut off has only the first.
"""

from __future__ import annotations

import os
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import msgspec
from msgspec import Struct

from perdure import CurrentStep, current_step


class Mark(Struct, frozen=True):
    """A line. `key` is the step's idempotency key."""

    at: str
    key: str
    attempt: int
    file: str
    pid: int


@contextmanager
def noted(log: str, file: str) -> Generator[None]:
    """Around the work of a step: notes its begin, and its end if it gets there."""
    step = current_step()
    _append(log, "begin", step, file)
    yield
    _append(log, "end", step, file)


def _append(log: str, at: str, step: CurrentStep, file: str) -> None:
    line = msgspec.json.encode(Mark(at, step.key, step.attempt, file, os.getpid())) + b"\n"
    descriptor = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    try:
        os.write(descriptor, line)
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


_decode = msgspec.json.Decoder(Mark).decode


class SideLog:
    """Reads a side log as it grows."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._position = 0
        self.marks: list[Mark] = []

    def read(self) -> list[Mark]:
        """All marks so far, oldest first."""
        try:
            with self._path.open("rb") as file:
                file.seek(self._position)
                data = file.read()
        except FileNotFoundError:
            return self.marks
        whole = data[: data.rfind(b"\n") + 1]  # A line may be on its way.
        self._position += len(whole)
        self.marks += [_decode(line) for line in whole.splitlines()]
        return self.marks


def ended(marks: list[Mark]) -> set[str]:
    """The keys of steps that got to their end at least once."""
    return {mark.key for mark in marks if mark.at == "end"}


def in_flight(marks: list[Mark]) -> set[str]:
    """The keys of steps that have begun more often than they ended."""
    balance: dict[str, int] = {}
    for mark in marks:
        balance[mark.key] = balance.get(mark.key, 0) + (1 if mark.at == "begin" else -1)
    return {key for key, open in balance.items() if open > 0}
