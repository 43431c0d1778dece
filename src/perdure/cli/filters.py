"""Options that say which runs are meant, for commands that list runs or act on many."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click
import msgspec

from perdure.model.errors import UsageError
from perdure.model.run import Status

F = TypeVar("F", bound=Callable[..., Any])

_OPTIONS = (
    click.option(
        "--status",
        "statuses",
        multiple=True,
        type=click.Choice([status.value for status in Status]),
        help="Only these; may be repeated.",
    ),
    click.option("--workflow", metavar="NAME", help="Only runs of this workflow."),
    click.option("--tag", help="Only runs with this tag."),
    click.option(
        "--attribute",
        "attributes",
        multiple=True,
        metavar="NAME=VALUE",
        help="Only runs with this attribute; VALUE is JSON, or else a text. May be repeated: all must be there.",
    ),
    click.option("--namespace", help="Only runs of this namespace."),
)


def filter_options(command: F) -> F:
    """`--status`, `--workflow`, `--tag`, `--attribute` and `--namespace`."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def attribute(text: str) -> tuple[str, object]:
    """What `--attribute NAME=VALUE` asks for. Raises `UsageError`."""
    name, equals, value = text.partition("=")
    if not equals:
        raise UsageError(f"--attribute takes NAME=VALUE, like --attribute customer=42, not {text!r}")
    try:
        return name, msgspec.json.decode(value)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return name, value
