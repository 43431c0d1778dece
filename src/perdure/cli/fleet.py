"""`perdure fleet`: the processes that work on a store."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import click
from rich.console import RenderableType
from rich.text import Text

from perdure.cli.client import client
from perdure.cli.options import json_option, store_option
from perdure.cli.output import output, table
from perdure.cli.text import duration, iso, relative, styled
from perdure.ports.fleet import Member

_SECOND = 1_000_000
#: Microseconds: an event loop that is so late hurts what runs on it.
_LATE = _SECOND


@click.command()
@store_option
@json_option
def fleet(store: str) -> None:
    """List the processes that work on a store: what they serve, how busy they are, whether they drain."""

    async def look() -> tuple[Sequence[Member], int]:
        async with client(store) as app:
            return await app.engine.store.fleet(), app.engine.store.now()

    members, now = asyncio.run(look())
    output().answer({"processes": [_document(member) for member in members]}, lambda: _list(members, now))


def _document(member: Member) -> dict[str, Any]:
    process = member.process
    return {
        "process": process.owner,
        "host": process.host,
        "pid": process.pid,
        "perdure": process.perdure,
        "state": _state(member),
        "namespaces": process.namespaces,
        "serves": [{"workflow": each.workflow, "version": each.version} for each in process.serves],
        "held": process.held,
        "limit": process.limit,
        "lag_ms": process.lag / 1000,
        "started_at": iso(process.started_at),
        "seen_at": iso(member.seen_at),
        "expires_at": iso(member.expires_at),
    }


def _state(member: Member) -> str:
    return "draining" if member.process.draining else "working"


def _list(members: Sequence[Member], now: int) -> RenderableType:
    if not members:
        return Text("no process works on this store; `perdure worker MODULE:APP` starts one")
    listed = table(
        "process", "host", "pid", "serves", "runs", "lag", "perdure", "state", "seen", numbers=("pid", "runs", "lag")
    )
    for member in members:
        process = member.process
        listed.add_row(
            # Its own part: what is before says host and pid once more.
            styled(process.owner.removeprefix(f"{process.host}:{process.pid}:")),
            styled(process.host),
            str(process.pid),
            styled(_serves(member)),
            f"{process.held}/{process.limit}",
            Text(duration(process.lag), "bold red" if process.lag >= _LATE else ""),
            styled(process.perdure),
            Text(_state(member), "yellow" if process.draining else "green"),
            relative(member.seen_at, now),
        )
    return listed


def _serves(member: Member) -> str:
    process = member.process
    workflows = ", ".join(sorted(f"{each.workflow} {each.version}" for each in process.serves)) or "nothing"
    return workflows if process.namespaces is None else f"{workflows} in {', '.join(process.namespaces)}"
