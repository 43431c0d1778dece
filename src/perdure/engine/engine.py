"""The engine: an executor and its background loops, started and stopped as one."""

from __future__ import annotations

import asyncio
import logging
from contextlib import AsyncExitStack
from typing import Any

from perdure.authoring.workflow import WorkflowDefinition
from perdure.engine import stopping
from perdure.engine.announcing import announce
from perdure.engine.answers import Answers
from perdure.engine.committer import Committer, Outcome
from perdure.engine.executor import Executor
from perdure.engine.loading import Loading
from perdure.engine.means import Means
from perdure.engine.patience import Reads, answer
from perdure.engine.services import Service
from perdure.engine.services.auditor import Auditor
from perdure.engine.services.claimer import Claimer
from perdure.engine.services.renewal import Renewal
from perdure.engine.services.unserved import Unserved
from perdure.engine.services.watchdog import Watchdog
from perdure.engine.services.watcher import Watcher
from perdure.engine.subscribing import subscribe
from perdure.engine.transactions import check_alone
from perdure.model.commit import Answer, Applied, Configure, Send, Write
from perdure.model.errors import StoreError, UsageError
from perdure.model.events import Publish
from perdure.model.messages import Outgoing
from perdure.model.run import NewRun, RunKey
from perdure.ports.store import Store

log = logging.getLogger("perdure.engine")

#: Microseconds: so often at most what others have done to the runs held here is looked for, while somebody does something.
_LISTEN = 500_000


