"""Code that does not fit the history is found, explained, and blocks the run: it never goes on along another path."""

from __future__ import annotations

import asyncio
import gc
import re
from collections.abc import Iterable
from typing import Any

import pytest

from perdure.core.instance import Instance
from perdure.model.errors import DeadlockError, NonDeterminismError
from tests.unit.core.driving import ONCE as POLICY
from tests.unit.core.driving import START, Driven, Main, child, new_run, signal, step

SPAWNED = new_run("other")


async def three_steps(run: Instance) -> None:
    await step(run, "a")
    await step(run, "b")
    await step(run, "c")


def recorded_up_to_c() -> Driven:
    driven = Driven(three_steps)
    driven.result(0)
    driven.result(1)
    return driven


def fault(driven: Driven, main: Main) -> NonDeterminismError:
    error = driven.fault_of(main)
    assert isinstance(error, NonDeterminismError), error
    return error


def steps(*names: str) -> Main:
    """A body that runs these steps one after the other."""

    async def body(run: Instance) -> None:
        for name in names:
            await step(run, name)

    return body


def line_of(main: Main, text: str) -> str:
    """Where in this file the body says `text`."""
    code = main.__code__
    with open(code.co_filename, encoding="utf-8") as file:
        lines = file.readlines()
    number = next(n for n, line in enumerate(lines[code.co_firstlineno :], code.co_firstlineno + 1) if text in line)
    return f"{code.co_filename}:{number}"


def test_replay_02_a_renamed_step_is_explained() -> None:
    async def renamed(run: Instance) -> None:
        await run.step("A", b"null", policy=POLICY, decode=bytes)

    error = fault(recorded_up_to_c(), renamed)
    assert str(error).startswith(
        "non-determinism at run1#0: recorded step 'a', issued step 'A' (the code issues another operation) at "
        + line_of(renamed, 'run.step("A"')
    )
    assert "ctx.patched()" in str(error)


def test_replay_03_the_error_says_where_in_machine_form() -> None:
    error = fault(recorded_up_to_c(), steps("a", "b", "x"))
    assert (error.run_id, error.seq, error.recorded, error.issued) == ("run1", 2, "step 'c'", "step 'x'")
    assert error.code == "non_determinism"


@pytest.mark.parametrize(
    ("names", "seq", "recorded", "issued"),
    [
        pytest.param("bac", 0, "step 'a'", "step 'b'", id="reordered"),
        pytest.param("xabc", 0, "step 'a'", "step 'x'", id="inserted first"),
        pytest.param("abxc", 2, "step 'c'", "step 'x'", id="inserted before the open one"),
        pytest.param("bc", 0, "step 'a'", "step 'b'", id="removed first"),
        pytest.param("ac", 1, "step 'b'", "step 'c'", id="removed in the middle"),
        pytest.param("ab", 2, "step 'c'", "nothing", id="removed last"),
        pytest.param("", 0, "step 'a'", "nothing", id="all removed"),
    ],
)
def test_replay_09_changed_sequences(names: str, seq: int, recorded: str, issued: str) -> None:
    error = fault(recorded_up_to_c(), steps(*names))
    assert (error.seq, error.recorded, error.issued) == (seq, recorded, issued)


def test_replay_09_unchanged_code_fits() -> None:
    instance, turn = recorded_up_to_c().replay(steps("a", "b", "c"))
    assert turn.outcome is None
    assert [operation.name for operation in instance.pending.values()] == ["c"]
    instance.close()


def test_an_operation_moved_earlier_is_found_at_the_result_it_overtook() -> None:
    async def earlier(run: Instance) -> None:
        a = step(run, "a")
        b = step(run, "b")
        await a
        await b
        await step(run, "c")

    error = fault(recorded_up_to_c(), earlier)
    assert error.seq == 1
    assert "recorded step 'b' after a later result, issued step 'b' before it" in str(error)


