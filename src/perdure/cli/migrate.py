"""`perdure migrate`: bring a store's schema up to date, or say what that would do."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Protocol, runtime_checkable

import click
from rich.console import RenderableType
from rich.text import Text

from perdure.app import open_store, parse_url
from perdure.cli.exits import FAILED
from perdure.cli.options import json_option, store_option
from perdure.cli.output import output, table
from perdure.cli.text import styled
from perdure.engine.systemclock import SystemClock
from perdure.model.errors import UsageError
from perdure.model.shown import without_secrets
from perdure.ports.store import Store


class Migration(Protocol):
    """One change of a schema."""

    @property
    def number(self) -> int: ...
    @property
    def name(self) -> str: ...


@runtime_checkable
class Migratable(Protocol):
    """A store that has a schema."""

    def plan(self) -> Sequence[Migration]:
        """The migrations that are due. Changes nothing."""
        ...


@click.command()
@click.option("--plan", is_flag=True, help="Only say what would be done. Exit code 1 if there is something to do.")
@store_option
@json_option
def migrate(store: str, plan: bool) -> None:
    """Create a store, or bring its schema up to date."""
    if parse_url(store)[0] == "memory":
        raise UsageError(f"{store} has no schema: it begins anew with each process")
    opened = open_store(store, SystemClock())
    due = opened.plan() if isinstance(opened, Migratable) else ()
    if due and not plan:
        out = output()
        if out.aside.is_terminal:
            with out.aside.status(Text(f"applying {len(due)} migrations")):
                asyncio.run(_apply(opened))
        else:
            asyncio.run(_apply(opened))
    document = {
        "store": without_secrets(store),
        "applied": not plan,
        "migrations": [{"number": migration.number, "name": migration.name} for migration in due],
    }
    output().answer(document, lambda: _picture(due, plan=plan))
    if due and plan:
        click.get_current_context().exit(FAILED)


async def _apply(store: Store) -> None:
    try:
        await store.open(migrate=True)
    finally:
        await store.close()


def _picture(due: Sequence[Migration], *, plan: bool) -> RenderableType:
    if not due:
        return Text("up to date")
    listed = table("number", "migration", "", numbers=("number",))
    for migration in due:
        listed.add_row(str(migration.number), styled(migration.name), "due" if plan else "applied")
    return listed
