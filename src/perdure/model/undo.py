"""What an undo is given."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, TypeVar

In = TypeVar("In")
Out = TypeVar("Out")


@dataclass(frozen=True)
class Undo(Generic[In, Out]):
    """The step that is to be undone: what went in, and what came out.

    `input` is what the step was called with: of a step with one parameter its argument; of one with several an object of
    them by name, as they were given (what was left to its default is not in it); of one without, and of a local step, `None`.
    Both are restored by the undo's own hints: `Undo[Order, str]`, `Undo[dict[str, int], None]`.
    """

    input: In
    output: Out
