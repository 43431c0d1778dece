"""The app, as users hold it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar, overload

from perdure.app.queueing import Queueing
from perdure.app.urls import open_store
from perdure.authoring.workflow import WorkflowDefinition
from perdure.engine.events import Lifecycle
from perdure.engine.handle import RunHandle
from perdure.engine.listing import run_query
from perdure.engine.sending import outgoing_signal, send
from perdure.model.ids import check_known_id
from perdure.model.run import DEFAULT_NAMESPACE, Run, Status

R = TypeVar("R")


class Perdure(Queueing):
    """Durable workflows on one store.

    `url`: `sqlite:///orders.db` (a path; four slashes for an absolute one; `?synchronous=NORMAL` trades the last commits of a
    power cut for speed), `postgresql://user:password@host/database` (with `?schema=...`; needs `perdure[postgres]`) or
    `memory://`. `include`: modules to import whose workflows and steps this process serves; what was
    defined in the program's own file, and what is started here, is served anyway. Other keywords: see `SettingsKeywords`
    (durations in seconds or `timedelta`).

    `async with app:` opens the store and works in this process; `app.client()` only talks to the store. Nothing is opened or
    started before. One event loop uses an app.
    """

    # -- signals and runs ---------------------------------------------------------------------------------------------

    def client(self) -> Perdure:
        """Another app on the same store that only talks to it and runs nothing: for web handlers and scripts."""
        store = self._given_store
        if store is None and self.url.startswith("memory:"):
            # What is in memory is only to be found by sharing it.
            store = self._given_store = open_store(self.url, self._clock)
        client = Perdure(
            self.url,
            store=store,
            clock=self._clock,
            consume=False,
            registry=self.registry,
        )
        client.settings = self.settings
        return client

    async def signal(
        self, name: str = "", payload: Any = None, *, token: str, id: str | None = None, namespace: str | None = None
    ) -> None:
        """Send a signal to whoever waits for `token`, or keep it until somebody does. Returns once it is durable."""
        space = namespace if namespace is not None else self.settings.namespace or DEFAULT_NAMESPACE
        await send(self.engine, outgoing_signal(name, payload, token=token, dedup=id, namespace=space))

    @overload
    def get_run(self, id: str, workflow: WorkflowDefinition[..., R]) -> RunHandle[R]: ...
    @overload
    def get_run(self, id: str, workflow: None = ...) -> RunHandle[Any]: ...
    def get_run(self, id: str, workflow: WorkflowDefinition[..., Any] | None = None) -> RunHandle[Any]:
        """A handle on a run; `workflow` types and restores its result. Looks nothing up: the run may not exist."""
        return RunHandle(self.engine, check_known_id(id), workflow)

    async def runs(
        self,
        *,
        status: Status | str | Iterable[Status | str] = (),
        workflow: str | None = None,
        namespace: str | None = None,
        tag: str | None = None,
        attributes: Mapping[str, Any] | None = None,
        limit: int = 50,
        before: int | None = None,
    ) -> list[Run]:
        """Runs, newest first. Continue with `before` = the last one's `incarnation`.

        `attributes`: names and the values that all of them must have (texts, numbers, booleans, None).
        """
        space = self.settings.namespace if namespace is None else namespace
        query = run_query(status, workflow, space, tag, attributes, limit, before)
        return list(await self.engine.reads.runs(query))

    # -- watching -----------------------------------------------------------------------------------------------------

    def subscribe(self, listener: Callable[[Lifecycle], None]) -> Callable[[], None]:
        """Call `listener` with every lifecycle event of this process's runs, on its loop; returns the unsubscriber.

        May be called before the app is opened, and lasts until it is undone.
        """
        return self._events.subscribe(listener)

    def on_dead(self, listener: Callable[[str], None]) -> Callable[[], None]:
        """Call `listener` with the id of each run that this process gives up as dead, as `subscribe` does."""
        return self._events.on_dead(listener)
