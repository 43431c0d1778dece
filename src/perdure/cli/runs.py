"""`perdure runs`: list them, look at one, act on some."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence
from typing import Any

import click
from rich.console import Group, RenderableType
from rich.text import Text

from perdure.app import Perdure
from perdure.cli import documents
from perdure.cli.acting import Result, act, dry_run_option, report, report_items
from perdure.cli.client import client
from perdure.cli.filters import either, filter_options, filters
from perdure.cli.options import json_option, store_option
from perdure.cli.output import output, table
from perdure.cli.portrait import STATUS_STYLES, Portrait, draw
from perdure.cli.text import duration, plain, relative, styled
from perdure.cli.timeline import rows
from perdure.cli.waits import Wait, waits
from perdure.engine.handle import RunHandle
from perdure.engine.listing import RunFilters
from perdure.model.errors import PerdureError, RunEnded, RunNotFound, UsageError
from perdure.model.failure import decode_failure
from perdure.model.history import Op
from perdure.model.run import REQUEUABLE, TERMINAL, Run, Status
from perdure.model.steps import State, Step
from perdure.ports.store import RunQuery

#: Children that are looked up to say how they stand.
_CHILDREN = 200
_CHILD_OPS = frozenset({Op.CHILD, Op.JOIN})
_NOTE_LENGTH = 120
_STATUSES = [status.value for status in Status]


@click.group()
def runs() -> None:
    """List runs, look at one, cancel, retry or delete them."""


@runs.command("list")
@filter_options
@click.option("--limit", type=click.IntRange(1, 10_000), default=50, show_default=True, help="At most so many.")
@click.option("--before", type=int, metavar="NUMBER", help="Go on after an earlier page, which says with which number.")
@store_option
@json_option
def list_runs(store: str, limit: int, before: int | None, **given: Any) -> None:
    """List runs, newest first."""
    wanted = filters(given)

    async def look() -> tuple[list[Run], int]:
        async with client(store) as app:
            return await app.runs(limit=limit + 1, before=before, **wanted), app.engine.store.now()

    found, now = asyncio.run(look())
    page, following = found[:limit], found[limit - 1].incarnation if len(found) > limit else None
    document = {"runs": [documents.of_run(run) for run in page], "next": following}
    output().answer(document, lambda: _list(page, following, now))


def _list(page: Sequence[Run], following: int | None, now: int) -> RenderableType:
    if not page:
        return Text("no runs")
    listed = table("run", "workflow", "status", "created", "took", "note", numbers=("took",))
    for run in page:
        took = "" if run.started_at is None else duration((run.ended_at or now) - run.started_at)
        status = Text(str(run.status), STATUS_STYLES[run.status])
        created = relative(run.created_at, now)
        listed.add_row(styled(run.id), styled(f"{run.workflow} {run.version}"), status, created, took, _note(run))
    if following is None:
        return listed
    return Group(listed, Text(f"there are more: --before {following}", style="dim"))


def _note(run: Run) -> Text:
    if run.error is not None:
        return styled(decode_failure(run.error).message, limit=_NOTE_LENGTH)
    if run.continued_to is not None:
        return styled(f"goes on as {run.continued_to}", limit=_NOTE_LENGTH)
    return styled(", ".join(run.tags), "dim", _NOTE_LENGTH)


# -- one run ----------------------------------------------------------------------------------------------------------


@runs.command()
@click.argument("run")
@click.option("--all", "whole", is_flag=True, help="With every operation, whole values and tracebacks.")
@store_option
@json_option
def show(run: str, store: str, whole: bool) -> None:
    """Draw a run as a timeline, and say what it waits for."""
    portrait = asyncio.run(_look(store, run, whole))
    document = documents.of_run(portrait.run, whole=True) | {
        "waits": [documents.of_wait(wait) for wait in portrait.waits],
        "unread": [documents.of_message(message) for message in portrait.messages],
        "steps": [documents.of_step(row.step) for row in portrait.rows],
    }
    output().answer(document, lambda: draw(portrait))


async def _look(url: str, run_id: str, whole: bool) -> Portrait:
    async with client(url) as app:
        store, reads = app.engine.store, app.engine.reads
        run = await app.get_run(run_id).info()
        history = await reads.history(run.key)
        now = store.now()
        lines = rows(history, run.ended_at or now)
        return Portrait(
            run=run,
            rows=lines,
            waits=await _waits(app, run, [line.step for line in lines], now),
            messages=await reads.messages(run.key),
            now=now,
            width=output().people.width,
            whole=whole,
        )


async def _waits(app: Perdure, run: Run, steps: Sequence[Step], now: int) -> list[Wait]:
    awaited = {step.name for step in steps if step.op in _CHILD_OPS and step.state is State.PENDING}
    children: dict[str, Run] = {}
    if awaited:
        query = RunQuery(parent=run.key, limit=_CHILDREN)
        children = {child.id: child for child in await app.engine.reads.runs(query)}
    return waits(run, steps, children, now)


# -- acting on runs ---------------------------------------------------------------------------------------------------


class NotRetryable(PerdureError):
    """The run has not failed."""

    code = "not_retryable"


@runs.command()
@click.argument("run_ids", metavar="[RUN]...", nargs=-1)
@click.option("--reason", default="cancelled", show_default=True, help="Is kept as the run's error.")
@click.option("--compensate", is_flag=True, help="Let the runs clean up, and undo what they did.")
@filter_options
@dry_run_option
@store_option
@json_option
def cancel(run_ids: tuple[str, ...], reason: str, compensate: bool, dry_run: bool, store: str, **given: Any) -> None:
    """Stop runs, and everything below them, for good: those named, or all that filters find.

    With --compensate they are asked to: a run that is under way cleans up, undoes its steps, and then ends as cancelled.
    """
    either(run_ids, given, "cancel", dry_run=dry_run)
    if not run_ids:
        report(asyncio.run(_cancel_where(store, filters(given), reason, compensate=compensate, dry_run=dry_run)))
        return

    async def one(run: RunHandle[object]) -> str:
        before = await run.status()
        if before in TERMINAL and before is not Status.CANCELLED:
            raise RunEnded(f"run {run.id!r} has ended already ({before}); there is nothing to cancel")
        return await run.cancel(reason, compensate=compensate)

    report(asyncio.run(act(output(), store, run_ids, "cancelling", one)))


async def _cancel_where(url: str, wanted: RunFilters, reason: str, *, compensate: bool, dry_run: bool) -> list[Result]:
    async with client(url) as app:
        found = await app.cancel_where(reason=reason, compensate=compensate, dry_run=dry_run, **wanted)
    return [Result(one.id, one.status) for one in found]


@runs.command()
@click.argument("run_ids", metavar="[RUN]...", nargs=-1)
@filter_options
@click.option("--children", is_flag=True, help="Also the children that they wait for, all the way down.")
@dry_run_option
@store_option
@json_option
def retry(run_ids: tuple[str, ...], children: bool, dry_run: bool, store: str, **given: Any) -> None:
    """Revive failed or dead runs: what failed last is tried afresh."""
    either(run_ids, given, "retry", dry_run=dry_run)
    if not run_ids:
        wanted = filters(given)
        report_items(
            store, "retried", dry_run, lambda app: app.requeue_where(dry_run=dry_run, children=children, **wanted)
        )
        return

    async def one(run: RunHandle[object]) -> str:
        status = await run.status()
        if status not in REQUEUABLE and not children:
            raise NotRetryable(f"run {run.id!r} is {status}; only failed and dead runs can be retried")
        return await run.requeue(children=children)

    report(asyncio.run(act(output(), store, run_ids, "retrying", one)))


@runs.command()
@click.argument("run_ids", metavar="[RUN]...", nargs=-1)
@filter_options
@dry_run_option
@click.option("--yes", is_flag=True, help="Do not ask.")
@store_option
@json_option
def delete(run_ids: tuple[str, ...], dry_run: bool, yes: bool, store: str, **given: Any) -> None:
    """Remove runs, and everything below them, without a trace. Live ones are cancelled first."""
    either(run_ids, given, "delete", dry_run=dry_run)
    wanted = filters(given)
    if not (yes or dry_run):
        if output().json or not sys.stdin.isatty():
            raise UsageError("runs delete asks before it deletes, and there is nobody to ask; give --yes")
        what = ", ".join(run_ids) if run_ids else f"{asyncio.run(_count(store, wanted))} runs"
        click.confirm(f"Delete {plain(what)} and everything below?", abort=True, err=True)
    if not run_ids:
        report_items(store, "deleted", dry_run, lambda app: app.delete_where(dry_run=dry_run, **wanted))
        return

    async def one(run: RunHandle[object]) -> str:
        if not await run.delete():
            raise RunNotFound(f"there is no run {run.id!r}")
        return "deleted"

    report(asyncio.run(act(output(), store, run_ids, "deleting", one)))


async def _count(store: str, wanted: RunFilters) -> int:
    async with client(store) as app:
        return await app.count(**wanted)
