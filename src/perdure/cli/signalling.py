"""`perdure signal`: send a signal to a run, or to whoever waits for a token."""

from __future__ import annotations

import asyncio
from typing import Any

import click
import msgspec

from perdure.cli import options as types
from perdure.cli.client import client
from perdure.cli.options import json_option, store_option
from perdure.cli.output import output
from perdure.cli.text import styled
from perdure.model.errors import UsageError

_FORM = "write `perdure signal RUN NAME [PAYLOAD]` or `perdure signal --token TOKEN [PAYLOAD]`"


@click.command(short_help="Send a signal to a run, or to whoever waits for a token.")
@click.argument("words", metavar="[RUN NAME] [PAYLOAD]", nargs=-1)
@click.option("--token", help="Send to whoever waits for this token; without RUN and NAME.")
@click.option("--id", help="Of the signal: the same one is delivered once.")
@click.option("--namespace", help="Where the token belongs.")
@store_option
@json_option
def signal(words: tuple[str, ...], token: str | None, id: str | None, namespace: str | None, store: str) -> None:
    """Send a signal to a run, or with --token to whoever waits for that.

    PAYLOAD is JSON; `-` reads it from standard input. The signal is kept until somebody waits for it.
    """
    addressed = 0 if token is not None else 2
    if not addressed <= len(words) <= addressed + 1:
        raise UsageError(_FORM)
    if namespace is not None and token is None:
        raise UsageError("--namespace is for tokens: a run's id says which run is meant")
    text = words[addressed] if len(words) > addressed else "null"
    payload: Any = msgspec.json.decode(types.json(text))

    async def send() -> None:
        async with client(store) as app:
            if token is not None:
                await app.signal(payload=payload, token=token, id=id, namespace=namespace)
            else:
                await app.get_run(words[0]).signal(words[1], payload, id=id)

    asyncio.run(send())
    target = f"token {token}" if token is not None else f"run {words[0]}"
    document = {"run": None, "token": token} if token is not None else {"run": words[0], "name": words[1]}
    output().answer(document, lambda: styled(f"sent to {target}"))
