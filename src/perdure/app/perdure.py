"""The app, as users hold it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, overload

from perdure.app.addressing import Addressing
from perdure.app.cancelling import Cancelling
from perdure.app.finding import Finding
from perdure.app.operating import Operating
from perdure.app.queueing import Queueing
from perdure.app.urls import open_store
from perdure.authoring.validators import Validator
from perdure.authoring.workflow import WorkflowDefinition
from perdure.engine.around import Interceptor
from perdure.engine.carriers import Capture, Restore
from perdure.engine.events import Lifecycle
from perdure.engine.handle import RunHandle
from perdure.engine.sending import outgoing_signal, send
from perdure.model.ids import check_known_id
from perdure.model.run import DEFAULT_NAMESPACE

R = TypeVar("R")


class Perdure(Addressing, Queueing, Finding, Operating, Cancelling):
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
        client._hooks = self._hooks.for_client()
        return client

    async def signal(
        self,
        name: str = "",
        payload: Any = None,
        *,
        token: str,
        id: str | None = None,
        namespace: str | None = None,
        connection: Any = None,
    ) -> None:
        """Send a signal to whoever waits for `token`, or keep it until somebody does. Returns once it is durable.

        With `connection`, it is sent within the transaction that is open there (see `start`).
        """
        space = namespace if namespace is not None else self.settings.namespace or DEFAULT_NAMESPACE
        await send(self.engine, outgoing_signal(name, payload, token=token, dedup=id, namespace=space), connection)

    @overload
    def get_run(self, id: str, workflow: WorkflowDefinition[..., R]) -> RunHandle[R]: ...
    @overload
    def get_run(self, id: str, workflow: None = ...) -> RunHandle[Any]: ...
    def get_run(self, id: str, workflow: WorkflowDefinition[..., Any] | None = None) -> RunHandle[Any]:
        """A handle on a run; `workflow` types and restores its result. Looks nothing up: the run may not exist."""
        return RunHandle(self.engine, check_known_id(id), workflow)

    def update_validator(
        self, workflow: WorkflowDefinition[..., Any] | str, name: str
    ) -> Callable[[Validator], Validator]:
        """Decorate a function to check updates `name` of `workflow` where they are sent, before anything is written.

        It gets the argument, restored by its own hint, and rejects it by returning a reason (a text) or by raising; it returns
        None for what may pass. It cannot see the run: who needs that rejects in the workflow. Raises `UsageError`, and
        `NameTaken` if there is one already.
        """
        return self.registry.validators.adder(workflow, name)

    # -- watching -----------------------------------------------------------------------------------------------------

    def use(self, interceptor: Interceptor) -> Callable[[], None]:
        """Have `await interceptor(step, proceed)` called around each real attempt of a step in this process.

        `step` is the `CurrentStep`; `await proceed()` runs the step and gives its result, or raises. What the interceptor
        returns is the result that is recorded, what it raises is the attempt's failure. The first registered is outermost;
        replays attempt nothing. Returns the unsubscriber. May be called before the app is opened.
        """
        return self._hooks.around.use(interceptor)

    def carry(self, *, capture: Capture | None = None, restore: Restore | None = None) -> Callable[[], None]:
        """Take texts along with runs: a trace, a tenant. Returns the unsubscriber.

        `capture()` is called where a run is started through this app (or its clients) and gives a mapping of texts, which
        are stored with the run; children and next links inherit them. `restore(carrier)` is called around each attempt of
        a step in this process, and may return a context manager, which holds while the attempt runs. What `capture` raises,
        the start raises; what `restore` raises fails the attempt.
        """
        return self._hooks.carriers.carry(capture, restore)

    def subscribe(self, listener: Callable[[Lifecycle], None]) -> Callable[[], None]:
        """Call `listener` with every lifecycle event of this process's runs, on its loop; returns the unsubscriber.

        May be called before the app is opened, and lasts until it is undone.
        """
        return self._hooks.events.subscribe(listener)

    def on_dead(self, listener: Callable[[str], None]) -> Callable[[], None]:
        """Call `listener` with the id of each run that this process gives up as dead, as `subscribe` does."""
        return self._hooks.events.on_dead(listener)
