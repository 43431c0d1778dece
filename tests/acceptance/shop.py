"""What the tests of the command line start, wait for and look at. Also a program's own module: see `write`."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from perdure import Context, FatalError, Perdure, RunHandle, Status, Undo, step, workflow
from perdure.model.steps import State


@step
async def double(n: int) -> int:
    return 2 * n


@step(max_attempts=2, base=0.001)
async def refuse(n: int) -> int:
    raise ValueError(f"no {n}")


@step
async def explode(text: str) -> int:
    raise FatalError(text)


@step
async def release(undo: Undo[str, str]) -> str:
    return f"released {undo.input}"


@step(compensate=release)
async def reserve(what: str) -> str:
    return what


@workflow
async def reserved(ctx: Context) -> None:
    await reserve("a room")
    await ctx.wait_for_signal("never")


@workflow(version="3", tags=["sums"])
async def add(a: int, b: int = 1) -> int:
    return await double(a) + b


@workflow
async def fail(n: int) -> int:
    return await refuse(n)


@workflow
async def burst(text: str) -> int:
    return await explode(text)


@workflow
async def approve(ctx: Context) -> str:
    answer: str = await ctx.wait_for_signal("approve", type=str, timeout=3600)
    return answer


@workflow
async def open_door(ctx: Context, token: str) -> str:
    key: str = await ctx.wait_for_signal("key", type=str, token=token)
    return key


@workflow
async def family(ctx: Context) -> str:
    return await ctx.child(approve, id=f"{ctx.run_id}-child")


@workflow
async def nap(ctx: Context) -> None:
    await asyncio.sleep(86_400)


@workflow
async def chain(ctx: Context, n: int) -> int:
    if n:
        ctx.continue_as_new(n - 1)
    return 7


WORKFLOWS = (add, fail, burst, approve, open_door, family, nap, chain, reserved)


def url(folder: Path) -> str:
    """The store of a test."""
    return f"sqlite:///{folder / 'shop.db'}"


def app(folder: Path) -> Perdure:
    """An app on it that serves everything here."""
    made = Perdure(url(folder))
    made.register(*WORKFLOWS)
    return made


async def rested(handle: RunHandle[Any]) -> None:
    """Wait until a run is settled, and not only between two attempts of a step."""
    async with asyncio.timeout(30):
        while await handle.wait() is Status.SUSPENDED:
            if all(one.state is not State.RETRYING for one in await handle.steps()):
                return
