"""What a command says: tables for people or JSON for programs on standard output, complaints on standard error."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import Any

import click
import msgspec
from rich.console import Console, RenderableType
from rich.table import Table

from perdure.cli.text import plain

#: Columns of a table that goes to a file or a pipe, where no terminal says how many there are.
_PIPE_WIDTH = 160


class Output:
    """One command's output. Made anew for each call of the program."""

    def __init__(self) -> None:
        #: True once `--json` was given.
        self.json = False
        self.people = _console(stderr=False)
        #: For progress and complaints: what is piped on stays clean.
        self.aside = _console(stderr=True)

    def answer(self, document: Any, picture: Callable[[], RenderableType]) -> None:
        """The command's answer: the document with `--json`, else the picture of it."""
        if self.json:
            click.echo(msgspec.json.format(msgspec.json.encode(document), indent=2))
        elif self.people.is_terminal:
            self.people.print(picture())
        else:
            # Tables fill their lines with spaces, which are nobody's business in a file.
            with self.people.capture() as captured:
                self.people.print(picture())
            click.echo("\n".join(line.rstrip() for line in captured.get().rstrip("\n").split("\n")))

    def event(self, document: Any) -> None:
        """One line of JSON of a command that goes on."""
        click.echo(msgspec.json.encode(document))

    def complain(self, code: str, message: str, detail: str = "") -> None:
        """Say what went wrong: one line, and for people what helps to find it."""
        if self.json:
            click.echo(msgspec.json.encode({"error": {"code": code, "message": plain(message)}}), err=True)
        else:
            click.echo(f"perdure: {plain(message)}", err=True)
            if detail:
                click.echo(detail.rstrip("\n"), err=True)


def output() -> Output:
    """The output of the command that is running. Main thread."""
    found = click.get_current_context().find_root().obj
    assert isinstance(found, Output)
    return found


def table(*columns: str, numbers: tuple[str, ...] = ()) -> Table:
    """An empty table in the one look that all commands share."""
    made = Table(box=None, pad_edge=False, header_style="dim", padding=(0, 2, 0, 0))
    for column in columns:
        made.add_column(column, justify="right" if column in numbers else "left", overflow="fold")
    return made


def _console(*, stderr: bool) -> Console:
    stream = sys.stderr if stderr else sys.stdout
    width = None if stream.isatty() or os.environ.get("COLUMNS") else _PIPE_WIDTH
    return Console(stderr=stderr, width=width, markup=False, emoji=False, highlight=False)
