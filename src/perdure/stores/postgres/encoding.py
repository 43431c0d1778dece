"""Writes as the batch functions take them: each as JSON, and what they touch, so that it can be locked in order."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from perdure.model.attributes import searchable
from perdure.model.bounds import out_of_bounds
from perdure.model.commit import Append, Cancel, Configure, Create, Delete, Requeue, Send, Steer, TurnCommit, Write
from perdure.model.endings import cancelled_failure, start_failure
from perdure.model.events import Publish, line
from perdure.model.failure import encode_failure
from perdure.model.messages import Outgoing
from perdure.model.run import DEFAULT_NAMESPACE, TERMINAL, NewRun, Status

_INT_MAX: Final = 2**63 - 1

_KINDS: Final[dict[type, str]] = {
    TurnCommit: "turn",
    Create: "create",
    Send: "send",
    Publish: "publish",
    Append: "append",
    Cancel: "cancel",
    Requeue: "requeue",
    Steer: "steer",
    Delete: "delete",
    Configure: "configure",
}
_CANCELLED: Final = encode_failure(cancelled_failure())
_FELLING: Final = (Status.CANCELLED, Status.DEAD)

_encode = msgspec.json.Encoder().encode


class Unfit(Exception):
    """A write that is `Unstorable` whatever the store holds."""


class Touched:
    """What a batch touches: the parameters of the SQL function `lock_1`, in order."""

    def __init__(self) -> None:
        self.mine: list[int] = []
        self.ending: list[int] = []
        self.felling: list[int] = []
        self.ids: list[str] = []
        self.felled: list[str] = []
        self.spaces: list[str] = []
        self.tokens: list[str] = []
        self.waiting: list[int] = []
        self.awaited: list[str] = []
        self.events: list[tuple[str, str, tuple[str, ...]]] = []

    def parameters(self) -> tuple[Any, ...]:
        return (
            self.mine,
            self.ending,
            self.felling,
            self.ids,
            self.felled,
            self.spaces,
            self.tokens,
            self.waiting,
            self.awaited,
            _encode(self.events).decode(),
        )

    def add(self, write: Write) -> None:
        match write:
            case TurnCommit():
                self._turn(write, None)
            case Create():
                self.ids.append(write.run.id)
                self._new(write.run)
                if write.turn is not None:
                    self._turn(write.turn, write.run)
                for message in write.messages:
                    self._message(message)
            case Send():
                self._message(write.message)
            case Publish():
                self.events.append((write.namespace, line(write.name), write.facets))
                self.ids += [feed.run.id for feed in write.feeds]
            case Append():
                self.mine.append(write.run.incarnation)
            case Requeue() | Steer():
                self.ids.append(write.run_id)
            case Cancel() | Delete():
                self.felled.append(write.run_id)
            case Configure():
                self._gate(write.namespace or DEFAULT_NAMESPACE, write.name, "")

    def _turn(self, turn: TurnCommit, new: NewRun | None) -> None:
        run = turn.run.incarnation
        if new is None:
            self.mine.append(run)
            if turn.status in TERMINAL or turn.unwaits or turn.releases:
                self.ending.append(run)
            if turn.status in _FELLING and not turn.spares:
                self.felling.append(run)
        elif new.parent is not None:
            self.mine.append(new.parent.incarnation)
        for token in [*(wait.token for wait in turn.waits), *(line(listen.event) for listen in turn.listens)]:
            if new is None:
                self.waiting.append(run)
                self.awaited.append(token)
            else:
                self.spaces.append(new.namespace)
                self.tokens.append(token)
        for asked in turn.asks:
            if new is None:
                self.waiting.append(run)
                self.awaited.append(_gate_token(asked.name, asked.key))
            else:
                self._gate(new.namespace, asked.name, asked.key)
        for child in turn.children:
            self._new(child.run)
        self.ids += [child.run.id for child in turn.children]
        self.ids += [join.child_id for join in turn.joins]
        self.felled += turn.cancels
        for message in turn.sends:
            self._message(message)

    def _new(self, run: NewRun) -> None:
        if run.gate is not None:
            self._gate(run.namespace, run.gate.name, run.gate.key)

    def _gate(self, namespace: str, name: str, key: str) -> None:
        self.spaces.append(namespace)
        self.tokens.append(_gate_token(name, key))

    def _message(self, message: Outgoing) -> None:
        if message.run_id is not None:
            self.ids.append(message.run_id)
        elif message.token is not None:
            self.spaces.append(message.namespace)
            self.tokens.append(message.token)


def _gate_token(name: str, key: str) -> str:
    """The token whose name is that of the gate, as the SQL function `gate_name_1` has it."""
    return f"\x02{name}\x01{key}"


def encoded(write: Write) -> tuple[bytes, Write]:
    """`[kind, write, aside]` as JSON, and the write as far as it can be stored. Raises `Unfit`.

    A turn or a new run that cannot be stored is answered so only if it would be applied: so it goes without its data.
    """
    if isinstance(write, Append) and (fault := out_of_bounds(write)) is not None:
        raise Unfit(fault)  # whoever holds the run
    aside: dict[str, Any] = {}
    turn = write if isinstance(write, TurnCommit) else write.turn if isinstance(write, Create) else None
    if turn is not None:
        aside = _aside(turn)
    if any(run.attributes for run in _new_runs(write)) or (turn is not None and turn.attributes is not None):
        aside["facets"] = _facets(write, turn)
    try:
        text = _encode((_KINDS[type(write)], write, aside))
        if b"\\u0000" not in text and not _has_blank_id(write):
            return text, write
    except (UnicodeError, OverflowError, ValueError):
        pass
    reason = out_of_bounds(write) or ("a run's id is blank" if _has_blank_id(write) else None)
    if reason is None:
        return _encode((_KINDS[type(write)], write, aside)), write  # the text of an escape, not a NUL
    stripped = _stripped(write, reason)
    return _encode((_KINDS[type(write)], stripped, {"unstorable": reason})), stripped


def _facets(write: Write, turn: TurnCommit | None) -> dict[str, Any]:
    """What runs can be found by: that of a `Create`, a turn's children and successor, and the turn's own run."""
    facets: dict[str, Any] = {}
    if isinstance(write, Create):
        facets["run"] = searchable(write.run.attributes)
    if isinstance(write, Publish):
        facets["starts"] = [searchable(run.attributes) for run in write.starts]
        facets["feeds"] = [searchable(feed.run.attributes) for feed in write.feeds]
    if turn is not None:
        if turn.attributes is not None:
            facets["own"] = searchable(turn.attributes)
        facets["children"] = [searchable(child.run.attributes) for child in turn.children]
        if turn.successor is not None:
            facets["successor"] = searchable(turn.successor.attributes)
    return facets


def _new_runs(write: Write) -> list[NewRun]:
    """All runs that a write may begin."""
    if isinstance(write, Create):
        return [write.run, *(_new_runs(write.turn) if write.turn is not None else ())]
    if isinstance(write, Publish):
        return [*write.starts, *(feed.run for feed in write.feeds)]
    if isinstance(write, TurnCommit):
        return [child.run for child in write.children] + ([] if write.successor is None else [write.successor])
    return []


def _has_blank_id(write: Write) -> bool:
    return any(not run.id.strip() for run in _new_runs(write))


def _stripped(write: Write, reason: str) -> Write:
    """Only what decides whether the write would be applied at all."""
    if isinstance(write, TurnCommit):
        return TurnCommit(
            run=msgspec.structs.replace(write.run, id="", incarnation=_bounded(write.run.incarnation)),
            owner="" if out_of_bounds(write.owner) else write.owner,
            epoch=_bounded(write.epoch),
            n=_bounded(write.n),
            entries=(),
            status=write.status,
            seen=_bounded(write.seen),
            consumed=tuple(map(_bounded, write.consumed)),
            spares=write.spares,
        )
    if isinstance(write, Create) and write.run.id.strip() and not out_of_bounds((write.run.id, write.messages)):
        bare = NewRun(id=write.run.id, workflow="", version="", input=b"", seed=0)
        return Create(run=bare, messages=write.messages)
    raise Unfit(reason)


def _bounded(number: int) -> int:
    return number if -_INT_MAX <= number <= _INT_MAX else -1


def _aside(turn: TurnCommit) -> dict[str, Any]:
    """What a turn's commit needs worked out beforehand: what a parent hears of children that there are not, and so on."""
    aside: dict[str, Any] = {}
    children = [child.run.id for child in turn.children] + [join.child_id for join in turn.joins]
    if children:
        aside["excuses"] = {
            child: {
                "taken": encode_failure(start_failure(child, taken=True)),
                "missing": encode_failure(start_failure(child, taken=False)),
            }
            for child in children
        }
    if turn.cancels:
        aside["cancelled"] = _CANCELLED
    return aside
