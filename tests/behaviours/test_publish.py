"""EVT: an event reaches who waits for it and starts what it starts; kept if that is nobody. F17, F26, F28: not lost, once."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import pytest

from perdure import (
    Context,
    EventTimeout,
    InvalidId,
    InvalidValue,
    NotInWorkflow,
    Perdure,
    RunFailed,
    SignalTimeout,
    Singleton,
    Status,
    UsageError,
    step,
    workflow,
)
from perdure.model.history import Event, Op
from perdure.ports.store import RunQuery
from perdure.testing import TestApp
from tests.behaviours.world import World

SETTLED = "payment.settled"


@workflow
async def settled(ctx: Context, match: dict[str, Any] | None = None) -> Any:
    return await ctx.wait_for_event(SETTLED, match=match)


async def started(app: TestApp, workflow: str) -> list[Any]:
    """The runs of a workflow, oldest first."""
    return sorted(await app.runs(workflow=workflow), key=lambda run: run.incarnation)


# ---------------------------------------------------------------- waits


async def test_evt_01_a_match_chooses_the_run(world: World) -> None:
    async with world.app(settled) as app:
        one, two = [await app.start(settled, {"orderId": number}) for number in (1, 2)]
        await app.settle()
        assert await app.publish(SETTLED, {"orderId": 1, "amount": 5}) == 1
        assert await one.result() == {"orderId": 1, "amount": 5}
        assert await two.wait() is Status.SUSPENDED
        assert await app.publish(SETTLED, {"orderId": 2}) == 1
        assert await two.result() == {"orderId": 2}


async def test_evt_01_also_from_another_process(world: World) -> None:
    async with world.app(settled) as worker, world.client() as client:
        run = await worker.start(settled, {"orderId": 1})
        await worker.settle()
        assert await client.publish(SETTLED, {"orderId": 1}) == 1
        assert await run.result() == {"orderId": 1}


async def test_evt_02_without_a_match_all_are_reached(world: World) -> None:
    async with world.app(settled) as app:
        runs = [await app.start(settled) for _ in range(3)]
        await app.settle()
        assert await app.publish(SETTLED, "any") == 3
        assert [await run.result() for run in runs] == ["any"] * 3


@pytest.mark.parametrize(
    ("match", "fits", "not_"),
    [
        ({"a": 1}, {"a": 1.0, "b": 2}, {"a": "1"}),
        ({"a": True}, {"a": True}, {"a": 1}),
        ({"a": None}, {"a": None}, {"b": 1}),
        ({"a": 1e300}, {"a": 1e300}, {"a": 1e299}),
        ({"a": 2**63 - 1}, {"a": 2**63 - 1}, {"a": 2**63 - 2}),
        ({"a": -0.0}, {"a": 0}, {"a": 0.5}),
        ({"a.b": "x"}, {"a": {"b": "x", "c": 1}}, {"a": "x"}),
        ({"a.b": "x"}, {"a.b": "x"}, {"a": [{"b": "x"}]}),
        ({"a": {"x": 1, "y": 2}}, {"a": {"y": 2, "x": 1}}, {"a": {"x": 1, "y": 2, "z": 3}}),
        ({"a": [1, {"x": 2}]}, {"a": [1, {"x": 2}]}, {"a": [{"x": 2}, 1]}),
        ({"a": 1, "b": 2}, {"b": 2, "a": 1}, {"a": 1}),
        ({"when": timedelta(seconds=5)}, {"when": timedelta(seconds=5)}, {"when": 5}),
        ({"a": "é\u2028"}, {"a": "é\u2028"}, {"a": "e"}),
    ],
)
async def test_evt_01_what_is_equal(world: World, match: Any, fits: Any, not_: Any) -> None:
    async with world.app(settled) as app:
        run = await app.start(settled, match)
        await app.settle()
        assert await app.publish(SETTLED, not_, buffer=False) == 0
        for other in ("text", 5, None, [fits]):
            assert await app.publish(SETTLED, other, buffer=False) == 0
        assert await app.publish(SETTLED, fits, buffer=False) == 1
        await run.result()


async def test_evt_03_an_event_that_came_early_is_there_already(world: World) -> None:
    async with world.client() as client:
        assert await client.publish(SETTLED, {"orderId": 1}) == 0
    async with world.app(settled) as app:
        first = await app.start(settled, {"orderId": 1})
        assert await first.result() == {"orderId": 1}
        second = await app.start(settled, {"orderId": 1})
        assert await second.wait() is Status.SUSPENDED  # one copy


async def test_evt_04_a_kept_event_that_does_not_fit_stays(world: World) -> None:
    async with world.app(settled) as app:
        await app.publish(SETTLED, {"orderId": 1})
        other = await app.start(settled, {"orderId": 2})
        assert await other.wait() is Status.SUSPENDED
        assert await (await app.start(settled, {"orderId": 1})).result() == {"orderId": 1}


async def test_evt_06_nothing_is_kept_where_that_is_not_asked_for(world: World) -> None:
    async with world.app(settled) as app:
        assert await app.publish(SETTLED, 1, buffer=False) == 0
        assert await app.publish(SETTLED, 1, buffer=0) == 0
        assert await (await app.start(settled)).wait() is Status.SUSPENDED


async def test_evt_07_what_reached_somebody_is_not_kept(world: World) -> None:
    @workflow(on_event=SETTLED)
    async def follow(ctx: Context, payload: Any) -> None: ...

    async with world.app(settled, follow) as app:
        run = await app.start(settled, {"never": 1})
        await app.settle()
        assert await app.publish(SETTLED, 1) == 1
        await run.cancel()
        await app.unsubscribe("follow")
        assert await (await app.start(settled)).wait() is Status.SUSPENDED
        assert await app.publish(SETTLED, 2) == 1
        assert await (await app.start(settled)).wait() is Status.SUSPENDED


async def test_evt_10_the_oldest_that_fits_comes_first(world: World) -> None:
    @workflow
    async def collect(ctx: Context) -> list[Any]:
        return [await ctx.wait_for_event(SETTLED, match={"kind": "b"}, timeout=0) for _ in range(3)]

    async with world.app(collect) as app:
        for number in range(60):
            await app.publish(SETTLED, {"kind": "a", "number": number})
        for number in range(4):
            await app.publish(SETTLED, {"kind": "b", "number": number})
        run = await app.start(collect)
        assert [each["number"] for each in await run.result()] == [0, 1, 2]


async def test_f17_what_is_kept_is_gone_after_a_week(world: World) -> None:
    async with world.app(settled) as app:
        await app.publish(SETTLED, "short", buffer=timedelta(hours=1))
        await app.publish(SETTLED, "a week")
        await app.tick(timedelta(hours=1))
        assert await (await app.start(settled)).result() == "a week"
        await app.publish(SETTLED, "another")
    world.clock.advance(7 * 86_400)
    async with world.app(settled) as app:
        assert await (await app.start(settled)).wait() is Status.SUSPENDED


# ---------------------------------------------------------------- a wait in its body


@dataclass
class Payment:
    orderId: int  # noqa: N815  (as it is published)
    note: str = ""


async def test_evt_01_the_type_restores_the_payload(world: World) -> None:
    @workflow
    async def typed(ctx: Context) -> str:
        payment = await ctx.wait_for_event(SETTLED, type=Payment)
        return f"{payment.orderId} {payment.note}"

    async with world.app(typed) as app:
        run, bad = await app.start(typed), await app.start(typed)
        await app.settle()
        assert await app.publish(SETTLED, Payment(1, "thanks"), id="good") == 2
        assert await run.result() == await bad.result() == "1 thanks"
        odd = await app.start(typed)
        await app.settle()
        await app.publish(SETTLED, {"orderId": "x"})
        with pytest.raises(RunFailed, match=r"payment\.settled"):
            await odd.result()


async def test_evt_03_a_timeout_gives_up_and_takes_nothing(world: World) -> None:
    @workflow
    async def patient(ctx: Context) -> str:
        try:
            await ctx.wait_for_event(SETTLED, match={"orderId": 7}, timeout=timedelta(minutes=5))
        except EventTimeout as error:
            return f"{error.signal} {error.timeout:g} {isinstance(error, SignalTimeout)} {error}"
        return "it came"

    async with world.app(patient, settled) as app:
        run = await app.start(patient, id="p")
        await app.tick(300)
        text = await run.result()
        assert "'payment.settled' that fits" in text
        assert "waited 300 seconds" in text
        assert text.startswith("payment.settled 300 True")
        assert await app.publish(SETTLED, {"orderId": 7}) == 0
        assert await (await app.start(settled)).result() == {"orderId": 7}


async def test_f26_an_event_in_time_beats_the_timeout_also_when_nobody_was_there(world: World) -> None:
    @workflow
    async def bounded(ctx: Context) -> Any:
        return await ctx.wait_for_event(SETTLED, timeout=60)

    async with world.app(bounded) as app:
        await app.start(bounded, id="r")
        await app.settle()
    async with world.client() as client:
        assert await client.publish(SETTLED, "in time") == 1
        world.clock.advance(3600)
        assert await client.publish(SETTLED, "late", buffer=False) == 0
    async with world.app(bounded) as app:
        assert await app.get_run("r").result() == "in time"


async def test_f26_a_consumed_event_stays_what_it_was(world: World) -> None:
    @workflow
    async def twice(ctx: Context) -> list[Any]:
        first = await ctx.wait_for_event(SETTLED)
        second = await ctx.wait_for_event(SETTLED)
        return [first, second]

    async with world.app(twice) as app:
        run = await app.start(twice, id="r")
        await app.settle()
        assert await app.publish(SETTLED, 1, id="x") == 1
        await app.settle()
        assert await app.publish(SETTLED, 2, id="x") == 1  # as the first time
        await app.settle()
        assert await run.wait() is Status.SUSPENDED
    async with world.app(twice) as app:
        await app.publish(SETTLED, 3, id="y")
        assert await app.get_run("r").result() == [1, 3]


async def test_evt_01_several_waits_of_one_run(world: World) -> None:
    @workflow
    async def two(ctx: Context) -> list[Any]:
        waits = [ctx.wait_for_event(SETTLED, match={"x": x}) for x in (2, 1)]
        return await asyncio.gather(*waits)

    async with world.app(two) as app:
        run = await app.start(two)
        await app.settle()
        assert await app.publish(SETTLED, {"x": 1}) == 1
        assert await app.publish(SETTLED, {"x": 2}) == 1
        assert await run.result() == [{"x": 2}, {"x": 1}]


async def test_f17_a_wait_that_was_given_up_gives_its_event_back(world: World) -> None:
    @workflow
    async def fickle(ctx: Context) -> str:
        wait = asyncio.ensure_future(ctx.wait_for_event(SETTLED))
        stop = await ctx.wait_for_signal("stop", type=str)
        wait.cancel()
        return stop

    async with world.client(fickle) as client:
        run = await client.start(fickle, id="r")
    async with world.app(fickle) as app:
        await app.settle()
    async with world.client() as client:
        await client.get_run("r").signal("stop", "enough")
        assert await client.publish(SETTLED, "unread") == 1
    async with world.app(fickle, settled) as app:
        assert await app.get_run("r").result() == "enough"
        assert await (await app.start(settled)).result() == "unread"
    assert run.id == "r"


async def test_f17_a_cancelled_run_gives_its_event_back(world: World) -> None:
    async with world.app(settled) as app:
        await app.start(settled, id="r")
        await app.settle()
    async with world.client() as client:
        assert await client.publish(SETTLED, "unread") == 1
        await client.get_run("r").cancel()
    async with world.app(settled) as app:
        assert await (await app.start(settled)).result() == "unread"


async def test_evt_02_a_run_that_is_busy_hears_it_too(world: World) -> None:
    gate = asyncio.Event()

    @step
    async def work() -> str:
        await gate.wait()
        return "done"

    @workflow
    async def busy(ctx: Context) -> list[Any]:
        return list(await asyncio.gather(work(), ctx.wait_for_event(SETTLED)))

    async with world.app(busy) as app:
        run = await app.start(busy)
        await app.settle(steps=False)
        assert await app.publish(SETTLED, 1) == 1
        await app.settle(steps=False)
        history = [(entry.event, entry.op) for entry in await run.history()]
        assert (Event.RESOLVED, Op.EVENT) in history
        gate.set()
        assert await run.result() == ["done", 1]


async def test_evt_03_after_a_requeue_it_waits_again(world: World) -> None:
    @step(max_attempts=1)
    async def fail_once() -> None:
        if not fixed:
            raise ValueError("not yet")

    fixed: list[int] = []

    @workflow
    async def flow(ctx: Context) -> Any:
        wait = asyncio.ensure_future(ctx.wait_for_event(SETTLED, match={"x": 1}))
        await fail_once()
        return await wait

    async with world.app(flow) as app:
        run = await app.start(flow)
        with pytest.raises(RunFailed):
            await run.result()
        assert await app.publish(SETTLED, {"x": 1}, buffer=False) == 0
        fixed.append(1)
        await run.requeue()
        await app.settle()
        assert await app.publish(SETTLED, {"x": 1}) == 1
        assert await run.result() == {"x": 1}


# ---------------------------------------------------------------- workflows that events start


@workflow(on_event=["order.paid"])
async def ship(ctx: Context, order: dict[str, Any]) -> Any:
    return order["id"]


async def test_evt_12_an_event_starts_a_run(world: World) -> None:
    async with world.app(ship) as app:
        assert await app.publish("order.paid", {"id": 7}, id="e1") == 1
        run = app.get_run("evt:e1:ship", ship)
        assert await run.result() == 7
        assert (await run.info()).input == b'{"id":7}'


async def test_evt_12_also_by_who_does_not_have_the_code_and_while_nobody_runs(world: World) -> None:
    @workflow(name="ship", on_event="order.paid", tags=["shop"], timeout=60, origin="shop")
    async def tagged(ctx: Context, order: dict[str, Any]) -> Any:
        return order["id"]

    async with world.app(tagged):
        pass
    async with world.client() as client:
        assert await client.publish("order.paid", {"id": 7}, id="e1") == 1
        info = await client.get_run("evt:e1:ship").info()
        assert (info.tags, info.timeout, info.origin, info.status) == (("shop",), 60_000_000, "shop", Status.PENDING)
    async with world.app(tagged) as app:
        assert await app.get_run("evt:e1:ship").result() == 7


async def test_evt_13_the_same_id_starts_it_once(world: World) -> None:
    async with world.app(ship) as app:
        assert await app.publish("order.paid", {"id": 1}, id="x") == 1
        assert await app.publish("order.paid", {"id": 2}, id="x") == 1
        assert [run.id for run in await started(app, "ship")] == ["evt:x:ship"]
        for _ in range(2):
            assert await app.publish("order.paid", {"id": 3}) == 1
        assert len(await started(app, "ship")) == 3


async def test_evt_13_the_same_id_at_once_from_many(world: World) -> None:
    async with world.app(ship) as one, world.app(ship) as two:
        publishing = [app.publish("order.paid", {"id": 1}, id="x") for app in (one, two) * 10]
        assert await asyncio.gather(*publishing) == [1] * 20
        assert len(await started(one, "ship")) == 1


async def test_evt_14_waits_and_new_runs_add_up(world: World) -> None:
    @workflow(on_event=["order.paid", "order.refunded"])
    async def note(ctx: Context, order: dict[str, Any]) -> None: ...

    @workflow
    async def paid(ctx: Context) -> Any:
        return await ctx.wait_for_event("order.paid")

    async with world.app(ship, note, paid) as app:
        waiting = [await app.start(paid) for _ in range(2)]
        await app.settle()
        assert await app.publish("order.paid", {"id": 1}) == 4
        for run in waiting:
            assert await run.result() == {"id": 1}
        assert await app.publish("order.refunded", {"id": 1}) == 1


async def test_evt_12_a_kept_event_is_not_for_who_subscribes_later(world: World) -> None:
    async with world.client() as client:
        assert await client.publish("order.paid", {"id": 1}) == 0
    async with world.app(ship) as app:
        await app.settle()
        assert await started(app, "ship") == []


async def test_evt_12_what_is_registered_later_counts_from_then_on(world: World) -> None:
    async with world.app() as app:
        app.register(ship)
        assert await app.publish("order.paid", {"id": 1}) == 1


async def test_evt_12_a_payload_that_does_not_fit_fails_the_run_it_starts(world: World) -> None:
    @workflow(on_event="order.paid")
    async def strict(ctx: Context, order: Payment) -> int:
        return order.orderId

    async with world.app(strict) as app:
        assert await app.publish("order.paid", {"wrong": 1}, id="e") == 1
        with pytest.raises(RunFailed, match="orderId"):
            await app.get_run("evt:e:strict").result()


async def test_evt_12_a_subscription_ends_with_the_deploy_that_has_it_no_more(world: World) -> None:
    @workflow(name="ship", version="2")
    async def quiet(ctx: Context, order: dict[str, Any]) -> None: ...

    @workflow(name="ship")
    async def quiet_1(ctx: Context, order: dict[str, Any]) -> None: ...

    async with world.app(ship):
        pass
    async with world.app(ship, quiet) as app:  # the newest version counts
        assert await app.publish("order.paid", {"id": 1}) == 0
    async with world.app(ship) as app:  # back again: what nobody has does not count
        assert await app.publish("order.paid", {"id": 1}) == 1
    async with world.app(quiet_1) as app:  # the same version, deployed anew
        assert await app.publish("order.paid", {"id": 1}) == 0


async def test_evt_12_a_singleton_is_started_from_the_workflow_that_the_event_starts(world: World) -> None:
    @workflow(singleton=Singleton(key=lambda order: order["customer"]))
    async def pack(ctx: Context, order: dict[str, Any]) -> Any:
        return await ctx.wait_for_signal("packed")

    @workflow(on_event="order.paid")
    async def paid(ctx: Context, order: dict[str, Any]) -> str:
        return (await ctx.start_child(pack, order)).id

    async with world.app(pack, paid) as app:
        for _ in range(2):
            await app.publish("order.paid", {"customer": "ada"})
        await app.settle()
        one, two = await started(app, "pack")
        await app.get_run(two.id).signal("packed", 2)
        await app.settle()
        assert not await app.get_run(two.id).steps()  # it waits in line
        await app.get_run(one.id).signal("packed", 1)
        assert await app.get_run(two.id).result() == 2


async def test_evt_12_unsubscribing(world: World) -> None:
    async with world.app(ship) as app:
        assert await app.unsubscribe("ship") is True
        assert await app.unsubscribe("ship") is False
        assert await app.publish("order.paid", {"id": 1}) == 0
    async with world.app(ship) as app:
        assert await app.publish("order.paid", {"id": 1}) == 1


async def test_ns_an_event_stays_in_its_namespace(world: World) -> None:
    async with world.app(settled, ship, namespace="red") as red, world.client() as client:
        run = await red.start(settled)
        await red.settle()
        assert await client.publish(SETTLED, 1, buffer=False) == 0
        assert await client.publish("order.paid", {"id": 1}, id="x") == 0
        assert await client.publish("order.paid", {"id": 2}, id="x", namespace="red") == 1
        assert (await client.get_run("evt@red:x:ship").info()).namespace == "red"
        assert await red.publish(SETTLED, 2) == 1
        assert await run.result() == 2


# ---------------------------------------------------------------- bad input


@pytest.mark.parametrize(
    ("arguments", "kind", "words"),
    [
        ({"name": ""}, InvalidId, "an event's name is empty"),
        ({"name": 5}, InvalidId, "an event's name must be a string"),
        ({"name": "a\nb"}, InvalidId, "not printable"),
        ({"id": ""}, InvalidId, "an event's id is empty"),
        ({"id": 5}, InvalidId, "an event's id must be a string"),
        ({"namespace": " "}, InvalidId, "a namespace is empty"),
        ({"payload": float("nan")}, InvalidValue, "the payload of event 'e' cannot be stored"),
        ({"payload": {"x": object()}}, InvalidValue, r"\$\.x"),
        ({"payload": {str(n): n for n in range(10_001)}}, InvalidValue, "more than 10,000 fields"),
        ({"buffer": "yes"}, UsageError, "buffer must be True or False, or how long"),
        ({"buffer": -1}, UsageError, "buffer cannot be negative"),
        ({"buffer": float("inf")}, UsageError, "buffer must be finite"),
        ({"buffer": None}, UsageError, "buffer must be"),
    ],
)
async def test_bad_events_are_refused_before_anything_is_written(
    world: World, arguments: Any, kind: type[Exception], words: str
) -> None:
    async with world.app(settled) as app:
        run = await app.start(settled)
        await app.settle()
        with pytest.raises(kind, match=words):
            await app.publish(**{"name": "e", "payload": 1, **arguments})
        assert await run.wait() is Status.SUSPENDED
        assert len(await app.store.runs(RunQuery())) == 1


@pytest.mark.parametrize(
    ("arguments", "kind", "words"),
    [
        ({"name": ""}, InvalidId, "an event's name is empty"),
        ({"match": 5}, UsageError, "must be a mapping of fields"),
        ({"match": {1: 2}}, UsageError, "names fields by their names"),
        ({"match": {"": 2}}, UsageError, "names fields by their names"),
        ({"match": {"a..b": 2}}, UsageError, "names fields by their names"),
        ({"match": {"a": object()}}, InvalidValue, "the match of event 'e' cannot be stored"),
        ({"timeout": -1}, UsageError, "timeout cannot be negative"),
        ({"timeout": "1h"}, UsageError, "timeout must be seconds"),
        ({"type": open}, InvalidValue, "open"),
    ],
)
async def test_bad_waits_are_refused_in_the_body(
    world: World, arguments: Any, kind: type[Exception], words: str
) -> None:
    @workflow
    async def bad(ctx: Context) -> str:
        with pytest.raises(kind, match=words):
            await ctx.wait_for_event(**{"name": "e", **arguments})
        return "refused"

    async with world.app(bad) as app:
        run = await app.start(bad)
        assert await run.result() == "refused"
        assert not [entry for entry in await run.history() if entry.op is Op.EVENT]


async def test_waiting_outside_a_body_is_refused(world: World) -> None:
    kept: list[Context] = []

    @step
    async def misuse() -> str:
        with pytest.raises(NotInWorkflow):
            await kept[0].wait_for_event("e")
        return "refused"

    @workflow
    async def bad(ctx: Context) -> str:
        kept.append(ctx)
        return await misuse()

    async with world.app(bad) as app:
        assert await (await app.start(bad)).result() == "refused"


async def test_an_id_names_one_event(world: World) -> None:
    async with world.app() as app:
        await app.publish("a", 1, id="x")
        with pytest.raises(UsageError, match=r"'x'.*published before as 'a'"):
            await app.publish("b", 1, id="x")


async def test_publishing_on_a_closed_app_is_refused() -> None:
    app = Perdure("memory://")
    with pytest.raises(UsageError, match="not open"):
        await app.publish("e")
