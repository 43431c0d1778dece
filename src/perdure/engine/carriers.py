"""What fills a run's carrier where it is started, and what restores it around each attempt of its steps."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, ExitStack
from typing import Any, TypeAlias, cast

from perdure.authoring.current import running
from perdure.model.carrier import check_carrier, decode_carrier, encode_carrier
from perdure.model.errors import UsageError
from perdure.model.shown import shown

#: Called by whoever starts a run; gives texts to take along.
Capture: TypeAlias = Callable[[], Mapping[str, str] | None]

#: Called before each attempt of a step, in its context, with what was taken along. What it returns holds meanwhile.
Restore: TypeAlias = Callable[[Mapping[str, str]], AbstractContextManager[Any] | None]


class Carriers:
    """The hooks of one app, whether or not it is open. Event loop only, once it is."""

    def __init__(self) -> None:
        self._captures: list[Capture] = []
        self._restores: list[Restore] = []

    def carry(self, capture: Capture | None, restore: Restore | None) -> Callable[[], None]:
        """Add hooks; returns what takes them away."""
        for hook in (capture, restore):
            if hook is not None and not callable(hook):
                raise UsageError(f"app.carry takes functions, not {shown(cast('object', hook))}")
        if capture is None and restore is None:
            raise UsageError("app.carry needs capture=, restore= or both; it was given neither")
        pairs: list[tuple[list[Any], Any]] = [(self._captures, capture), (self._restores, restore)]
        added = [(hooks, hook) for hooks, hook in pairs if hook is not None]
        for hooks, hook in added:
            hooks.append(hook)

        def remove() -> None:
            while added:
                hooks, hook = added.pop()
                hooks.remove(hook)

        return remove

    def capture(self, given: bytes | None) -> bytes | None:
        """What a run takes along that is started here: of the step that starts it, by the hooks, as `given`; the last wins.

        Raises `UsageError` for hooks that give anything but texts, and what they raise.
        """
        step = running.get()
        if not self._captures and (step is None or not step.carrier):
            return given
        carrier = {} if step is None else dict(step.carrier)
        for hook in self._captures:
            caught: object = hook()
            if caught is not None:
                carrier |= check_carrier(caught, "what a capture hook of app.carry returned")
        return encode_carrier(check_carrier(carrier | decode_carrier(given)))

    def restore(self, carrier: Mapping[str, str]) -> AbstractContextManager[Any] | None:
        """What holds while an attempt runs; None: nothing to restore. Raises what hooks raise."""
        if not self._restores:
            return None
        with ExitStack() as stack:
            for hook in self._restores:
                held: object = hook(carrier)
                if held is None:
                    continue
                if not isinstance(held, AbstractContextManager):
                    raise UsageError(
                        f"a restore hook of app.carry must return a context manager or None, not {shown(held)}"
                    )
                stack.enter_context(held)
            return stack.pop_all()
        raise UsageError("a context manager of a restore hook of app.carry swallowed an error")
