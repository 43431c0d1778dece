"""The mixed load of the crash test: every kind of operation, each run with a result that can be checked.

Steps write `begin` and `end` lines into a pipe that outlives their process: what was written is written, whatever happens then.
"""

from __future__ import annotations

import asyncio
import os

from perdure import Context, current_step, step, workflow

#: Set in the worker before anything runs.
pipe = -1


def tell(what: str) -> None:
    """One line, atomically (it is shorter than a pipe's buffer unit)."""
    info = current_step()
    os.write(pipe, f"{os.getpid()} {what} {info.run_id} {info.seq} {info.attempt} {info.name}\n".encode())


@step
async def note(n: int) -> int:
    tell("begin")
    await asyncio.sleep(0)
    tell("end")
    return n


@step(max_attempts=50, backoff="fixed", base=0.001)
async def flaky(n: int) -> int:
    tell("begin")
    if current_step().attempt % 3:
        raise RuntimeError("not yet")
    tell("end")
    return n


@step
def threaded(n: int) -> int:
    tell("begin")
    tell("end")
    return n


@workflow
async def sequence(ctx: Context, n: int) -> int:
    total = 0
    for i in range(6):
        total += await note(n + i)
    return total


@workflow
async def fan(ctx: Context, n: int) -> int:
    return sum(await asyncio.gather(*[note(n + i) for i in range(4)], flaky(n), ctx.step(threaded, n)))


@workflow
async def timers(ctx: Context, n: int) -> int:
    for i in range(3):
        await asyncio.sleep(0.005)
        await note(i)
    try:
        await ctx.wait_for_signal("never", timeout=0.005)
    except TimeoutError:
        ctx.set_value("timed out", True)
    return n


@workflow
async def family(ctx: Context, n: int) -> int:
    first = await sequence.run(n)
    rest = await ctx.all(fan, [n, n + 1, n + 2])
    return first + sum(rest)


@workflow
async def counter(ctx: Context, total: int, seen: int, wanted: int) -> int:
    """Adds up `wanted` signals, three a link of its chain."""
    for _ in range(3):
        total += await ctx.wait_for_signal("add", type=int)
        seen += 1
        await note(total)
        if seen == wanted:
            return total
    ctx.continue_as_new(total, seen, wanted)


SIGNALS = 8


def expected(workflow: str, n: int) -> int:
    """What a run with input n returns."""
    sequence_of = lambda n: sum(n + i for i in range(6))  # noqa: E731
    fan_of = lambda n: sum(n + i for i in range(4)) + 2 * n  # noqa: E731
    match workflow:
        case "sequence":
            return sequence_of(n)
        case "fan":
            return fan_of(n)
        case "family":
            return sequence_of(n) + fan_of(n) + fan_of(n + 1) + fan_of(n + 2)
        case "counter":
            return n * SIGNALS
        case _:
            return n
