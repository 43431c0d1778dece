"""Publishing events from outside workflows."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from perdure.app.starting import Starting
from perdure.engine.publishing import event, published
from perdure.engine.subscribing import unsubscribe
from perdure.model.ids import check_name
from perdure.model.run import DEFAULT_NAMESPACE


class Publishing(Starting):
    """An app as far as it publishes events: see `Perdure`."""

    async def publish(
        self,
        name: str,
        payload: Any = None,
        *,
        id: str | None = None,
        buffer: bool | float | timedelta = True,
        namespace: str | None = None,
    ) -> int:
        """Give an event to every run that waits for it, and start what it starts. Returns how many it reached.

        That is: waits, runs that it started, and runs that collect events; all in one transaction, which is durable then. If
        it reached nobody, one copy is kept for the next wait: for a week, or as long as `buffer` says (seconds or
        `timedelta`; False: not at all). The same `id` again reaches nobody, and returns what it did the first time.

        Raises `InvalidId`, `InvalidValue` and `UsageError` before anything is written.
        """
        engine = self.engine
        space = namespace if namespace is not None else self.settings.namespace or DEFAULT_NAMESPACE
        check_name(space, "a namespace")
        given = event(name, payload, id=id, buffer=buffer, namespace=space)
        await self._tell_news()
        return await published(engine, given, self._hooks.carriers.capture(None))

    async def unsubscribe(self, workflow: str) -> bool:
        """Events start no runs of this workflow (its name) any more, until a process begins to serve it that says they do.

        For workflows whose code is gone: where it is still there, deploy it without `on_event`. True if any did.
        """
        check_name(workflow, "a workflow's name")
        return await self.engine.reads.patiently(
            f"unsubscribing workflow {workflow!r}", lambda store: unsubscribe(store, workflow)
        )
