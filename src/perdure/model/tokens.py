"""The tokens that Perdure gives out itself, by what they are for. All others are users' own."""

from __future__ import annotations

import base64
import binascii
from typing import Final, Literal, TypeAlias

from msgspec import Struct

#: What a wait is for, in the words that people are shown.
What: TypeAlias = Literal["webhook", "child", "breakpoint", "event", "task", "reply", "token"]

_HOOK: Final = "wh"
_BREAK: Final = "bp"
_TASK: Final = "task"
_POINTS: Final[dict[str, What]] = {_HOOK: "webhook", _BREAK: "breakpoint", _TASK: "task", "reply": "reply"}


class Shown(Struct, frozen=True):
    """A token as people are shown it."""

    what: What
    name: str


def webhook_token(run_id: str, seq: int) -> str:
    """Of the webhook that was minted at position `seq`."""
    return f"{_HOOK}:{run_id}:{seq}"


def breakpoint_token(run_id: str, seq: int) -> str:
    """Of the breakpoint at position `seq`."""
    return f"{_BREAK}:{run_id}:{seq}"


def task_token(run_id: str, seq: int) -> str:
    """Of the external task that was asked for at position `seq`."""
    return f"{_TASK}:{run_id}:{seq}"


def reply_token(run_id: str, seq: int) -> str:
    """Of the answer that is waited for at position `seq`."""
    return f"reply:{run_id}:{seq}"


def hooked_run(token: str) -> str | None:
    """The run that a webhook's token belongs to; None if it is another token."""
    kind, _, rest = token.partition(":")
    run_id, _, seq = rest.rpartition(":")
    return run_id if kind == _HOOK and run_id and seq.isdigit() else None


def shown_token(token: str) -> Shown:
    """What a token is for: `wh:...`, `bp:...`, `task:...`, `child:<id>`, `event:<base64 of its name>:...`, or a user's own."""
    kind, colon, rest = token.partition(":")
    if kind in _POINTS and colon:
        return Shown(_POINTS[kind], token)
    if kind == "child" and colon:
        return Shown("child", rest)
    if kind == "event" and colon:
        name = rest.partition(":")[0]
        try:
            return Shown("event", base64.b64decode(name + "=" * (-len(name) % 4), b"-_", validate=True).decode())
        except (binascii.Error, ValueError):
            pass
    return Shown("token", token)
