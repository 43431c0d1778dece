"""Which app a workflow is started on when nobody says: the one entered around the caller, else the only open one."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from contextvars import ContextVar
from typing import Any, Protocol, TypeVar

from perdure.authoring.options import StartOptions
from perdure.model.errors import UsageError

R_co = TypeVar("R_co", covariant=True)


class Started(Protocol[R_co]):
    """A run that was started: an app's handle, or in a workflow the handle of a detached child."""

    @property
    def id(self) -> str: ...

    def result(self) -> Coroutine[Any, Any, R_co]:
        """Wait for the run's end; raises what it ended with if it did not complete."""
        ...


class Launcher(Protocol):
    """What an open app offers to the workflow definitions."""

    def launch(self, definition: Any, input: bytes, options: StartOptions) -> Coroutine[Any, Any, Started[Any]]:
        """Start a run of `definition` (a `WorkflowDefinition`) with this encoded and checked input."""
        ...

    def deliver(self, question: Any, update_id: str, reply: str | None, /) -> Coroutine[Any, Any, None]:
        """Send an update (a `perdure.authoring.asking.Question`) to its run, which is started if it is not there, once for
        each id. `reply`: the token that its answer goes to."""
        ...


_entered: ContextVar[tuple[Launcher, ...]] = ContextVar("perdure_entered_apps", default=())
_open: list[Launcher] = []


def enter(app: Launcher) -> Callable[[], None]:
    """Note that `app` is open, and entered in this context (and in the tasks begun from it). Returns what undoes it.

    Call it before the app begins tasks of its own, so that its steps start runs on it.
    """
    _open.append(app)
    _entered.set((*_entered.get(), app))
    return lambda: leave(app)


def leave(app: Launcher) -> None:
    """Undo `enter`."""
    if app in _open:
        _open.remove(app)
    # Not by token: an app may be closed from another context than it was opened in.
    _entered.set(tuple(one for one in _entered.get() if one is not app))


def launcher(call: str, instead: str) -> Launcher:
    """The app that `call` (for the message) starts its run on. Raises `UsageError` if that is not clear."""
    apps = tuple(_open)  # Other threads open and close theirs.
    entered = [app for app in _entered.get() if app in apps]
    if entered:
        return entered[-1]
    if len(apps) == 1:
        return apps[0]
    if not apps:
        raise UsageError(f"{call} was called, but no app is open: write `async with Perdure(...) as app:` around it")
    raise UsageError(f"{call} was called, but {len(apps)} apps are open and none was entered here: write {instead}")
