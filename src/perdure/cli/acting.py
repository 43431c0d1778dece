"""Acting on runs, and saying what became of each."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence

import click
from msgspec import Struct
from rich.console import Group
from rich.progress import track

from perdure.app import Perdure
from perdure.cli.client import client
from perdure.cli.exits import FAILED
from perdure.cli.output import Output, output
from perdure.cli.text import styled
from perdure.engine.bulk import Item, Outcome
from perdure.engine.handle import RunHandle
from perdure.model.errors import PerdureError

#: For commands that act on runs.
dry_run_option = click.option(
    "--dry-run", is_flag=True, help="With filters: only say what would be done, and to which runs."
)


class Result(Struct, frozen=True):
    """What became of one run that a command acted on."""

    id: str
    #: How it stands now, or `deleted`; None if there was an error.
    status: str | None
    error: PerdureError | None = None


async def act(
    out: Output, url: str, run_ids: Sequence[str], doing: str, one: Callable[[RunHandle[object]], Awaitable[str]]
) -> list[Result]:
    """Act on one run after the other; an error of one does not keep the others from their turn."""
    results: list[Result] = []
    async with client(url) as app:
        handles = [app.get_run(run_id) for run_id in dict.fromkeys(run_ids)]
        hidden = len(handles) == 1 or not out.aside.is_terminal
        for handle in track(handles, doing, console=out.aside, transient=True, disable=hidden):
            try:
                results.append(Result(handle.id, await one(handle)))
            except PerdureError as error:
                results.append(Result(handle.id, None, error))
    return results


def report(results: Sequence[Result]) -> None:
    """Say what became of each; ends with exit code 1 if one could not be acted on."""
    out = output()
    done = [result for result in results if result.error is None]
    failed = [(result.id, result.error) for result in results if result.error is not None]
    document = {
        "runs": [{"id": result.id, "status": result.status} for result in done],
        "errors": [{"id": id, "code": error.code, "message": str(error)} for id, error in failed],
    }
    if done or out.json:
        out.answer(document, lambda: Group(*(styled(f"{result.id}: {result.status}") for result in done)))
    elif not failed:
        out.answer(document, lambda: styled("no run matches"))
    if not out.json:
        for _, error in failed:
            out.complain(error.code, str(error))
    if failed:
        click.get_current_context().exit(FAILED)


def report_items(store: str, done: str, dry_run: bool, call: Callable[[Perdure], Awaitable[Sequence[Item]]]) -> None:
    """Act on all runs that filters find, and say what became of each. `done`: what is said of a run to which it was done."""

    async def ask() -> Sequence[Item]:
        async with client(store) as app:
            return await call(app)

    items = asyncio.run(ask())
    said = f"would be {done}" if dry_run else done
    counts = Counter(item.outcome for item in items)
    document = {
        "runs": [{"id": item.id, "outcome": item.outcome} for item in items],
        "counts": {outcome: counts[outcome] for outcome in Outcome},
        "dry_run": dry_run,
    }
    lines = [styled(f"{item.id}: {said if item.outcome is Outcome.DONE else item.outcome}") for item in items]
    summary = styled(f"{counts[Outcome.DONE]} of {len(items)} runs {said}", "dim")
    output().answer(document, lambda: Group(*lines, summary) if lines else styled("no run matches"))
