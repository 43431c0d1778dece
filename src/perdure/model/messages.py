"""Messages: how the world reaches a run. Every message has an id that deduplicates, also after it was consumed."""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum

from msgspec import Struct


class MessageKind(StrEnum):
    SIGNAL = "signal"  # by name to a run, or by token to whoever waits for it
    CHILD = "child"  # a child run ended (or could not start)
    EVENT = "event"  # an event that the run waits for: the name is the event's, the token the position of the wait
    CANCEL = "cancel"  # control: deliver a cancel to the body
    UPDATE = "update"  # control: by name to a run, which answers it (see `perdure.model.updates`)
    GRANT = "grant"  # from a gate: the operation whose position is `name` may begin; unread until it is over


def holds_up(kinds: Iterable[MessageKind], *, continues: bool) -> bool:
    """True if a run may not end while messages of these kinds are unread: the turn is refused and must deliver them first.

    One that `continues` as new may leave its updates to the next link. (Under load there is always one more of them.)
    """
    return any(kind is MessageKind.CANCEL or (kind is MessageKind.UPDATE and not continues) for kind in kinds)


class Message(Struct, frozen=True, gc=False):
    """A message as it lies in a run's inbox."""

    #: Position in the inbox, 1-based: the store's inbox counter after it was put there.
    number: int
    kind: MessageKind
    #: A signal's or update's name, the id of the child that ended, or the position of what may begin. Empty for a signal sent
    #: by token.
    name: str
    #: The token that a signal was sent to; of an event, the position (`seq`) of the wait that it was given to.
    token: str | None
    payload: bytes | None
    #: True if `payload` is a failure (a child that did not complete).
    failed: bool
    #: When the store accepted it.
    at: int


class Outgoing(Struct, frozen=True, kw_only=True, gc=False):
    """A message on its way: to a run by id (a continued id follows its chain) or, without one, to a token."""

    kind: MessageKind
    run_id: str | None = None
    #: Only if that run (before its chain is followed) still is this incarnation; None: whatever has the id.
    incarnation: int | None = None
    name: str = ""
    token: str | None = None
    payload: bytes | None = None
    failed: bool = False
    #: Sending the same id to the same run or token twice delivers once. None: a message of its own.
    dedup: str | None = None
    #: The namespace that tokens live in.
    namespace: str = "default"
