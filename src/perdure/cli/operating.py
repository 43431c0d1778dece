"""`perdure runs count`, `pause`, `unpause`, `redispatch`, `fork`."""

from __future__ import annotations

import asyncio
from typing import Any

import click

from perdure.cli.acting import act, dry_run_option, report, report_items
from perdure.cli.client import client
from perdure.cli.filters import either, filter_options, filters
from perdure.cli.options import json_option, store_option
from perdure.cli.output import output, table
from perdure.cli.text import styled
from perdure.engine.handle import RunHandle
from perdure.ports.store import Facet


@click.command()
@filter_options
@click.option(
    "--by",
    "facets",
    multiple=True,
    type=click.Choice([facet.value for facet in Facet]),
    help="Count for each value of this; may be repeated.",
)
@store_option
@json_option
def count(facets: tuple[str, ...], store: str, **given: Any) -> None:
    """Count runs, all of them or by what they have in common."""
    wanted, by = filters(given), tuple(dict.fromkeys(facets))

    async def look() -> dict[tuple[str | None, ...], int]:
        async with client(store) as app:
            if not by:
                return {(): await app.count(**wanted)}
            call: Any = app.facets
            found = await call(*by, **wanted)
            return {key if isinstance(key, tuple) else (key,): number for key, number in found.items()}

    found = sorted(asyncio.run(look()).items(), key=lambda each: (-each[1], tuple(map(str, each[0]))))
    if not by:
        [(_, number)] = found
        output().answer({"count": number}, lambda: styled(str(number)))
        return
    counted = table(*by, "runs", numbers=("runs",))
    for values, number in found:
        counted.add_row(*(styled(value or "-") for value in values), str(number))
    document = {"counts": [dict(zip(by, values, strict=True)) | {"runs": number} for values, number in found]}
    output().answer(document, lambda: counted)


@click.command()
@click.argument("run_ids", metavar="[RUN]...", nargs=-1)
@filter_options
@click.option("--at-once", is_flag=True, help="Take runs that are at work from their processes; only with RUN.")
@dry_run_option
@store_option
@json_option
def pause(run_ids: tuple[str, ...], at_once: bool, dry_run: bool, store: str, **given: Any) -> None:
    """Have nobody go on with runs until they are unpaused."""
    either(run_ids, given, "pause", dry_run=dry_run)
    if not run_ids:
        wanted = filters(given)
        report_items(store, "paused", dry_run, lambda app: app.pause_where(dry_run=dry_run, **wanted))
        return

    async def one(run: RunHandle[object]) -> str:
        return "paused" if await run.pause(at_once=at_once) else "was paused already"

    report(asyncio.run(act(output(), store, run_ids, "pausing", one)))


@click.command()
@click.argument("run_ids", metavar="[RUN]...", nargs=-1)
@filter_options
@dry_run_option
@store_option
@json_option
def unpause(run_ids: tuple[str, ...], dry_run: bool, store: str, **given: Any) -> None:
    """Let paused runs go on."""
    either(run_ids, given, "unpause", dry_run=dry_run)
    if not run_ids:
        wanted = filters(given)
        report_items(store, "unpaused", dry_run, lambda app: app.unpause_where(dry_run=dry_run, **wanted))
        return

    async def one(run: RunHandle[object]) -> str:
        return "unpaused" if await run.unpause() else "was not paused"

    report(asyncio.run(act(output(), store, run_ids, "unpausing", one)))


@click.command()
@click.argument("run_ids", metavar="RUN...", nargs=-1, required=True)
@store_option
@json_option
def redispatch(run_ids: tuple[str, ...], store: str) -> None:
    """Take runs from the processes at work on them: steps that hang are tried again."""

    async def one(run: RunHandle[object]) -> str:
        status, steps = await run.redispatch()
        return f"{status}, {steps} steps to be tried again"

    report(asyncio.run(act(output(), store, run_ids, "redispatching", one)))


@click.command()
@click.argument("run_id", metavar="RUN")
@click.argument("from_step", metavar="SEQ", type=click.IntRange(min=0))
@store_option
@json_option
def fork(run_id: str, from_step: int, store: str) -> None:
    """Start a new run that keeps a run's history up to step SEQ (as `runs show --all` numbers them), and goes on from there."""

    async def make() -> str:
        async with client(store) as app:
            return (await app.get_run(run_id).fork(from_step)).id

    new = asyncio.run(make())
    output().answer({"run": new}, lambda: styled(new))


__all__ = ["count", "fork", "pause", "redispatch", "unpause"]
