"""A requeue takes back a run's end and the failures that led to it; what the body caught and went on from stays."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from perdure.core.explain import raised_cancelled
from perdure.core.instance import Instance
from perdure.core.issuing import NO_SEQ
from perdure.core.turn import Blocked, Completed, Failed, Turn
from perdure.model.commit import Join, TokenWait
from perdure.model.errors import NonDeterminismError
from perdure.model.failure import restore
from perdure.model.history import Entry, Event
from perdure.model.policy import RetryPolicy
from tests.unit.core.driving import SECOND, START, Driven, Main, blocked, child, join, shown, signal, step


def requeued(driven: Driven) -> list[Entry]:
    return [*driven.history, Entry(Event.REQUEUED, NO_SEQ, None, "", None, driven.now)]


def revived(driven: Driven, main: Main | None = None, *, at: float | None = None) -> Driven:
    """The run after a requeue, perhaps on other code: a driver that has replayed its history."""
    again = Driven.__new__(Driven)
    vars(again).update(vars(driven))
    again.main = main or driven.main
    if at is not None:
        driven.now = again.now = START + round(at * SECOND)
    again.history = requeued(driven)
    again.instance, again.turn = driven.replay(again.main, again.history)
    return again


def error_of(turn: Turn) -> Exception:
    assert isinstance(turn.outcome, Failed), turn.outcome
    return restore(turn.outcome.failure)


def attempt_failed(seq: int, name: str, due: float) -> Entry:
    return Entry(Event.ATTEMPT_FAILED, seq, None, name, b"{}", START, START + round(due * SECOND))


def test_retry_02_an_exhausted_step_is_tried_afresh() -> None:
    async def body(run: Instance) -> Any:
        return await step(run, "charge")

    driven = Driven(body)
    driven.failure(0, ValueError("card declined"))
    assert str(driven.error()) == "card declined"
    again = revived(driven)
    assert again.turn.outcome is None
    assert list(again.instance.steps) == [0]
    again.result(0, "paid")
    assert again.output() == "paid"


def test_attempts_are_numbered_on_and_their_failures_forgotten() -> None:
    async def body(run: Instance) -> None:
        await step(run, "charge", policy=RetryPolicy(max_attempts=3))

    driven = Driven(body)
    driven.history += [attempt_failed(0, "charge", 1), attempt_failed(0, "charge", 3)]
    driven.failure(0, ValueError("third"))
    operation = revived(driven).instance.steps[0]
    assert (operation.attempts, operation.failures, operation.next_at) == (3, 0, None)

    # Again, and the numbers go on.
    again = revived(driven)
    again.history.append(attempt_failed(0, "charge", 10))
    again.failure(0, ValueError("fifth"))
    operation = revived(again).instance.steps[0]
    assert (operation.attempts, operation.failures, operation.next_at) == (5, 0, None)


def test_a_caught_failure_stays_where_something_was_built_on_it() -> None:
    async def body(run: Instance) -> Any:
        try:
            await step(run, "first choice")
        except ValueError:
            return await step(run, "second choice")

    driven = Driven(body)
    driven.failure(0, ValueError("no"))
    driven.failure(1, KeyError("no"))
    again = revived(driven)
    assert list(again.instance.steps) == [1]
    again.result(1, "yes")
    assert again.output() == "yes"


def test_all_failures_of_a_gather_are_tried_afresh() -> None:
    async def body(run: Instance) -> Any:
        results = await asyncio.gather(*(step(run, name) for name in "abc"), return_exceptions=True)
        if any(isinstance(result, BaseException) for result in results):
            raise ValueError("not all went well")
        return results

    driven = Driven(body)
    driven.failure(0, ValueError("a"))
    driven.result(1, "b")
    driven.failure(2, ValueError("c"))
    assert str(driven.error()) == "not all went well"
    again = revived(driven)
    assert list(again.instance.steps) == [0, 2]
    again.result(2, "c")
    again.result(0, "a")
    assert again.output() == ["a", "b", "c"]


def test_what_the_end_cut_off_is_open_again_under_a_new_number() -> None:
    async def body(run: Instance) -> Any:
        async with asyncio.TaskGroup() as group:
            a = group.create_task(_result(step(run, "a")))
            b = group.create_task(_result(step(run, "b")))
            group.create_task(asyncio.sleep(60))
        return [a.result(), b.result()]

    driven = Driven(body)
    driven.failure(0, ValueError("a"))
    assert isinstance(driven.error(), ExceptionGroup)
    again = revived(driven)
    assert [(o.seq, o.op, o.attempts) for o in again.instance.pending.values()] == [
        (0, "step", 1),
        (1, "step", 1),  # it may have been running when it was cancelled
        (2, "timer", 0),
    ]
    again.result(1, "b")
    again.result(0, "a")
    again.advance(at=60)
    assert again.output() == ["a", "b"]


async def _result(future: Any) -> Any:
    return await future


def test_results_that_came_after_the_failure_come_again_to_the_revived_body() -> None:
    """The body was on its way out then and did nothing with them. Now it goes on from them."""

    async def fails_fast(run: Instance) -> Any:
        return await asyncio.gather(step(run, "quick"), asyncio.shield(lingering(run)))

    async def lingering(run: Instance) -> Any:
        first = asyncio.ensure_future(step(run, "slow1"))
        try:
            await asyncio.shield(first)
        except asyncio.CancelledError:
            await first  # it is let finish
            raise
        return [first.result(), await step(run, "slow2")]

    driven = Driven(fails_fast)
    driven.failure(0, ValueError("quick failed"))
    assert driven.turn.outcome is None  # the task that was left behind still waits for its step
    driven.result(1, "slow1's")
    assert str(driven.error()) == "quick failed"

    again = revived(driven)
    again.advance()
    assert again.events() == [("resolved", 1, "slow1"), ("scheduled", 2, "slow2")]
    assert list(again.instance.steps) == [0, 2]
    again.result(2, "slow2's")
    again.result(0, "quick's")
    assert again.output() == ["quick's", ["slow1's", "slow2's"]]


async def charges_in_time(run: Instance) -> Any:
    async with asyncio.timeout(60):
        return await step(run, "charge")


def test_the_time_that_a_run_lay_dead_does_not_count() -> None:
    driven = Driven(charges_in_time)
    driven.advance(driven.failed(1, ValueError("declined")), at=10)
    again = revived(driven, at=3600)
    assert again.instance.next_due() == START + 3650 * SECOND  # fifty seconds were left
    again.advance(at=3600)
    assert again.turn.outcome is None
    again.failure(1, ValueError("declined again"))
    third = revived(again, at=7200)
    assert third.instance.next_due() == START + 7250 * SECOND
    third.advance(at=7250)
    assert isinstance(third.error(), TimeoutError)


def test_a_wait_that_ran_out_has_all_of_its_time_again() -> None:
    async def body(run: Instance) -> Any:
        await step(run, "a")
        return await signal(run, "go", timeout=5)

    driven = Driven(body)
    driven.advance(driven.done(0), at=1)
    driven.advance(at=10)
    assert isinstance(driven.error(), TimeoutError)
    for begin in (100, 200):
        driven = revived(driven, at=begin)
        assert driven.instance.next_due() == START + (begin + 5) * SECOND
        driven.advance(at=begin + 6)
        assert isinstance(driven.error(), TimeoutError)
    driven = revived(driven, at=300)
    driven.signal("go", "at last")
    assert driven.output() == "at last"


def test_a_run_that_failed_by_its_own_error_fails_again_on_the_same_code() -> None:
    async def body(run: Instance) -> None:
        await step(run, "a")
        raise ValueError("a bug")

    driven = Driven(body)
    driven.result(0)
    again = revived(driven)
    assert str(error_of(again.turn)) == "a bug"
    again.advance()
    assert str(again.error()) == "a bug"


def test_mended_code_goes_on_where_the_broken_one_ended() -> None:
    async def broken(run: Instance) -> None:
        await step(run, "a")
        raise ValueError("a bug")

    async def mended(run: Instance) -> Any:
        a = await step(run, "a")
        run.set_value("mended", b"1" if run.patched("mended") else b"0")
        b = await step(run, "b")
        return [a, b]

    driven = Driven(broken)
    driven.result(0, 1)
    again = revived(driven, mended)
    assert again.turn.outcome is None
    again.advance()  # what the replay found new is in the next turn, once
    assert again.events() == [("marker", -1, "mended"), ("scheduled", 1, "mended"), ("scheduled", 2, "b")]
    assert again.commit is not None
    assert again.commit.values == (("mended", b"1"),)
    assert [operation.seq for operation in again.turn.issued] == [1, 2]
    again.result(2, 2)
    assert again.events() == [("resolved", 2, "b")]
    assert again.output() == [1, 2]


def test_what_mended_code_asks_for_is_asked_for_once() -> None:
    async def broken(run: Instance) -> None:
        await step(run, "a")
        raise ValueError("a bug")

    async def mended(run: Instance) -> None:
        await step(run, "a")
        await asyncio.gather(signal(run, "go", token="t"), child(run, "c"), join(run, "d"))

    driven = Driven(broken)
    driven.result(0)
    again = revived(driven, mended)
    again.advance()
    assert again.commit is not None
    assert again.commit.waits == (TokenWait(1, "t"),)
    assert [born.run.id for born in again.commit.children] == ["c"]
    assert again.commit.joins == (Join(3, "d"),)
    assert again.commit.unwaits == ()


def test_mended_code_may_end_at_once() -> None:
    async def broken(run: Instance) -> None:
        await step(run, "a")
        raise ValueError("a bug")

    async def mended(run: Instance) -> Any:
        return await step(run, "a")

    driven = Driven(broken)
    driven.result(0, 7)
    again = revived(driven, mended)
    assert isinstance(again.turn.outcome, Completed)
    again.advance()
    assert again.output() == 7


def test_mended_code_may_start_children_that_cannot_start() -> None:
    async def broken(run: Instance) -> None:
        raise ValueError("a bug")

    async def mended(run: Instance) -> str:
        try:
            await run.join("nobody", decode=bytes, refusal=raised_cancelled("nobody"))
        except Exception as error:
            return str(error)
        return "joined"

    again = revived(Driven(broken), mended)
    again.advance()
    assert again.events() == [("scheduled", 0, "nobody"), ("failed", 0, "nobody")]
    assert "nobody cancelled the run" in again.output()


def test_code_that_does_not_fit_the_recorded_part_blocks_a_requeued_run_too() -> None:
    async def broken(run: Instance) -> None:
        await step(run, "a")
        raise ValueError("a bug")

    async def other(run: Instance) -> None:
        await step(run, "x")

    driven = Driven(broken)
    driven.result(0)
    error = blocked(revived(driven, other).turn)
    assert isinstance(error, NonDeterminismError)
    assert (error.seq, error.recorded, error.issued) == (0, "step 'a'", "step 'x'")


def test_once_the_run_went_on_its_new_history_binds_again() -> None:
    async def broken(run: Instance) -> None:
        raise ValueError("a bug")

    def going_on(*names: str) -> Main:
        async def body(run: Instance) -> None:
            for name in names:
                await step(run, name)

        return body

    again = revived(Driven(broken), going_on("a", "b"))
    again.advance()
    again.result(0)

    def replayed(history: Sequence[Entry], main: Main) -> Turn:
        instance, turn = again.replay(main, history)
        instance.close()
        return turn

    assert replayed(again.history, going_on("a", "b")).outcome is None
    for names in (("a", "x"), ("a",), ("a", "b", "c")):
        outcome = replayed(again.history, going_on(*names)).outcome
        assert isinstance(outcome, Blocked) == (names != ("a", "b", "c")), names

    async def asks_for_more(run: Instance) -> None:
        await step(run, "a")
        await asyncio.gather(step(run, "b"), step(run, "c"))

    assert isinstance(replayed(again.history, asks_for_more).outcome, Blocked)
    # An attempt that failed since is no progress of the body: what it said last still counts.
    retried = [*again.history, attempt_failed(1, "b", 1)]
    assert isinstance(replayed(retried, going_on("a", "x")).outcome, Blocked)


def test_a_signal_that_was_taken_stays_taken() -> None:
    async def body(run: Instance) -> Any:
        order = await signal(run, "order")
        return await step(run, "charge", order)

    driven = Driven(body)
    driven.signal("order", 42)
    driven.failure(1, ValueError("no"))
    again = revived(driven)
    assert again.instance.steps[1].payload == b"42"
    assert not again.instance.listening()


def test_requeued_twice() -> None:
    async def body(run: Instance) -> Any:
        await step(run, "a")
        return await step(run, "b")

    driven = Driven(body)
    driven.failure(0, ValueError("first"))
    again = revived(driven)
    again.result(0)
    again.failure(1, ValueError("second"))
    assert [name for name, _, _ in shown(again.history)].count("end") == 2
    third = revived(again)
    assert list(third.instance.steps) == [1]
    third.result(1, "done")
    assert third.output() == "done"
