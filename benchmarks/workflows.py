"""What is run. Steps do as good as nothing: the time that is measured is Perdure's."""

from __future__ import annotations

import asyncio

from perdure import Context, step, workflow


@step
async def add_one(n: int) -> int:
    return n + 1


@workflow
async def one_step(n: int) -> int:
    return await add_one(n)


@workflow
async def three_steps(n: int) -> int:
    return await add_one(await add_one(await add_one(n)))


@workflow
async def steps_in_a_row(count: int) -> int:
    n = 0
    for _ in range(count):
        n = await add_one(n)
    return n


@workflow
async def steps_side_by_side(count: int) -> int:
    return sum(await asyncio.gather(*(add_one(n) for n in range(count))))


@workflow
async def nothing(value: str) -> None:
    pass


@workflow
async def one_signal(ctx: Context) -> int:
    return await ctx.wait_for_signal("go", type=int)


@workflow
async def many_signals(ctx: Context, count: int) -> int:
    return sum([await ctx.wait_for_signal("go", type=int) for _ in range(count)])


class Here:
    """Of this process: where `linger` says that it has begun; then it never ends. None: it ends at once."""

    lingering: asyncio.Queue[int] | None = None


@step
async def linger(n: int) -> int:
    if Here.lingering is not None:
        Here.lingering.put_nowait(n)
        await asyncio.Event().wait()
    return n


@workflow
async def cut_off(n: int) -> int:
    return await linger(await add_one(n))
