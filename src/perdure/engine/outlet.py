"""What one attempt of a step writes to streams, on its way into the store: batched, in order, one write at a time.

While one is in flight, what is written meanwhile gathers for the next: a fast writer makes larger batches, not more of them.
The attempt is not reported before all of it is durable, so that whoever has read a run's end has seen all that its steps wrote.
"""

from __future__ import annotations

import asyncio
import logging
import threading

from perdure.core.operation import Operation
from perdure.engine.committer import Broken, Committer, Outcome
from perdure.engine.held import Held
from perdure.engine.means import Means
from perdure.engine.tails import Tails
from perdure.model.commit import Append, Applied, Unstorable
from perdure.model.errors import PerdureError, UsageError
from perdure.model.stream import NewChunk

log = logging.getLogger("perdure.engine")

#: So many chunks, and so many bytes of them, go into one write at most...
_MOST = 500
_MOST_BYTES = 1024 * 1024
#: ...and wait for it at most.
_ROOM = 10_000
_ROOM_BYTES = 16 * 1024 * 1024


class Gathered:
    """What waits for the next write. Any thread; `lock` is held for moments only."""

    def __init__(self, lock: threading.Condition) -> None:
        self.lock = lock
        #: How much was ever written, by stream.
        self.counts: dict[str, int] = {}
        #: Why no more is taken: what went wrong, or that the attempt is over.
        self.fault: Exception | None = None
        self.closed = False
        self._chunks: list[NewChunk] = []
        self._bytes = 0
        #: True while somebody is on the way to take what is here.
        self._called = False

    def __len__(self) -> int:
        return len(self._chunks)

    def add(self, stream: str, payload: bytes, seq: int, attempt: int, *, wait: bool) -> bool:
        """True if somebody must be called to take it. While there is no room it is waited for, or with `wait` False refused."""
        with self.lock:
            while self.fault is None and not self.closed and self._full():
                if not wait:
                    raise UsageError(
                        f"{len(self._chunks)} chunks wait to be written: the step writes faster than the store takes them; "
                        "call `await stream(...).flush()` now and then"
                    )
                self.lock.wait()
            if self.fault is not None:
                raise lost(self.fault)
            if self.closed:
                raise UsageError("the attempt of the step is over: nothing more can be written to its streams")
            index = self.counts.get(stream, 0)
            self.counts[stream] = index + 1
            self._chunks.append(NewChunk(stream, payload, seq, attempt, index))
            self._bytes += len(payload)
            call, self._called = not self._called, True
            return call

    def take(self) -> tuple[NewChunk, ...]:
        """The first of them, as many as one write may have. If some are left, whoever took comes again."""
        with self.lock:
            count = size = 0
            for chunk in self._chunks[:_MOST]:
                if count and size + len(chunk.payload) > _MOST_BYTES:
                    break
                count += 1
                size += len(chunk.payload)
            taken = tuple(self._chunks[:count])
            del self._chunks[:count]
            self._bytes -= size
            self._called = bool(self._chunks)
            self.lock.notify_all()
            return taken

    def stop(self, fault: Exception | None = None) -> None:
        """Take no more, and forget what is here."""
        with self.lock:
            self.closed = True
            self.fault = self.fault or fault
            self._chunks.clear()
            self.lock.notify_all()

    def _full(self) -> bool:
        return len(self._chunks) >= _ROOM or self._bytes >= _ROOM_BYTES


class Outlet:
    """`perdure.authoring.stream.Outlet` of one attempt. `write` from any thread; all else on the event loop."""

    def __init__(self, made_by: Outlets, held: Held, operation: Operation) -> None:
        self._made_by = made_by
        self._held = held
        self._seq, self._attempt = operation.seq, operation.attempts + 1
        self._gathered = Gathered(made_by.lock)
        self._append: Append | None = None
        self._waiter: asyncio.Future[None] | None = None

    @property
    def used(self) -> bool:
        """True if anything was written."""
        return bool(self._gathered.counts)

    def write(self, stream: str, payload: bytes) -> None:
        on_loop = threading.get_ident() == self._made_by.thread
        if self._gathered.add(stream, payload, self._seq, self._attempt, wait=not on_loop):
            self._made_by.means.loop.call_soon_threadsafe(self._send)

    async def written(self) -> None:
        gathered = self._gathered
        while not gathered.closed and (len(gathered) or self._append is not None):
            if self._waiter is None:
                self._waiter = self._made_by.means.loop.create_future()
            await asyncio.shield(self._waiter)
        if gathered.fault is not None:
            raise lost(gathered.fault)

    def close(self) -> None:
        """The attempt is over: what is not on its way yet is not written."""
        self._gathered.stop()
        self._wake()

    def _send(self) -> None:
        if self._append is not None:
            return  # its answer sends the rest
        chunks = self._gathered.take()
        if chunks:
            held = self._held
            append = Append(run=held.key, owner=self._made_by.means.owner, epoch=held.epoch, chunks=chunks)
            self._append = append
            self._made_by.committer.submit(append, self._answered)

    def _answered(self, argument: None, outcome: Outcome) -> None:
        append, self._append = self._append, None
        assert append is not None
        if isinstance(outcome, Applied):
            self._made_by.tails.written(append.run.incarnation, append.chunks)
        elif isinstance(outcome, Broken):
            self._gathered.stop(outcome.error)
        elif isinstance(outcome, Unstorable):
            self._gathered.stop(PerdureError(outcome.reason))
        else:
            log.info("perdure: run %r is not held here any more: what its step streams is not kept", append.run.id)
            self._gathered.stop()
        self._send()
        self._wake()

    def _wake(self) -> None:
        waiter, self._waiter = self._waiter, None
        if waiter is not None and not waiter.done():
            waiter.set_result(None)


def lost(fault: Exception) -> PerdureError:
    """What the step is told."""
    error = PerdureError(f"what the step wrote to its streams could not be stored: {fault}")
    error.__cause__ = fault
    return error


class Outlets:
    """Makes the outlets of an engine's attempts."""

    def __init__(self, means: Means, committer: Committer, tails: Tails) -> None:
        self.means = means
        self.committer = committer
        self.tails = tails
        #: One for all: it is held for moments only, and most attempts never need it.
        self.lock = threading.Condition()
        #: The event loop's.
        self.thread = threading.get_ident()

    def of(self, held: Held, operation: Operation) -> Outlet:
        """For the attempt that is to be made next."""
        return Outlet(self, held, operation)