def test_an_operation_moved_later_is_found_at_the_result_it_should_precede() -> None:
    async def both(run: Instance) -> None:
        await asyncio.gather(step(run, "a"), step(run, "b"))

    driven = Driven(both)
    driven.result(0)
    error = fault(driven, steps("a", "b"))
    assert (error.seq, error.recorded, error.issued) == (1, "step 'b'", "nothing")
    assert "the code never issues it" in str(error)


def test_an_operation_added_after_the_last_result_is_found() -> None:
    async def more(run: Instance) -> None:
        await step(run, "a")
        run.set_value("progress", b"1")
        await step(run, "b")

    driven = Driven(steps("a", "b"))
    driven.result(0)
    error = fault(driven, more)
    assert (error.seq, error.recorded, error.issued) == (1, "step 'b'", "value 'progress'")


def test_an_operation_too_many_at_the_end_is_found() -> None:
    async def more(run: Instance) -> None:
        await asyncio.gather(step(run, "a"), step(run, "b"))

    error = fault(Driven(steps("a")), more)
    assert (error.seq, error.recorded, error.issued) == (1, "nothing", "step 'b'")


def kinds() -> Iterable[Any]:
    async def a_step(run: Instance) -> None:
        await step(run, "x")

    async def a_closure(run: Instance) -> None:
        await run.local("x", dict, policy=POLICY, decode=bytes)

    async def a_timer(run: Instance) -> None:
        await asyncio.sleep(5)

    async def a_signal(run: Instance) -> None:
        await signal(run, "x")

    async def a_child(run: Instance) -> None:
        await child(run, "x")

    async def a_join(run: Instance) -> None:
        await run.join("x", decode=bytes)

    bodies = {
        "step 'x'": a_step,
        "local 'x'": a_closure,
        "timer 'timer'": a_timer,
        "signal 'x'": a_signal,
        "child 'x'": a_child,
        "join 'x'": a_join,
    }
    for one, before in bodies.items():
        for other, after in bodies.items():
            yield pytest.param(before, after, one, other, id=f"{one} becomes {other}")


@pytest.mark.parametrize(("before", "after", "recorded", "issued"), list(kinds()))
def test_another_kind_of_operation(before: Main, after: Main, recorded: str, issued: str) -> None:
    driven = Driven(before)
    if recorded == issued:
        instance, turn = driven.replay(after)
        assert turn.outcome is None
        instance.close()
    else:
        error = fault(driven, after)
        assert (error.recorded, error.issued) == (recorded, issued)


def test_a_body_that_raises_instead_is_told_with_its_error() -> None:
    async def raises(run: Instance) -> None:
        await step(run, "a")
        raise ValueError("the new code is broken")

    error = fault(recorded_up_to_c(), raises)
    assert error.seq == 1
    assert "its body raised ValueError: the new code is broken" in str(error)
    assert isinstance(error.__cause__, ValueError)


def test_a_body_that_raises_where_nothing_more_is_recorded_does_not_fail_the_run() -> None:
    async def waits(run: Instance) -> None:
        await asyncio.gather(step(run, "a"), step(run, "b"))

    async def raises(run: Instance) -> None:
        a, _ = step(run, "a"), step(run, "b")
        await a
        raise ValueError("too early")

    driven = Driven(waits)
    driven.result(0)
    error = fault(driven, raises)
    assert "a body that goes on" in str(error)
    assert "its body raised ValueError: too early" in str(error)


def test_a_body_that_ends_early() -> None:
    async def waits(run: Instance) -> None:
        await asyncio.gather(step(run, "a"), step(run, "b"))

    async def ends(run: Instance) -> None:
        a, _ = step(run, "a"), step(run, "b")
        await a

    driven = Driven(waits)
    driven.result(0)
    error = fault(driven, ends)
    assert (error.seq, error.recorded, error.issued) == (2, "a body that goes on", "its end")


