"""One story for each operation, small enough to be cut at every commit and claim: see `test_cuts`."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from random import Random
from typing import Any

from perdure import RunCancelled, RunFailed, RunTimedOut
from tests.simulation import programs
from tests.simulation.fleet import Fleet
from tests.simulation.programs import Tree
from tests.simulation.scenarios import end_of, expect, signal, signal_with_start, start

Story = Callable[[Fleet], Awaitable[None]]

#: Programs that need nobody else.
TREES: dict[str, Tree] = {
    "steps one after another": ["seq", ["step", 1], ["step", 2], ["step", 3]],
    "steps that fail at first": ["seq", ["flaky", 1, 2], ["flaky", 2, 1]],
    "steps that are tried again at once": ["gather", ["hasty", 1, 2], ["hasty", 2, 1], ["step", 3]],
    "a step longer than a lease": ["seq", ["slow", 1], ["step", 2]],
    "a step that fails for good": ["seq", ["step", 1], ["fatal", 2], ["step", 3]],
    "steps at once": ["gather", ["step", 1], ["flaky", 2, 1], ["seq", ["step", 3], ["step", 8]], ["fatal", 4]],
    "a closure": ["seq", ["local", 1], ["chance"], ["local", 2]],
    "timers": ["seq", ["sleep", 5], ["gather", ["sleep", 30], ["sleep", 1], ["step", 1]]],
    "a timeout": ["seq", ["limit", 5, ["seq", ["step", 1], ["sleep", 300]]], ["limit", 5, ["step", 2]]],
    "a wait that runs out": ["seq", ["silence", "never", 5], ["step", 1]],
    "values": ["seq", ["value", "a", 1], ["step", 1], ["value", "a", 2], ["value", "b", 3]],
    "a child": ["seq", ["child", ["seq", ["step", 1], ["step", 2]]], ["step", 3]],
    "a child that fails": ["seq", ["child", ["fatal", 1]], ["step", 2]],
    "a child in the background": ["seq", ["spawn", ["seq", ["sleep", 5], ["step", 1]]], ["step", 2]],
    "an abandoned child": ["seq", ["limit", 5, ["child", ["seq", ["step", 1], ["sleep", 300]]]], ["step", 2]],
    "a fan of children": ["seq", ["all", ["step", 1], ["seq", ["step", 2], ["sleep", 1]], ["step", 3]]],
    "a fan with a failure": ["seq", ["all", ["step", 1], ["fatal", 2]], ["step", 3]],
    "a fan that fails fast": ["seq", ["fast", ["seq", ["step", 1], ["sleep", 300]], ["fatal", 2]], ["step", 3]],
    "a child that continues": ["seq", ["chain", 3], ["step", 3]],
}


def _alone(tree: Tree) -> Story:
    async def story(fleet: Fleet) -> None:
        await start(fleet, programs.program, tree, id="r")
        await _checked(fleet, tree)

    return story


async def _checked(fleet: Fleet, tree: Tree) -> None:
    end = await end_of(fleet, "r")
    wrong = programs.check(tree, end)
    if wrong is not None:
        fleet.trouble(wrong)


async def _values(fleet: Fleet) -> None:
    await _alone(TREES["values"])(fleet)

    async def read(app: Any) -> Any:
        return [await app.get_run("r").value(key) for key in "ab"]

    expect(fleet, "r", await fleet.do(read), [2, 3])


async def _signals(fleet: Fleet) -> None:
    """One comes early, one late, one twice."""
    tree = ["seq", ["step", 8], ["signal", "a:1"], ["gather", ["signal", "b:2"], ["signal", "c:3"]]]
    await start(fleet, programs.program, tree, id="r")
    for name in ("b:2", "a:1", "a:1", "c:3"):
        await signal(fleet, "r", name, int(name[2:]), _once())
        await asyncio.sleep(0.5)
    await _checked(fleet, tree)


async def _tokens(fleet: Fleet) -> None:
    tree = ["seq", ["token", "t"], ["limit", 2, ["token", "u"]], ["token", "t"]]
    await fleet.do(lambda app: app.signal("token", 1, token="t", id="1"))
    await start(fleet, programs.program, tree, id="r")
    await asyncio.sleep(1.0)
    await fleet.do(lambda app: app.signal("token", 2, token="t", id="2"))
    await fleet.do(lambda app: app.signal("token", 2, token="t", id="2"))
    fleet.sent += [("t", 1), ("t", 2)]
    await _checked(fleet, tree)


async def _chain(fleet: Fleet) -> None:
    await start(fleet, programs.mailbox, [], 5, id="r")
    for number in range(5):
        await signal(fleet, "r", "letter", number, _once())
    expect(fleet, "r", await end_of(fleet, "r"), [0, 1, 2, 3, 4])


async def _signal_with_start(fleet: Fleet) -> None:
    for number in range(3):
        await signal_with_start(fleet, "r", number, 3)
    expect(fleet, "r", await end_of(fleet, "r"), [0, 1, 2])


async def _requeue(fleet: Fleet) -> None:
    await start(fleet, programs.revived, 1, id="r")
    while (end := await end_of(fleet, "r")) is RunFailed:
        await fleet.do(lambda app: app.get_run("r").requeue())
    expect(fleet, "r", end, 3)


async def _cancel(fleet: Fleet) -> None:
    await start(fleet, programs.endless, 1, id="r")
    await asyncio.sleep(1.0)
    await fleet.do(lambda app: app.get_run("r").cancel())
    expect(fleet, "r", await end_of(fleet, "r"), RunCancelled)


async def _time_out(fleet: Fleet) -> None:
    await start(fleet, programs.endless, 1, id="r", timeout=2.0)
    expect(fleet, "r", await end_of(fleet, "r"), RunTimedOut)


async def _delayed(fleet: Fleet) -> None:
    tree = ["seq", ["step", 1]]
    await start(fleet, programs.program, tree, id="r", delay=5.0)
    await _checked(fleet, tree)


async def _delete(fleet: Fleet) -> None:
    await start(fleet, programs.endless, 1, id="r")
    await asyncio.sleep(1.0)
    await fleet.do(lambda app: app.get_run("r").delete())
    await start(fleet, programs.program, TREES["values"], id="r")
    await _checked(fleet, TREES["values"])


def _once() -> Random:
    return Random(0)


STORIES: dict[str, Story] = {name: _alone(tree) for name, tree in TREES.items()} | {
    "values": _values,
    "signals": _signals,
    "tokens": _tokens,
    "continue as new": _chain,
    "signal with start": _signal_with_start,
    "requeue": _requeue,
    "cancel": _cancel,
    "execution timeout": _time_out,
    "a delayed start": _delayed,
    "delete and start again": _delete,
}
