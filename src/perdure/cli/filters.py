"""Options that say which runs are meant, and what they ask for."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import click
import msgspec

from perdure.engine.listing import RunFilters
from perdure.model.attributes import Compare, Condition
from perdure.model.conditions import condition
from perdure.model.errors import UsageError
from perdure.model.run import Status

F = TypeVar("F", bound=Callable[..., Any])

_CONDITION = re.compile(r"(?P<name>[^<>=!]*?)\s*(?P<compare><=|>=|!=|<|>|=)\s*(?P<value>.*)\Z", re.DOTALL)
_NAMES = ("statuses", "workflow", "tags", "attributes", "origin", "namespace")


def filter_options(command: F) -> F:
    """`--status`, `--workflow`, `--tag`, `--attr`, `--origin` and `--namespace`: all that is given must hold."""
    for option in reversed(
        (
            click.option(
                "--status",
                "statuses",
                multiple=True,
                type=click.Choice([status.value for status in Status]),
                help="Only these; may be repeated.",
            ),
            click.option("--workflow", metavar="NAME", help="Only runs of this workflow."),
            click.option(
                "--tag", "tags", multiple=True, help="Only runs with this tag. May be repeated: all must be there."
            ),
            click.option(
                "--attr",
                "--attribute",
                "attributes",
                multiple=True,
                metavar="NAME=VALUE",
                help="Only runs whose attribute compares so: =, !=, <, <=, > or >=. VALUE is JSON, or else a text. "
                "May be repeated: all must hold.",
            ),
            click.option("--origin", help="Only runs of this origin."),
            click.option("--namespace", help="Only runs of this namespace."),
        )
    ):
        command = option(command)
    return command


def filters(given: dict[str, Any]) -> RunFilters:
    """What a command's filter options ask for. Raises `UsageError`."""
    return {
        "status": given["statuses"],
        "workflow": given["workflow"],
        "tag": given["tags"],
        "where": [parse_condition(text) for text in given["attributes"]],
        "origin": given["origin"],
        "namespace": given["namespace"],
    }


def any_given(given: dict[str, Any]) -> bool:
    return any(given[name] for name in _NAMES)


def either(run_ids: Sequence[str], given: dict[str, Any], verb: str, *, dry_run: bool) -> None:
    """Raises `UsageError` unless runs are named, or described, and not both."""
    if bool(run_ids) == any_given(given):
        raise UsageError(f"runs {verb} takes the ids of runs, or filters like --workflow; one of the two")
    if dry_run and run_ids:
        raise UsageError("--dry-run is for filters: a run that is named is the one that is meant")


def parse_condition(text: str) -> Condition:
    """`amount>100`, `plan=pro`."""
    found = _CONDITION.match(text)
    if found is None:
        raise UsageError(
            f"--attr takes an attribute as NAME=VALUE or NAME>VALUE, like --attr customer=42, not {text!r}"
        )
    value = found["value"]
    try:
        parsed: object = msgspec.json.decode(value)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        parsed = value
    return condition(found["name"], Compare(found["compare"]), parsed)
