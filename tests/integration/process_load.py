"""Workflows whose steps tell the parent process where they are, and wait for its word.

A worker prints one line an event: its name, what happens, of which run, which attempt. What is printed is written, whatever
happens to the process then.
"""

from __future__ import annotations

import asyncio
import os
import sys

from perdure import Context, current_step, step, workflow

#: What this process calls itself.
name = ""
#: Set when the parent says "go".
go = asyncio.Event()
#: A pipe whose end the parent holds: reading it blocks until the parent writes.
blocker = -1


def tell(what: str, *more: object) -> None:
    """One line to the parent, at once and whole."""
    os.write(sys.stdout.fileno(), " ".join(map(str, (name, what, *more))).encode() + b"\n")


@step
async def hold() -> str:
    """Waits for the parent's "go"."""
    info = current_step()
    tell("holds", info.run_id, info.attempt)
    await go.wait()
    tell("done", info.run_id, info.attempt)
    return name


@step
async def block() -> str:
    """Blocks the event loop of the process called "a" until the parent writes into the pipe; elsewhere as `hold`."""
    info = current_step()
    tell("blocks", info.run_id, info.attempt)
    if name == "a":
        os.read(blocker, 1)
    else:
        await go.wait()
    tell("done", info.run_id, info.attempt)
    return name


@step
async def count() -> int:
    info = current_step()
    tell("counts", info.run_id, info.attempt)
    return 1


@workflow
async def held(ctx: Context) -> str:
    return await hold()


@workflow
async def blocked(ctx: Context) -> str:
    return await block()


@workflow
async def counted(ctx: Context) -> int:
    return await count()


@workflow
async def patient(ctx: Context) -> int:
    await count()
    return await ctx.wait_for_signal("go", type=int)
