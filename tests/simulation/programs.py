"""Random programs for the simulation: trees of operations whose results can be checked, whatever happens to their runs.

`program` interprets a tree; every part's failure is caught where it stands and becomes a value, so that a result has the shape
of its tree. `check` says whether a result can be one of its tree.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from random import Random
from typing import Any

from perdure import Context, FatalError, current_step, step, workflow
from tests.simulation import process

#: A node: its kind, then its numbers, names and parts. JSON.
Tree = list[Any]


# ---------------------------------------------------------------- steps


async def _work(moments: int) -> None:
    """Takes so many callbacks, or (some) so many tenths of a second."""
    for _ in range(moments % 4):
        await asyncio.sleep(0)
    if moments > 7:
        await asyncio.sleep(moments / 10)


def _truth() -> Any:
    return process.current.get().world.truth  # type: ignore[attr-defined]


@step
async def double(n: int) -> int:
    await _truth().begin()
    await _work(n)
    _truth().end()
    return 2 * n


@step(max_attempts=1000, backoff="exp", base=0.1, cap=3.0)
async def flaky(n: int, failures: int) -> int:
    """Fails on the attempts before `failures`."""
    await _truth().begin()
    await _work(n)
    if current_step().attempt <= failures:
        _truth().cut -= 1
        raise ValueError(f"attempt {current_step().attempt}")
    _truth().end()
    return 3 * n


@step(max_attempts=1000, base=0)
async def hasty(n: int, failures: int) -> int:
    """Fails likewise, and is tried again at once."""
    await _truth().begin()
    await _work(n)
    if current_step().attempt <= failures:
        _truth().cut -= 1
        raise ValueError(f"attempt {current_step().attempt}")
    _truth().end()
    return 4 * n


@step
async def slow(n: int) -> int:
    """Takes longer than a lease."""
    await _truth().begin()
    await asyncio.sleep(7 + n)
    _truth().end()
    return 5 * n


@step
async def fatal(n: int) -> int:
    await _truth().begin()
    _truth().cut -= 1
    raise FatalError(f"no {n}")


@step
async def fragile(n: int) -> int:
    """Works only when it is tried again by hand."""
    await _truth().begin()
    await _work(n)
    if current_step().attempt < 2:
        _truth().cut -= 1
        raise FatalError("not the first time")
    _truth().end()
    return n


# ---------------------------------------------------------------- other workflows


@workflow
async def mailbox(ctx: Context, got: list[int], wanted: int) -> list[int]:
    """The letters in the order in which they came, three a link of its chain."""
    for _ in range(3):
        got.append(await ctx.wait_for_signal("letter", type=int))
        await double(len(got))
        if len(got) == wanted:
            return got
    return ctx.continue_as_new(got, wanted)


@workflow
async def links_of(ctx: Context, done: int, wanted: int) -> int:
    """So many links, each with a step; whoever awaits the first is told by the last."""
    await double(done)
    if done + 1 < wanted:
        ctx.continue_as_new(done + 1, wanted)
    return done + 1


@workflow
async def revived(ctx: Context, n: int) -> int:
    """Fails until an operator has it tried again."""
    before = await double(n)
    return before + await fragile(n)


@workflow
async def endless(ctx: Context, depth: int) -> int:
    """Never ends by itself, nor do those below it: a step, a sleep, or a wait at each end."""
    await double(depth)
    if depth > 0:
        other = await endless.start(depth - 1)
        await asyncio.gather(endless.run(depth - 1), other.result())
    while ctx.random.random() < 0.7:
        await asyncio.sleep(ctx.random.randint(1, 50) / 10)
        await flaky(1, 1)
    return await ctx.wait_for_signal("never", type=int)


# ---------------------------------------------------------------- the interpreter


@workflow
async def program(ctx: Context, tree: Tree) -> Any:
    return await _MEANINGS[tree[0]](ctx, *tree[1:])


async def run(ctx: Context, tree: Tree) -> Any:
    """One part: its value, or how it failed."""
    try:
        return await _MEANINGS[tree[0]](ctx, *tree[1:])
    except Exception as error:
        return {"raised": type(error).__name__}


async def _step(ctx: Context, n: int) -> Any:
    return await double(n)


async def _flaky(ctx: Context, n: int, failures: int) -> Any:
    return await flaky(n, failures)


async def _hasty(ctx: Context, n: int, failures: int) -> Any:
    return await hasty(n, failures)


async def _slow(ctx: Context, n: int) -> Any:
    return await slow(n)


async def _fatal(ctx: Context, n: int) -> Any:
    return await fatal(n)


async def _local(ctx: Context, n: int) -> Any:
    return await ctx.local_step("local", lambda: n + 1)


async def _sleep(ctx: Context, tenths: int) -> Any:
    before = ctx.now()
    await asyncio.sleep(tenths / 10)
    return round((ctx.now() - before).total_seconds(), 1) >= tenths / 10


async def _signal(ctx: Context, name: str) -> Any:
    return await ctx.wait_for_signal(name, type=int)


async def _silence(ctx: Context, name: str, tenths: int) -> Any:
    return await ctx.wait_for_signal(name, timeout=(tenths + 1) / 10)


async def _token(ctx: Context, token: str) -> Any:
    return await ctx.wait_for_signal("token", type=int, token=token)


async def _value(ctx: Context, key: str, n: int) -> Any:
    ctx.set_value(key, n)
    return n


async def _chance(ctx: Context) -> Any:
    """Two draws with something between them: the same in every replay, or the run is blocked."""
    first = ctx.random.randint(0, 3)
    if first % 2:
        await double(first)
    return ctx.uuid4().hex is not None


async def _child(ctx: Context, tree: Tree) -> Any:
    return await program.run(tree)


async def _spawn(ctx: Context, tree: Tree) -> Any:
    handle = await program.start(tree)
    await double(1)
    return await handle.result()


async def _all(ctx: Context, *trees: Tree) -> Any:
    return await ctx.all(program, trees)


async def _fast(ctx: Context, *trees: Tree) -> Any:
    return await ctx.all(program, trees, mode="fail_fast")


async def _chain(ctx: Context, links: int) -> Any:
    return await links_of.run(0, links)


async def _seq(ctx: Context, *parts: Tree) -> Any:
    return [await run(ctx, part) for part in parts]


async def _gather(ctx: Context, *parts: Tree) -> Any:
    return await asyncio.gather(*(run(ctx, part) for part in parts))


async def _limit(ctx: Context, tenths: int, part: Tree) -> Any:
    async with asyncio.timeout((tenths + 1) / 10):
        return await run(ctx, part)


_MEANINGS: dict[str, Callable[..., Coroutine[Any, Any, Any]]] = {
    "step": _step,
    "flaky": _flaky,
    "hasty": _hasty,
    "slow": _slow,
    "fatal": _fatal,
    "local": _local,
    "sleep": _sleep,
    "signal": _signal,
    "silence": _silence,
    "token": _token,
    "value": _value,
    "chance": _chance,
    "child": _child,
    "spawn": _spawn,
    "all": _all,
    "fast": _fast,
    "chain": _chain,
    "seq": _seq,
    "gather": _gather,
    "limit": _limit,
}


# ---------------------------------------------------------------- what a result must be


def check(tree: Tree, result: Any) -> str | None:
    """What is wrong with a part's result; None if nothing is."""
    kind, *rest = tree
    raised = result["raised"] if isinstance(result, dict) else None
    if kind == "limit":
        return None if raised == "TimeoutError" else check(rest[1], result)
    if kind in ("seq", "gather", "all", "fast"):
        if kind in ("all", "fast") and raised == "GatherError":
            return None if any(_may_fail(part) for part in rest) else f"{tree} raised"
        if not isinstance(result, list) or len(result) != len(rest):
            return f"{tree} gave {result}"
        return next((wrong for each in zip(rest, result, strict=True) if (wrong := check(*each))), None)
    if kind in ("child", "spawn"):
        if raised == "ChildFailed":
            return None if _may_fail(rest[0]) else f"{tree} raised"
        return check(rest[0], result)
    expected = _EXPECTED[kind](*rest)
    return None if result == expected else f"{tree} gave {result}, not {expected}"


