"""Whatever a workflow body asks for with a hostile value: it gets it, or its run fails at once with a `PerdureError`.

Never with an error from our depths, never retried for ever, and with nothing of it begun. F59, F65, F67.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, cast

import pytest

from perdure import (
    Context,
    InvalidValue,
    PerdureError,
    RunFailed,
    Status,
    ValueTooLarge,
    current_step,
    step,
    workflow,
)
from perdure.model.history import Event
from perdure.testing import TestApp
from tests.bad_input.hostile import STORABLE, hostile

NOTHING: frozenset[str] = frozenset()
WORD = frozenset({"word"})
TEXTS = WORD | {"nul", "empty", "blank", "too long an id", "control character"}
AS_TEXT = frozenset({"bytes", "naive datetime", "last datetime", "negative timedelta", "longest timedelta"})
POSITIVE = frozenset({"one", "fraction"})
WHOLE = frozenset({"zero", "negative", "one"})

attempts: list[int] = []


@step
async def takes(x: object) -> object:
    return None


@step
async def typed(n: int, s: str = "") -> int:
    return n


@step(max_attempts=5, base=60)
async def gives(name: str) -> object:
    attempts.append(current_step().attempt)
    return hostile()[name]


@step(max_attempts=5, base=60)
def gives_from_a_thread(name: str) -> object:
    attempts.append(current_step().attempt)
    return hostile()[name]


@step(max_attempts=5, base=60)
async def gives_a_number(name: str) -> int:
    attempts.append(current_step().attempt)
    number: int = hostile()[name]
    return number


@workflow
async def child(ctx: Context, x: object) -> object:
    return None


@workflow
async def counts(ctx: Context, n: int) -> int:
    return n


async def awaited(value: Any) -> Any:
    return value


class Returned:
    """What the body returns, as it is."""

    def __init__(self, value: Any) -> None:
        self.value = value


#: What the body does with the value (and its name), and the values with which it gets through.
OPERATIONS: dict[str, tuple[Callable[[Any, Any, str], Any], frozenset[str]]] = {
    "step: argument": (lambda ctx, v, n: takes(v), STORABLE),
    "step: argument of a type": (lambda ctx, v, n: typed(v), WHOLE),
    "step: keyword": (lambda ctx, v, n: typed(1, s=v), TEXTS | AS_TEXT),
    "step: unknown keyword": (lambda ctx, v, n: cast("Any", typed)(1, colour=v), NOTHING),
    "step: options": (lambda ctx, v, n: typed.using(max_attempts=v)(1), frozenset({"one", "thousands of digits"})),
    "ctx.step: step": (lambda ctx, v, n: ctx.step(v), NOTHING),
    "ctx.step: unknown name": (lambda ctx, v, n: ctx.step(f"unknown:{n}"), NOTHING),
    "step: result": (lambda ctx, v, n: gives(n), STORABLE),
    "step: result from a thread": (lambda ctx, v, n: ctx.step(gives_from_a_thread, n), STORABLE),
    "step: result of a type": (lambda ctx, v, n: gives_a_number(n), WHOLE),
    "local step: name": (lambda ctx, v, n: ctx.local_step(v, lambda: 1), WORD),
    "local step: closure": (lambda ctx, v, n: ctx.local_step("l", v), frozenset({"class"})),
    "local step: result": (lambda ctx, v, n: ctx.local_step("l", lambda: v), STORABLE),
    "local step: awaited result": (lambda ctx, v, n: ctx.local_step("l", lambda: awaited(v)), STORABLE),
    "local step: type": (lambda ctx, v, n: ctx.local_step("l", lambda: 1, type=v), frozenset({"class"})),
    "local step: attempts": (
        lambda ctx, v, n: ctx.local_step("l", lambda: 1, max_attempts=v),
        frozenset({"one", "thousands of digits"}),
    ),
    "side effect: function": (lambda ctx, v, n: ctx.side_effect(v), frozenset({"class"})),
    "side effect: result": (lambda ctx, v, n: ctx.side_effect(lambda: v), STORABLE),
    "sleep until": (lambda ctx, v, n: ctx.sleep_until(v), POSITIVE | {"zero", "negative"}),
    "wait: name": (lambda ctx, v, n: ctx.wait_for_signal(v, timeout=1), NOTHING),
    "wait: token": (lambda ctx, v, n: ctx.wait_for_signal("s", token=v, timeout=1), NOTHING),
    "wait: timeout": (lambda ctx, v, n: ctx.wait_for_signal("s", timeout=v), NOTHING),
    "wait: type": (lambda ctx, v, n: ctx.wait_for_signal("s", type=v, timeout=1), NOTHING),
    "event: name": (lambda ctx, v, n: ctx.wait_for_event(v, timeout=1), NOTHING),
    "event: match": (lambda ctx, v, n: ctx.wait_for_event("e", match=v, timeout=1), NOTHING),
    "event: a match": (lambda ctx, v, n: ctx.wait_for_event("e", match={"a": v}, timeout=1), NOTHING),
    "event: timeout": (lambda ctx, v, n: ctx.wait_for_event("e", timeout=v), NOTHING),
    "event: type": (lambda ctx, v, n: ctx.wait_for_event("e", type=v, timeout=1), NOTHING),
    "child: workflow": (lambda ctx, v, n: ctx.child(v), NOTHING),
    "child: input": (lambda ctx, v, n: ctx.child(child, v), STORABLE),
    "child: input of a type": (lambda ctx, v, n: ctx.child(counts, v), WHOLE),
    "child: id": (lambda ctx, v, n: ctx.child(child, 1, id=v), WORD),
    "child: priority": (lambda ctx, v, n: ctx.child(child, 1, priority=v), WHOLE | {"thousands of digits"}),
    "child: timeout": (lambda ctx, v, n: ctx.child(child, 1, timeout=v), POSITIVE),
    "child: unknown option": (lambda ctx, v, n: ctx.child(child, 1, colour=v), NOTHING),
    "child: using": (lambda ctx, v, n: child.using(id=v).run(1), WORD),
    "child in the background": (lambda ctx, v, n: child.start(v), STORABLE),
    "all: workflow": (lambda ctx, v, n: ctx.all(v, [1]), NOTHING),
    "all: inputs": (lambda ctx, v, n: ctx.all(child, v), frozenset({"list", "generator"})),
    "all: an input": (lambda ctx, v, n: ctx.all(child, [1, v]), STORABLE),
    "all: mode": (lambda ctx, v, n: ctx.all(child, [1], mode=v), NOTHING),
    "value: key": (lambda ctx, v, n: ctx.set_value(v, 1), WORD),
    "value: value": (lambda ctx, v, n: ctx.set_value("k", v), STORABLE),
    "patched": (lambda ctx, v, n: ctx.patched(v), WORD),
    "continue as new": (lambda ctx, v, n: ctx.continue_as_new("value: key", v), WORD | TEXTS | AS_TEXT),
    "result": (lambda ctx, v, n: Returned(v), STORABLE),
}

#: Those that wait for something: the run fails when it does not come.
TIMES_OUT = frozenset(name for name in OPERATIONS if name.startswith(("wait: ", "event: ")))


@workflow
async def probe(ctx: Context, operation: str, name: str) -> object:
    value = hostile().get(name)
    result = OPERATIONS[operation][0](ctx, value, name)
    if isinstance(result, Returned):
        return result.value
    if inspect.isawaitable(result):
        await result
    return None


@pytest.mark.parametrize("operation", OPERATIONS)
async def test_a_body_gets_what_it_asks_for_or_its_run_fails_at_once(operation: str) -> None:
    _, taken = OPERATIONS[operation]
    wrong: list[str] = []
    async with TestApp(probe, child, counts, takes, typed, gives, gives_from_a_thread, gives_a_number) as app:
        for name in hostile():
            attempts.clear()
            run = await app.start(probe, operation, name)
            await (app.tick(60) if operation in TIMES_OUT else app.settle())
            status = await run.status()
            if name in taken:
                if status is not Status.COMPLETED:
                    wrong.append(f"{name}: {status}, {await _error(run)!r}")
                continue
            if status is not Status.FAILED:
                wrong.append(f"{name}: is {status}")
                continue
            error = await _error(run)
            user = operation.endswith(("closure", "function")) and name == "function"  # what it calls raises
            if not isinstance(error, PerdureError) and not user:
                wrong.append(f"{name}: {error!r}")
            if len(str(error)) > 1000:
                wrong.append(f"{name}: {str(error)[:200]}")
            if attempts not in ([], [1]):
                wrong.append(f"{name}: attempts {attempts}")
    assert wrong == []


async def _error(run: Any) -> BaseException | None:
    try:
        await run.result(timeout=5)
    except RunFailed as error:
        return error.__cause__
    return None


# ---------------------------------------------------------------- what is said, and what is not begun


@workflow
async def one_bad_of_three(ctx: Context) -> str:
    try:
        await ctx.all(child, [1, 2, float("nan")])
    except InvalidValue:
        return "refused"
    return "taken"


async def test_none_of_a_fan_is_started_if_one_cannot_be() -> None:
    async with TestApp(one_bad_of_three, child) as app:
        run = await app.start(one_bad_of_three)
        await app.settle()
        assert await run.result() == "refused"
        assert [found.id for found in await app.runs()] == [run.id]


@workflow
async def passes_nan(ctx: Context) -> None:
    await takes(1)
    await takes({"order": {"price": float("nan")}})


async def test_a_bad_argument_names_step_path_run_and_position() -> None:
    async with TestApp(passes_nan, takes) as app:
        run = await app.start(passes_nan, id="order:7")
        await app.settle()
        error = await _error(run)
        assert isinstance(error, InvalidValue)
        for part in ("'x' of step", "takes", ".order.price", "nan", "run 'order:7'", "position 1"):
            assert part in str(error), f"{part} is missing: {error}"
        assert [entry.seq for entry in await run.history() if entry.event is Event.SCHEDULED] == [0]


@workflow
async def gets_too_much(ctx: Context) -> None:
    await gives("too large")


async def test_f65_a_result_that_is_too_large_fails_for_good_and_names_step_and_size() -> None:
    attempts.clear()
    async with TestApp(gets_too_much, gives) as app:
        run = await app.start(gets_too_much)
        await app.tick(3600)
        error = await _error(run)
        assert isinstance(error, ValueTooLarge)
        assert "gives" in str(error)
        assert "2,097,155" in str(error) or "2097155" in str(error) or "2.0 MiB" in str(error), str(error)
        assert attempts == [1]


SHARED: dict[str, list[int]] = {"items": [1]}


@step
async def looks(order: dict[str, list[int]]) -> int:
    order["items"].append(99)
    return len(order["items"])


@workflow
async def changes_later(ctx: Context) -> list[int]:
    order = {"items": [1]}
    first = ctx.step(looks, order)
    order["items"].append(2)  # after the call: the step does not see it
    return [await first, await looks(order), len(order["items"])]


async def test_f67_arguments_are_taken_at_the_call_and_left_alone() -> None:
    async with TestApp(changes_later, looks) as app:
        run = await app.start(changes_later)
        await app.settle()
        assert await run.result() == [2, 3, 2]


@step(max_attempts=2, base=1)
async def raises(text: str) -> None:
    raise ValueError(hostile()[text] if text != "literal" else r"\u0000")


@workflow
async def sees(ctx: Context, text: str) -> str:
    try:
        await raises(text)
    except ValueError as error:
        return str(error)
    return "nothing"


@pytest.mark.parametrize("text", ["surrogate", "nul", "mute", "thousands of digits", "too large", "literal", "cycle"])
@pytest.mark.parametrize("kind", ["memory", "sqlite"])
async def test_f59_an_error_with_any_text_is_recorded(text: str, kind: str, tmp_path: Any) -> None:
    url = "memory://" if kind == "memory" else f"sqlite:///{tmp_path / 'store.db'}?synchronous=OFF"
    async with TestApp(sees, raises, url=url, cache=0) as app:
        run = await app.start(sees, text)
        await app.tick(10)
        said = await run.result(timeout=5)
        assert said != "nothing"
        assert len(said) < 100_000
        said.encode()
        if text == "literal":
            assert said == r"\u0000"
        assert [step.attempts for step in await run.steps()] == [2]


async def test_hostile_values_that_are_taken_come_back_the_same_from_both_stores(tmp_path: Any) -> None:
    seen: list[list[Any]] = []
    for url in ("memory://", f"sqlite:///{tmp_path / 'store.db'}?synchronous=OFF"):
        async with TestApp(probe, gives, url=url, cache=0) as app:
            runs = [await app.start(probe, "result", name) for name in sorted(STORABLE)]
            await app.settle()
            seen.append([await run.result() for run in runs])
    assert seen[0] == seen[1]
