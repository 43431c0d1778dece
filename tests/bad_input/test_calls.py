"""Every public verb with every hostile value: taken, or refused by a `PerdureError` that says what is wrong; never half done.

START-05, START-06, F5, F59, F65.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from perdure import (
    Context,
    InvalidId,
    NotRegistered,
    PerdureError,
    RunHandle,
    ValueTooLarge,
    attr,
    step,
    step_ref,
    workflow,
)
from perdure.ports.store import RunQuery
from perdure.testing import TestApp
from tests.bad_input.hostile import STORABLE, hostile


@workflow
async def anything(ctx: Context, x: object) -> object:
    ctx.set_value("key", 1)
    await ctx.wait_for_signal("never")
    return x


@workflow
async def careful(ctx: Context, amount: int, note: str = "") -> int:
    return amount


class Scene:
    """An open app, and a run in it that waits."""

    def __init__(self, app: TestApp, run: RunHandle[Any]) -> None:
        self.app = app
        self.run = run

    async def contents(self) -> list[Any]:
        """All that the store has."""
        store = self.app.store
        runs = await store.runs(RunQuery(limit=10_000))
        histories = await store.history([run.incarnation for run in runs])
        messages = [await store.messages(run.incarnation) for run in runs]
        return [runs, histories, messages]


#: Attributes with such values can be looked for.
SEARCHED = STORABLE - {"too long an id", "list", "set"}
Act = Callable[[Scene, Any], Any]
TEXT = frozenset({"nul", "empty", "blank", "too long an id", "control character", "word"})
WORD = frozenset({"word"})
TEXTS = WORD | {"nul", "empty", "blank", "too long an id", "control character"}
AS_TEXT = {"bytes", "naive datetime", "last datetime", "negative timedelta", "longest timedelta"}
POSITIVE = frozenset({"one", "fraction"})
NOTHING: frozenset[str] = frozenset()


def option(name: str) -> Act:
    return lambda scene, value: scene.app.start(anything, 1, **{name: value})


def listed(name: str) -> Act:
    return lambda scene, value: scene.app.runs(**{name: value})


#: What is done with the value, and the values that are taken.
VERBS: dict[str, tuple[Act, frozenset[str]]] = {
    "start: workflow": (lambda scene, value: scene.app.start(value), NOTHING),
    "start: input": (lambda scene, value: scene.app.start(anything, value), STORABLE),
    "start: input of a type": (
        lambda scene, value: scene.app.start(careful, value),
        frozenset({"zero", "negative", "one"}),
    ),
    "start: id": (option("id"), WORD),
    "start: priority": (option("priority"), frozenset({"zero", "negative", "one", "thousands of digits"})),
    "start: tags": (option("tags"), NOTHING),
    "start: a tag": (lambda scene, value: scene.app.start(anything, 1, tags=[value]), WORD),
    "start: attributes": (option("attributes"), NOTHING),
    "start: an attribute": (lambda scene, value: scene.app.start(anything, 1, attributes={"a": value}), STORABLE),
    "start: start_at": (option("start_at"), POSITIVE | {"zero", "negative"}),
    "start: delay": (option("delay"), POSITIVE | {"zero"}),
    "start: carrier": (option("carrier"), NOTHING),
    "start: a carried text": (lambda scene, value: scene.app.start(anything, 1, carrier={"a": value}), TEXT),
    "start: origin": (option("origin"), WORD),
    "start: namespace": (option("namespace"), WORD),
    "start: timeout": (option("timeout"), POSITIVE),
    "start: unknown option": (option("colour"), NOTHING),
    "using: id": (lambda scene, value: anything.using(id=value).start(1), WORD),
    # (The JSON form of the last five is a text.)
    "using: field": (lambda scene, value: careful.using(id="u").start(1, note=value), TEXTS | AS_TEXT),
    "signal: name": (lambda scene, value: scene.app.signal(value, 1, token="t"), WORD | {"empty"}),
    "signal: payload": (lambda scene, value: scene.app.signal("s", value, token="t"), STORABLE),
    "signal: token": (lambda scene, value: scene.app.signal("s", 1, token=value), WORD),
    "signal: id": (lambda scene, value: scene.app.signal("s", 1, token="t", id=value), WORD),
    "signal: namespace": (lambda scene, value: scene.app.signal("s", 1, token="t", namespace=value), WORD),
    "publish: name": (lambda scene, value: scene.app.publish(value, 1), WORD),
    "publish: payload": (lambda scene, value: scene.app.publish("e", value), STORABLE),
    "publish: a field": (lambda scene, value: scene.app.publish("e", {"a": {"b": value}}), STORABLE),
    "publish: id": (lambda scene, value: scene.app.publish("e", 1, id=value), WORD),
    "publish: buffer": (lambda scene, value: scene.app.publish("e", 1, buffer=value), POSITIVE | {"zero", "true"}),
    "publish: namespace": (lambda scene, value: scene.app.publish("e", 1, namespace=value), WORD),
    "unsubscribe: workflow": (lambda scene, value: scene.app.unsubscribe(value), WORD),
    "signal_with_start: workflow": (lambda s, value: s.app.signal_with_start(value, 1, id="w", signal="s"), NOTHING),
    "signal_with_start: id": (lambda s, value: s.app.signal_with_start(anything, 1, id=value, signal="s"), WORD),
    "signal_with_start: signal": (lambda s, value: s.app.signal_with_start(anything, 1, id="w", signal=value), WORD),
    "signal_with_start: payload": (
        lambda s, value: s.app.signal_with_start(anything, 1, id="w", signal="s", payload=value),
        STORABLE,
    ),
    "signal_with_start: signal_id": (
        lambda s, value: s.app.signal_with_start(anything, 1, id="w", signal="s", signal_id=value),
        WORD,
    ),
    "get_run: id": (lambda scene, value: scene.app.get_run(value), WORD),
    "get_run: workflow": (lambda scene, value: scene.app.get_run("r", value), NOTHING),
    "runs: status": (listed("status"), NOTHING),
    "runs: workflow": (listed("workflow"), WORD),
    "runs: namespace": (listed("namespace"), WORD),
    "runs: tag": (listed("tag"), WORD),
    "runs: attributes": (listed("attributes"), NOTHING),
    "runs: an attribute": (lambda scene, value: scene.app.runs(attributes={"a": value}), SEARCHED),
    "runs: origin": (listed("origin"), WORD),
    "runs: where": (listed("where"), NOTHING),
    "runs: a condition": (lambda scene, value: scene.app.runs(where=[value]), NOTHING),
    "attr: name": (lambda scene, value: scene.app.runs(where=[attr(value) == 1]), WORD),
    "attr: equal to": (lambda scene, value: scene.app.runs(where=[attr("a") == value]), SEARCHED),
    "runs: unknown filter": (listed("colour"), NOTHING),
    "requeue_where: status": (lambda scene, value: scene.app.requeue_where(status=value), NOTHING),
    "delete_where: workflow": (lambda scene, value: scene.app.delete_where(workflow=value), WORD),
    "pause_where: where": (lambda scene, value: scene.app.pause_where(where=value), NOTHING),
    "unpause_where: tag": (lambda scene, value: scene.app.unpause_where(tag=value), WORD),
    "run.fork: from_step": (lambda scene, value: scene.run.fork(value), frozenset({"zero", "one"})),
    "count: tag": (lambda scene, value: scene.app.count(tag=value), WORD),
    "facets: by": (lambda scene, value: scene.app.facets(value), NOTHING),
    "runs: limit": (listed("limit"), frozenset({"one"})),
    "runs: before": (listed("before"), frozenset({"zero", "one"})),
    "subscribe": (lambda scene, value: scene.app.subscribe(value), frozenset({"function", "class"})),
    "on_dead": (lambda scene, value: scene.app.on_dead(value), frozenset({"function", "class"})),
    "use": (lambda scene, value: scene.app.use(value), NOTHING),
    "carry: capture": (lambda scene, value: scene.app.carry(capture=value), frozenset({"function", "class"})),
    "carry: restore": (lambda scene, value: scene.app.carry(restore=value), frozenset({"function", "class"})),
    "register": (lambda scene, value: scene.app.register(value), NOTHING),
    "run.signal: name": (lambda scene, value: scene.run.signal(value), WORD),
    "run.signal: payload": (lambda scene, value: scene.run.signal("s", value), STORABLE),
    "run.signal: id": (lambda scene, value: scene.run.signal("s", id=value), WORD),
    "run.value: key": (lambda scene, value: scene.run.value(value), WORD),
    "run.value: type": (lambda scene, value: scene.run.value("key", value), frozenset({"class"})),
    "run.cancel: compensate": (lambda scene, value: scene.run.cancel(compensate=value), frozenset({"true"})),
    "cancel_where: status": (lambda scene, value: scene.app.cancel_where(status=value, tag="t"), NOTHING),
    "cancel_where: workflow": (lambda scene, value: scene.app.cancel_where(workflow=value), WORD),
    "cancel_where: namespace": (lambda scene, value: scene.app.cancel_where(tag="t", namespace=value), WORD),
    "cancel_where: tag": (lambda scene, value: scene.app.cancel_where(tag=value), WORD),
    "cancel_where: attributes": (lambda scene, value: scene.app.cancel_where(attributes=value), NOTHING),
    "cancel_where: compensate": (
        lambda scene, value: scene.app.cancel_where(tag="t", compensate=value),
        frozenset({"true"}),
    ),
    "cancel_where: dry_run": (lambda scene, value: scene.app.cancel_where(tag="t", dry_run=value), frozenset({"true"})),
    "step_ref: name": (lambda scene, value: step_ref(value), WORD),
    "step_ref: type": (lambda scene, value: step_ref("a:b", type=value), frozenset({"class"})),
    "step: max_attempts": (
        lambda scene, value: _stepped(max_attempts=value),
        frozenset({"one", "thousands of digits"}),
    ),
    "step: backoff": (lambda scene, value: _stepped(backoff=value), NOTHING),
    "step: base": (lambda scene, value: _stepped(base=value), POSITIVE | {"zero"}),
    "step: cap": (lambda scene, value: _stepped(cap=value), POSITIVE | {"zero"}),
    "step: factor": (lambda scene, value: _stepped(factor=value), POSITIVE),
    "step: jitter": (lambda scene, value: _stepped(jitter=value), frozenset({"zero", "one"})),
    "step: timeout": (lambda scene, value: _stepped(timeout=value), POSITIVE),
    "step: compensate": (lambda scene, value: _stepped(compensate=value), WORD),
    "step: compensation_attempts": (
        lambda scene, value: _stepped(compensate="undo", compensation_attempts=value),
        frozenset({"one", "thousands of digits"}),
    ),
    "step_ref: compensate": (lambda scene, value: step_ref("a", compensate=value), WORD),
    "step: name": (lambda scene, value: _stepped(name=value), WORD),
    "workflow: version": (lambda scene, value: _made(version=value), WORD),
    "workflow: name": (lambda scene, value: _made(name=value), WORD),
    "workflow: tags": (lambda scene, value: _made(tags=value), NOTHING),
    "workflow: timeout": (lambda scene, value: _made(timeout=value), POSITIVE),
    "workflow: origin": (lambda scene, value: _made(origin=value), WORD),
}


def _stepped(**options: Any) -> Any:
    async def body(x: int) -> int:
        return x

    return step(**options)(body)


def _made(**options: Any) -> Any:
    async def body(x: int) -> int:
        return x

    return workflow(**options)(body)


@asynccontextmanager
async def opened(kind: str, folder: Path) -> AsyncIterator[Scene]:
    url = "memory://" if kind == "memory" else f"sqlite:///{folder / 'store.db'}?synchronous=OFF"
    async with TestApp(anything, careful, url=url) as app:
        run = await app.start(anything, 1, id="here")
        await app.settle()
        yield Scene(app, run)


@pytest.mark.parametrize("kind", ["memory", "sqlite"])
@pytest.mark.parametrize("verb", VERBS)
async def test_taken_or_refused_but_never_half_done(verb: str, kind: str, tmp_path: Path) -> None:
    act, taken = VERBS[verb]
    wrong: list[str] = []
    async with opened(kind, tmp_path) as scene:
        for name, value in hostile().items():
            await scene.app.settle()
            before = await scene.contents()
            error = await refusal(act, scene, value)
            if name in taken:
                if error is not None:
                    wrong.append(f"{name} was refused: {error!r}")
            elif not isinstance(error, PerdureError):
                wrong.append(f"{name} was taken" if error is None else f"{name} raised {error!r}")
            elif not 10 < len(str(error)) < 1000:
                wrong.append(f"{name}: what is that to tell? {str(error)[:200]}")
            elif await scene.contents() != before:
                wrong.append(f"{name} was refused, but something was written")
    assert wrong == []


async def refusal(act: Act, scene: Scene, value: Any) -> BaseException | None:
    """What came of it: an error, or None. What it gave is thrown away."""
    try:
        result = act(scene, value)
        if inspect.isawaitable(result):
            await asyncio.wait_for(_whole(result), 10)
    except Exception as error:
        return error
    return None


async def _whole(result: Awaitable[Any]) -> Any:
    return await result


# ---------------------------------------------------------------- what the errors say


@asynccontextmanager
async def small() -> AsyncIterator[TestApp]:
    async with TestApp(anything, careful) as app:
        yield app


async def test_start_05_an_unknown_workflow_is_named_with_what_is_like_it() -> None:
    async with small() as app:
        with pytest.raises(NotRegistered, match=r"workflow 'carefull' is not registered.*did you mean 'careful'"):
            await app.start("carefull", 1)
        assert await app.runs() == []


async def test_f5_blank_and_overlong_ids_are_refused() -> None:
    async with small() as app:
        with pytest.raises(InvalidId, match="empty"):
            await app.start(anything, 1, id=" ")
        with pytest.raises(InvalidId, match="513 characters, more than the 512"):
            await app.start(anything, 1, id="x" * 513)
        assert await app.runs() == []


async def test_f65_a_value_that_is_too_large_says_what_it_is_and_how_large() -> None:
    async with small() as app:
        with pytest.raises(ValueTooLarge, match=r"anything.*2[.,]?0?9?7?.*(MiB|bytes)"):
            await app.start(anything, "x" * (2 * 1024 * 1024 + 1))
        assert await app.runs() == []


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ((), "amount"),
        ((1, "a", 2), "careful"),
        (("word",), "amount"),
        ((1, 2), "note"),
        (({"amount": 1},), "amount"),
    ],
)
async def test_arguments_that_do_not_fit_are_named(arguments: tuple[Any, ...], says: str) -> None:
    async with small() as app:
        with pytest.raises(PerdureError, match=says):
            await app.start(careful, *arguments)
        assert await app.runs() == []


async def test_the_children_of_a_run_with_the_longest_id_can_be_looked_up() -> None:
    @workflow
    async def parent(ctx: Context) -> None:
        await anything.start(1)

    async with TestApp(parent, anything) as app:
        await app.start(parent, id="x" * 512)
        await app.settle()
        assert (await app.get_run("x" * 512 + ".child.0").status()).value == "suspended"
