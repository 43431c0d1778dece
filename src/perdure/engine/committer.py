"""Group commit: writes that become ready while a commit is in flight share the next one.

A lost connection is retried with back-off until the store answers; a write whose answer was lost is asked again, and counts as
applied if the run stands exactly as the write would have left it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from msgspec import Struct

from perdure.engine.means import Means
from perdure.engine.pauses import pauses, sleep_until
from perdure.model.commit import Answer, Applied, Create, Exists, Fenced, Moved, TurnCommit, Write
from perdure.model.errors import StoreUnavailable, UsageError
from perdure.model.run import Run, Status

log = logging.getLogger("perdure.engine")

#: So many batches are in flight at once: while the store applies one, the loop works on the answers of the other.
_PIPELINE = 2
#: Batches are not split below this.
_SMALL = 32


class Broken(Struct, frozen=True):
    """In place of an answer: the store failed in a way that trying again will not mend. What became of the write is unknown."""

    error: Exception


Outcome: TypeAlias = Answer | Broken

#: Called on the loop with the argument given at `submit` and what came of the write.
Done: TypeAlias = Callable[[Any, Outcome], None]

Item: TypeAlias = tuple[Write, Done, Any]


class Committer:
    """One at work for an engine. Event loop only."""

    def __init__(self, means: Means) -> None:
        self._means = means
        self._queue: list[Item] = []
        #: The batch that has begun and not yet taken its writes.
        self._waking: asyncio.Task[None] | None = None
        self._in_flight: set[asyncio.Task[None]] = set()
        self._closed = False
        self._idle = asyncio.Event()
        self._idle.set()
        #: By `id`: writes in flight whose caller gave them up. They are tried no more, if what is tried now fails.
        self._withdrawn: dict[int, Write] = {}
        #: Why the store cannot be reached just now.
        self.trouble: StoreUnavailable | None = None

    def submit(self, write: Write, done: Done, argument: Any = None) -> None:
        """Have `write` applied soon, then call `done(argument, answer)`."""
        if self._closed:
            done(argument, Broken(_closed()))
            return
        self._queue.append((write, done, argument))
        if self._waking is None and len(self._in_flight) < _PIPELINE:
            self._begin()

    def withdraw(self, write: Write, reason: Exception) -> None:
        """Its caller gave up a write. One that was never tried is answered `Broken` with the reason, and never will be; one
        that was is not tried again: it has been applied by what was tried so far, or will be by what is tried now, or never.
        """
        for position, item in enumerate(self._queue):
            if item[0] is write:
                del self._queue[position]
                _tell(item, Broken(reason))
                return
        self._withdrawn[id(write)] = write

    @property
    def busy(self) -> bool:
        """True while something is queued or in flight."""
        return bool(self._queue or self._in_flight)

    async def idle(self) -> None:
        """Wait until nothing is queued or in flight."""
        await self._idle.wait()

    async def give_up(self) -> None:
        """The store does not answer and nobody can wait: what is queued or in flight is answered `Broken`."""
        queue, self._queue = self._queue, []
        for _, done, argument in queue:
            done(argument, Broken(_no_answer()))
        for task in self._in_flight:
            task.cancel()
        await self._idle.wait()

    def close(self) -> None:
        """Take no more writes: they are answered `Broken` at once."""
        self._closed = True

    def _begin(self) -> None:
        """Begin another batch. It takes what is queued when its turn on the loop comes: all that became ready together."""
        self._idle.clear()
        self._waking = task = self._means.loop.create_task(self._commit())
        self._in_flight.add(task)
        task.add_done_callback(self._ended)

    def _take(self) -> list[Item]:
        self._waking = None
        size = max(_SMALL, (len(self._queue) + 1) // 2)
        batch, self._queue = self._queue[:size], self._queue[size:]
        if self._queue and len(self._in_flight) < _PIPELINE:
            self._begin()
        return batch

    async def _commit(self) -> None:
        batch = self._take()
        answers: Sequence[Outcome]
        try:
            answers = await self._write(batch)
        except asyncio.CancelledError:
            answers = [Broken(_no_answer())] * len(batch)
        except Exception as error:
            log.exception("perdure: the store failed; what %d writes were part of is left to recovery", len(batch))
            answers = [Broken(error)] * len(batch)
        if self._withdrawn:
            for write, _, _ in batch:
                self._withdrawn.pop(id(write), None)
        for item, answer in zip(batch, answers, strict=True):
            _tell(item, answer)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._in_flight.discard(task)
        if self._waking is task:  # cancelled before it began
            self._waking = None
        if self._queue and self._waking is None:
            self._begin()
        elif not self._in_flight:
            self._idle.set()

    async def _write(self, batch: list[Item]) -> list[Answer]:
        """The answers. What was withdrawn meanwhile is answered, and gone from the batch."""
        again = False
        for pause in pauses():
            try:
                answers = await self._means.store.write([item[0] for item in batch])
            except StoreUnavailable as error:
                if self.trouble is None:
                    log.warning("perdure: the store cannot be reached, trying again: %s", error)
                self.trouble = error
            else:
                self.trouble = None
                if not again:
                    return list(answers)
                return [_known(item[0], answer) for item, answer in zip(batch, answers, strict=True)]
            again = True
            await sleep_until(self._means.clock, self._means.clock.now() + pause)
            self._drop_withdrawn(batch)
            if not batch:
                break
        return []

    def _drop_withdrawn(self, batch: list[Item]) -> None:
        if self._withdrawn:
            gone = [item for item in batch if self._withdrawn.pop(id(item[0]), None) is not None]
            dropped = {id(item[0]) for item in gone}
            batch[:] = [item for item in batch if id(item[0]) not in dropped]
            for item in gone:
                _tell(item, Broken(self.trouble or _no_answer()))


def _tell(item: Item, answer: Outcome) -> None:
    _, done, argument = item
    try:
        done(argument, answer)
    except (Exception, asyncio.CancelledError):
        log.exception("perdure: handling the answer %r failed; this is a fault in Perdure", type(answer).__name__)


def _known(write: Write, answer: Answer) -> Answer:
    """The answer to a write that was asked again: it may have been applied the first time."""
    if isinstance(write, TurnCommit) and isinstance(answer, Fenced) and answer.run is not None:
        run, after = answer.run, write.n + len(write.entries)
        if (run.incarnation, run.epoch, run.n) == (write.run.incarnation, write.epoch, after):
            return _applied(write, run)
    if isinstance(write, Create) and isinstance(answer, Exists) and answer.run.seed == write.run.seed:
        return _applied(write.turn, answer.run)
    return answer


def _applied(turn: TurnCommit | None, run: Run) -> Applied | Moved:
    """The answer that was lost. (What moved is read from the inbox: here it is not known any more.)"""
    if (
        turn is not None
        and turn.status is not Status.RUNNING
        and (run.status, run.owner, run.epoch)
        == (
            Status.RUNNING,
            turn.owner,
            turn.epoch,
        )
    ):
        return Moved(run.key, ())
    return Applied(run.key)


def _closed() -> UsageError:
    return UsageError("the app was closed; nothing was written. Use handles inside `async with app:`, or open it again")


def _no_answer() -> StoreUnavailable:
    return StoreUnavailable(
        "the app was closed before the store answered; whether it was written is unknown, so ask again: what has an id is "
        "not done twice"
    )
