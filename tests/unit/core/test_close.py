"""Dropping an instance: its frames unwind, nothing they ask for on their way out happens, and nobody hears of it."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import weakref
from collections.abc import AsyncGenerator
from typing import Any

import pytest

from perdure.core.instance import Instance
from perdure.model.errors import NonDeterminismError
from tests.unit.core.driving import OPEN, Driven, Main, new_run, signal, step

LINES: list[str] = []


@pytest.fixture(autouse=True)
def _fresh_lines() -> None:
    LINES.clear()


async def awaits_in_finally(run: Instance) -> None:
    try:
        await step(run, "work")
    finally:
        LINES.append("finally")
        await step(run, "effect")
        LINES.append("never")


async def awaits_in_except(run: Instance) -> None:
    try:
        await signal(run, "go")
    except BaseException:
        LINES.append("except")
        await step(run, "effect")
        LINES.append("never")


async def awaits_at_every_level(run: Instance) -> None:
    async def level(depth: int) -> None:
        try:
            if depth:
                await level(depth - 1)
            else:
                await step(run, "work")
        finally:
            try:
                await step(run, "effect")
            finally:
                await asyncio.sleep(depth)

    await level(20)


async def gathers_in_finally(run: Instance) -> None:
    async def undo(name: str) -> None:
        LINES.append("never")
        await step(run, name)

    try:
        await asyncio.sleep(60)
    finally:
        # The coroutines of this call exist before anything can refuse them.
        await asyncio.gather(undo("a"), step(run, "b"), undo("c"))


async def waits_in_finally(run: Instance) -> None:
    async def undo() -> None:
        await step(run, "effect")

    try:
        await step(run, "work")
    finally:
        await asyncio.wait_for(undo(), 5)


async def shields_in_finally(run: Instance) -> None:
    async def undo() -> None:
        LINES.append("never")

    try:
        await step(run, "work")
    finally:
        await asyncio.shield(undo())


async def groups_in_finally(run: Instance) -> None:
    async def undo() -> None:
        LINES.append("never")

    try:
        await step(run, "work")
    finally:
        async with asyncio.timeout(5), asyncio.TaskGroup() as group:
            group.create_task(undo())
            group.create_task(step(run, "effect"))  # type: ignore[arg-type]


async def nested_groups(run: Instance) -> None:
    async def nest(depth: int) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(asyncio.sleep(60))
            await (nest(depth - 1) if depth else step(run, "work"))

    await nest(20)


async def stops_its_tasks_in_finally(run: Instance) -> None:
    tasks = [asyncio.create_task(awaits_in_finally(run)) for _ in range(5)]
    try:
        await step(run, "work")
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def yields_in_finally(run: Instance) -> None:
    try:
        await step(run, "work")
    finally:
        for _ in range(20):
            await asyncio.sleep(0)


async def uses_everything_in_finally(run: Instance) -> None:
    lock = asyncio.Lock()
    await lock.acquire()
    try:
        await step(run, "work")
    finally:
        run.set_value("effect", b"1")
        run.spawn(new_run("effect"))
        run.patched("effect")
        signal(run, "effect", timeout=5)
        signal(run, "effect", token="effect")
        run.join("effect", decode=bytes)
        asyncio.get_running_loop().call_later(5, LINES.append, "never")
        asyncio.get_running_loop().call_soon(LINES.append, "never")
        await lock.acquire()


async def continues_in_finally(run: Instance) -> None:
    try:
        await step(run, "work")
    finally:
        run.continue_as_new(new_run("run1~1"))


async def a_generator(run: Instance) -> AsyncGenerator[int, None]:
    try:
        await awaits_in_finally(run)
        yield 1
    finally:
        await awaits_at_every_level(run)


async def in_a_generator(run: Instance) -> None:
    async for _ in a_generator(run):
        pass


async def in_an_exit_stack(run: Instance) -> None:
    async with contextlib.AsyncExitStack() as stack:
        for _ in range(5):
            stack.push_async_callback(awaits_in_finally, run)
        await stack.enter_async_context(contextlib.aclosing(a_generator(run)))
        await step(run, "work")


BODIES = [
    awaits_in_finally,
    awaits_in_except,
    awaits_at_every_level,
    gathers_in_finally,
    waits_in_finally,
    shields_in_finally,
    groups_in_finally,
    nested_groups,
    stops_its_tasks_in_finally,
    yields_in_finally,
    uses_everything_in_finally,
    continues_in_finally,
    in_a_generator,
    in_an_exit_stack,
]


@pytest.mark.parametrize("main", BODIES)
def test_f43_closing_runs_no_operation_and_is_silent(main: Main) -> None:
    # Warnings and what is raised where nobody can catch it are errors in this suite.
    driven = Driven(main)
    instance, turn = driven.replay()
    turn = instance.advance((), instance.now)
    loop, issued = instance.loop, instance.reserve()
    LINES.clear()
    instance.close()
    assert instance.reserve() == issued
    assert (turn.entries, turn.issued, turn.abandoned) == ([], [], [])
    assert instance.pending == {}
    assert asyncio.all_tasks(loop) == set()
    assert "never" not in LINES
    del driven, instance, turn, loop
    gc.collect()


@pytest.mark.parametrize("main", BODIES)
def test_f43_a_body_that_does_not_fit_does_nothing_more_either(main: Main) -> None:
    async def other(run: Instance) -> None:
        await step(run, "something else")
        await step(run, "more")

    driven = Driven(other)
    driven.result(0)
    LINES.clear()
    instance, turn = driven.replay(main)
    assert isinstance(driven.fault_of(main), NonDeterminismError)
    assert turn.entries == []
    instance.close()
    assert "never" not in LINES
    del driven, instance, turn
    gc.collect()


def test_closing_runs_the_plain_lines_of_a_finally() -> None:
    driven = Driven(awaits_in_finally)
    LINES.clear()  # of the driver's own replay
    driven.instance.close()
    assert LINES == ["finally"]


def test_closing_many_tasks_that_all_await_on_their_way_out() -> None:
    async def body(run: Instance) -> None:
        await asyncio.gather(*(awaits_at_every_level(run) for _ in range(300)))

    driven = Driven(body)
    loop = driven.instance.loop
    driven.instance.close()
    assert asyncio.all_tasks(loop) == set()
    del driven, loop
    gc.collect()


def test_closing_twice_and_closing_an_ended_instance() -> None:
    driven = Driven(awaits_in_finally)
    driven.instance.close()
    driven.instance.close()

    async def ends(run: Instance) -> int:
        return 1

    ended = Driven(ends)
    ended.instance.close()


def test_user_code_cannot_catch_its_end_as_an_exception() -> None:
    async def body(run: Instance) -> None:
        try:
            await step(run, "work")
        except Exception:
            LINES.append("never")

    Driven(body).instance.close()
    assert LINES == []


# ---------------------------------------------------------------- async generators


async def numbers(run: Instance) -> AsyncGenerator[int, None]:
    try:
        for number in range(3):
            yield number
    finally:
        await step(run, "generator's clean-up")


def test_a_generator_broken_off_is_closed_within_the_turn() -> None:
    async def body(run: Instance) -> None:
        async for _ in numbers(run):
            break
        await step(run, "after")

    driven = Driven(body)
    assert driven.events() == [("scheduled", 0, "after"), ("scheduled", 1, "generator's clean-up")]


def test_a_generator_is_never_closed_by_the_host() -> None:
    """The host has hooks of its own; neither its first-iteration nor its finalizer hook sees a workflow's generator."""
    seen: list[Any] = []

    async def body(run: Instance) -> None:
        items = numbers(run)
        await anext(items)
        run.context = [items]
        del items
        await step(run, "work")

    async def host() -> None:
        driven = Driven(body)
        driven.instance.context = None  # the last reference goes while the host runs
        await asyncio.sleep(0)
        assert driven.instance.reserve() == 1
        seen.append(driven.result(0).outcome)

    asyncio.run(host())
    assert len(seen) == 1


