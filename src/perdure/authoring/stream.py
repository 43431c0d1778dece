"""Writing to streams: from a step while it runs, and from a body with its turn."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from typing import Any, Protocol

from perdure.authoring.issuing import inside
from perdure.authoring.seat import Seat
from perdure.core.ambient import current
from perdure.core.instance import Instance
from perdure.model import values
from perdure.model.errors import UsageError
from perdure.model.ids import check_name
from perdure.model.stream import MOST_CHUNK


class Outlet(Protocol):
    """Where the chunks of one attempt go."""

    def write(self, stream: str, payload: bytes) -> None:
        """From any thread. Blocks in a thread of its own while too much waits to be written; else raises `UsageError`."""
        ...

    async def written(self) -> None:
        """All that was written so far is durable. Raises what the store raised."""
        ...


#: That of the attempt which runs here.
outlet: ContextVar[Outlet | None] = ContextVar("perdure_outlet", default=None)


class StreamWriter:
    """The end of a stream that is written to: see `stream`."""

    __slots__ = ("_what", "_write", "_written", "name")

    def __init__(
        self, name: str, what: str, write: Callable[[str, bytes], None], written: Callable[[], Awaitable[None]] | None
    ) -> None:
        self.name = name
        self._what = what
        self._write = write
        self._written = written

    def write(self, value: Any) -> None:
        """Put a value at the end of the stream: any that can be stored, up to 256 KiB.

        In a step it is on its way at once, and durable before the step's result is recorded; a retry writes anew. In a body it
        is written with the turn, once. Raises `InvalidValue`, `ValueTooLarge`; `UsageError` after the step's end.
        """
        data = values.encode(value, what=f"a value for stream {self.name!r} of {self._what}", limit=MOST_CHUNK)
        self._write(self.name, data)

    async def flush(self) -> None:
        """In a step: wait until all that it wrote is durable, for one that writes faster than the store. In a body: nothing."""
        if self._written is not None:
            await self._written()


def stream(name: str) -> StreamWriter:
    """A stream of the run whose step, or body, is running here. `run.stream(name)` reads it, from anywhere, while it grows.

    Raises `UsageError` outside of both, and `InvalidId` for what is no name.
    """
    instance = current()
    if instance is not None:
        return body_writer(instance, name)
    check_name(name, "a stream's name")
    here = outlet.get()
    if here is None:
        raise UsageError("perdure.stream() only works inside a step that a workflow runs, or in the workflow itself")
    return StreamWriter(name, "a step", here.write, here.written)


def body_writer(instance: Instance, name: str) -> StreamWriter:
    """A stream, for the body of its run."""
    check_name(name, "a stream's name")

    def write(stream: str, payload: bytes) -> None:
        inside(instance).write(stream, payload)

    return StreamWriter(name, instance.describe(), write, None)


class Streaming(Seat):
    """The part of the context that writes to streams."""

    __slots__ = ()

    def stream(self, name: str) -> StreamWriter:
        """A stream of this run, to be written to from its body. (Steps use `perdure.stream`.) Each write is in the history:
        write much from a step."""
        return body_writer(self._inside(), name)
