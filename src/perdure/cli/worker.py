"""`perdure worker`: serve an app's runs until told to stop."""

from __future__ import annotations

import asyncio
import logging
import os
import threading
from collections.abc import Callable
from typing import Any

import click
import msgspec

from perdure.app import Perdure
from perdure.cli.loading import load_app
from perdure.cli.options import json_option
from perdure.cli.output import output
from perdure.cli.stopping import stopping
from perdure.cli.text import plain
from perdure.engine.events import Lifecycle
from perdure.model.errors import UsageError

log = logging.getLogger("perdure.worker")

_LEVELS = ("debug", "info", "warning", "error")


@click.command()
@click.argument("app", metavar="MODULE:APP")
@click.option("--log-level", type=click.Choice(_LEVELS), default="info", show_default=True)
@click.option(
    "--stop-on-eof", is_flag=True, help="Drain when standard input ends: for a parent that must not leave us behind."
)
@json_option
def worker(app: str, log_level: str, stop_on_eof: bool) -> None:
    """Serve the runs of an app.

    MODULE:APP names a Perdure, or a function that makes one: orders.main:app is `app` in orders/main.py below this folder.

    SIGTERM or Ctrl-C drains: nothing new is taken, what runs gets to its next stop. A second one gives up at once.
    With --json every event is a line of JSON on standard output.
    """
    loaded = load_app(app)
    _log(log_level)
    tell = output().event if output().json else None
    asyncio.run(serve(loaded, tell, stop_on_eof=stop_on_eof))


async def serve(app: Perdure, tell: Callable[[Any], None] | None, *, stop_on_eof: bool = False) -> None:
    """Serve `app` until a signal, or the end of standard input; then drain. `tell` is given each event as a document."""
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()

    def told() -> None:
        loop.call_soon_threadsafe(stop.set)

    with stopping(told):
        if stop_on_eof:
            threading.Thread(target=_await_eof, args=(told,), name="perdure-eof", daemon=True).start()
        async with app:
            _announce(app, tell)
            await stop.wait()
            held = len(app.engine.executor.holdings)
            log.info("draining: %d runs are held here; another signal gives up at once", held)
            if tell is not None:
                tell({"event": "draining", "held": held})
        log.info("stopped")
        if tell is not None:
            tell({"event": "stopped"})


def _announce(app: Perdure, tell: Callable[[Any], None] | None) -> None:
    if not app.engine.consume:
        raise UsageError("this app was made with consume=False, so it runs nothing; a worker needs one that does")
    workflows = [f"{one.name} {one.version}" for one in app.registry.workflows()]
    steps = [one.name for one in app.registry.steps()]
    if not workflows:
        raise UsageError(
            "this app serves no workflow; give it the modules that define some: Perdure(..., include=['orders.workflows'])"
        )
    log.info("serving %s as process %d", app.url, os.getpid())
    log.info("workflows: %s", ", ".join(workflows))
    log.info("steps: %s", ", ".join(steps) or "none")
    if tell is not None:
        tell({"event": "ready", "pid": os.getpid(), "store": app.url, "workflows": workflows, "steps": steps})

        def pass_on(event: Lifecycle) -> None:
            tell({"event": event.kind} | {k: v for k, v in msgspec.to_builtins(event).items() if k != "kind"})

        app.subscribe(pass_on)


def _await_eof(told: Callable[[], None]) -> None:
    # Past sys.stdin: its lock, held by a daemon thread, would break the interpreter's end.
    while os.read(0, 4096):
        pass
    try:
        told()
    except RuntimeError:
        pass  # The loop is closed: we have stopped already.


def _log(level: str) -> None:
    """Log to standard error, unless the app's own module has set up logging."""
    root = logging.getLogger()
    if root.handlers:
        return
    handler = logging.StreamHandler()
    handler.setFormatter(_Formatter("%(asctime)s %(levelname)-7s %(message)s"))
    root.addHandler(handler)
    root.setLevel(level.upper())


class _Formatter(logging.Formatter):
    """Our own messages may quote anything: ids, errors of others."""

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802  (logging's name)
        if record.name.partition(".")[0] == "perdure":
            record.message = plain(record.message)
        return super().formatMessage(record)