class Engine:
    """One process's share of the work on one store. With `consume` False it only talks to the store: a client."""

    def __init__(self, means: Means, *, consume: bool) -> None:
        self.means = means
        self.consume = consume
        self.stopped = False
        #: What callers read.
        self.reads = Reads(means, lambda: self.store)
        self.committer = Committer(means)
        self.executor = Executor(means, self.committer)
        self.answers = Answers(means, self.reads, self.executor.holdings, self.executor.tell.endings)
        self.executor.tell.values = self.answers.committed
        self.watcher = Watcher(means, self.executor.tell.endings, self.executor.tell.tails)
        loading = Loading(means, self.executor)
        watchdog = Watchdog(means, self.executor.holdings)
        self.renewal = Renewal(means, self.executor, watchdog)
        self.claimer = Claimer(means, self.executor, loading, self.renewal.fresh)
        self.executor.nudges.renew = self.renewal.kick
        self.unserved = Unserved(means, self.claimer, self.renewal.beat, self.executor.tell.endings)
        self.renewal.on_return = self.unserved.back
        auditor = Auditor(means, self.claimer.kick)
        #: Those that live until the last turn is in, and those that are stopped first.
        self._services: tuple[tuple[Service, ...], tuple[Service, ...]] = (
            (watchdog, self.renewal),
            (self.claimer, auditor, self.unserved),
        )

    @property
    def store(self) -> Store:
        """Raises `UsageError` once the engine was stopped: handles outlive their app."""
        if self.stopped:
            raise UsageError("the app was closed; use handles inside `async with app:`, or open it again")
        return self.means.store

    async def start(self) -> None:
        """Begin to work. The store is open."""
        self.watcher.start()
        if not self.consume:
            self.executor.holdings.closed = True
            return
        threads, loops = self._services
        for service in threads:
            service.start()
        await self.renewal.beat()  # before the first claim: whoever holds runs is known
        for service in loops:
            service.start()
        self.watcher.subscribe(self.claimer.kick)
        self.watcher.subscribe(self.renewal.kick, pause=_LISTEN)
        await self._subscribe()
        await self._unblock()

    async def serve(self) -> None:
        """Something was registered: runs that are blocked on other code of it, or waited for anybody to serve it, are due."""
        if self.consume:
            await self.renewal.beat()  # first: else such a run could be blocked once more behind our back
            await self._subscribe()
            await self._unblock()

    async def _subscribe(self) -> None:
        means = self.means
        await self.reads.patiently(
            "saying what is started by events here",
            lambda store: subscribe(store, means.registry, means.settings.namespace),
        )

    async def _unblock(self) -> None:
        await self.reads.patiently("making runs due that this process serves", self.unserved.unblock)

    async def ask(self, write: Write) -> Answer:
        """Have a write from outside a run applied, and wait for its answer.

        Giving up the wait neither takes the write back nor leaves anybody unwoken. Raises what the store raised; but
        `StoreUnavailable` only when the app's patience is over, and then it is tried no more.
        """
        check_alone("using the app")
        future: asyncio.Future[Outcome] = self.means.loop.create_future()
        self.committer.submit(write, self._written, (write, future))
        # Not after the answer: accepting a message and claiming its run can share a commit.
        self.claimer.kick(now=isinstance(write, Send | Publish))
        return await answer(self.means, self.committer, write, future)

    def configure(self, write: Configure) -> None:
        """Have a declaration written with the next commit. What the store says against it is logged."""

        def written(_: object, outcome: Outcome) -> None:
            if not isinstance(outcome, Applied):
                log.error("perdure: queue %r could not be declared: %r", write.name, outcome)
            self.executor.gating.moved()

        self.committer.submit(write, written)

    async def begin(
        self, definition: WorkflowDefinition[Any, Any], new: NewRun, messages: tuple[Outgoing, ...]
    ) -> Answer:
        """As :meth:`ask`, for a start that this process goes on with."""
        check_alone("starting a run")
        future: asyncio.Future[Outcome] = self.means.loop.create_future()

        def begun(outcome: Outcome) -> None:
            if messages:
                self.announce(create, outcome)
            if not future.done():
                future.set_result(outcome)

        create = self.executor.start(definition, new, messages, begun)
        return await answer(self.means, self.committer, create, future)

    def _written(self, asked: tuple[Write, asyncio.Future[Outcome]], outcome: Outcome) -> None:
        write, future = asked
        self.announce(write, outcome)
        if not future.done():
            future.set_result(outcome)

    def announce(self, write: Write, outcome: Outcome) -> None:
        """A write from outside a run was answered: whoever it concerns here hears of it."""
        announce(self.executor, write, outcome)
        # Soon, not now: the claim that shared the commit is answered next.
        self.means.loop.call_soon(self._look_again, getattr(outcome, "key", None), isinstance(write, Send | Publish))

    def _look_again(self, key: RunKey | None, now: bool) -> None:
        if key is None or key.incarnation not in self.executor.holdings:
            self.claimer.kick(now=now)  # the first look came too early, or the run is not here

    async def rest(self, *, steps: bool = True) -> None:
        """Wait until nothing more goes on here at this time (with `steps` False: nothing but steps in flight)."""
        while True:
            await asyncio.sleep(0)  # what was called back just now comes first
            if self.consume:
                await self.claimer.idle()
                await self.unserved.idle()
            await self.committer.idle()
            await self.renewal.idle()
            if steps:
                await stopping.settled(self.executor)
            await asyncio.sleep(0)
            parts = (self.claimer, self.unserved, self.committer, self.renewal)
            if not (any(part.busy for part in parts) or stopping.busy(self.executor)):
                return

    async def stop(self) -> None:
        """Stop claiming, finish or park what runs, keep renewing until the last turn is in; past the deadline, release.

        Nothing that was committed is lost either way: what is released goes on elsewhere, or here after the next start.
        Whatever fails, or is cut short by a cancel, the rest is stopped all the same.
        """
        self.executor.holdings.closed = True
        self.renewal.kick_beat()
        threads, loops = self._services
        async with AsyncExitStack() as stack:  # the last first
            stack.callback(setattr, self, "stopped", True)
            stack.push_async_callback(self.watcher.stop)
            if self.consume:
                for service in threads:
                    stack.push_async_callback(service.stop)
            stack.push_async_callback(self._give_back)
            stack.push_async_callback(self._drain)
            if self.consume:
                for service in loops:
                    stack.push_async_callback(service.stop)

    async def _drain(self) -> None:
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            return  # whoever closes the app cannot wait
        try:
            async with asyncio.timeout(self.means.settings.drain / 1_000_000):
                await stopping.settled(self.executor)
        except TimeoutError:
            log.warning(
                "perdure: %d runs did not come to rest within %g s; they are given back and go on elsewhere or later",
                len(self.executor.holdings),
                self.means.settings.drain / 1_000_000,
            )

    async def _give_back(self) -> None:
        try:
            await stopping.stop(self.executor, self.means.store, self.means.owner)
        except StoreError as error:
            log.warning("perdure: could not give back the runs held here; their leases will run out: %s", error)