def _may_fail(tree: Tree) -> bool:
    """Whether a run of this tree as a whole may fail: failures inside are caught."""
    kind, *rest = tree
    if kind in ("child", "spawn"):
        return _may_fail(rest[0])
    if kind in ("all", "fast"):
        return any(_may_fail(part) for part in rest)
    return kind in ("fatal", "silence", "limit")


_EXPECTED: dict[str, Callable[..., Any]] = {
    "step": lambda n: 2 * n,
    "flaky": lambda n, failures: 3 * n,
    "hasty": lambda n, failures: 4 * n,
    "slow": lambda n: 5 * n,
    "fatal": lambda n: {"raised": "FatalError"},
    "local": lambda n: n + 1,
    "sleep": lambda tenths: True,
    "signal": lambda name: int(name.partition(":")[2]),
    "silence": lambda name, tenths: {"raised": "SignalTimeout"},
    "token": lambda token: _AnyInt(),
    "value": lambda key, n: n,
    "chance": lambda: True,
    "chain": lambda links: links,
}


class _AnyInt:
    def __eq__(self, other: object) -> bool:
        return isinstance(other, int)

    __hash__ = None  # type: ignore[assignment]


# ---------------------------------------------------------------- making trees

_LEAVES = {
    "step": 10,
    "flaky": 4,
    "hasty": 3,
    "slow": 2,
    "fatal": 2,
    "local": 2,
    "sleep": 4,
    "signal": 5,
    "silence": 2,
    "token": 4,
    "value": 2,
    "chance": 2,
    "chain": 2,
}
_BRANCHES = {"seq": 8, "gather": 6, "limit": 3, "child": 4, "spawn": 2, "all": 2, "fast": 2}


