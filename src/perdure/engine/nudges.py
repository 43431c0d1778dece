"""Telling a run held here at once that a message was put into its inbox by this process. (Messages from elsewhere come with the
renewal of its lease.)"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence

from perdure.core.inbox import token_key
from perdure.engine.held import Held
from perdure.engine.holdings import Holdings
from perdure.engine.means import Means
from perdure.model.errors import StoreError
from perdure.model.messages import Message
from perdure.ports.store import Held as Claim
from perdure.ports.store import Renewal

log = logging.getLogger("perdure.engine")


class Nudges:
    """Event loop only. `schedule` has the run driven soon; `lost` is told of a run whose lease is gone."""

    def __init__(
        self, means: Means, holdings: Holdings, schedule: Callable[[Held], None], lost: Callable[[Held], None]
    ) -> None:
        self._means = means
        self._holdings = holdings
        self._schedule = schedule
        self._lost = lost
        #: Has all leases renewed soon, which tells of the lost ones.
        self.renew: Callable[[], None] = lambda: None
        #: Has somebody look for due runs: one that was sent a message is not held any more.
        self.missed: Callable[[], None] = lambda: None
        self._nudged: set[int] = set()
        self._task: asyncio.Task[None] | None = None

    @property
    def busy(self) -> bool:
        """True while an inbox is being read."""
        return self._task is not None

    def run(self, incarnation: int) -> None:
        """There may be a new message for this run."""
        if incarnation in self._holdings:
            self._nudged.add(incarnation)
            if self._task is None:
                self._task = self._means.loop.create_task(self._fetch())

    def sure(self, held: Held) -> bool:
        """Whether a step of it may begin. False if its lease may have run out behind our back (the machine slept): then it is
        renewed, and driven once more if it is still ours."""
        if self._means.store.now() < held.until:
            return True
        self.renew()
        return False

    def token(self, token: str) -> None:
        """There may be a new message for whoever waits for this token."""
        for held in self._holdings.all():
            if held.instance.inbox.waits_for(token_key(token)):
                self.run(held.key.incarnation)

    def renewed(self, claims: Sequence[Claim], renewals: Sequence[Renewal], until: int) -> None:
        """What the store said when these claims were renewed: up to `until`. Those that we have by another claim by now do not
        count."""
        for claim, renewal in zip(claims, renewals, strict=True):
            held = self._holdings.get(claim.incarnation)
            if held is None or held.epoch != claim.epoch:
                continue
            if not renewal.lost:
                if not renewal.locked:
                    held.until = until
                if any(message.token is not None for message in renewal.messages):
                    self.run(claim.incarnation)  # as they stand by now, all of them: see `Held.doubt_tokens`
                else:
                    self._deliver(held, renewal.messages)
                if len(held.tasks) != len(held.instance.steps):
                    self._schedule(held)  # perhaps they had to wait for this
            elif held.commit is None:  # else the commit's own answer says it, and what became of the run
                self._lost(held)

    async def _fetch(self) -> None:
        try:
            while self._nudged:
                incarnation = self._nudged.pop()
                before = self._holdings.get(incarnation)
                unwaited = before.unwaited if before is not None else 0
                messages = await self._means.store.messages(incarnation)
                held = self._holdings.get(incarnation)
                if held is not None and held is before and held.unwaited != unwaited:
                    self._nudged.add(incarnation)  # perhaps read before some of them went back to their token
                elif held is not None:
                    self._deliver(held, messages)
                else:
                    self.missed()
        except StoreError as error:
            log.warning("perdure: cannot read an inbox; the next renewal brings its messages: %s", error)
        finally:
            self._task = None

    def _deliver(self, held: Held, messages: Sequence[Message]) -> None:
        known = {a.number for a in (*held.arrivals, *held.taken) if isinstance(a, Message)}
        fresh = [m for m in messages if m.number > held.instance.inbox.seen and m.number not in known]
        if fresh:
            held.arrivals.extend(fresh)
            self._schedule(held)
