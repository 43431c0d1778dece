"""The context: what a workflow body asks Perdure for, besides plain asyncio."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any, NoReturn
from uuid import UUID

import msgspec

from perdure.authoring.answering import Answering
from perdure.authoring.children import ChildHandle, derived_seed
from perdure.authoring.hooks import Hooking
from perdure.authoring.issuing import bound
from perdure.authoring.launching import Launching
from perdure.authoring.options import attributes_json
from perdure.authoring.stream import Streaming
from perdure.authoring.transacting import Transacting
from perdure.authoring.waiting import Waiting
from perdure.model import values
from perdure.model.carrier import decode_carrier, traceparent
from perdure.model.ids import check_name, next_link

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Context(Hooking, Transacting, Waiting, Streaming, Launching, Answering):
    """One workflow run, seen from inside its body. Not usable in steps, nor after the body has ended."""

    __slots__ = ()

    @property
    def carrier(self) -> Mapping[str, str]:
        """What goes with the run from whoever started it: see `app.carry`."""
        return decode_carrier(self._instance.run.carrier)

    @property
    def traceparent(self) -> str | None:
        """The trace that the run belongs to (W3C), if it was given one."""
        return traceparent(self.carrier)

    @property
    def random(self) -> Random:
        """A generator that gives the same numbers in every replay. Not for secrets."""
        return self._inside().random

    def now(self) -> datetime:
        """The run's own time: moves only when something is waited for, and is the same in every replay. Aware, UTC."""
        return _EPOCH + timedelta(microseconds=self._instance.now)

    def uuid4(self) -> UUID:
        """A random UUID that is the same in every replay. Not for secrets."""
        return UUID(int=self._inside().random.getrandbits(128), version=4)

    def patched(self, id: str) -> bool:
        """True in runs that take the new path of a change: new ones, and those that have not come to it yet."""
        return self._inside().patched(check_name(id, "a patch id"))

    def set_value(self, key: str, value: Any) -> None:
        """Publish a value that `run.value(key)` reads from anywhere, once the turn is committed. The newest wins."""
        check_name(key, "a value's key")
        instance = self._inside()
        instance.set_value(key, values.encode(value, what=f"value {key!r} of {instance.describe()}"))

    def upsert_attributes(self, attributes: Mapping[str, Any]) -> None:
        """Put these over the run's attributes, name by name: others stay. It is found by them once the turn is committed.

        Texts, numbers, booleans and None can be searched for; any JSON can be stored. Raises `UsageError`, `InvalidValue`.
        """
        self._inside().put_attributes(attributes_json(attributes))

    def continue_as_new(self, *inputs: Any, **fields: Any) -> NoReturn:
        """End this run and go on as another with a fresh history (`<id>~1`, `~2`, ...) and this input. Never returns.

        The next run keeps the version, namespace, tags, priority, attributes, and the parent that waits. Signals and updates
        that were not read yet go over to it. Updates that were taken and not answered are rejected: nobody can answer them
        any more.
        """
        instance = self._inside()
        run = instance.run
        self._leave_updates()
        successor = msgspec.structs.replace(
            run,
            id=next_link(run.id),
            input=bound(instance, lambda: self._definition.encode_input(inputs, fields)),
            seed=derived_seed(run.seed, instance.reserve()),
            start_at=None,
        )
        instance.continue_as_new(successor)


__all__ = ["ChildHandle", "Context"]