def generate(rng: Random, size: int, tokens: list[str]) -> Tree:
    """A program of about `size` parts. Its waits for tokens wait for these."""
    return _Grower(rng, size, tokens).grow(0, in_child=False)


class _Grower:
    def __init__(self, rng: Random, size: int, tokens: list[str]) -> None:
        self._rng = rng
        self._left = size
        self._tokens = tokens
        self._count = 0

    def grow(self, depth: int, *, in_child: bool) -> Tree:
        self._left -= 1
        rng = self._rng
        if depth == 0 and not in_child:
            return ["seq", *(self.grow(1, in_child=in_child) for _ in range(rng.randrange(2, 5)))]
        if self._left <= 0 or depth > 4 or rng.random() < 0.4:
            return self._leaf(in_child)
        kind = rng.choices(list(_BRANCHES), list(_BRANCHES.values()))[0]
        below = in_child or kind in ("child", "spawn", "all", "fast")
        count = rng.randrange(2, 5) if kind in ("seq", "gather", "all", "fast") else 1
        parts = [self.grow(depth + 1, in_child=below) for _ in range(count)]
        return [kind, rng.randrange(60), *parts] if kind == "limit" else [kind, *parts]

    def _leaf(self, in_child: bool) -> Tree:
        rng = self._rng
        self._count += 1
        kind = rng.choices(list(_LEAVES), list(_LEAVES.values()))[0]
        match kind:
            case "flaky" | "hasty":
                return [kind, rng.randrange(10), rng.randrange(1, 4)]
            case "sleep":
                return [kind, rng.choice([1, 5, 30, 300])]
            case "signal" if not in_child:  # children have ids of their own
                return [kind, f"s{self._count}:{rng.randrange(100)}"]
            case "silence":
                return [kind, f"never{self._count}", rng.randrange(50)]
            case "token" if self._tokens:
                return [kind, rng.choice(self._tokens)]
            case "value":
                return [kind, f"v{rng.randrange(3)}", rng.randrange(100)]
            case "chance":
                return [kind]
            case "chain":
                return [kind, rng.randrange(1, 4)]
            case "local" | "fatal" | "slow":
                return [kind, rng.randrange(10)]
            case _:
                return ["step", rng.randrange(10)]


def signals(tree: Tree) -> list[str]:
    """The names of the signals that a tree waits for."""
    if tree[0] == "signal":
        return [tree[1]]
    return [name for part in tree[1:] if isinstance(part, list) for name in signals(part)]


def waits(tree: Tree, token: str) -> int:
    """How often a tree waits for a token, at most."""
    if tree[0] == "token":
        return int(tree[1] == token)
    return sum(waits(part, token) for part in tree[1:] if isinstance(part, list))
