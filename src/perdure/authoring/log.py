"""`perdure.log`: what steps and bodies say, to `logging` and, in a step, to the run's history.

A body's lines are held back until the turn that said them is committed, and a replay says none: each is said once, or not at
all if its process dies in that moment. They go to the logger `perdure.workflow`, those of steps to `perdure.step`, and have
`run_id`, `workflow`, `step`, `seq` and `attempt` as attributes.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any, Final, Literal, TypedDict

from perdure.authoring.current import running
from perdure.authoring.journal import Journal, journal
from perdure.core.ambient import current
from perdure.core.instance import Instance
from perdure.model import values
from perdure.model.errors import ForbiddenInWorkflow
from perdure.model.ids import check_name
from perdure.model.shown import shown, told
from perdure.model.steplog import MOST_PROGRESS

_workflows: Final = logging.getLogger("perdure.workflow")
_steps: Final = logging.getLogger("perdure.step")

_Level = Literal["debug", "info", "warning", "error"]
_LEVELS: Final = {"debug": logging.DEBUG, "info": logging.INFO, "warning": logging.WARNING, "error": logging.ERROR}


class Place(TypedDict):
    """Where a record comes from: attributes of it."""

    run_id: str
    workflow: str
    step: str
    seq: int | None
    attempt: int | None


_NOWHERE: Final = Place(run_id="", workflow="", step="", seq=None, attempt=None)


class SubProcess:
    """A part of a step, while it runs."""

    __slots__ = ("skipped",)

    def __init__(self) -> None:
        self.skipped = False

    def skip(self) -> None:
        """Say nothing if it ends well: there was nothing to do."""
        self.skipped = True


class Log:
    """See the head of this module. Each line may have arguments for `%`, as with `logging`."""

    __slots__ = ()

    def debug(self, message: object, *args: object) -> None:
        """A line for whoever looks closely."""
        _say("debug", _text(message, args))

    def info(self, message: object, *args: object) -> None:
        """A line of what went on."""
        _say("info", _text(message, args))

    def warning(self, message: object, *args: object) -> None:
        """A line of what somebody should look at."""
        _say("warning", _text(message, args))

    def error(self, message: object, *args: object) -> None:
        """A line of what went wrong. The step fails only if it raises."""
        _say("error", _text(message, args))

    @contextmanager
    def sub_process(self, name: str) -> Generator[SubProcess]:
        """`with log.sub_process("upload"):` in a step notes how that part of it ended, and how long it took.

        "ok", unless `skip()` was called on what `as` gives; or "failed" with the error's message, which goes on. Raises
        `ForbiddenInWorkflow` in a body.
        """
        check_name(name, "a sub-process")
        _not_in_a_body("log.sub_process")
        kept, part = journal.get(), SubProcess()
        began = 0 if kept is None else kept.now()
        try:
            yield part
        except Exception as error:
            _end(kept, name, "failed", began, f"{type(error).__name__}: {told(error)}")
            raise
        if not part.skipped:
            _end(kept, name, "ok", began, "")

    def heartbeat(self, progress: Any = None) -> None:
        """How far the step is, any storable value of at most 16 KiB; the newest is kept with the attempt's log.

        Raises `InvalidValue` for what cannot be stored, `ForbiddenInWorkflow` in a body.
        """
        data = values.encode(progress, what="the progress of a heartbeat", limit=MOST_PROGRESS)
        _not_in_a_body("log.heartbeat")
        kept = journal.get()
        if kept is not None:
            kept.beat(data)


log: Final = Log()


class RunFilter(logging.Filter):
    """See `logging_filter`."""

    def __init__(self, *, replays: bool) -> None:
        super().__init__()
        self._replays = replays

    def filter(self, record: logging.LogRecord) -> bool:
        instance = current()
        if instance is not None and not self._replays and not hasattr(record, "run_id") and not instance.live():
            return False
        for name, value in _place(instance).items():
            if not hasattr(record, name):
                setattr(record, name, value)
        return True


def logging_filter(*, replays: bool = False) -> logging.Filter:
    """A filter for your own logging handlers: `handler.addFilter(perdure.logging_filter())`.

    Each record gets `run_id`, `workflow` and `step` (texts, empty outside a run), `seq` and `attempt` (numbers or None), for a
    format to name. Records that a body makes in a replay are dropped, unless `replays` is true.
    """
    return RunFilter(replays=replays)


def _place(instance: Instance | None) -> Place:
    if instance is not None:
        run = instance.run
        return Place(run_id=run.id, workflow=run.workflow, step="", seq=None, attempt=None)
    step = running.get()
    if step is None:
        return _NOWHERE
    return Place(run_id=step.run_id, workflow=step.workflow, step=step.name, seq=step.seq, attempt=step.attempt)


def _say(level: _Level, text: str) -> None:
    instance = current()
    if instance is None:
        kept = journal.get()
        if kept is not None:
            kept.add(level, text)
        _send(_steps, level, text)
    elif instance.live() and _workflows.isEnabledFor(_LEVELS[level]):
        instance.say(_record(_workflows, level, text, instance))


def _send(logger: logging.Logger, level: _Level, text: str) -> None:
    if logger.isEnabledFor(_LEVELS[level]):
        logger.handle(_record(logger, level, text, None))


def _record(logger: logging.Logger, level: _Level, text: str, instance: Instance | None) -> logging.LogRecord:
    frame = sys._getframe(1)  # pyright: ignore[reportPrivateUsage]  (as logging itself does)
    while frame.f_back is not None and frame.f_globals.get("__name__") in (__name__, "contextlib"):
        frame = frame.f_back
    code = frame.f_code
    place: Any = _place(instance)
    return logger.makeRecord(
        logger.name, _LEVELS[level], code.co_filename, frame.f_lineno, text, (), None, code.co_name, place
    )


def _end(kept: Journal | None, name: str, outcome: str, began: int, message: str) -> None:
    level: _Level = "info" if outcome == "ok" else "error"
    took = 0 if kept is None else kept.now() - began
    if kept is not None:
        kept.add(level, message, process=name, outcome=outcome, took=took)
    after = "" if kept is None else f" after {took / 1000:g} ms"
    _send(_steps, level, f"{name}: {outcome}{after}" + (f": {message}" if message else ""))


def _not_in_a_body(what: str) -> None:
    instance = current()
    if instance is not None:
        raise ForbiddenInWorkflow(f"{instance.describe()} uses {what} in its body; it belongs into a step")


def _text(message: object, args: tuple[object, ...]) -> str:
    """The line. What cannot be made into one is no reason for a step to fail."""
    try:
        text = str(message)
        return text % args if args else text
    except Exception:
        return " ".join(map(shown, (message, *args)))


__all__ = ["Log", "SubProcess", "log", "logging_filter"]
