"""Waiting for signals: by name and token, with and without a limit; what comes early, late, twice, or to nobody."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from perdure.core.inbox import token_key
from perdure.core.instance import Instance
from perdure.core.turn import Cancelled
from perdure.model.commit import TokenWait
from perdure.model.errors import SignalTimeout
from tests.unit.core.driving import SECOND, START, Driven, blocked, signal, step


async def one_signal(run: Instance) -> Any:
    return await signal(run, "go")


async def two_signals(run: Instance) -> list[Any]:
    return [await signal(run, "go"), await signal(run, "go")]


async def bounded(run: Instance) -> Any:
    try:
        return await signal(run, "go", timeout=5)
    except SignalTimeout as error:
        return [str(error), error.signal, error.timeout, error.code]


def test_sig_01_a_signal_resolves_the_wait_with_its_payload() -> None:
    driven = Driven(one_signal)
    driven.signal("go", {"by": "x"})
    assert driven.output() == {"by": "x"}
    assert driven.events() == [("resolved", 0, "go")]
    assert driven.turn.consumed == [1]


def test_sig_02_a_signal_that_came_before_the_wait_is_taken_at_once() -> None:
    async def body(run: Instance) -> Any:
        await step(run, "a")
        return await signal(run, "go")

    driven = Driven(body)
    driven.signal("go", 1)
    assert driven.turn.consumed == []
    assert driven.commit is not None
    assert driven.commit.seen == 1
    driven.result(0)
    assert driven.output() == 1
    assert driven.turn.consumed == [1]


def test_sig_03_signals_are_taken_in_the_order_they_came() -> None:
    driven = Driven(two_signals)
    driven.advance(driven.message("go", 1), driven.message("go", 2))
    assert driven.output() == [1, 2]


def test_sig_03_the_order_is_that_of_their_numbers_where_clocks_disagree() -> None:
    driven = Driven(two_signals)
    first, second = driven.message("go", 1, at=5), driven.message("go", 2, at=4)
    driven.advance(second, first, at=6)
    assert driven.output() == [1, 2]


def test_waits_are_served_in_the_order_they_were_issued() -> None:
    async def body(run: Instance) -> tuple[Any, ...]:
        return await asyncio.gather(signal(run, "go"), signal(run, "stop"), signal(run, "go"))

    driven = Driven(body)
    driven.signal("go", 1)
    driven.signal("go", 2)
    driven.signal("stop", 3)
    assert driven.output() == [1, 3, 2]


def test_a_signal_nobody_waits_for_stays_unread() -> None:
    driven = Driven(one_signal)
    driven.signal("other", 1)
    assert driven.turn.consumed == []
    assert driven.commit is not None
    assert driven.commit.seen == 1
    driven.signal("go", 2)
    assert driven.turn.consumed == [2]


def test_f26_a_message_that_comes_twice_counts_once() -> None:
    driven = Driven(two_signals)
    message = driven.message("go", 1)
    driven.advance(message, message)
    driven.advance(message)
    assert driven.turn.entries == []
    driven.signal("go", 2)
    assert driven.output() == [1, 2]


def test_f26_a_wait_that_ran_out_is_not_resolved_later() -> None:
    async def body(run: Instance) -> Any:
        with pytest.raises(SignalTimeout):
            await signal(run, "go", timeout=5)
        await step(run, "a")
        return await signal(run, "go")

    driven = Driven(body)
    driven.advance(at=5)
    driven.signal("go", "late")
    assert driven.turn.consumed == []
    driven.result(1)
    assert driven.output() == "late"


def test_sig_05_a_signal_against_a_parking_turn() -> None:
    """The turn that began to wait is answered with the message that came before its commit."""
    driven = Driven(one_signal)
    assert driven.commit is not None
    assert (driven.commit.seen, driven.commit.listening) == (0, True)
    driven.signal("go", "payload")  # as `Moved` brings it
    assert driven.output() == "payload"
    assert not driven.instance.listening()


@pytest.mark.parametrize(
    ("at", "output"),
    [
        (4.999999, "in time"),
        (5.0, "in time"),  # a tie: the message goes first
        (
            5.000001,
            ["run 'run1' (test@1) waited 5 seconds for signal 'go', and none came", "go", 5.0, "signal_timeout"],
        ),
    ],
)
def test_sig_11_the_message_must_come_before_the_deadline(at: float, output: object) -> None:
    driven = Driven(bounded)
    driven.advance(driven.message("go", "in time", at=at), at=6)
    assert driven.output() == output


def test_sig_11_a_message_taken_in_late_counts_by_when_it_came() -> None:
    driven = Driven(bounded)
    driven.advance(driven.message("go", "in time", at=4), at=3600)  # an outage of an hour
    assert driven.output() == "in time"


def test_sig_11_a_timeout_is_a_timeout_error_and_survives_replay() -> None:
    driven = Driven(bounded)
    driven.advance(at=5)
    assert driven.output()[1:] == ["go", 5.0, "signal_timeout"]
    assert issubclass(SignalTimeout, TimeoutError)


def test_sig_12_the_deadline_is_recorded_once() -> None:
    driven = Driven(bounded)
    assert driven.instance.next_due() == START + 5 * SECOND
    driven.advance(at=3)
    copy, _ = driven.replay()
    assert copy.next_due() == START + 5 * SECOND
    copy.advance((), START + 4_999_999)
    assert copy.next_due() == START + 5 * SECOND


def test_sig_12_a_changed_timeout_does_not_shift_a_recorded_deadline() -> None:
    async def longer(run: Instance) -> Any:
        return await signal(run, "go", timeout=500)

    copy, turn = Driven(bounded).replay(longer)
    assert turn.outcome is None
    assert copy.next_due() == START + 5 * SECOND


def test_an_abandoned_wait_leaves_the_message_to_the_next() -> None:
    async def body(run: Instance) -> Any:
        first = signal(run, "go")
        second = signal(run, "go")
        await step(run, "a")
        first.cancel()
        return await second

    driven = Driven(body)
    driven.result(2)
    assert driven.events() == [("resolved", 2, "a"), ("abandoned", 0, "go")]
    driven.signal("go", "for the second")
    assert driven.output() == "for the second"


def test_what_comes_after_the_end_in_its_turn_is_left_in_the_inbox() -> None:
    """As if it had come in a turn of its own: an open wait of an ended body takes nothing."""

    async def body(run: Instance) -> None:
        signal(run, "go", token="t")
        await step(run, "a")

    driven = Driven(body)
    driven.advance(driven.done(1, at=1), driven.message("go", 1, token="t", at=2), at=3)
    assert driven.output() is None
    assert driven.turn.consumed == []
    assert driven.events() == [("resolved", 1, "a"), ("abandoned", 0, "go")]


# ---------------------------------------------------------------- tokens


async def by_token(run: Instance) -> Any:
    return await signal(run, "approval", token="order:42")


def test_a_token_is_waited_for_in_the_store() -> None:
    driven = Driven(by_token)
    assert driven.commit is not None
    assert driven.commit.waits == (TokenWait(0, "order:42"),)
    assert driven.instance.inbox.waits_for(token_key("order:42"))
    driven.signal("approval", "yes", token="order:42")
    assert driven.output() == "yes"
    assert driven.commit.unwaits == (0,)


def test_names_and_tokens_do_not_meet() -> None:
    driven = Driven(by_token)
    driven.signal("approval", "by name")
    driven.signal("order:42", "by name")
    assert driven.turn.entries == []
    driven.signal("order:42", "by token", token="order:42")
    assert driven.output() == "by token"


def test_a_token_message_for_a_wait_that_is_over_is_left_to_the_store() -> None:
    async def body(run: Instance) -> Any:
        try:
            async with asyncio.timeout(5):
                await signal(run, "approval", token="order:42")
        except TimeoutError:
            await step(run, "a")
        return await signal(run, "approval", token="order:42")

    driven = Driven(body)
    driven.advance(at=5)
    assert driven.commit is not None
    assert driven.commit.unwaits == (1,)
    # It was served to the first wait before that turn was committed: the store takes it back, and it is not taken here.
    driven.signal("approval", "too late", token="order:42")
    assert driven.turn.consumed == []
    driven.result(2)
    assert driven.turn.outcome is None
    assert driven.commit.waits == (TokenWait(3, "order:42"),)


def test_a_replay_waits_for_the_recorded_token() -> None:
    """The store knows the wait by it: a token that the code makes anew each time must not strand its message."""

    async def other(run: Instance) -> Any:
        return await signal(run, "approval", token="order:43")

    copy, turn = Driven(by_token).replay(other)
    assert turn.outcome is None
    assert copy.inbox.waits_for(token_key("order:42"))


# ---------------------------------------------------------------- a rebuilt instance and its inbox


def test_a_rebuilt_instance_has_the_inbox_of_its_last_commit() -> None:
    async def body(run: Instance) -> list[Any]:
        await step(run, "a")
        return [await signal(run, "go"), await signal(run, "go")]

    driven = Driven(body)
    first, second = driven.message("go", 1), driven.message("go", 2)
    driven.advance(first)
    copy, _ = driven.replay()
    copy.close()
    copy = driven._instance(driven.main)
    copy.replay(driven.history, START, seen=1, unread=[first, second])
    assert copy.inbox.seen == 1
    # As after a claim: everything unread comes, what was seen counts once, and before whatever is new.
    turn = copy.advance([second, first, driven.done(0)], driven.now)
    assert turn.consumed == [1, 2]


def test_a_rebuilt_instance_does_not_take_consumed_messages_again() -> None:
    driven = Driven(two_signals)
    message = driven.message("go", 1)
    driven.advance(message)
    copy = driven._instance(driven.main)
    copy.replay(driven.history, START, seen=1)
    turn = copy.advance([message], driven.now)  # somebody read it from the store before it was consumed
    assert turn.entries == []


def test_a_cancel_that_a_lost_turn_had_seen_is_still_delivered() -> None:
    async def deadlocks(run: Instance) -> None:
        try:
            await step(run, "a")
        finally:
            await asyncio.Event().wait()

    async def mended(run: Instance) -> None:
        await step(run, "a")

    driven = Driven(deadlocks)
    before, cancel, after = driven.message("x"), driven.cancelling(), driven.message("y")
    driven.advance(before, cancel, after)
    assert "can never happen" in str(blocked(driven.turn))
    seen = driven.instance.inbox.seen
    assert seen == 3
    copy = driven._instance(mended)
    copy.replay(driven.history, START, seen=seen, unread=[before, cancel, after])
    turn = copy.advance([before, cancel, after], driven.now)
    assert turn.outcome == Cancelled()
    assert turn.consumed == [2]
