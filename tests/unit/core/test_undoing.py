"""Undos in the core: when they are issued, in which order, and what becomes of what was given up."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

from perdure.core.instance import Instance
from perdure.core.loop import OpFuture
from perdure.core.turn import Cancelled, Completed, Failed
from perdure.model import values
from perdure.model.policy import RetryPolicy
from tests.unit.core.driving import Driven, child, new_run, step

decode = values.decoder(Any)


def undoable(run: Instance, name: str) -> OpFuture[Any]:
    def undo(input: bytes | None, output: bytes) -> OpFuture[Any]:
        return run.step(f"compensate:{name}", output, policy=RetryPolicy(), decode=decode, undoes=True)

    return run.step(name, b"null", policy=RetryPolicy(), decode=decode, undo=undo)


def open_names(driven: Driven) -> list[str]:
    return [operation.name for operation in driven.instance.pending.values()]


def test_the_last_completed_is_undone_first_and_a_failed_undo_does_not_stop_the_others() -> None:
    async def body(run: Instance) -> None:
        first, second = undoable(run, "a"), undoable(run, "b")
        await asyncio.gather(first, second)
        raise ValueError("no")

    driven = Driven(body)
    driven.result(1, "of b")
    driven.result(0, "of a")
    assert open_names(driven) == ["compensate:a"]
    assert driven.turn.outcome is None
    driven.failure(2, ValueError("cannot"))
    assert open_names(driven) == ["compensate:b"]
    driven.result(3)
    assert isinstance(driven.turn.outcome, Failed)
    assert driven.turn.outcome.failure.message == "no"


def test_what_is_open_at_the_end_of_the_body_is_given_up_before_anything_is_undone() -> None:
    async def body(run: Instance) -> None:
        await undoable(run, "a")
        asyncio.get_running_loop().call_later(60, lambda: None)
        step(run, "plain")
        undoable(run, "under way")
        await step(run, "b")
        raise ValueError("no")

    driven = Driven(body)
    driven.result(0)
    driven.result(4)
    assert driven.events()[1:] == [("abandoned", 1, "timer"), ("abandoned", 2, "plain"), ("let_go", 3, "under way")]
    driven.failure(3, ValueError("did not happen"))
    assert driven.events()[1:] == [("scheduled", 5, "compensate:a")]
    driven.result(5)
    assert isinstance(driven.turn.outcome, Failed)


def test_a_step_that_is_let_go_is_undone_while_the_body_goes_on() -> None:
    async def body(run: Instance) -> str:
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(undoable(run, "a"), 5)
        await step(run, "b")
        return "done"

    driven = Driven(body)
    driven.advance(at=5)
    assert driven.events()[-2:] == [("let_go", 0, "a"), ("scheduled", 2, "b")]
    assert driven.turn.abandoned == []
    driven.result(0, "late")
    assert driven.events() == [("resolved", 0, "a"), ("scheduled", 3, "compensate:a")]
    driven.result(2)
    assert driven.turn.outcome is None  # not before it is undone
    driven.result(3)
    assert driven.turn.outcome == Completed(b'"done"')


def test_one_that_was_asked_for_in_the_same_turn_never_began() -> None:
    async def body(run: Instance) -> None:
        await undoable(run, "a")
        undoable(run, "b").cancel()
        await step(run, "c")

    driven = Driven(body)
    driven.result(0)
    assert driven.events()[1:] == [("scheduled", 1, "b"), ("abandoned", 1, "b"), ("scheduled", 2, "c")]


def test_a_cancel_after_the_body_returned_undoes_all_the_same() -> None:
    async def body(run: Instance) -> str:
        await undoable(run, "a")
        undoable(run, "b")
        await step(run, "c")
        return "done"

    driven = Driven(body)
    driven.result(0)
    driven.result(2)
    assert driven.turn.outcome is None
    driven.cancel()
    assert open_names(driven) == ["b"]
    driven.result(1)
    assert open_names(driven) == ["compensate:b"]
    driven.result(3)
    driven.result(4)
    assert driven.turn.outcome == Cancelled()


def test_children_are_told_once_and_waited_for() -> None:
    async def body(run: Instance) -> None:
        await undoable(run, "a")
        run.spawn(new_run("detached"))
        await child(run, "awaited")

    driven = Driven(body)
    driven.result(0)
    driven.cancel()
    assert driven.commit is not None
    assert [message.run_id for message in driven.commit.sends] == ["detached", "awaited"]
    assert not driven.commit.spares
    driven.cancel()
    assert open_names(driven) == ["awaited"]
    driven.advance(driven.child_failed("awaited", ValueError("cancelled")))
    assert open_names(driven) == ["compensate:a"]
    driven.result(3)
    assert driven.turn.outcome == Cancelled()
    assert driven.commit is not None
    assert driven.commit.spares
