"""The program `perdure`."""

from __future__ import annotations

import click

from perdure.cli.demo.command import demo
from perdure.cli.exits import Commands
from perdure.cli.fleet import fleet
from perdure.cli.migrate import migrate
from perdure.cli.operating import count, fork, pause, redispatch, unpause
from perdure.cli.queues import queues
from perdure.cli.runs import runs
from perdure.cli.signalling import signal
from perdure.cli.start import start
from perdure.cli.worker import worker


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(package_name="perdure", prog_name="perdure")
def perdure() -> None:
    """Durable workflows: work on them, look at them, act on them.

    Exit codes: 0 it is as asked, 1 it could not be done or the run failed, 2 it was asked wrongly, 130 Ctrl-C.
    """


for command in (demo, fleet, migrate, queues, runs, signal, start, worker):
    perdure.add_command(command)
for command in (count, fork, pause, redispatch, unpause):
    runs.add_command(command)
