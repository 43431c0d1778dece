"""Options and arguments that several commands share."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, TypeVar, cast

import click
import msgspec

from perdure.cli.output import Output
from perdure.model.durations import parse_duration
from perdure.model.errors import UsageError

F = TypeVar("F", bound=Callable[..., Any])

#: Where Perdure itself keeps its runs if nobody says otherwise.
DEFAULT_STORE = "sqlite:///perdure.db"


def json_option(command: F) -> F:
    """`--json`, which every command has."""

    def choose(ctx: click.Context, parameter: click.Parameter, value: bool) -> None:
        if value:
            cast("Output", ctx.find_root().obj).json = True

    # Eager, so that what is wrong with other options is told as JSON too.
    return click.option(
        "--json", is_flag=True, is_eager=True, expose_value=False, callback=choose, help="Answer with JSON."
    )(command)


def store_option(command: F) -> F:
    """`--store URL`, for commands that need no code of the user's."""
    return click.option(
        "--store",
        metavar="URL",
        envvar="PERDURE_STORE",
        default=DEFAULT_STORE,
        show_default=True,
        show_envvar=True,
        help="Where the runs are.",
    )(command)


def duration(text: str) -> int:
    """A parameter's type: `30s`, `15m`, `2h`, `7d`, as microseconds above zero."""
    try:
        micros = parse_duration(text)
    except UsageError as error:
        raise click.BadParameter(str(error)) from error
    if micros <= 0:
        raise click.BadParameter(f"{text!r} is no time at all; write for example 30s")
    return micros


def json(text: str) -> bytes:
    """A parameter's type: JSON, as checked bytes; `-` reads it from standard input."""
    try:
        data = sys.stdin.buffer.read() if text == "-" else text.encode()
        msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        shown = "standard input" if text == "-" else repr(text)
        hint = "text needs quotes of its own: '\"text\"'"
        raise click.BadParameter(f"{shown} is no JSON ({error}); {hint}") from error
    return data


__all__ = ["DEFAULT_STORE", "duration", "json", "json_option", "store_option"]
