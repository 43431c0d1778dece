"""The mixed load of the crash test: every kind of operation, each run with an end that can be checked.

Steps write `begin` and `end` lines into a pipe that outlives their process: what was written is written, whatever happens then.
"""

from __future__ import annotations

import asyncio
import os

from perdure import Context, FatalError, current_step, step, stream, workflow

#: Set in the worker before anything runs.
pipe = -1


def tell(what: str) -> None:
    """One line, atomically (it is shorter than a pipe's buffer unit)."""
    info = current_step()
    os.write(pipe, f"{os.getpid()} {what} {info.run_id} {info.seq} {info.attempt} {info.name}\n".encode())


@step
async def note(n: int) -> int:
    tell("begin")
    await asyncio.sleep(0.002)  # as long as a quick query
    tell("end")
    return n


@step(max_attempts=50, backoff="fixed", base=0.001)
async def flaky(n: int) -> int:
    tell("begin")
    if current_step().attempt % 3:
        tell("failed")
        raise RuntimeError("not yet")
    tell("end")
    return n


@step
def threaded(n: int) -> int:
    tell("begin")
    tell("end")
    return n


@step
async def fatal(n: int) -> int:
    tell("begin")
    tell("failed")
    raise FatalError(f"no {n}")


@step
async def chatty(n: int) -> int:
    """What it says goes to a stream, while it runs."""
    tell("begin")
    said = stream("said")
    for i in range(5):
        said.write([n, current_step().attempt, i])
        await asyncio.sleep(0)
    tell("end")
    return n


@step
async def fragile(n: int) -> int:
    """Works when an operator has had it tried again."""
    tell("begin")
    if current_step().attempt < 2:
        tell("failed")
        raise FatalError("not the first time")
    tell("end")
    return n


@workflow
async def sequence(ctx: Context, n: int) -> int:
    total = 0
    for i in range(6):
        total += await note(n + i)
        ctx.set_value("done", i)
        ctx.stream("done").write(i)
    await chatty(n)
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
async def mailbox(ctx: Context, got: list[int], wanted: int) -> list[int]:
    """The signals in the order in which they came, three a link of its chain."""
    for _ in range(3):
        got.append(await ctx.wait_for_signal("mail", type=int))
        await note(len(got))
        if len(got) == wanted:
            return got
    return ctx.continue_as_new(got, wanted)


@workflow
async def approval(ctx: Context, n: int) -> int:
    """Waits for a token, which may have its message already."""
    await note(n)
    return await ctx.wait_for_signal("approve", type=int, token=f"approve:{ctx.run_id}")


@workflow
async def doomed(ctx: Context, n: int) -> int:
    """Fails, while its sibling may still run."""
    return sum(await asyncio.gather(note(n), fatal(n), flaky(n)))


@workflow
async def revived(ctx: Context, n: int) -> int:
    return await note(n) + await fragile(n)


@workflow
async def patient(ctx: Context, n: int) -> int:
    """Never ends by itself, nor does its child."""
    await note(n)
    if n > 0:
        return await patient.run(n - 1)
    return await ctx.wait_for_signal("never", type=int)


#: What a body may start by its name.
EVERYTHING = (
    note,
    flaky,
    threaded,
    fatal,
    fragile,
    sequence,
    fan,
    timers,
    family,
    mailbox,
    approval,
    doomed,
    revived,
    patient,
)
