"""What the context offers for being asked: queries, which read, and updates, which are answered."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from datetime import timedelta
from typing import Any, TypeVar, overload

from perdure.authoring.issuing import inside
from perdure.authoring.queries import Query
from perdure.authoring.seat import Seat
from perdure.authoring.updates import Update
from perdure.core.instance import Instance
from perdure.model import values
from perdure.model.durations import unsigned_micros
from perdure.model.errors import InvalidValue
from perdure.model.ids import check_name
from perdure.model.updates import Asked, decode_asked

T = TypeVar("T")


class Answering(Seat):
    """The part of the context that answers."""

    __slots__ = ()

    def on_query(self, name: str, fn: Callable[..., Any]) -> None:
        """Let `fn` answer `run.query(name, ...)`: a plain function that reads the body's state, and changes nothing.

        It is called whenever somebody asks, also long after the body has ended, in any process that has the code, on the state
        as it was last recorded. What it takes and returns passes through its type hints. The same name again replaces it.
        """
        query = Query(name, fn, self._inside().describe())
        if self._queries is None:
            self._queries = {}
        self._queries[name] = query

    @property
    def queries(self) -> dict[str, Query]:
        """Those that can be asked, by name."""
        return self._queries or {}

    @overload
    async def wait_for_update(
        self, name: str, *, type: type[T], timeout: float | timedelta | None = ...
    ) -> Update[T]: ...
    @overload
    async def wait_for_update(
        self, name: str, *, type: Any = ..., timeout: float | timedelta | None = ...
    ) -> Update[Any]: ...
    def wait_for_update(
        self, name: str, *, type: Any = Any, timeout: float | timedelta | None = None
    ) -> Coroutine[Any, Any, Update[Any]]:
        """Wait for an update that somebody sends with `run.update(name, arg)`. Answer what comes.

        Updates that came before are waiting already, first in first out. One whose argument does not fit `type` is rejected,
        and the wait goes on. `timeout` (seconds or `timedelta`) raises `SignalTimeout`; with 0, only what is there already is
        taken.
        """
        check_name(name, "an update's name")
        values.check_hint(type, f"the argument of update {name!r}")
        limit = None if timeout is None else unsigned_micros(timeout, "timeout")
        if self._updates is None:
            self._updates = {}
        return _fitting(self._inside(), self._updates, name, type, limit)

    def _leave_updates(self) -> None:
        """The body goes on as another link: what it took along with it cannot be answered any more."""
        for update in list((self._updates or {}).values()):
            update.reject("the workflow went on without answering")


async def _fitting(
    instance: Instance, open: dict[str, Update[Any]], name: str, type: Any, limit: int | None
) -> Update[Any]:
    due = None if limit is None else instance.now + limit
    while True:
        asked: Asked = await inside(instance).update(name, due=due, decode=decode_asked)
        try:
            arg = values.decode(
                bytes(asked.arg), type, what=f"the argument of update {name!r} of {instance.describe()}"
            )
        except InvalidValue as error:
            Update(instance, open, name, asked.id, None, asked.reply).reject(str(error))
        else:
            return Update(instance, open, name, asked.id, arg, asked.reply)