@pytest.mark.parametrize("cancels", [False, True])
def test_code_that_cancels_differently(cancels: bool) -> None:
    def body(cancel: bool) -> Main:
        async def race(run: Instance) -> None:
            a, b = step(run, "a"), step(run, "b")
            await a
            if cancel:
                b.cancel()
            await step(run, "c")

        return race

    driven = Driven(body(cancels))
    driven.result(0)
    error = fault(driven, body(not cancels))
    assert error.seq == 1
    now, before = ("open", "abandoned") if cancels else ("abandoned", "open")
    assert f"recorded step 'b' {before}, issued step 'b' {now} (the code cancels differently)" in str(error)


def test_a_result_for_what_the_code_abandoned() -> None:
    async def patient(run: Instance) -> None:
        a, b = step(run, "a"), step(run, "b")
        await a
        await b
        await step(run, "c")

    async def impatient(run: Instance) -> None:
        a, b = step(run, "a"), step(run, "b")
        await a
        b.cancel()
        await step(run, "c")

    driven = Driven(patient)
    driven.result(0)
    driven.result(1)
    # The impatient code issues c at once: that shows before b's result does.
    assert fault(driven, impatient).seq == 2

    async def silent(run: Instance) -> None:
        a, b = step(run, "a"), step(run, "b")
        await a
        b.cancel()
        await signal(run, "never")

    driven = Driven(patient)
    driven.result(0)
    driven.result(1)
    assert "issued signal 'never'" in str(fault(driven, silent))

    async def waits(run: Instance) -> None:
        a, b = step(run, "a"), step(run, "b")
        c = step(run, "c")
        await a
        if await b:
            await c

    async def gives_up(run: Instance) -> None:
        a, b = step(run, "a"), step(run, "b")
        c = step(run, "c")
        await a
        b.cancel()
        await c

    driven = Driven(waits)
    driven.result(0)
    driven.result(1, True)
    error = fault(driven, gives_up)
    assert (error.seq, error.recorded, error.issued) == (1, "a result of step 'b'", "nothing")
    assert "the code abandoned the operation before" in str(error)


def test_replay_05_concurrent_steps_are_numbered_in_call_order_whatever_ends_first() -> None:
    async def fan(run: Instance) -> list[Any]:
        return await asyncio.gather(*(step(run, name) for name in "abc"))

    driven = Driven(fan)
    assert driven.events() == [("scheduled", 0, "a"), ("scheduled", 1, "b"), ("scheduled", 2, "c")]
    for seq in (2, 0, 1):
        driven.result(seq, seq)
    assert driven.output() == [0, 1, 2]


def test_f46_gathered_coroutines_are_numbered_in_program_order() -> None:
    async def path(run: Instance, name: str) -> None:
        await step(run, name + "1")
        await step(run, name + "2")

    async def fan(run: Instance) -> None:
        await asyncio.gather(*(path(run, name) for name in "abc"))

    driven = Driven(fan)
    assert [name for _, _, name in driven.events()] == ["a1", "b1", "c1"]
    driven.result(1)
    driven.result(0)
    driven.result(2)
    scheduled = [name for event, _, name in driven.events(all=True) if event == "scheduled"]
    assert scheduled == ["a1", "b1", "c1", "b2", "a2", "c2"]


def test_f43_a_body_that_swallows_everything_cannot_hide_that_it_does_not_fit() -> None:
    async def swallows(run: Instance) -> str:
        for name in ("x", "y", "z"):
            try:
                await step(run, name)
            except BaseException:
                continue
        return "fine"

    error = fault(recorded_up_to_c(), swallows)
    assert (error.seq, error.recorded, error.issued) == (0, "step 'a'", "step 'x'")


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_f43_a_body_that_swallows_everything_for_ever_cannot_hang_the_turn() -> None:
    async def swallows(run: Instance) -> None:
        while True:
            try:
                await step(run, "x")
            except BaseException:
                continue

    driven = recorded_up_to_c()
    instance, turn = driven.replay(swallows)
    assert "issued step 'x'" in str(turn.outcome)
    assert instance.pending == {}
    # Nothing can close its frame, and Python says so when the frame is collected.
    instance.close()
    del instance, turn
    gc.collect()


