"""Queues: how many runs or steps of the whole fleet may go on at once, and how many in a time."""

from __future__ import annotations

from datetime import timedelta

import msgspec

from perdure.app.starting import Starting
from perdure.authoring.gating import Fairness, Order, queue_rules, whole
from perdure.engine.engine import Engine
from perdure.engine.sending import check_stored
from perdure.model.commit import Configure
from perdure.model.ids import check_name
from perdure.ports.gates import Gate


class Queueing(Starting):
    """An app as far as it has queues: see `Perdure`."""

    def queue(
        self,
        name: str,
        *,
        concurrency: int | None = None,
        rate: tuple[int, float | timedelta] | None = None,
        order: Order = "fifo",
        fairness: Fairness | None = None,
    ) -> None:
        """Declare a queue, or declare it anew: the newest declaration of any process counts, for those that wait too.

        At most `concurrency` steps and runs that go through it are under way at once, and at most as many begin within a time
        as `rate` says: `(100, timedelta(minutes=1))`, counted from the first of a window. Greater priority goes first; then,
        with `fairness="key"`, the queue key that was served longest ago; then who came first, or last (`order="lifo"`). These
        limits hold for all processes on the store together.

        Before the app is opened, the queue is declared when it is; afterwards with the next commit. An app with a namespace
        declares it for that; one without, for every namespace. Raises `UsageError`.
        """
        rules = queue_rules(name, concurrency, rate, order, fairness)
        if self._engine is None:
            self.registry.declare(name, rules)
            return
        engine = self.engine
        self.registry.stamp = max(engine.store.now(), self.registry.stamp + 1)
        stamped = msgspec.structs.replace(rules, stamp=self.registry.stamp)
        self.registry.declare(name, stamped)
        engine.configure(Configure(name, stamped, self.settings.namespace))

    async def queues(self, name: str | None = None, *, namespace: str | None = None, limit: int = 20) -> list[Gate]:
        """How queues and singletons stand, by namespace, name and key: who holds them, who waits, and since when.

        `name`: only those of that queue (of a singleton: `singleton:` and the workflow). Of each, at most `limit` that hold it,
        oldest first, and as many that wait, by priority and arrival.
        """
        space = self.settings.namespace if namespace is None else check_name(namespace, "a namespace")
        named = None if name is None else check_name(name, "a queue's name")
        whole(limit, "limit", 1)
        return list(await self.engine.store.gates(namespace=space, name=named, limit=limit))

    async def _declare_queues(self, engine: Engine) -> None:
        """Whatever was declared before the app was opened."""
        self.registry.stamp = max(engine.store.now(), self.registry.stamp + 1)
        for name, rules in self.registry.queues():
            check_stored(await engine.ask(Configure(name, rules, self.settings.namespace)))
