"""What a body can wait for or cause: operations. Each takes the next position (`seq`) of its run when it is issued."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from perdure.core.loop import OpFuture, TimerHandle
from perdure.model.failure import Failure
from perdure.model.gates import Ask
from perdure.model.history import Op
from perdure.model.policy import RetryPolicy
from perdure.model.run import NewRun


class Operation:
    """One issued operation of an instance in memory. Mutable: the engine counts a step's attempts here."""

    __slots__ = (
        "attempts",
        "call",
        "child",
        "decode",
        "due",
        "encode",
        "failures",
        "gate",
        "gated",
        "key",
        "name",
        "next_at",
        "op",
        "payload",
        "policy",
        "refusal",
        "seq",
        "serves",
        "since",
        "target",
        "undo",
        "undoes",
        "waits",
    )

    def __init__(self, seq: int, op: Op, name: str, payload: bytes | None = None, due: int | None = None) -> None:
        self.seq = seq
        self.op = op
        self.name = name
        #: As the history has it: a step's input, a value, a child's input.
        self.payload = payload
        #: Microseconds: when a timer fires or a bounded wait gives up.
        self.due = due
        #: Virtual now when it was issued.
        self.since = 0
        #: What resolves it in the body: a future, or a timer's handle. None for operations that resolve never.
        self.target: OpFuture[Any] | TimerHandle | None = None
        #: What turns the recorded result into the value the body sees.
        self.decode: Callable[[bytes], Any] | None = None
        #: Steps: how often to try, and (for closures) what to call; then what the history says of earlier attempts.
        self.policy: RetryPolicy | None = None
        self.call: Callable[[], Any] | None = None
        #: Closures: what gives the stored form of a result; None: the call gives it itself.
        self.encode: Callable[[Any], bytes] | None = None
        #: The registered step that does it, if it is not of the operation's name.
        self.serves: str | None = None
        #: Issues what takes the step's effect back, given its recorded input and output. None: nothing does.
        self.undo: Callable[[bytes | None, bytes], OpFuture[Any]] | None = None
        #: True for what was issued so.
        self.undoes = False
        self.failures = 0
        self.attempts = 0
        self.next_at: int | None = None
        #: Steps of a queue: what to ask its gate for; whether the history says that there is one to be given back; and whether
        #: the step must not begin yet.
        self.gate: Ask | None = None
        self.gated = False
        self.waits = False
        #: Messages that resolve it carry this key (see `inbox`).
        self.key: tuple[str, str] | None = None
        #: Children: what to start, or why it cannot be.
        self.child: NewRun | None = None
        self.refusal: Failure | None = None

    def __repr__(self) -> str:
        return f"<{self.op} {self.name!r} #{self.seq}>"