def test_a_closure_is_held_against_the_history_by_its_name_only() -> None:
    def body(value: int) -> Main:
        async def main(run: Instance) -> Any:
            return await run.local("calculate", lambda: value, policy=POLICY, decode=bytes)

        return main

    instance, turn = Driven(body(1)).replay(body(2))
    assert turn.outcome is None
    assert instance.steps[0].call is not None
    assert instance.steps[0].call() == 2
    instance.close()


def test_changed_inputs_keep_the_recorded_ones() -> None:
    async def changed(run: Instance) -> None:
        await step(run, "a", 2)

    async def original(run: Instance) -> None:
        await step(run, "a", 1)

    instance, turn = Driven(original).replay(changed)
    assert turn.outcome is None
    assert instance.pending[0].payload == b"1"
    instance.close()


def test_the_source_line_is_the_users_also_below_asyncio() -> None:
    async def inner(run: Instance) -> None:
        run.spawn(SPAWNED)

    async def fan(run: Instance) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(inner(run))

    error = fault(recorded_up_to_c(), fan)
    assert re.search(r"issued spawn 'other' .* at .*test_determinism\.py:\d+\.", str(error))
    assert line_of(inner, "run.spawn(SPAWNED)") in str(error)


def test_a_fault_in_a_live_turn_is_impossible_without_a_history() -> None:
    """The first run defines what fits: any order is right."""
    driven = Driven(steps("c", "b", "a"))
    driven.result(0)
    driven.result(1)
    driven.result(2)
    assert driven.output() is None


def test_a_finished_history_replays_to_the_same_outcome() -> None:
    async def body(run: Instance) -> int:
        return int(await step(run, "a")) + 1

    driven = Driven(body)
    driven.result(0, 41)
    assert driven.history[-1].name == "completed"
    instance, turn = driven.replay()
    assert turn.outcome == driven.turn.outcome
    instance.close()


def test_an_ended_body_whose_tasks_still_clean_up_replays() -> None:
    async def background(run: Instance) -> None:
        try:
            await step(run, "work")
        finally:
            await step(run, "clean up")

    async def body(run: Instance) -> str:
        task = asyncio.create_task(background(run))
        await step(run, "a")
        return "done" if not task.done() else "too late"

    driven = Driven(body)
    driven.result(0)  # the driver replays here, where the body is over and its task is not
    assert driven.turn.outcome is None
    assert driven.events() == [("resolved", 0, "a"), ("abandoned", 1, "work"), ("scheduled", 2, "clean up")]
    driven.result(2)
    assert driven.output() == "done"


def test_a_run_that_was_blocked_in_its_first_turn_begins_anew_on_mended_code() -> None:
    """That turn was lost: there is no history that the code must fit."""

    async def deadlocks(run: Instance) -> None:
        run.set_value("x", b"1")
        await asyncio.Event().wait()

    driven = Driven(deadlocks)
    assert driven.history == []
    driven.main = steps("a", "b")
    driven.instance, turn = driven.replay()
    assert turn.outcome is None
    driven.advance(at=9)
    assert driven.events() == [("scheduled", 0, "a")]
    assert driven.history[0].at == START
    driven.result(0)
    assert driven.events() == [("resolved", 0, "a"), ("scheduled", 1, "b")]


def test_a_run_that_is_still_blocked_in_its_first_turn_says_so_again() -> None:
    async def deadlocks(run: Instance) -> None:
        run.set_value("x", b"1")
        await asyncio.Event().wait()

    driven = Driven(deadlocks)
    assert isinstance(driven.fault_of(deadlocks), DeadlockError)
