"""Waiting for runs: whatever the order of reads, looks and changes, none is missed; and one look serves all, not too often."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from types import SimpleNamespace
from typing import Any, cast

import pytest

from perdure.engine.endings import Ending, Endings, Waiter
from perdure.engine.services.lookout import Lookout
from perdure.engine.settings import Settings
from perdure.model.errors import StoreUnavailable, UsageError
from perdure.model.run import SETTLED, TERMINAL, Run, RunKey, Status
from perdure.ports.store import Standing
from perdure.testing import ManualClock
from perdure.testing.kit import let_others_go_on

KEY = RunKey("r", 1)


def row(status: Status, wake_at: int | None = None, updated_at: int = 0) -> Run:
    return cast(Run, SimpleNamespace(status=status, wake_at=wake_at, updated_at=updated_at))


RUNNING = Standing(Status.RUNNING, 30, 1)
PARKED = Standing(Status.SUSPENDED, None, 2)
DONE = Standing(Status.COMPLETED, None, 3)


def seen(waiter: Waiter, standing: Standing) -> None:
    waiter.saw(row(standing.status, standing.wake_at, standing.updated_at))


@pytest.mark.parametrize("first", ["read", "look"])
@pytest.mark.parametrize(
    ("watched", "saw", "stands", "told"),
    [
        (TERMINAL, RUNNING, DONE, True),
        (TERMINAL, RUNNING, RUNNING, False),
        (TERMINAL, RUNNING, PARKED, False),
        (SETTLED, RUNNING, PARKED, True),
        (SETTLED, PARKED, Standing(Status.SUSPENDED, None, 5), True),
        (SETTLED, PARKED, Standing(Status.SUSPENDED, 9, 2), True),
        (TERMINAL | {Status.RUNNING}, RUNNING, Standing(Status.RUNNING, 60, 1), False),
        (TERMINAL | {Status.RUNNING}, RUNNING, Standing(Status.RUNNING, 60, 2), True),
        (TERMINAL, DONE, Standing(Status.FAILED, None, 3), True),
        (TERMINAL, RUNNING, None, True),
        (SETTLED, PARKED, None, True),
    ],
)
async def test_who_waits_is_told_if_the_run_stands_otherwise_than_was_seen(
    first: str, watched: frozenset[Status], saw: Standing, stands: Standing | None, told: bool
) -> None:
    endings = Endings()
    with endings.listen(1, watched) as waiter:
        assert endings.watched() == [1]
        found = {} if stands is None else {1: stands}
        if first == "read":
            seen(waiter, saw)
            endings.stand([1], found)
        else:
            endings.stand([1], found)
            assert not waiter.change.done()
            seen(waiter, saw)
        assert waiter.change.done() is told
        assert endings.watched() == ([] if told else [1])
    assert not endings.waiting()


async def test_who_waits_for_a_run_that_is_held_here_is_not_looked_for_but_told() -> None:
    endings = Endings()
    with endings.listen(1) as waiter:
        assert endings.waiting()
        assert endings.watched() == []
        ending = Ending(Status.COMPLETED, b"1", None)
        endings.ended(KEY, ending)
        assert await waiter.change == ending
    with endings.listen(1) as waiter:
        endings.touched(KEY)
        assert await waiter.change is None


async def test_f25_however_a_wait_ends_nothing_is_left_behind() -> None:
    endings = Endings()

    async def waits(stop: Callable[[Waiter], None] = lambda waiter: None) -> None:
        with endings.listen(1, TERMINAL) as waiter:
            stop(waiter)
            await waiter.change

    def fails(waiter: Waiter) -> None:
        raise StoreUnavailable("the read failed")

    tasks = [asyncio.create_task(waits()) for _ in range(2_000)]
    await let_others_go_on()
    assert endings.watched() == [1]
    for task in tasks[::2]:
        task.cancel()
    with pytest.raises(StoreUnavailable):
        await waits(fails)
    endings.stand([1], {})  # read nothing yet: told only when they have
    endings.touched(KEY)
    await asyncio.gather(*tasks, return_exceptions=True)
    assert not endings.waiting()
    abandoned = waits()
    abandoned.send(None)
    assert endings.waiting()
    abandoned.close()
    assert not endings.waiting()


async def test_an_app_that_closes_tells_who_waits_also_those_who_do_not_listen_yet() -> None:
    endings = Endings()
    with endings.listen(1, TERMINAL) as waiter, endings.listen(2):
        endings.close()
        with pytest.raises(UsageError, match="closed"):
            await waiter.change
    with pytest.raises(UsageError, match="closed"), endings.listen(1):
        pass


# ---------------------------------------------------------------- the lookout


class Watched:
    """A store that is only looked at; each look takes as long as is said, on the clock, and may fail."""

    def __init__(self, clock: ManualClock) -> None:
        self.clock = clock
        self.took = 0.0
        self.error: Exception | None = None
        self.began: list[int] = []
        self.at_work = 0
        self.most_at_work = 0
        self.hold: asyncio.Event | None = None

    async def standing(self, incarnations: Sequence[int]) -> Mapping[int, Standing]:
        self.began.append(self.clock.now())
        self.at_work += 1
        self.most_at_work = max(self.most_at_work, self.at_work)
        try:
            if self.hold is not None:
                await self.hold.wait()
            elif self.took:
                done = asyncio.Event()
                self.clock.call_at(self.clock.now() + round(self.took * 1e6), done.set)
                await done.wait()
            if self.error is not None:
                raise self.error
            return {}
        finally:
            self.at_work -= 1


class Looking:
    """A lookout with one who waits and has not read yet: whatever is found is only kept."""

    def __init__(self, stack: ExitStack, **settings: Any) -> None:
        self.clock = ManualClock()
        self.store = Watched(self.clock)
        self.endings = Endings()
        self.stack = stack
        means = SimpleNamespace(
            loop=asyncio.get_running_loop(), clock=self.clock, store=self.store, settings=Settings(**settings)
        )
        self.lookout = Lookout(cast(Any, means), self.endings)

    def wait(self) -> None:
        self.stack.enter_context(self.endings.listen(1, TERMINAL))

    async def hint(self) -> None:
        self.lookout.hint()
        await self.rest()

    async def rest(self) -> None:
        for _ in range(8):
            await let_others_go_on()


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


async def test_nobody_waits_so_nobody_looks(stack: ExitStack) -> None:
    looking = Looking(stack)
    await looking.hint()
    assert looking.store.began == []
    stack.enter_context(looking.endings.listen(1))  # held here
    await looking.hint()
    assert looking.store.began == []


async def test_the_first_hint_looks_at_once_and_hints_meanwhile_are_one_look_after_a_pause(stack: ExitStack) -> None:
    looking = Looking(stack)
    looking.wait()
    start, looking.store.took = looking.clock.now(), 0.2
    await looking.hint()
    assert looking.store.began == [start]
    for _ in range(10):
        await looking.hint()
        looking.clock.advance(0.019)
        await looking.rest()
    looking.clock.advance(0.01)  # it has ended
    await looking.rest()
    for _ in range(10):
        await looking.hint()
        looking.clock.advance(0.019)
        await looking.rest()
    assert looking.store.began == [start]
    looking.clock.advance(0.01)
    await looking.rest()
    assert looking.store.began == [start, start + 400_000]
    for _ in range(3):
        looking.clock.advance(0.2)
        await looking.rest()
    assert len(looking.store.began) == 2
    await looking.hint()
    assert looking.store.began[2:] == [looking.clock.now()]
    await looking.lookout.stop()


async def test_a_storm_of_hints_takes_half_the_time_at_most(stack: ExitStack) -> None:
    looking = Looking(stack)
    looking.wait()
    looking.store.took = 0.05
    for _ in range(2_000):
        await looking.hint()
        looking.clock.advance(0.005)
        await looking.rest()
    assert 90 <= len(looking.store.began) <= 101
    assert looking.store.most_at_work == 1
    await looking.lookout.stop()


async def test_a_clock_that_jumped_during_a_look_does_not_stop_the_looking(stack: ExitStack) -> None:
    looking = Looking(stack)
    looking.wait()
    looking.store.hold = asyncio.Event()
    await looking.hint()
    looking.clock.advance(86_400)
    looking.store.hold.set()
    await looking.rest()
    await looking.hint()
    assert len(looking.store.began) == 1
    looking.clock.advance(1)
    await looking.rest()
    assert len(looking.store.began) == 2
    await looking.lookout.stop()


@pytest.mark.parametrize("error", [StoreUnavailable("away"), RuntimeError("odd")])
async def test_a_look_that_fails_is_logged_and_the_next_hint_tries_again(
    stack: ExitStack, error: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    looking = Looking(stack)
    looking.wait()
    looking.store.error = error
    with caplog.at_level(logging.WARNING, "perdure.engine"):
        for number in range(1, 4):
            await looking.hint()
            assert len(looking.store.began) == number
    assert len(caplog.records) == (1 if isinstance(error, StoreUnavailable) else 3)
    looking.store.error = None
    await looking.hint()
    assert len(looking.store.began) == 4
    assert looking.endings.waiting()


async def test_f23_a_look_that_hangs_is_given_up(stack: ExitStack, caplog: pytest.LogCaptureFixture) -> None:
    looking = Looking(stack, patience=1)
    looking.wait()
    looking.store.hold = asyncio.Event()
    with caplog.at_level(logging.WARNING, "perdure.engine"):
        looking.lookout.hint()
        while not caplog.records:
            await let_others_go_on()
    assert "does not answer" in caplog.text
    looking.store.hold = None
    await looking.rest()
    await looking.hint()
    assert len(looking.store.began) == 2
