"""Patches: a run takes the new path if it is new, and goes on along the old one if it has been here before."""

from __future__ import annotations

from perdure.core.instance import Instance
from perdure.model.errors import NonDeterminismError
from tests.unit.core.driving import Driven, Main, step


async def old(run: Instance) -> None:
    await step(run, "before")
    await step(run, "old")
    await step(run, "after")


async def new(run: Instance) -> None:
    await step(run, "before")
    await step(run, "new" if run.patched("x") else "old")
    await step(run, "after")


def pending(driven: Driven, main: Main) -> list[str]:
    instance, turn = driven.replay(main)
    assert turn.outcome is None, turn.outcome
    names = [operation.name for operation in instance.pending.values()]
    instance.close()
    return names


def test_ver_05_a_fresh_run_is_marked_and_takes_the_new_path() -> None:
    driven = Driven(new)
    driven.result(0)
    assert driven.events() == [("resolved", 0, "before"), ("marker", -1, "x"), ("scheduled", 1, "new")]
    assert pending(driven, new) == ["new"]


def test_ver_05_a_run_that_was_here_before_keeps_to_the_old_path() -> None:
    driven = Driven(old)
    driven.result(0)
    assert pending(driven, new) == ["old"]
    driven.result(1)
    assert pending(driven, new) == ["after"]


def test_ver_05_a_run_that_has_not_come_to_it_takes_the_new_path() -> None:
    driven = Driven(old)
    driven.instance, turn = driven.replay(new)
    assert turn.outcome is None
    driven.main = new
    driven.result(0)
    assert ("marker", -1, "x") in driven.events()


def test_f88_asked_twice_the_answer_is_the_same() -> None:
    async def asks_twice(run: Instance) -> None:
        await step(run, "before")
        first = run.patched("x")
        await step(run, "new" if first else "old")
        assert run.patched("x") is first
        await step(run, "after")

    driven = Driven(asks_twice)
    driven.result(0)
    driven.result(1)
    assert [entry.name for entry in driven.history if entry.event == 6] == ["x"]
    assert pending(driven, asks_twice) == ["after"]

    before = Driven(old)
    before.result(0)
    before.instance, _ = before.replay(asks_twice)
    before.main = asks_twice
    before.result(1)  # asked in the replay and again after it: still the old path, and no marker
    assert before.events() == [("resolved", 1, "old"), ("scheduled", 2, "after")]


def test_f88_a_rebuilt_instance_answers_as_the_cached_one() -> None:
    async def asks_late(run: Instance) -> None:
        await step(run, "before")
        await step(run, "old")
        await step(run, "patched" if run.patched("x") else "plain")

    driven = Driven(asks_late)
    driven.result(0)
    driven.result(1)
    assert pending(driven, asks_late) == ["patched"]


def test_patches_are_told_apart_by_name() -> None:
    async def two(run: Instance) -> None:
        await step(run, "before")
        await step(run, f"{run.patched('x')}{run.patched('y')}")

    driven = Driven(two)
    driven.result(0)
    assert [entry.name for entry in driven.history if entry.event == 6] == ["x", "y"]


def test_without_a_patch_the_change_is_found() -> None:
    async def unguarded(run: Instance) -> None:
        await step(run, "before")
        await step(run, "new")

    driven = Driven(old)
    driven.result(0)
    assert isinstance(driven.fault_of(unguarded), NonDeterminismError)
