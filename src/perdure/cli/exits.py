"""Exit codes: 0 it is as asked, 1 it could not be done, 2 it was asked wrongly, 130 stopped with Ctrl-C."""

from __future__ import annotations

import traceback
from types import TracebackType
from typing import IO, Any, Final

import click

from perdure.cli.output import Output, output
from perdure.model.errors import PerdureError, UsageError

DONE: Final = 0
FAILED: Final = 1
MISUSED: Final = 2
INTERRUPTED: Final = 130


class Refusal(click.ClickException):
    """Ends a command with a complaint: it could not be done."""

    exit_code = FAILED

    def __init__(self, code: str, message: str, detail: str = "") -> None:
        super().__init__(message)
        self.code = code
        self.detail = detail
        # Taken now: when it is shown, the command is over.
        self._output = output()

    def show(self, file: IO[Any] | None = None) -> None:
        """To standard error."""
        self._output.complain(self.code, self.message, self.detail)


class Misuse(Refusal):
    """Ends a command with a complaint: it was asked wrongly."""

    exit_code = MISUSED


class Commands(click.Group):
    """The program: ends with the exit codes of this module, and one line instead of a traceback for every error of ours."""

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command that was asked for."""
        ctx.obj = Output()
        try:
            return super().invoke(ctx)
        except PerdureError as error:
            raise refusal(error) from error
        except KeyboardInterrupt:
            ctx.exit(INTERRUPTED)


def refusal(error: PerdureError) -> Refusal:
    """How an error of ours ends a command."""
    kind = Misuse if isinstance(error, UsageError) else Refusal
    return kind(error.code, str(error))


def users_fault(what: str, error: BaseException, frames: TracebackType | None) -> Refusal:
    """An error that the user's own code raised, with its traceback from `frames` on."""
    detail = "".join(traceback.format_exception(type(error), error, frames))
    return Refusal("user_code", f"{what} raised {type(error).__name__}: {error}", detail)
