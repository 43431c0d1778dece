"""The clock driven by hand."""

from __future__ import annotations

import asyncio
import threading
from datetime import timedelta
from functools import partial

import pytest

from perdure.model.errors import UsageError
from perdure.ports.clock import Clock
from perdure.testing import ManualClock

SECOND = 1_000_000


def test_it_stands_still_until_it_is_moved() -> None:
    clock: Clock = ManualClock(start=5)
    assert [clock.now(), clock.now()] == [5, 5]


def test_kit_02_it_moves_by_seconds_and_timedeltas() -> None:
    clock = ManualClock(start=0)
    clock.advance(5)
    clock.advance(0.000001)
    clock.advance(timedelta(hours=1, microseconds=3))
    assert clock.now() == 3605 * SECOND + 4


def test_it_jumps_to_a_time_backwards_too() -> None:
    clock = ManualClock(start=100)
    clock.set(250)
    assert clock.now() == 250
    clock.set(7)
    assert clock.now() == 7


def test_what_is_no_duration_is_refused() -> None:
    clock = ManualClock(start=1)
    with pytest.raises(UsageError, match="finite"):
        clock.advance(float("nan"))
    assert clock.now() == 1


async def test_alarms_fire_in_the_order_of_their_times() -> None:
    clock = ManualClock(start=0)
    fired: list[tuple[str, int]] = []

    def fire(name: str) -> None:
        fired.append((name, clock.now()))

    for name, when in [("c", 30), ("a", 10), ("b", 20), ("a2", 10), ("late", 41)]:
        clock.call_at(when, partial(fire, name))
    clock.set(9)
    assert fired == []
    clock.set(40)
    # Each saw the clock stand at its own time.
    assert fired == [("a", 10), ("a2", 10), ("b", 20), ("c", 30)]
    assert clock.now() == 40


async def test_an_alarm_fires_at_its_time_and_once() -> None:
    clock = ManualClock(start=0)
    fired: list[int] = []
    clock.call_at(10, lambda: fired.append(clock.now()))
    clock.set(10)
    clock.set(5)
    clock.set(20)
    assert fired == [10]


async def test_an_alarm_for_a_time_that_has_come_fires_at_the_next_iteration() -> None:
    clock = ManualClock(start=10)
    fired: list[str] = []
    clock.call_at(10, lambda: fired.append("now"))
    clock.call_at(3, lambda: fired.append("past"))
    assert fired == []
    await asyncio.sleep(0)
    assert fired == ["now", "past"]


async def test_an_alarm_that_sets_another_within_the_advance() -> None:
    clock = ManualClock(start=0)
    fired: list[int] = []

    def again() -> None:
        fired.append(clock.now())
        clock.call_at(clock.now() + 10, again)

    clock.call_at(10, again)
    clock.set(35)
    assert fired == [10, 20, 30]
    assert clock.next_alarm() == 40


async def test_a_cancelled_alarm_does_not_fire() -> None:
    clock = ManualClock(start=0)
    fired: list[str] = []
    first = clock.call_at(10, lambda: fired.append("first"))
    second = clock.call_at(10, lambda: fired.append("second"))
    due = clock.call_at(0, lambda: fired.append("due"))
    first.cancel()
    first.cancel()
    due.cancel()
    clock.set(20)
    await asyncio.sleep(0)
    assert fired == ["second"]
    second.cancel()


async def test_an_alarm_may_cancel_the_one_after_it() -> None:
    clock = ManualClock(start=0)
    fired: list[str] = []
    alarm = clock.call_at(20, lambda: fired.append("second"))
    clock.call_at(10, alarm.cancel)
    clock.set(30)
    assert fired == []


async def test_the_next_alarm_is_the_earliest_that_was_not_cancelled() -> None:
    clock = ManualClock(start=0)
    assert clock.next_alarm() is None
    early = clock.call_at(10, lambda: None)
    clock.call_at(20, lambda: None)
    assert clock.next_alarm() == 10
    early.cancel()
    assert clock.next_alarm() == 20
    clock.set(20)
    assert clock.next_alarm() is None


async def test_from_another_thread_alarms_fire_on_the_loops_own() -> None:
    clock = ManualClock(start=0)
    fired = asyncio.Event()
    threads: list[threading.Thread] = []

    def fire() -> None:
        threads.append(threading.current_thread())
        fired.set()

    clock.call_at(10, fire)
    other = threading.Thread(target=clock.set, args=(10,))
    other.start()
    other.join()
    assert clock.now() == 10
    await fired.wait()
    assert threads == [threading.current_thread()]


def test_the_alarms_of_a_loop_that_is_gone_are_forgotten() -> None:
    clock = ManualClock(start=0)
    fired: list[int] = []

    async def ask() -> None:
        clock.call_at(10, lambda: fired.append(1))

    asyncio.run(ask())
    clock.set(20)
    assert (fired, clock.now(), clock.next_alarm()) == ([], 20, None)


def test_an_alarm_needs_a_running_loop() -> None:
    with pytest.raises(RuntimeError):
        ManualClock().call_at(0, lambda: None)
