"""A handle on one run: what a caller can do with it from anywhere."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar, overload

from perdure.engine.cancelling import cancel
from perdure.engine.operated import Operated
from perdure.engine.reading import Stream, decoder
from perdure.engine.sending import outgoing_signal, send
from perdure.model import values
from perdure.model.attributes import plain
from perdure.model.commit import Changed, Delete
from perdure.model.endings import cancelled_failure
from perdure.model.errors import UsageError
from perdure.model.failure import encode_failure
from perdure.model.history import Entry
from perdure.model.ids import check_name
from perdure.model.run import Status
from perdure.model.shown import shown
from perdure.model.steps import Step, fold

R = TypeVar("R")
T = TypeVar("T")


class RunHandle(Operated[R]):
    """A run by its id. Made by `app.start` and `app.get_run`; any number may exist of one run, in any process."""

    __slots__ = ()

    # -- acting -------------------------------------------------------------------------------------------------------

    async def signal(self, name: str, payload: Any = None, *, id: str | None = None, connection: Any = None) -> None:
        """Send a signal. Returns once it is durable; it is kept until the run waits for it.

        The same `id` again is delivered once. With `connection`, it is sent within the transaction that is open there (see
        `app.start`). Raises `RunNotFound`, `RunEnded`, `InvalidValue`.
        """
        message = outgoing_signal(name, payload, run_id=self.id, incarnation=self._incarnation(), dedup=id)
        await send(self._engine, message, connection)

    async def cancel(self, reason: str = "cancelled", *, compensate: bool = False) -> Status:
        """Stop the run and everything below it, for good: its body never runs again. Returns how it stands then.

        With `compensate` the body is told: `asyncio.CancelledError` is raised where it waits, once, and it may clean up, with
        steps too. Then the undos of its completed steps run, and it ends as cancelled. The call returns as soon as that is
        durably asked for; `result()` waits for the end. A run that has not begun ends when it is next looked at, a blocked one
        when it goes on. An ended run stays as it is. Raises `RunNotFound`.
        """
        undo = check_flag(compensate, "compensate")
        return await cancel(self._engine, self.id, self._incarnation(), check_reason(reason), undo=undo)

    async def delete(self) -> int:
        """Remove the run and everything below it, without a trace. Live ones are cancelled first. Returns how many."""
        error = encode_failure(cancelled_failure("deleted"))
        answer = await self._engine.ask(Delete(self.id, error, self._incarnation()))
        return len(answer.runs) if isinstance(answer, Changed) else 0

    # -- reading ------------------------------------------------------------------------------------------------------

    async def value(self, key: str, type: Any = Any, *, default: Any = None) -> Any:
        """The newest value that the body published under `key` with `ctx.set_value`; `default` if there is none."""
        check_name(key, "a value's key")
        run = await self.info()
        data = await self._engine.reads.value(run.key, key)
        return default if data is None else values.decode(data, type, what=f"value {key!r} of run {self.id!r}")

    async def attributes(self) -> dict[str, Any]:
        """The run's attributes now: those it was started with, and what its body put over them."""
        return plain((await self.info()).attributes)

    @overload
    def stream(self, name: str, *, type: type[T], after: int = ...) -> Stream[T]: ...
    @overload
    def stream(self, name: str, *, type: Any = ..., after: int = ...) -> Stream[Any]: ...
    def stream(self, name: str, *, type: Any = Any, after: int = 0) -> Stream[Any]:
        """What the run writes to a stream, in order, from any process: what is there already, then what comes, until its end.

        `async for chunk in run.stream("tokens", type=str): ...`. `after`: the `offset` of the last chunk that you have.
        """
        check_name(name, "a stream's name")
        if isinstance(after, bool) or not isinstance(after, int) or not 0 <= after < 2**63:
            raise UsageError(f"after must be the offset of a chunk, or 0 for all, not {shown(after)}")

        return Stream(name, lambda: self._engine, self._identify, self._following, decoder(name, self.id, type), after)

    async def history(self) -> Sequence[Entry]:
        """The run's history, oldest first."""
        run = await self.info()
        return await self._engine.reads.history(run.key)

    async def steps(self) -> Sequence[Step]:
        """The history folded into one row for each operation, in the order in which they were issued."""
        return fold(await self.history())


#: Characters of the reason of a cancel.
_LONGEST_REASON = 10_000


def check_flag(value: object, name: str) -> bool:
    """Raise `UsageError` for what is neither True nor False: a text that says "false" would be true."""
    if not isinstance(value, bool):
        raise UsageError(f"{name} must be True or False, not {shown(value)}")
    return value


def check_reason(reason: object) -> str:
    if not isinstance(reason, str) or len(reason) > _LONGEST_REASON:
        raise UsageError(
            f"the reason of a cancel must be a text of at most {_LONGEST_REASON} characters, not {shown(reason)}"
        )
    return reason.encode(errors="backslashreplace").decode()


__all__ = ["RunHandle", "check_flag", "check_reason"]
