"""The open operations of an instance, what is due when, and which message belongs to which."""

from __future__ import annotations

from heapq import heapify, heappop, heappush

from perdure.core.inbox import Inbox
from perdure.core.operation import Operation
from perdure.core.undoing import Undoing


class Pending:
    """Pure bookkeeping of one instance."""

    __slots__ = ("_due", "_granted", "_prune_at", "inbox", "operations", "steps", "undoing")

    def __init__(self) -> None:
        #: By position, oldest first.
        self.operations: dict[int, Operation] = {}
        #: Those of them that are steps.
        self.steps: dict[int, Operation] = {}
        self.inbox = Inbox()
        #: What there is to be undone; most runs have nothing.
        self.undoing: Undoing | None = None
        self._due: list[tuple[int, int]] = []
        self._prune_at = 32
        #: The positions that a gate let through.
        self._granted: set[int] = set()

    def add(self, operation: Operation) -> None:
        """An operation waits for its result."""
        self.operations[operation.seq] = operation
        if operation.policy is not None:
            self.steps[operation.seq] = operation
            self.inbox.gated = self.inbox.gated or operation.gated
            operation.waits = operation.waits and operation.seq not in self._granted
        if operation.due is not None:
            heappush(self._due, (operation.due, operation.seq))
            if len(self._due) >= self._prune_at:
                self._prune()

    def remove(self, seq: int) -> Operation | None:
        """It waits no more; None if it did not."""
        operation = self.operations.pop(seq, None)
        if operation is not None:
            self.steps.pop(seq, None)
            self._granted.discard(seq)
        return operation

    def grant(self, seq: int) -> None:
        """A gate lets this operation through, which may be there or come."""
        self._granted.add(seq)
        operation = self.operations.get(seq)
        if operation is not None:
            operation.waits = False

    def waits(self) -> bool:
        """True if a step waits for its gate."""
        return any(operation.waits for operation in self.steps.values())

    def _prune(self) -> None:
        """Forget when abandoned operations were due: a subscription of years has waits of days without number."""
        self._due = [entry for entry in self._due if entry[1] in self.operations]
        heapify(self._due)
        self._prune_at = 2 * len(self._due) + 32

    def next_due(self) -> int | None:
        """When the earliest open timer or bounded wait is due; None without one."""
        while self._due and self._due[0][1] not in self.operations:
            heappop(self._due)
        return self._due[0][0] if self._due else None

    def take_due(self, now: int) -> list[Operation]:
        """The open operations due by `now`, earliest first. They stay open, but are not due again."""
        taken: list[Operation] = []
        while (due := self.next_due()) is not None and due <= now:
            taken.append(self.operations[heappop(self._due)[1]])
        return taken

    def undoings(self) -> Undoing:
        """What there is to be undone, from now on."""
        if self.undoing is None:
            self.undoing = Undoing()
        return self.undoing

    def clear(self) -> None:
        self.operations.clear()
        self.steps.clear()
