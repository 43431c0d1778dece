"""`perdure runs`: list them, look at one, act on some."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import click
from msgspec import Struct
from rich.console import Group, RenderableType
from rich.progress import track
from rich.text import Text

from perdure.app import Perdure
from perdure.cli import documents
from perdure.cli.client import client
from perdure.cli.exits import FAILED
from perdure.cli.filters import attribute, filter_options
from perdure.cli.options import json_option, store_option
from perdure.cli.output import Output, output, table
from perdure.cli.portrait import STATUS_STYLES, Portrait, draw
from perdure.cli.text import duration, plain, relative, styled
from perdure.cli.timeline import rows
from perdure.cli.waits import Wait, waits
from perdure.engine.handle import RunHandle
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


@click.group()
def runs() -> None:
    """List runs, look at one, cancel, retry or delete them."""


@runs.command("list")
@filter_options
@click.option("--limit", type=click.IntRange(1, 10_000), default=50, show_default=True, help="At most so many.")
@click.option("--before", type=int, metavar="NUMBER", help="Go on after an earlier page, which says with which number.")
@store_option
@json_option
def list_runs(
    store: str,
    statuses: tuple[str, ...],
    workflow: str | None,
    tag: str | None,
    attributes: tuple[str, ...],
    namespace: str | None,
    limit: int,
    before: int | None,
) -> None:
    """List runs, newest first."""
    wanted = dict(map(attribute, attributes))

    async def look() -> tuple[list[Run], int]:
        async with client(store) as app:
            found = await app.runs(
                status=statuses,
                workflow=workflow,
                tag=tag,
                attributes=wanted,
                namespace=namespace,
                limit=limit + 1,
                before=before,
            )
            return found, app.engine.store.now()

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


class Result(Struct, frozen=True):
    """What became of one run that a command acted on."""

    id: str
    #: How it stands now, or `deleted`; None if there was an error.
    status: str | None
    error: PerdureError | None = None


@runs.command()
@click.argument("run_ids", metavar="[RUN...]", nargs=-1)
@click.option("--reason", default="cancelled", show_default=True, help="Is kept as the run's error.")
@click.option("--compensate", is_flag=True, help="Let the runs clean up, and undo what they did.")
@filter_options
@click.option("--dry-run", is_flag=True, help="With filters: only say which runs they are.")
@store_option
@json_option
def cancel(run_ids: tuple[str, ...], reason: str, compensate: bool, dry_run: bool, store: str, **filters: Any) -> None:
    """Stop runs, and everything below them, for good: those named, or all that filters find.

    With --compensate they are asked to: a run that is under way cleans up, undoes its steps, and then ends as cancelled.
    """
    wanted = {name: value for name, value in filters.items() if value not in (None, ())}
    if bool(run_ids) == bool(wanted):
        raise UsageError("runs cancel takes the ids of runs, or filters like --workflow; one of the two")
    if dry_run and run_ids:
        raise UsageError("--dry-run is for filters: a run that is named is the one that is meant")
    if wanted:
        _report(asyncio.run(_cancel_where(store, wanted, reason, compensate=compensate, dry_run=dry_run)))
        return

    async def one(run: RunHandle[object]) -> str:
        before = await run.status()
        if before in TERMINAL and before is not Status.CANCELLED:
            raise RunEnded(f"run {run.id!r} has ended already ({before}); there is nothing to cancel")
        return await run.cancel(reason, compensate=compensate)

    _report(asyncio.run(_act(output(), store, run_ids, "cancelling", one)))


async def _cancel_where(
    url: str, filters: dict[str, Any], reason: str, *, compensate: bool, dry_run: bool
) -> list[Result]:
    async with client(url) as app:
        found = await app.cancel_where(
            status=filters.get("statuses", ()),
            workflow=filters.get("workflow"),
            tag=filters.get("tag"),
            attributes=dict(map(attribute, filters["attributes"])) if "attributes" in filters else None,
            namespace=filters.get("namespace"),
            reason=reason,
            compensate=compensate,
            dry_run=dry_run,
        )
    return [Result(one.id, one.status) for one in found]


@runs.command()
@click.argument("run_ids", metavar="RUN...", nargs=-1, required=True)
@store_option
@json_option
def retry(run_ids: tuple[str, ...], store: str) -> None:
    """Revive failed or dead runs: what failed last is tried afresh."""

    async def one(run: RunHandle[object]) -> str:
        status = await run.status()
        if status not in REQUEUABLE:
            raise NotRetryable(f"run {run.id!r} is {status}; only failed and dead runs can be retried")
        return await run.requeue()

    _report(asyncio.run(_act(output(), store, run_ids, "retrying", one)))


@runs.command()
@click.argument("run_ids", metavar="RUN...", nargs=-1, required=True)
@click.option("--yes", is_flag=True, help="Do not ask.")
@store_option
@json_option
def delete(run_ids: tuple[str, ...], yes: bool, store: str) -> None:
    """Remove runs, and everything below them, without a trace. Live ones are cancelled first."""
    if not yes:
        if output().json or not sys.stdin.isatty():
            raise UsageError("runs delete asks before it deletes, and there is nobody to ask; give --yes")
        click.confirm(f"Delete {plain(', '.join(run_ids))} and everything below?", abort=True, err=True)

    async def one(run: RunHandle[object]) -> str:
        if not await run.delete():
            raise RunNotFound(f"there is no run {run.id!r}")
        return "deleted"

    _report(asyncio.run(_act(output(), store, run_ids, "deleting", one)))


async def _act(
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


def _report(results: Sequence[Result]) -> None:
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
