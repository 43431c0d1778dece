"""`perdure worker`: serve an app's runs until told to stop."""

from __future__ import annotations

import asyncio
import logging
import os
import sys
import threading
from collections.abc import Callable
from functools import partial
from typing import Any

import click
import msgspec
from msgspec.structs import replace

from perdure.app import Perdure, parse_url
from perdure.cli.loading import load_app
from perdure.cli.options import json_option
from perdure.cli.output import output
from perdure.cli.stopping import await_eof, stopping
from perdure.cli.supervisor import Supervisor
from perdure.cli.text import plain
from perdure.engine.events import Lifecycle
from perdure.model.errors import UsageError
from perdure.model.shown import without_secrets

log = logging.getLogger("perdure.worker")

_LEVELS = ("debug", "info", "warning", "error")


@click.command()
@click.argument("app", metavar="MODULE:APP")
@click.option(
    "--processes", type=click.IntRange(1, 1000), default=1, show_default=True, help="Work in so many processes."
)
@click.option(
    "--concurrency",
    type=click.IntRange(1),
    help="Each process holds so many runs, and runs so many async steps, at once. Default: what the app is set to.",
)
@click.option("--log-level", type=click.Choice(_LEVELS), default="info", show_default=True)
@click.option(
    "--stop-on-eof", is_flag=True, help="Drain when standard input ends: for a parent that must not leave us behind."
)
@click.option("--tell", "tell_fd", type=int, hidden=True)
@json_option
def worker(
    app: str, processes: int, concurrency: int | None, log_level: str, stop_on_eof: bool, tell_fd: int | None
) -> None:
    """Serve the runs of an app.

    MODULE:APP names a Perdure, or a function that makes one: orders.main:app is `app` in orders/main.py below this folder.

    SIGTERM or Ctrl-C drains: nothing new is taken, what runs gets to its next stop. A second one gives up at once.
    With --json every event is a line of JSON on standard output.

    With --processes a process that dies is replaced. The exit code is 1 if one of them did not end well.
    """
    every = output().json
    if processes > 1:
        _log(log_level)
        command = partial(_command, app, concurrency, log_level, every)
        tell = output().event if every else None
        supervisor = Supervisor(command, processes, tell)
        click.get_current_context().exit(supervisor.run(stop_on_eof=stop_on_eof))
    loaded = load_app(app)
    if concurrency is not None:
        loaded.settings = replace(loaded.settings, max_runs=concurrency, max_steps=concurrency)
    _log(log_level, among_others=tell_fd is not None)
    if tell_fd is None:
        asyncio.run(serve(loaded, output().event if every else None, stop_on_eof=stop_on_eof))
    elif parse_url(loaded.url)[0] == "memory":
        raise UsageError(
            "a store in memory is each process's own; give the app the URL of one that processes can share"
        )
    else:
        asyncio.run(serve(loaded, partial(_tell_parent, tell_fd), stop_on_eof=stop_on_eof, every=every))


def _command(app: str, concurrency: int | None, log_level: str, json: bool, tell_fd: int) -> list[str]:
    """How a child of a supervisor is started."""
    flags = [*(["-P"] if sys.flags.safe_path else []), *(f"-W{option}" for option in sys.warnoptions)]
    command = [sys.executable, *flags, "-m", "perdure.cli", "worker", app]
    command += ["--stop-on-eof", "--tell", str(tell_fd), "--log-level", log_level]
    command += [] if concurrency is None else ["--concurrency", str(concurrency)]
    return [*command, "--json"] if json else command


def _tell_parent(fd: int, event: Any) -> None:
    line = msgspec.json.encode(event) + b"\n"
    try:
        while line:
            line = line[os.write(fd, line) :]
    except OSError:
        pass  # it is gone; the end of our input tells us the same


async def serve(
    app: Perdure, tell: Callable[[Any], None] | None, *, stop_on_eof: bool = False, every: bool = True
) -> None:
    """Serve `app` until a signal, or the end of standard input; then drain. `tell` is given events as documents.

    With `every` False only what the process itself does. A signal during the start ends that: it is not waited for.
    """
    loop = asyncio.get_running_loop()
    main = asyncio.current_task()
    stop = asyncio.Event()
    starting = True

    def stop_now() -> None:
        if starting and not stop.is_set() and main is not None:
            main.cancel()
        stop.set()

    def told() -> None:
        loop.call_soon_threadsafe(stop_now)

    with stopping(told):
        if stop_on_eof:
            threading.Thread(target=await_eof, args=(told,), name="perdure-eof", daemon=True).start()
        try:
            async with app:
                starting = False
                _announce(app, tell, every=every)
                await stop.wait()
                held = len(app.engine.executor.holdings)
                log.info("draining: %d runs are held here; another signal gives up at once", held)
                if tell is not None:
                    tell({"event": "draining", "held": held})
        except asyncio.CancelledError:
            if not stop.is_set() or main is None or main.uncancel():
                raise
        log.info("stopped")
        if tell is not None:
            tell({"event": "stopped"})


def _announce(app: Perdure, tell: Callable[[Any], None] | None, *, every: bool) -> None:
    if not app.engine.consume:
        raise UsageError("this app was made with consume=False, so it runs nothing; a worker needs one that does")
    workflows = [f"{one.name} {one.version}" for one in app.registry.workflows()]
    steps = [one.name for one in app.registry.steps()]
    if not workflows:
        raise UsageError(
            "this app serves no workflow; give it the modules that define some: Perdure(..., include=['orders.workflows'])"
        )
    log.info("serving %s as process %d", without_secrets(app.url), os.getpid())
    log.info("workflows: %s", ", ".join(workflows))
    log.info("steps: %s", ", ".join(steps) or "none")
    if tell is not None:
        tell(
            {
                "event": "ready",
                "pid": os.getpid(),
                "store": without_secrets(app.url),
                "workflows": workflows,
                "steps": steps,
            }
        )

        def pass_on(event: Lifecycle) -> None:
            tell({"event": event.kind} | {k: v for k, v in msgspec.to_builtins(event).items() if k != "kind"})

        if every:
            app.subscribe(pass_on)


def _log(level: str, *, among_others: bool = False) -> None:
    """Log to standard error, unless the app's own module has set up logging. `among_others`: say which process it is."""
    root = logging.getLogger()
    if root.handlers:
        return
    handler = logging.StreamHandler()
    handler.setFormatter(
        _Formatter(f"%(asctime)s %(levelname)-7s {'[%(process)d] ' if among_others else ''}%(message)s")
    )
    root.addHandler(handler)
    root.setLevel(level.upper())


class _Formatter(logging.Formatter):
    """Our own messages may quote anything: ids, errors of others."""

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802  (logging's name)
        if record.name.partition(".")[0] == "perdure":
            record.message = plain(record.message)
        return super().formatMessage(record)
