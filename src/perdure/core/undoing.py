"""What is to be undone of a run, and in which order. Pure bookkeeping of one instance.

A step may have an undo: a function that issues the operation which takes the step's effect back. Three things can become of a
step that has one:

* It completed, and its run goes well: nothing is undone.
* It completed, and its run fails or is cancelled with undo: once the body is over, with all its tasks, the undos are issued one
  at a time, in reverse order of completion. What becomes of one does not keep the next from its turn.
* Its await was cancelled while it was under way: it is *let go*. It goes on, within its own limits; if it completes it is
  undone, at once while the body goes on, in its place in the order once all is undone. The run does not end before.

Awaited children of a run that is cancelled with undo are let go, too: they get the same cancel, and the run's own undos wait
for their ends, so that what began last is undone first.
"""

from __future__ import annotations

from perdure.core.operation import Operation
from perdure.model.cancelling import CancelOrder


class Undoing:
    """See the head of this module. Made for a run when the first thing comes up that it has to know."""

    __slots__ = ("_done", "_due", "_let_go", "_under_way", "detached", "order", "unwinding")

    def __init__(self) -> None:
        #: Completed steps and what they gave, the oldest first.
        self._done: list[tuple[Operation, bytes]] = []
        #: Those that were let go, and have completed since.
        self._due: list[tuple[Operation, bytes]] = []
        #: Positions that were let go, and of the undos that were issued.
        self._let_go: set[int] = set()
        self._under_way: set[int] = set()
        #: True once the body has ended so that all is undone.
        self.unwinding = False
        #: The cancel with undo that the run was given.
        self.order: CancelOrder | None = None
        #: Ids of the detached children.
        self.detached: list[str] = []

    @property
    def busy(self) -> bool:
        """True while the run must not end."""
        return bool(self._let_go or self._under_way or self._due or (self.unwinding and self._done))

    def keeps(self, seq: int) -> bool:
        """True if the operation goes on after the body's end."""
        return seq in self._let_go or seq in self._under_way

    def let_go(self, seq: int) -> None:
        """Nobody awaits an operation any more that is to go on all the same."""
        self._let_go.add(seq)

    def begun(self, seq: int) -> None:
        """An undo was issued."""
        self._under_way.add(seq)

    def ended(self, operation: Operation, output: bytes | None) -> None:
        """An operation came to its end. `output` None: it failed."""
        seq = operation.seq
        let_go = seq in self._let_go
        self._let_go.discard(seq)
        self._under_way.discard(seq)
        if operation.undo is not None and output is not None:
            (self._due if let_go and not self.unwinding else self._done).append((operation, output))

    def next(self) -> tuple[Operation, bytes] | None:
        """What is to be undone now, if anything is. It counts as taken."""
        if self._due:
            return self._due.pop(0)
        if self.unwinding and self._done and not (self._let_go or self._under_way):
            return self._done.pop()
        return None
