"""Updates, seen from the body that takes them: an argument, and a way to answer."""

from __future__ import annotations

from typing import Any, Generic, TypeVar

from perdure.authoring.issuing import inside
from perdure.core.instance import Instance
from perdure.model import values
from perdure.model.errors import UsageError
from perdure.model.failure import capture, encode_failure
from perdure.model.shown import shown
from perdure.model.updates import answer_key, encode_answer, encode_error, encode_rejection

T = TypeVar("T")


class Update(Generic[T]):
    """An update that the body has taken. Answer it once: whoever sent it may be waiting for that."""

    __slots__ = ("_instance", "_open", "_reply", "arg", "id", "name")

    def __init__(
        self, instance: Instance, open: dict[str, Update[Any]], name: str, id: str, arg: T, reply: str | None
    ) -> None:
        self._instance = instance
        self._reply = reply
        #: Of this body, by id: those that were taken and not answered.
        self._open = open
        self.name = name
        #: What it is known by: the sender's, or one made for it.
        self.id = id
        #: What the sender gave.
        self.arg = arg
        open[id] = self

    def __repr__(self) -> str:
        return f"<update {self.name!r} ({self.id})>"

    def answer(self, value: Any = None) -> None:
        """Tell the sender; it hears of it when this turn is durable. Raises `InvalidValue`, and `UsageError` if it was told."""
        data = values.encode(value, what=f"the answer to update {self.name!r} of {self._instance.describe()}")
        self.tell(encode_answer(data))

    def reject(self, reason: str) -> None:
        """Tell the sender that nothing came of it, and why."""
        if not isinstance(reason, str):
            raise UsageError(f"the reason to reject update {self.name!r} must be a text, not {shown(reason)}")
        self.tell(encode_rejection(reason.encode(errors="backslashreplace").decode()))

    def fail(self, error: Exception) -> None:
        """Tell the sender that it went wrong: this error is raised where the answer is waited for."""
        if not isinstance(error, Exception):
            raise UsageError(f"update {self.name!r} fails with an exception, not {shown(error)}")
        self.tell(encode_error(encode_failure(capture(error))))

    def tell(self, data: bytes) -> None:
        """As `answer`, `reject` and `fail`, with what `perdure.model.updates` made of it."""
        instance = inside(self._instance)
        if self._open.pop(self.id, None) is not self:
            raise UsageError(f"update {self.name!r} ({self.id}) of {instance.describe()} was answered before")
        if self._reply is None:
            instance.set_value(answer_key(self.id), data)
        else:
            instance.send(self._reply, data)
