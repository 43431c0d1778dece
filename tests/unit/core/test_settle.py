"""From a turn to its commit: every kind of outcome, and what becomes of every kind of operation."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from perdure.core.instance import Instance
from perdure.core.issuing import NO_SEQ
from perdure.core.settle import Standing, busy, kill, next_look, settle
from perdure.core.turn import Blocked, Turn
from perdure.model.commit import Join, NewChild, TokenWait, TurnCommit
from perdure.model.endings import dead_failure
from perdure.model.errors import DeadlockError
from perdure.model.failure import decode_failure
from perdure.model.history import Entry, Event, Op
from perdure.model.run import RunKey, Status
from tests.unit.core.driving import ONCE, SECOND, START, Driven, Main, child, join, new_run, shown, signal, step

STANDING = Standing(RunKey("run1", 9), "me", 3, 7, None, "code")


def settled(driven: Driven, *, deadline: int | None = None, attempts: tuple[Entry, ...] = ()) -> TurnCommit:
    standing = msgspec.structs.replace(STANDING, deadline=deadline)
    return settle(standing, driven.instance, driven.turn, attempts)


async def waits(run: Instance) -> None:
    await step(run, "a")


# ---------------------------------------------------------------- outcomes


async def completes(run: Instance) -> int:
    return 42


async def fails(run: Instance) -> None:
    raise ValueError("no good")


async def goes_on(run: Instance) -> None:
    run.continue_as_new(new_run("run1~1"))


async def deadlocks(run: Instance) -> None:
    await asyncio.Event().wait()


def begun(main: Main) -> Driven:
    return Driven(main)


def cancelled(main: Main) -> Driven:
    driven = Driven(main)
    driven.cancel()
    return driven


@pytest.mark.parametrize(
    ("driven", "status", "output", "code", "successor", "events"),
    [
        pytest.param(lambda: begun(waits), Status.RUNNING, None, None, None, ["scheduled"], id="waiting"),
        pytest.param(lambda: begun(completes), Status.COMPLETED, b"42", None, None, ["end"], id="completed"),
        pytest.param(lambda: begun(fails), Status.FAILED, None, "no good", None, ["end"], id="failed"),
        pytest.param(
            lambda: cancelled(waits),
            Status.CANCELLED,
            None,
            "cancelled",
            None,
            ["cancel", "abandoned", "end"],
            id="cancelled",
        ),
        pytest.param(lambda: begun(goes_on), Status.COMPLETED, None, None, new_run("run1~1"), ["end"], id="continued"),
        pytest.param(lambda: begun(deadlocks), Status.BLOCKED, None, "can never happen", None, [], id="blocked"),
    ],
)
def test_every_outcome(
    driven: Callable[[], Driven],
    status: Status,
    output: bytes | None,
    code: str | None,
    successor: Any,
    events: list[str],
) -> None:
    run = driven()
    commit = settled(run)
    assert (commit.run, commit.owner, commit.epoch, commit.n) == (RunKey("run1", 9), "me", 3, 7)
    assert (commit.status, commit.output, commit.successor) == (status, output, successor)
    assert [event for event, _, _ in shown(commit.entries)] == events
    if code is None:
        assert commit.error is None
    else:
        assert commit.error is not None
        assert code in decode_failure(commit.error).message
    assert commit.fingerprint == ("code" if status is Status.BLOCKED else None)
    assert commit.progress == (status is not Status.BLOCKED)
    assert commit.started_at is None


def test_the_end_is_the_last_entry_and_names_the_status() -> None:
    driven = Driven(completes)
    end = settled(driven).entries[-1]
    assert (end.event, end.seq, end.op, end.name, end.at) == (Event.END, NO_SEQ, None, "completed", START)


def test_a_lost_turn_writes_nothing_but_attempts() -> None:
    async def body(run: Instance) -> None:
        await step(run, "a")
        run.set_value("x", b"1")
        run.spawn(new_run("child"))
        await asyncio.Event().wait()

    driven = Driven(body)
    driven.advance(driven.done(0), driven.message("go"))
    attempt = Entry(Event.ATTEMPT_FAILED, 0, Op.STEP, "a", None, START, START + SECOND)
    commit = settled(driven, deadline=START + 60 * SECOND, attempts=(attempt,))
    assert commit.entries == (attempt,)
    assert (commit.values, commit.children, commit.consumed) == ((), (), ())
    assert commit.seen == 1
    assert commit.wake_at == START + 60 * SECOND  # deadlines still count
    assert not commit.listening


def test_a_fault_may_fail_the_run_instead_of_blocking_it() -> None:
    driven = Driven(deadlocks)
    standing = msgspec.structs.replace(STANDING, block=False)
    commit = settle(standing, driven.instance, driven.turn)
    assert commit.status is Status.FAILED
    assert commit.fingerprint is None
    assert shown(commit.entries) == [("end", NO_SEQ, "failed")]
    assert commit.error is not None
    assert decode_failure(commit.error).code == DeadlockError.code


@pytest.mark.parametrize("status", [Status.DEAD, Status.CANCELLED, Status.FAILED])
def test_a_run_whose_body_is_not_asked(status: Status) -> None:
    commit = kill(STANDING, status, dead_failure(10), START + 5, 3)
    assert (commit.status, commit.seen, commit.wake_at) == (status, 3, None)
    assert commit.entries == (Entry(Event.END, NO_SEQ, None, status, None, START + 5),)
    assert commit.error is not None
    assert decode_failure(commit.error).code == "max_recovery_attempts"


# ---------------------------------------------------------------- operations


Issue = Callable[[Instance], Any]


def issue_spawn(run: Instance) -> None:
    run.spawn(new_run("child"))


def issue_value(run: Instance) -> None:
    run.set_value("key", b"1")


ISSUED: dict[str, tuple[Issue, dict[str, Any]]] = {
    "step": (lambda run: step(run, "work"), {}),
    "local": (lambda run: run.local("work", dict, policy=ONCE, decode=bytes), {}),
    "timer": (lambda run: asyncio.get_running_loop().call_later(5, print), {}),
    "signal": (lambda run: signal(run, "go"), {}),
    "token": (lambda run: signal(run, "go", token="t"), {"waits": (TokenWait(0, "t"),)}),
    "child": (lambda run: child(run, "child"), {"children": (NewChild(0, new_run("child")),)}),
    "spawn": (issue_spawn, {"children": (NewChild(0, new_run("child")),)}),
    "join": (lambda run: join(run, "child"), {"joins": (Join(0, "child"),)}),
    "value": (issue_value, {"values": (("key", b"1"),)}),
}

#: What abandoning one writes that was issued in an earlier turn.
ABANDONED: dict[str, dict[str, Any]] = {
    "token": {"unwaits": (0,)},
    "child": {"cancels": ("child",)},
}

RESOLVED: dict[str, dict[str, Any]] = {"token": {"unwaits": (0,)}}

EFFECTS = ("waits", "unwaits", "children", "joins", "cancels", "sends", "values")


def effects(commit: TurnCommit) -> dict[str, Any]:
    return {name: getattr(commit, name) for name in EFFECTS if getattr(commit, name)}


def body_with(issue: Issue, *, drop: str | None = None) -> Main:
    """Issues one operation, then waits for a step; `drop`: gives it up at once, or after that step."""

    async def body(run: Instance) -> None:
        issued = issue(run)
        if drop == "at once":
            issued.cancel()
        await step(run, "a")
        if drop == "later":
            issued.cancel()
        await step(run, "b")

    return body


@pytest.mark.parametrize("kind", ISSUED)
def test_what_issuing_an_operation_writes(kind: str) -> None:
    issue, writes = ISSUED[kind]
    driven = Driven(body_with(issue))
    assert effects(settled(driven)) == writes
    assert driven.events()[0][:2] == ("scheduled", 0)


@pytest.mark.parametrize("kind", [kind for kind in ISSUED if kind not in ("spawn", "value")])
def test_what_was_given_up_in_its_own_turn_leaves_nothing_but_its_history(kind: str) -> None:
    driven = Driven(body_with(ISSUED[kind][0], drop="at once"))
    assert effects(settled(driven)) == {}
    assert [event for event, seq, _ in driven.events() if seq == 0] == ["scheduled", "abandoned"]


@pytest.mark.parametrize("kind", [kind for kind in ISSUED if kind not in ("spawn", "value")])
def test_what_giving_up_an_earlier_operation_writes(kind: str) -> None:
    driven = Driven(body_with(ISSUED[kind][0], drop="later"))
    driven.result(1)
    assert effects(settled(driven)) == ABANDONED.get(kind, {})
    assert [event for event, seq, _ in driven.events() if seq == 0] == ["abandoned"]


@pytest.mark.parametrize("kind", ["token", "child", "join", "signal", "timer"])
def test_what_a_result_writes(kind: str) -> None:
    driven = Driven(body_with(ISSUED[kind][0]))
    if kind == "timer":
        driven.advance(at=5)
    elif kind in ("child", "join"):
        driven.advance(driven.ended("child", 1))
    else:
        driven.advance(driven.message("go", 1, token="t" if kind == "token" else None))
    assert effects(settled(driven)) == RESOLVED.get(kind, {})
    assert [event for event, seq, _ in driven.events() if seq == 0] == ["resolved"]


def test_a_token_resolved_in_its_own_turn_need_not_be_waited_for() -> None:
    """Two waits for one token: the second was waiting, the message that comes now is for it; a third comes and goes."""

    async def body(run: Instance) -> None:
        await signal(run, "go", token="t")
        signal(run, "go", token="t").cancel()
        await signal(run, "go", token="t")

    driven = Driven(body)
    driven.signal("go", 1, token="t")
    commit = settled(driven)
    assert commit.waits == (TokenWait(2, "t"),)
    assert commit.unwaits == (0,)


def test_a_join_answered_in_its_own_turn_is_not_asked_for() -> None:
    async def body(run: Instance) -> Any:
        first = await asyncio.gather(child(run, "c"), step(run, "a"))
        return [first, await join(run, "c")]

    driven = Driven(body)
    driven.advance(driven.ended("c", 1))
    driven.advance(driven.ended("c", 2))  # its end came twice: once for a join that is still to come
    driven.result(1)
    assert settled(driven).joins == ()
    assert driven.output() == [[1, None], 2]


def test_reopened_waits_are_registered_anew_and_children_joined_again() -> None:
    async def body(run: Instance) -> Any:
        return await asyncio.gather(child(run, "c"), signal(run, "go", token="t"), step(run, "a"))

    driven = Driven(body)
    driven.advance(driven.child_failed("c", ValueError("sank")))
    history = [*driven.history, Entry(Event.REQUEUED, NO_SEQ, None, "", None, driven.now)]
    instance, _ = driven.replay(history=history)
    turn = instance.advance((), driven.now)
    commit = settle(STANDING, instance, turn)
    reopened = instance.pending[0].child
    assert reopened is not None
    assert reopened.id == "c"
    assert effects(commit) == {
        "waits": (TokenWait(1, "t"),),
        "unwaits": (1,),  # should it be there already
        "children": (NewChild(0, reopened, again=True),),  # joined, or born if it could not start before
    }


# ---------------------------------------------------------------- how a run stands


def test_a_run_that_waits_only_for_messages_parks_and_listens() -> None:
    async def body(run: Instance) -> None:
        await signal(run, "go")

    commit = settled(Driven(body))
    assert (commit.status, commit.wake_at, commit.listening) == (Status.SUSPENDED, None, True)


def test_a_run_that_waits_for_time_parks_until_then() -> None:
    async def body(run: Instance) -> None:
        await asyncio.gather(asyncio.sleep(60), asyncio.sleep(30))

    commit = settled(Driven(body))
    assert (commit.status, commit.wake_at, commit.listening) == (Status.SUSPENDED, START + 30 * SECOND, False)


def test_a_run_with_a_step_to_do_keeps_its_lease() -> None:
    async def body(run: Instance) -> None:
        await asyncio.gather(step(run, "a"), signal(run, "go"), asyncio.sleep(30))

    commit = settled(Driven(body))
    assert (commit.status, commit.wake_at, commit.listening) == (Status.RUNNING, None, False)


def test_a_run_whose_steps_wait_for_their_next_attempt_parks_until_the_first() -> None:
    async def body(run: Instance) -> None:
        await asyncio.gather(step(run, "a"), step(run, "b"), signal(run, "go", timeout=600))

    driven = Driven(body)
    driven.instance.steps[0].next_at = START + 20 * SECOND
    assert busy(driven.instance)
    driven.instance.steps[1].next_at = START + 10 * SECOND
    assert not busy(driven.instance)
    commit = settled(driven)
    assert (commit.status, commit.wake_at, commit.listening) == (Status.SUSPENDED, START + 10 * SECOND, True)
    driven.instance.advance((), START + 10 * SECOND)
    assert busy(driven.instance)


@pytest.mark.parametrize(("deadline", "look"), [(None, 30), (60, 30), (20, 20)])
def test_the_next_look_is_at_the_earliest_timer_retry_or_deadline(deadline: int | None, look: int) -> None:
    async def body(run: Instance) -> None:
        await asyncio.gather(asyncio.sleep(30), signal(run, "go", timeout=40))

    driven = Driven(body)
    limit = None if deadline is None else START + deadline * SECOND
    assert settled(driven, deadline=limit).wake_at == START + look * SECOND
    assert next_look(msgspec.structs.replace(STANDING, deadline=limit), driven.instance) == START + look * SECOND


def test_a_turn_in_which_nothing_happened_is_no_progress() -> None:
    driven = Driven(waits)
    driven.advance(at=1)
    assert not settled(driven).progress
    failed = Entry(Event.ATTEMPT_FAILED, 0, Op.STEP, "a", None, START, START + SECOND)
    cut = Entry(Event.ATTEMPT_CUT, 0, Op.STEP, "a", None, START)
    assert settled(driven, attempts=(failed,)).progress
    assert not settled(driven, attempts=(cut,)).progress


def test_attempts_come_before_the_turns_own_entries() -> None:
    driven = Driven(waits)
    cut = Entry(Event.ATTEMPT_CUT, 0, Op.STEP, "a", None, START)
    driven.result(0)
    assert [event for event, _, _ in shown(settled(driven, attempts=(cut,)).entries)] == [
        "attempt_cut",
        "resolved",
        "end",
    ]


def test_seen_and_consumed_are_told() -> None:
    async def body(run: Instance) -> None:
        await signal(run, "go")
        await signal(run, "go")

    driven = Driven(body)
    driven.advance(driven.message("other"), driven.message("go"))
    commit = settled(driven)
    assert (commit.seen, commit.consumed) == (2, (2,))


def test_settling_changes_nothing() -> None:
    driven = Driven(body_with(ISSUED["token"][0]))
    assert settled(driven) == settled(driven)


def test_a_turn_that_is_blocked_by_its_engine() -> None:
    """The engine blocks a run that it cannot store, with a turn of its own."""
    driven = Driven(waits)
    turn = Turn()
    turn.outcome = Blocked(DeadlockError("cannot be stored"))
    commit = settle(STANDING, driven.instance, turn)
    assert (commit.status, commit.entries) == (Status.BLOCKED, ())
