"""`perdure demo`."""

from __future__ import annotations

import asyncio
import os
import platform
import shlex
import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path

import click
import msgspec
from rich.console import Group, RenderableType
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
from rich.progress import Progress as Bar
from rich.table import Column, Table
from rich.text import Text

from perdure.cli.demo.performance import RUN_ID, DemoFailed, Outcome, Performance, Progress
from perdure.cli.demo.sources import standard_library
from perdure.cli.exits import FAILED, Refusal
from perdure.cli.options import json_option
from perdure.cli.output import Output, output
from perdure.cli.text import styled


@click.command(short_help="Kill a worker part way, finish all the same, and prove it.")
@click.option(
    "--dir",
    "folder",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path("build/demo"),
    show_default=True,
    help="For the files of the demo.",
)
@click.option(
    "--root",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="Index this instead of the standard library.",
)
@json_option
def demo(folder: Path, root: Path | None) -> None:
    """Index the standard library, kill the worker part way, finish all the same.

    One durable step a file, a workflow a package. A worker process is killed with SIGKILL in the middle of its work and
    another one started. A log that the steps themselves write then shows what ran when.
    """
    out = output()
    source = (root or standard_library()).resolve()
    title = f"The standard library of Python {platform.python_version()}" if root is None else f"{source.name}"
    with _progress(out) as tell:
        performance = Performance(folder.resolve(), source, title, tell)
        outcome = _perform(performance)
    look = shlex.join([_program(), "runs", "show", RUN_ID, "--store", performance.store])
    document = {
        "proof": msgspec.to_builtins(outcome.proof),
        "totals": msgspec.to_builtins(outcome.totals),
        "seconds": round(outcome.seconds, 3),
        "report": performance.report,
        "store": performance.store,
        "look": look,
    }
    out.answer(document, lambda: _picture(outcome, performance.report, look))
    if outcome.proof.complaints:
        click.get_current_context().exit(FAILED)


def _perform(performance: Performance) -> Outcome:
    try:
        return asyncio.run(performance.run())
    except DemoFailed as error:
        raise Refusal(error.code, str(error), error.log) from error
    except OSError as error:
        raise Refusal("demo_failed", f"the demo cannot read or write a file: {error}") from error


@contextmanager
def _progress(out: Output) -> Generator[Callable[[Progress], None]]:
    """A bar on a terminal, with the news above it; else the news alone, and with `--json` nothing."""
    columns = (BarColumn(40), MofNCompleteColumn(), TextColumn("files"), TimeElapsedColumn())
    with Bar(*columns, console=out.aside, disable=out.json or not out.aside.is_terminal, transient=True) as bar:
        task = bar.add_task("files")

        def tell(progress: Progress) -> None:
            bar.update(task, completed=progress.done, total=progress.total)
            if progress.news and not out.json:
                out.aside.print(styled(f"{progress.done:5,} of {progress.total:,} files  {progress.news}"))

        yield tell


def _picture(outcome: Outcome, report: str, look: str) -> RenderableType:
    proof, totals = outcome.proof, outcome.totals
    counts = f"{totals.files:,} files, {totals.lines:,} lines and {totals.functions:,} functions"
    rows = [
        (proof.files, "files analysed to their end, each in the report once"),
        (proof.kept, "results were on disk at the kill: none of them was made again"),
        (proof.cut, "steps were cut off in flight: all of them ran again"),
    ]
    if proof.unrecorded:
        rows.append((proof.unrecorded, "steps had ended, but their result was not on disk yet: they ran again too"))
    if proof.others:
        rows.append((proof.others, "steps ran again because this machine was too busy to keep a lease"))
    facts = Table.grid(Column(justify="right"), Column(), padding=(0, 2, 0, 0))
    for count, what in rows:
        facts.add_row(f"{count:,}", what)
    places = Table.grid(Column(style="dim"), Column(overflow="fold"), padding=(0, 2, 0, 0))
    places.add_row("report", styled(report))
    places.add_row("the run", styled(look))
    complaints = [styled(f"NOT PROVEN: {complaint}", "bold red") for complaint in proof.complaints]
    return Group(Text(f"{counts} in {outcome.seconds:.0f} s", "bold"), facts, *complaints, Text(""), places)


def _program() -> str:
    """How the reader can call us, as they just did."""
    called = sys.argv[0]
    return called if os.path.basename(called) == "perdure" else "perdure"