def test_a_generator_that_the_collector_finds_is_dropped_in_a_turn_and_between_two() -> None:
    async def leaves_a_cycle(run: Instance) -> None:
        items = numbers(run)
        await anext(items)
        circle: list[Any] = [items]
        circle.append(circle)

    async def body(run: Instance) -> None:
        for name in ("a", "b", "c"):
            await leaves_a_cycle(run)
            if name == "b":
                gc.collect()
            await step(run, name)

    driven = Driven(body)
    gc.collect()
    driven.result(0)
    driven.result(1)
    gc.collect()
    driven.result(2)
    assert [name for event, _, name in driven.events(all=True) if event == "scheduled"] == ["a", "b", "c"]


def test_collections_elsewhere_do_not_matter() -> None:
    """Letting go of a generator counts, whatever the collector did before, in this turn or outside of it."""

    async def body(run: Instance) -> None:
        gc.collect()
        async for _ in numbers(run):
            break
        gc.collect()
        await step(run, "after")

    assert ("scheduled", 1, "generator's clean-up") in Driven(body).events()


@pytest.mark.parametrize("main", [in_a_generator, in_an_exit_stack])
def test_a_dropped_instance_can_be_collected(main: Main) -> None:
    driven = Driven(main)
    gone = weakref.ref(driven.instance)
    driven.instance.close()
    OPEN.clear()
    del driven
    gc.collect()
    assert gone() is None
