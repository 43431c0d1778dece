"""What really happened: every beginning and end of a step, in every process, held against the store at that very moment."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from perdure import current_step
from perdure.model.history import Event
from perdure.stores.memory import MemoryStore
from tests.simulation import process as processes

_OVER = frozenset({Event.RESOLVED, Event.FAILED, Event.ABANDONED})


class Truth:
    """Sees everything; belongs to no process."""

    def __init__(self, store: MemoryStore, trouble: Callable[[str], None]) -> None:
        self._store = store
        self._trouble = trouble
        self._attempts: set[tuple[str, int]] = set()
        #: How often each step was done to its end, by its idempotency key.
        self.done: Counter[str] = Counter()
        #: Attempts that began, and those that were stopped before their end.
        self.begun = 0
        self.cut = 0

    async def begin(self) -> None:
        """A step begins, in its own code."""
        step, process = current_step(), processes.current.get()
        self.begun += 1
        self.cut += 1
        process.world.tell(f"{process.name} begins attempt {step.attempt} of {step.name} {step.run_id}#{step.seq}")
        if (step.key, step.attempt) in self._attempts:
            self._trouble(f"attempt {step.attempt} of {step.run_id}#{step.seq} began twice")
        self._attempts.add((step.key, step.attempt))
        run = await self._store.get(step.run_id)
        if run is None or (run.owner, run.epoch) != (process.owner, process.epoch_of(run.incarnation)):
            return  # It lost the run and does not know it yet: what it does will be fenced.
        history = (await self._store.history([run.incarnation]))[run.incarnation]
        entries = [entry for entry in history if entry.seq == step.seq]
        if not entries:
            self._trouble(f"step {step.name} of {run.id}#{step.seq} began before it was recorded")
        over = [entry.event.name for entry in entries if entry.event in _OVER]
        if over and not any(entry.event is Event.REQUEUED for entry in history):
            self._trouble(f"step {step.name} of {run.id}#{step.seq} began, though it had been {over}")

    def end(self) -> None:
        """A step is done."""
        self.cut -= 1
        self.done[current_step().key] += 1
