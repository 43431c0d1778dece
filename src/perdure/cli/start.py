"""`perdure start`: start a run of an app's workflow, and perhaps wait for its end."""

from __future__ import annotations

import asyncio
from collections.abc import Generator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import click
import msgspec
from rich.console import Group, RenderableType

from perdure.app import Perdure, parse_url
from perdure.authoring.options import StartKeywords, StartOptions
from perdure.authoring.workflow import WorkflowDefinition
from perdure.cli import documents
from perdure.cli import options as types
from perdure.cli.exits import FAILED, Refusal
from perdure.cli.loading import load_app
from perdure.cli.options import json_option
from perdure.cli.output import Output, output
from perdure.cli.portrait import title
from perdure.cli.text import duration, paragraph, styled
from perdure.model import values
from perdure.model.errors import RunUnsuccessful, UsageError
from perdure.model.failure import decode_failure
from perdure.model.run import Run, Status


@click.command()
@click.argument("app", metavar="MODULE:APP")
@click.argument("workflow")
@click.argument("input", metavar="[INPUT]", type=types.json, required=False)
@click.option("--id", help="Its id: starting the same one twice starts once. Without it, one is made.")
@click.option("--version", help="Of the workflow; the newest without it.")
@click.option("--tag", "tags", multiple=True, help="May be repeated.")
@click.option("--priority", type=int, help="Greater first; 0 without it.")
@click.option("--namespace", help="Where the run belongs, if not where the app does.")
@click.option("--delay", type=types.duration, metavar="DURATION", help="Begin only after this time, like 15m.")
@click.option("--execution-timeout", type=types.duration, metavar="DURATION", help="Cancel the run after this time.")
@click.option("--wait", is_flag=True, help="Wait for the run's end and print its output; works as a worker meanwhile.")
@click.option("--timeout", type=types.duration, metavar="DURATION", help="Wait no longer than this; the run goes on.")
@json_option
def start(
    app: str, workflow: str, input: bytes | None, version: str | None, wait: bool, timeout: int | None, **options: Any
) -> None:
    """Start a run.

    MODULE:APP is as for `perdure worker`. INPUT is JSON: the one argument of the workflow, or an object with its arguments
    by name; `-` reads it from standard input.
    """
    out = output()
    loaded = load_app(app)
    if timeout is not None and not wait:
        raise UsageError("--timeout says how long to --wait; give both, or --execution-timeout to bound the run itself")
    if not wait and parse_url(loaded.url)[0] == "memory":
        raise UsageError(f"{app} keeps its runs in memory, where they end with this command; give --wait")
    chosen = StartOptions().using(_keywords(**options), "perdure start")
    run = asyncio.run(_start(out, loaded, (workflow, version), input, chosen, wait=wait, timeout=timeout))
    out.answer(documents.of_run(run, whole=True), lambda: _picture(run, ended=wait))
    if wait and run.status is not Status.COMPLETED:
        if not out.json:
            out.complain("run_unsuccessful", f"run {run.id!r} {run.status}: {decode_failure(run.error or b'').message}")
        click.get_current_context().exit(FAILED)


def _keywords(
    *,
    id: str | None,
    tags: tuple[str, ...],
    priority: int | None,
    namespace: str | None,
    delay: int | None,
    execution_timeout: int | None,
) -> StartKeywords:
    return {
        "id": id,
        "tags": tags,
        "priority": priority,
        "namespace": namespace,
        "delay": None if delay is None else timedelta(microseconds=delay),
        "timeout": None if execution_timeout is None else timedelta(microseconds=execution_timeout),
    }


async def _start(
    out: Output,
    app: Perdure,
    workflow: tuple[str, str | None],
    input: bytes | None,
    options: StartOptions,
    *,
    wait: bool,
    timeout: int | None,
) -> Run:
    """The run as it stands then: the last link of its chain if its end was waited for."""
    async with app if wait else app.client() as opened:
        definition = opened.registry.workflow(*workflow)
        handle = await opened.launch(definition, _input(definition, input), options)
        if wait:
            with _spinner(out, handle.id):
                await _end(opened, handle.id, timeout)
            return await _last_link(opened, handle.id)
        return await handle.info()


def _input(definition: WorkflowDefinition[..., Any], given: bytes | None) -> bytes:
    """The input as it is stored, checked as `app.start` would. Raises `InvalidArguments` and `InvalidValue`."""
    if given is None:
        return definition.encode_input((), {})
    data = values.encode(msgspec.json.decode(given), what=f"the input of {definition}")
    definition.check_input(data)
    return data


async def _end(app: Perdure, run_id: str, timeout: int | None) -> None:
    try:
        await app.get_run(run_id).result(timeout=None if timeout is None else timeout / 1_000_000)
    except RunUnsuccessful:
        pass  # The run itself says so, with all there is to say.
    except TimeoutError as error:
        status = await app.get_run(run_id).status()
        waited = duration(timeout or 0)
        raise Refusal("timeout", f"run {run_id!r} has not ended after {waited}: it is {status}, and goes on") from error


async def _last_link(app: Perdure, run_id: str) -> Run:
    run = await app.get_run(run_id).info()
    while run.continued_to is not None:
        run = await app.get_run(run.continued_to).info()
    return run


@contextmanager
def _spinner(out: Output, run_id: str) -> Generator[None]:
    if not out.aside.is_terminal:
        yield
        return
    with out.aside.status(styled(f"waiting for run {run_id}")):
        yield


def _picture(run: Run, *, ended: bool) -> RenderableType:
    if not ended:
        return styled(f"{run.id}: {run.status}")
    parts: list[RenderableType] = [title(run, (run.ended_at or run.updated_at) - (run.started_at or run.created_at))]
    if run.output is not None:
        parts.append(paragraph(msgspec.json.format(run.output, indent=2).decode("utf-8", "replace")))
    return Group(*parts)
