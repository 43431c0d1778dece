"""Timers: durable, absolute, in virtual time; and which of several things that are due comes first."""

from __future__ import annotations

import asyncio
import math
from typing import Any

import pytest

from perdure.core.instance import Instance
from perdure.core.loop import FAR
from perdure.core.operation import Operation
from perdure.core.pending import Pending
from perdure.model.history import Op
from tests.unit.core.driving import SECOND, START, Driven, signal, step


def test_time_01_a_sleep_wakes_at_its_time_and_not_before() -> None:
    async def body(run: Instance) -> str:
        await step(run, "a")
        await asyncio.sleep(5)
        return "awake"

    driven = Driven(body)
    driven.advance(driven.done(0), at=1)
    assert driven.commit is not None
    assert driven.commit.wake_at == START + 6 * SECOND
    driven.advance(at=5.999999)
    assert driven.turn.entries == []
    driven.advance(at=6)
    assert driven.output() == "awake"
    assert driven.events() == [("resolved", 1, "timer")]


def test_time_02_a_sleep_until_is_due_to_the_microsecond() -> None:
    when = START / SECOND + 12345.678901

    async def body(run: Instance) -> None:
        loop = asyncio.get_running_loop()
        future = loop.create_future()
        loop.call_at(when, future.set_result, None)
        await future

    driven = Driven(body)
    assert driven.instance.next_due() == START + 12345_678901


@pytest.mark.parametrize("delay", [0, -1, -0.0, -math.inf])
def test_delays_of_nothing_are_no_timers(delay: float) -> None:
    async def body(run: Instance) -> list[str]:
        order: list[str] = []

        async def other() -> None:
            order.append("other")

        task = asyncio.create_task(other())
        await asyncio.sleep(delay)
        order.append("body")
        await task
        future = asyncio.get_running_loop().create_future()
        asyncio.get_running_loop().call_later(delay, future.set_result, None)
        await future
        return order

    driven = Driven(body)
    assert driven.turn.entries == []
    assert driven.output() == ["other", "body"]


@pytest.mark.parametrize("delay", [math.inf, 1e300, 10.0**18])
def test_a_sleep_for_ever_is_a_timer_that_every_store_can_hold(delay: float) -> None:
    async def body(run: Instance) -> None:
        await asyncio.sleep(delay)

    due = Driven(body).instance.next_due()
    assert due == FAR
    assert START < due < 2**63


def test_a_delay_that_is_no_number_is_refused() -> None:
    async def body(run: Instance) -> None:
        asyncio.get_running_loop().call_later(math.nan, print)

    assert isinstance(Driven(body).error(), ValueError)


def test_an_outage_does_not_make_a_loop_of_sleeps_catch_up() -> None:
    async def body(run: Instance) -> None:
        while True:
            await asyncio.sleep(60)
            await step(run, "tick")

    driven = Driven(body)
    driven.advance(at=3600)
    assert driven.events() == [("resolved", 0, "timer"), ("scheduled", 1, "tick")]
    driven.result(1)
    assert driven.instance.next_due() == START + 3660 * SECOND


def test_timers_that_fell_due_in_an_outage_fire_in_the_order_of_their_times() -> None:
    async def body(run: Instance) -> list[float]:
        order: list[float] = []

        async def waits(delay: float) -> None:
            await asyncio.sleep(delay)
            order.append(delay)

        await asyncio.gather(*(waits(delay) for delay in (30, 10, 20, 10.5)))
        return order

    driven = Driven(body)
    driven.advance(at=3600)
    assert driven.output() == [10, 10.5, 20, 30]


def test_timers_due_at_one_moment_fire_in_the_order_they_were_asked_for() -> None:
    async def body(run: Instance) -> list[int]:
        order: list[int] = []

        async def waits(number: int) -> None:
            await asyncio.sleep(5)
            order.append(number)

        await asyncio.gather(*(waits(number) for number in range(5)))
        return order

    driven = Driven(body)
    driven.advance(at=5)
    assert driven.output() == [0, 1, 2, 3, 4]


async def race(run: Instance) -> Any:
    try:
        async with asyncio.timeout(5):
            return await step(run, "work")
    except TimeoutError:
        return "too late"


