"""Messages: how the world reaches a run. Every message has an id that deduplicates, also after it was consumed."""

from __future__ import annotations

from enum import StrEnum

from msgspec import Struct


class MessageKind(StrEnum):
    SIGNAL = "signal"  # by name to a run, or by token to whoever waits for it
    CHILD = "child"  # a child run ended (or could not start)
    CANCEL = "cancel"  # control: deliver a cancel to the body
    GRANT = "grant"  # from a gate: the operation whose position is `name` may begin; unread until it is over


#: A run may not end or continue while one of these is unread: the turn is refused and must deliver it first.
CONTROL = frozenset({MessageKind.CANCEL})


class Message(Struct, frozen=True, gc=False):
    """A message as it lies in a run's inbox."""

    #: Position in the inbox, 1-based: the store's inbox counter after it was put there.
    number: int
    kind: MessageKind
    #: A signal's name, the id of the child that ended, or the position of what may begin. Empty for a signal sent by token.
    name: str
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
