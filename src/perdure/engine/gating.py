"""Gates, as the engine meets them: steps that wait for a slot, runs that have to pass before their body begins.

A grant is a message to the run's inbox. A run that is parked is due by it, like by any message; one that is held here is told
by whoever gave the slot back, if that was here too, else by the renewal of its lease.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence

from msgspec.structs import replace

from perdure.core.turn import Turn
from perdure.engine.committer import Outcome
from perdure.engine.held import Held
from perdure.engine.holdings import Holdings
from perdure.engine.means import Means
from perdure.engine.nudges import Nudges
from perdure.model.commit import Applied, Moved, TurnCommit
from perdure.model.gates import WHOLE_RUN, Ask
from perdure.model.messages import Message, MessageKind
from perdure.model.run import TERMINAL, Status
from perdure.ports.store import Claimed

log = logging.getLogger("perdure.engine")


class Gating:
    """Event loop only. `look(now)` has due runs looked for, and (with `now` False) asks when the next one will be due."""

    def __init__(self, means: Means, holdings: Holdings, nudges: Nudges) -> None:
        self._means = means
        self._holdings = holdings
        self._nudges = nudges
        self.look: Callable[[bool], None] = lambda now: None
        #: Runs held here, of which steps may wait while others run.
        self._waiting: set[int] = set()

    def committed(self, held: Held, commit: TurnCommit) -> None:
        """A turn became durable: those that it gave slots back to go on, and it itself with what it was granted."""
        if commit.asks and commit.status is Status.RUNNING:
            self._waiting.add(held.key.incarnation)
            self._nudges.run(held.key.incarnation)
        if commit.releases or (commit.status in TERMINAL and passes_gates(held)):
            self.moved()
        elif commit.asks:
            self.look(not any(asked.rules.rate is not None for asked in commit.asks))

    def moved(self) -> None:
        """Slots were given back, or there are more of them: whoever was admitted hears of it."""
        for incarnation in list(self._waiting):
            held = self._holdings.get(incarnation)
            if held is None or not any(operation.waits for operation in held.instance.steps.values()):
                self._waiting.discard(incarnation)
            else:
                self._nudges.run(incarnation)
        self.look(False)


def passes_gates(held: Held) -> bool:
    """Whether a run may hold slots of gates."""
    return held.instance.inbox.gated or held.instance.run.gate is not None


def admitted(messages: Sequence[Message]) -> bool:
    """Whether a run, by its unread messages, has passed its gate as a whole."""
    return any(each.kind is MessageKind.GRANT and each.name == str(WHOLE_RUN) for each in messages)


def take_grants(held: Held) -> None:
    """Have a body that has not begun know of the grants that came first: they need no turn of their own."""
    inbox = held.instance.inbox
    while held.arrivals and isinstance(first := held.arrivals[0], Message):
        if first.kind is not MessageKind.GRANT or first.number != inbox.seen + 1:
            return
        inbox.seen = first.number
        held.arrivals.pop(0)


class Entrance:
    """Where claimed runs that have to pass a gate ask for it. Event loop only.

    `submit` has a commit written; `rest` lets go of a run that waits in line; `lost` is told what the answer was where it can
    do neither; `give_back` returns a claim.
    """

    def __init__(
        self,
        means: Means,
        submit: Callable[[Held, Turn, TurnCommit, Callable[[Held, Outcome], None]], None],
        rest: Callable[[Held], None],
        lost: Callable[[Held, Outcome], None],
        give_back: Callable[[Sequence[Claimed]], Awaitable[None]],
    ) -> None:
        self._means = means
        self._submit = submit
        self._rest = rest
        self._lost = lost
        self._give_back = give_back
        self._tasks: set[asyncio.Future[None]] = set()

    def ask(self, held: Held, claimed: Claimed, gate: Ask, enter: Callable[[Held, Claimed], None]) -> None:
        """Ask, and either go on (`enter`) or wait in line."""
        seen = max((each.number for each in claimed.messages), default=claimed.run.seen)
        commit = TurnCommit(
            run=held.key,
            owner=self._means.owner,
            epoch=held.epoch,
            n=held.n,
            entries=(),
            status=Status.SUSPENDED,
            listening=True,
            seen=max(seen, claimed.run.seen),
            asks=(gate,),
            progress=False,
        )

        def answered(held: Held, answer: Outcome) -> None:
            if isinstance(answer, Moved):
                self._moved(held, claimed, gate, answer, enter)
            elif isinstance(answer, Applied):
                self._rest(held)
            else:
                self._lost(held, answer)

        self._submit(held, Turn(), commit, answered)

    def _moved(
        self, held: Held, claimed: Claimed, gate: Ask, answer: Moved, enter: Callable[[Held, Claimed], None]
    ) -> None:
        if not answer.messages:  # the answer was lost, and with it what they were
            self._rest(held)
            task = asyncio.ensure_future(self._give_back([claimed]))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
            return
        known = {each.number for each in claimed.messages}
        fresh = tuple(each for each in answer.messages if each.number not in known)
        claimed = replace(claimed, messages=(*claimed.messages, *fresh))
        there = {each.number for each in held.arrivals if isinstance(each, Message)}
        held.arrivals.extend(each for each in fresh if each.number not in there)
        if not admitted(claimed.messages):  # something else came
            self.ask(held, claimed, gate, enter)
            return
        timeout = claimed.run.timeout
        held.deadline = None if timeout is None else self._means.store.now() + timeout
        enter(held, claimed)
