"""Singletons and queues, as authors declare and use them: how many runs or steps may go on at once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final, Literal, TypedDict

import msgspec

from perdure.model.durations import positive_micros
from perdure.model.errors import InvalidArguments, UsageError
from perdure.model.gates import Ask, Rules
from perdure.model.ids import check_name
from perdure.model.shown import shown, told

Order = Literal["fifo", "lifo"]
Fairness = Literal["key"]

#: What the gates of singletons are called: this and the workflow's name. No queue is called so.
SINGLETON: Final = "singleton:"


class QueueUse(msgspec.Struct, frozen=True, kw_only=True):
    """The queue that a step goes through."""

    name: str
    key: str | None = None
    priority: int = 0

    def ask(self, rules: Rules, seq: int, run_id: str) -> Ask:
        """What its operation `seq` asks for. The fairness key is the run's id unless one is given."""
        return Ask(seq=seq, name=self.name, rules=rules, priority=self.priority, fairness=self.key or run_id)


class QueueOptions(TypedDict, total=False):
    """Of `@step` and `.using`."""

    #: The queue that each call goes through; None: none.
    queue: str | None
    #: The key by which a fair queue takes turns; None: the run's id.
    queue_key: str | None
    #: Greater first.
    priority: int


@dataclass(frozen=True)
class Singleton:
    """At most `limit` runs of a workflow go on at once, of each `key`; the others wait in line, first in, first out.

    `key`: a text, or a function of the workflow's input that gives one (or a whole number); without it, there is one line for
    the whole workflow. With `max_queue_depth`, a start that finds so many in line raises `QueueFull`. Raises `UsageError`.
    """

    key: str | Callable[..., object] | None = None
    limit: int = 1
    max_queue_depth: int | None = None

    def __post_init__(self) -> None:
        if isinstance(self.key, str):
            check_name(self.key, "a singleton's key")
        elif self.key is not None and not callable(self.key):
            raise UsageError(f"a singleton's key is a text or a function of the input, not {shown(self.key)}")
        whole(self.limit, "limit", 1)
        if self.max_queue_depth is not None:
            whole(self.max_queue_depth, "max_queue_depth", 0)

    def key_of(self, owner: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
        """The key of a run with this input. Raises `InvalidArguments` for what its function raises, and `InvalidId`."""
        if self.key is None:
            return owner
        if isinstance(self.key, str):
            return self.key
        try:
            key = self.key(*args, **kwargs)
        except Exception as error:  # It is the user's: it may raise anything.
            raise InvalidArguments(f"the singleton key of {owner} cannot be made: {told(error)}") from error
        if isinstance(key, int) and not isinstance(key, bool):
            key = str(key)
        return check_name(key, f"the singleton key of {owner}")

    def rules(self, stamp: int) -> Rules:
        return Rules(limit=self.limit, depth=self.max_queue_depth, lasting=False, stamp=stamp)


def queue_rules(
    name: object,
    concurrency: object,
    rate: object,
    order: object,
    fairness: object,
) -> Rules:
    """What a queue lets through. Raises `UsageError` naming what is wrong."""
    owner = f"queue {queue_name(name)!r}"
    limit = None if concurrency is None else whole(concurrency, f"concurrency of {owner}", 1)
    if order not in ("fifo", "lifo"):
        raise UsageError(f'order of {owner} must be "fifo" or "lifo", not {shown(order)}')
    if fairness not in (None, "key"):
        raise UsageError(f'fairness of {owner} must be "key" or None, not {shown(fairness)}')
    count, window = _rate(rate, owner)
    return Rules(
        limit=limit,
        rate=count,
        window=window,
        lifo=order == "lifo",
        fair=fairness == "key",
    )


def queue_name(name: object) -> str:
    """The name itself. Raises `InvalidId`, and `UsageError` for one that is not for queues."""
    checked = check_name(name, "a queue's name")
    if checked.startswith(SINGLETON):
        raise UsageError(
            f"a queue cannot be called {checked!r}: names that begin with {SINGLETON!r} are for singletons"
        )
    return checked


def _rate(rate: object, owner: str) -> tuple[int | None, int]:
    if rate is None:
        return None, 0
    pair: Any = rate
    if not isinstance(rate, tuple) or len(pair) != 2 or not isinstance(pair[1], int | float | timedelta):
        raise UsageError(f"rate of {owner} is a number and a time, like (100, timedelta(minutes=1)), not {shown(pair)}")
    return whole(pair[0], f"the rate of {owner}", 1), positive_micros(pair[1], f"the rate's time of {owner}")


def whole(value: object, what: str, least: int) -> int:
    """The number itself. Raises `UsageError`."""
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value < 2**31:
        raise UsageError(f"{what} must be a whole number of at least {least}, not {shown(value)}")
    return value


def step_queue(use: QueueUse | None, options: dict[str, Any], owner: str) -> QueueUse | None:
    """`use` with the queue options among `options`, which are taken out of it. Raises `UsageError` naming `owner`."""
    given = {name: options.pop(name) for name in QueueOptions.__annotations__ if name in options}
    if not given:
        return use
    try:
        name = given.get("queue", None if use is None else use.name)
        if name is None:
            if any(value is not None for value in given.values()):
                raise UsageError("queue_key and priority are for a step in a queue; give it queue=... too")
            return None
        changed = use or QueueUse(name="")
        key = given.get("queue_key", changed.key)
        priority = given.get("priority", changed.priority)
        if isinstance(priority, bool) or not isinstance(priority, int):
            raise UsageError(f"priority must be a whole number, not {shown(priority)}")
        return QueueUse(
            name=queue_name(name),
            key=None if key is None else check_name(key, "a queue key"),
            priority=max(-1000, min(priority, 1000)),
        )
    except UsageError as error:
        raise type(error)(f"{owner}: {error}") from error
