"""A run that this process holds: its instance in memory, what has arrived for it, and what runs for it."""

from __future__ import annotations

from typing import Any, Protocol

from perdure.authoring.workflow import WorkflowDefinition
from perdure.core.instance import Instance
from perdure.core.issuing import NO_SEQ
from perdure.core.settle import Standing
from perdure.core.turn import Arrival, Turn
from perdure.model.commit import TurnCommit
from perdure.model.history import Entry
from perdure.model.messages import Message
from perdure.model.run import RunKey
from perdure.ports.clock import Alarm


class Stoppable(Protocol):
    """A step in flight."""

    def cancel(self) -> object: ...


class StandIn:
    """Stands among a run's tasks for a step that has none: it must not be started (again)."""

    def cancel(self) -> None:
        """Nothing runs."""


#: The step waits for room among the steps that run at once. Whoever starts it looks whether this still stands here.
QUEUED = StandIn()
#: Its last attempt is over, and its result is on the way into a turn.
REPORTED = StandIn()


class Held:
    """Mutable, event loop only. At most one commit of a run is in flight; what arrives meanwhile goes into the next turn."""

    __slots__ = (
        "alarm",
        "arrivals",
        "attempts",
        "commit",
        "deadline",
        "definition",
        "epoch",
        "gone",
        "instance",
        "key",
        "n",
        "scheduled",
        "taken",
        "tasks",
        "turn",
        "until",
        "unwaited",
    )

    def __init__(
        self,
        key: RunKey,
        definition: WorkflowDefinition[Any, Any],
        instance: Instance,
        epoch: int,
        n: int,
        deadline: int | None,
    ) -> None:
        self.key = key
        self.definition = definition
        self.instance = instance
        self.epoch = epoch
        self.n = n
        self.deadline = deadline
        #: The lease holds at least until then.
        self.until = 0
        #: Results and messages for the next turn, and what there is to record about steps' attempts.
        self.arrivals: list[Arrival] = []
        self.attempts: list[Entry] = []
        #: The commit in flight, its turn, and the arrivals that went into it.
        self.commit: TurnCommit | None = None
        self.turn: Turn | None = None
        self.taken: list[Arrival] = []
        #: How many commits have ended waits for tokens: messages read before such a one may have gone back to their token.
        self.unwaited = 0
        #: True while a drive is queued on the loop.
        self.scheduled = False
        #: True once the run is not ours any more: whatever still comes for it is dropped.
        self.gone = False
        #: Steps in flight, by position. (At `NO_SEQ`: the run is being replayed.)
        self.tasks: dict[int, Stoppable] = {}
        self.alarm: Alarm | None = None

    def standing(self, owner: str, block: bool) -> Standing:
        """What the next commit is fenced and bounded by."""
        return Standing(self.key, owner, self.epoch, self.n, self.deadline, self.definition.fingerprint, block)

    def waits_for_steps(self) -> bool:
        """True if nothing but steps in flight keeps it here."""
        return (
            bool(self.tasks)
            and NO_SEQ not in self.tasks
            and not (self.commit or self.scheduled or self.arrivals or self.attempts)
        )

    def at_rest(self) -> bool:
        """True if its instance stands where its last commit left it: no turn is on its way, none was thrown away."""
        return self.commit is None and not self.gone and NO_SEQ not in self.tasks

    def doubt_tokens(self) -> None:
        """A commit ended waits for tokens. What has arrived for them may since have another number, or another run.

        So the inbox is to be read again, from the first of them on: whoever takes a later message in has seen those before it.
        """
        self.unwaited += 1
        first = min((a.number for a in self.arrivals if isinstance(a, Message) and a.token is not None), default=None)
        if first is not None:
            self.arrivals = [a for a in self.arrivals if not isinstance(a, Message) or a.number < first]

    def let_go(self) -> None:
        """Stop everything that runs for it here."""
        self.gone = True
        if self.alarm is not None:
            self.alarm.cancel()
            self.alarm = None
        for task in self.tasks.values():
            task.cancel()
        self.tasks.clear()
