"""Which message resolves which operation: first in, first out, on both sides. Pure bookkeeping of one instance."""

from __future__ import annotations

from collections import deque
from typing import Final, TypeAlias

from perdure.core.operation import Operation
from perdure.model.messages import Message, MessageKind

#: What a wait and a message must have in common.
Key: TypeAlias = tuple[str, str]

#: The first halves of keys of waits that the store knows: whoever waits no more gives back what came.
GIVEN_BACK: Final = frozenset({"token", "event"})


def signal_key(name: str) -> Key:
    """Of a signal sent to the run by name."""
    return ("signal", name)


def token_key(token: str) -> Key:
    """Of a signal sent to a token."""
    return ("token", token)


def update_key(name: str) -> Key:
    """Of an update sent to the run by name."""
    return ("update", name)


def event_key(wait: str) -> Key:
    """Of an event that was given to the wait at a position."""
    return ("event", wait)


def child_key(child_id: str) -> Key:
    """Of the end of a child."""
    return ("child", child_id)


def message_key(message: Message) -> Key:
    """The key of the waits that this message resolves."""
    if message.kind is MessageKind.CHILD:
        return child_key(message.name)
    if message.kind is MessageKind.EVENT:
        return event_key(message.token or "")
    if message.token is not None:
        return token_key(message.token)
    if message.kind is MessageKind.UPDATE:
        return update_key(message.name)
    return signal_key(message.name)


class Inbox:
    """Unread messages and the operations that wait for one."""

    __slots__ = ("_unread", "_waits", "gated", "seen")

    def __init__(self) -> None:
        #: The highest message number taken in.
        self.seen = 0
        #: True once there was a step that has to pass a gate.
        self.gated = False
        self._unread: dict[Key, deque[Message]] = {}
        #: Lists: nearly all lines have one in it, and an empty deque takes ten times the memory.
        self._waits: dict[Key, list[Operation]] = {}

    def put(self, message: Message) -> None:
        """Keep a message until a wait takes it.

        One that came to a token, or for a wait, that nobody waits at any more is not for this run: the store gives it back.
        """
        key = message_key(message)
        if message.token is None or key in self._waits:
            self._unread.setdefault(key, deque()).append(message)

    def waiting(self) -> bool:
        """True if a message could resolve an open operation."""
        return bool(self._waits)

    def waits_for(self, key: Key) -> bool:
        """True if an operation waits for this key."""
        return key in self._waits

    def wait(self, operation: Operation) -> bool:
        """Put an operation in line; True if a message lies ready for it."""
        assert operation.key is not None
        self._waits.setdefault(operation.key, []).append(operation)
        return operation.key in self._unread

    def unwait(self, operation: Operation) -> None:
        """The operation waits no longer. Unknown ones are passed over."""
        line = self._waits.get(operation.key) if operation.key is not None else None
        if line is None:
            return
        try:
            line.remove(operation)
        except ValueError:
            return
        if not line and operation.key is not None:
            del self._waits[operation.key]
            if operation.key[0] in GIVEN_BACK:
                self._unread.pop(operation.key, None)

    def match(self, key: Key) -> tuple[Operation, Message, bool] | None:
        """The oldest wait for `key` and the oldest message with it. The wait leaves the line.

        A child's end resolves every wait for that child, so its message stays until the last of them: the third value tells
        whether the message is used up.
        """
        messages = self._unread.get(key)
        line = self._waits.get(key)
        if not messages or not line:
            return None
        operation = line.pop(0)
        if not line:
            del self._waits[key]
        message = messages[0]
        used = message.kind is not MessageKind.CHILD or key not in self._waits
        if used:
            messages.popleft()
            if not messages:
                del self._unread[key]
        return operation, message, used