@pytest.mark.parametrize(("at", "output"), [(4.999999, "done"), (5.0, "done"), (5.000001, "too late")])
def test_a_result_beats_a_deadline_it_came_before_though_it_is_taken_in_late(at: float, output: str) -> None:
    driven = Driven(race)
    driven.advance(driven.done(1, "done", at=at), at=3600)
    assert driven.output() == output


def test_a_message_beats_a_timer_on_a_tie() -> None:
    async def body(run: Instance) -> str:
        go = asyncio.create_task(_result(signal(run, "go")))
        sleeper = asyncio.create_task(asyncio.sleep(5))
        done, _ = await asyncio.wait([go, sleeper], return_when=asyncio.FIRST_COMPLETED)
        return "signal" if done == {go} else "timer" if done == {sleeper} else "both"

    driven = Driven(body)
    driven.advance(driven.message("go", at=5), at=5)
    assert driven.output() == "signal"


def test_a_deadline_is_absolute_and_survives_a_replay() -> None:
    driven = Driven(race)
    driven.advance(at=3)
    copy, _ = driven.replay()
    assert copy.next_due() == START + 5 * SECOND
    assert copy.advance((), START + 4 * SECOND).entries == []
    assert [entry.name for entry in copy.advance((), START + 5 * SECOND).entries] == ["timer", "work"]


def test_a_changed_delay_does_not_shift_a_recorded_timer() -> None:
    async def sleeps(run: Instance) -> None:
        await asyncio.sleep(60)

    async def sleeps_longer(run: Instance) -> None:
        await asyncio.sleep(90)

    copy, turn = Driven(sleeps).replay(sleeps_longer)
    assert turn.outcome is None
    assert copy.next_due() == START + 60 * SECOND


def test_virtual_now_is_that_of_the_turn_and_never_goes_back() -> None:
    async def body(run: Instance) -> list[int]:
        times = [run.now]
        for name in ("a", "b", "c"):
            await step(run, name)
            times.append(run.now)
        return times

    driven = Driven(body)
    driven.advance(driven.done(0), at=10)
    driven.advance(driven.done(1), at=5)  # the store's clock was set back
    driven.advance(driven.done(2), at=20)
    assert [(time - START) // SECOND for time in driven.output()] == [0, 10, 10, 20]


def test_f73_the_time_a_body_sees_comes_from_its_history() -> None:
    async def body(run: Instance) -> list[Any]:
        await step(run, "a")
        return [run.now, asyncio.get_running_loop().time(), await step(run, "b")]

    driven = Driven(body)
    driven.advance(driven.done(0), at=1)
    copy, _ = driven.replay()
    turn = copy.advance([driven.done(1)], START + 9999 * SECOND)
    driven.result(1)
    assert turn.outcome == driven.turn.outcome
    assert driven.output()[:2] == [START + SECOND, START / SECOND + 1]


def test_a_cancelled_timer_is_not_due() -> None:
    async def body(run: Instance) -> None:
        loop = asyncio.get_running_loop()
        handle = loop.call_later(5, run.set_value, "fired", b"1")
        assert handle.when() == pytest.approx(loop.time() + 5)
        await asyncio.sleep(1)
        handle.cancel()
        handle.cancel()
        await asyncio.sleep(60)

    driven = Driven(body)
    driven.advance(at=1)
    assert ("abandoned", 0, "timer") in driven.events()
    driven.advance(at=61)
    assert driven.output() is None
    assert all(entry.name != "fired" for entry in driven.history)


async def _result(future: Any) -> Any:
    return await future


def test_a_parked_run_does_not_keep_when_its_abandoned_waits_were_due() -> None:
    pending = Pending()
    pending.add(Operation(0, Op.TIMER, "timer", due=START))
    assert [operation.seq for operation in pending.take_due(START)] == [0]  # open, but not due again
    for seq in (1, 2):
        pending.add(Operation(seq, Op.TIMER, "timer", due=START + seq))
    for seq in range(3, 1000):
        pending.add(Operation(seq, Op.SIGNAL, "go", due=START + seq))
        pending.remove(seq)
        assert len(pending._due) < 64
    assert pending.next_due() == START + 1
    assert [operation.seq for operation in pending.take_due(START + 1000)] == [1, 2]
