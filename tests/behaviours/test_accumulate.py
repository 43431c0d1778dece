"""EVT-16, EVT-17: one run for several events: batches, and the last one once it is quiet; each event gets into one run."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import pytest

from perdure import Batch, Context, Debounce, InvalidId, Singleton, Status, UsageError, ValueTooLarge, workflow
from perdure.testing import TestApp
from tests.behaviours.world import World

IMPORTED = "row.imported"


@workflow(on_event=Batch(IMPORTED, max=3, window=timedelta(minutes=5)))
async def batch(ctx: Context, rows: dict[str, Any]) -> Any:
    return rows["events"]


@workflow(on_event=Debounce(IMPORTED, window=5))
async def quiet(ctx: Context, row: Any) -> Any:
    return row


async def results(app: TestApp, name: str) -> list[Any]:
    """What the runs of a workflow returned, the oldest first."""
    await app.settle()
    runs = sorted(await app.runs(workflow=name), key=lambda run: run.incarnation)
    return [await app.get_run(run.id).result() for run in runs]


# ---------------------------------------------------------------- batches


async def test_evt_17_the_third_event_starts_one_run(world: World) -> None:
    async with world.app(batch) as app:
        for number in (1, 2):
            assert await app.publish(IMPORTED, number) == 1
            assert await results(app, "batch") == []
        await app.publish(IMPORTED, 3)
        assert await results(app, "batch") == [[1, 2, 3]]
        [run] = await app.runs(workflow="batch")
        assert run.input == b'{"events":[1,2,3]}'
        await app.tick(timedelta(hours=1))
        assert await results(app, "batch") == [[1, 2, 3]]


async def test_evt_17_an_elapsed_window_starts_what_there_is(world: World) -> None:
    async with world.app(batch) as app:
        await app.publish(IMPORTED, 1)
        await app.tick(299)
        await app.publish(IMPORTED, 2)  # the window is that of the first
        await app.tick(0.999999)
        assert await results(app, "batch") == []
        await app.tick(0.000001)
        assert await results(app, "batch") == [[1, 2]]
        await app.publish(IMPORTED, 3)
        await app.tick(299.999999)
        assert await results(app, "batch") == [[1, 2]]
        await app.tick(0.000001)
        assert await results(app, "batch") == [[1, 2], [3]]


async def test_evt_17_events_of_nobodys_time_are_batched_in_order(world: World) -> None:
    async with world.app(batch):
        pass
    async with world.client() as client:
        for number in range(7):
            assert await client.publish(IMPORTED, number) == 1
    async with world.app(batch) as app:
        assert await results(app, "batch") == [[0, 1, 2], [3, 4, 5]]
        await app.tick(300)
        assert await results(app, "batch") == [[0, 1, 2], [3, 4, 5], [6]]


async def test_evt_17_every_event_is_in_one_batch_whoever_publishes(world: World) -> None:
    async with world.app(batch) as one, world.app(batch) as two, world.client() as client:
        apps = (one, two, client)
        await asyncio.gather(*(apps[number % 3].publish(IMPORTED, number) for number in range(30)))
    async with world.app(batch) as app:
        found = await results(app, "batch")
        assert all(len(each) == 3 for each in found)
        assert sorted(number for each in found for number in each) == list(range(30))


async def test_evt_17_an_event_is_collected_once(world: World) -> None:
    async with world.app(batch) as app:
        for _ in range(3):
            assert await app.publish(IMPORTED, 1, id="x") == 1
        await app.tick(300)
        assert await results(app, "batch") == [[1]]


async def test_evt_17_a_batch_survives_its_process(world: World) -> None:
    async with world.doomed(batch) as app:
        await app.publish(IMPORTED, 1)
        await app.settle()
        await app.publish(IMPORTED, 2)
    world.clock.advance(60)  # its leases are over
    async with world.app(batch) as app:
        await app.publish(IMPORTED, 3)
        assert await results(app, "batch") == [[1, 2, 3]]


async def test_evt_17_by_key(world: World) -> None:
    @workflow(on_event=Batch(IMPORTED, max=2, window=60, key="customer.id"))
    async def digest(ctx: Context, rows: dict[str, Any]) -> Any:
        return [row["n"] for row in rows["events"]]

    async with world.app(digest) as app:
        for n, customer in enumerate(("a", "b", "c", "b", 5, "5", "a")):
            await app.publish(IMPORTED, {"customer": {"id": customer}, "n": n})
        await app.publish(IMPORTED, {"n": 7})
        await app.publish(IMPORTED, {"customer": None, "n": 8})
        await app.publish(IMPORTED, {"customer": {"id": "x" * 1_000}, "n": 9})
        await app.settle()
        assert sorted(await results(app, "digest")) == [[0, 6], [1, 3], [7, 8]]
        await app.tick(60)
        assert sorted(await results(app, "digest")) == [[0, 6], [1, 3], [2], [4], [5], [7, 8], [9]]


async def test_evt_17_a_batch_of_one(world: World) -> None:
    @workflow(on_event=Batch(IMPORTED, max=1, window=60))
    async def each(ctx: Context, rows: dict[str, Any]) -> Any:
        return rows["events"]

    async with world.app(each) as app:
        await app.publish(IMPORTED, 1)
        await app.publish(IMPORTED, 2)
        assert await results(app, "each") == [[1], [2]]


async def test_evt_17_a_batch_of_hundreds(world: World) -> None:
    @workflow(on_event=Batch(IMPORTED, max=1_000, window=60))
    async def many(ctx: Context, rows: dict[str, Any]) -> int:
        assert sorted(rows["events"]) == list(range(len(rows["events"])))
        return len(rows["events"])

    async with world.app(many) as app:
        await asyncio.gather(*(app.publish(IMPORTED, number) for number in range(620)))
        await app.tick(60)
        assert await results(app, "many") == [620]


async def test_evt_17_a_batch_that_would_be_too_large_is_cut(world: World) -> None:
    large = "x" * 900_000

    @workflow(on_event=Batch(IMPORTED, max=3, window=60))
    async def sizes(ctx: Context, rows: dict[str, Any]) -> list[int]:
        return [int(row[0]) for row in rows["events"]]

    async with world.app(sizes) as app:
        for number in range(4):
            await app.publish(IMPORTED, f"{number}{large}")
        assert await results(app, "sizes") == [[0, 1]]
        await app.tick(60)
        assert await results(app, "sizes") == [[0, 1], [2, 3]]
        with pytest.raises(ValueTooLarge, match="too many to be collected"):
            await app.publish(IMPORTED, "x" * (2 * 1024 * 1024 - 100))


async def test_evt_17_collecting_goes_on_after_somebody_cancelled_it(world: World) -> None:
    async with world.app(batch) as app:
        await app.publish(IMPORTED, "lost with the run")
        await app.get_run("acc:row.imported:batch").cancel()
        for number in range(3):
            assert await app.publish(IMPORTED, number) == 1
        assert await results(app, "batch") == [[0, 1, 2]]


async def test_evt_17_the_newest_plan_counts(world: World) -> None:
    @workflow(name="batch", version="2", on_event=Batch(IMPORTED, max=2, window=60), tags=["new"])
    async def pairs(ctx: Context, rows: dict[str, Any]) -> Any:
        return rows["events"]

    async with world.app(batch) as app:
        await app.publish(IMPORTED, 1)
        await app.settle()
    async with world.app(batch, pairs) as app:
        await app.publish(IMPORTED, 2)
        assert await results(app, "batch") == [[1, 2]]
        [run] = await app.runs(workflow="batch")
        assert (run.version, run.tags) == ("2", ("new",))


async def test_ns_collecting_stays_in_its_namespace(world: World) -> None:
    async with world.app(batch) as app:
        for number, namespace in enumerate(("red", "default", "red", "red", "default", "default")):
            await app.publish(IMPORTED, number, namespace=namespace)
        assert sorted(await results(app, "batch")) == [[0, 2, 3], [1, 4, 5]]
        runs = await app.runs(workflow="batch")
        assert {(run.namespace, run.output) for run in runs} == {("red", b"[0,2,3]"), ("default", b"[1,4,5]")}


# ---------------------------------------------------------------- debounce


async def test_evt_16_the_last_event_starts_one_run_once_it_is_quiet(world: World) -> None:
    async with world.app(quiet) as app:
        for number in (1, 2, 3):
            assert await app.publish(IMPORTED, number) == 1
            await app.tick(4.999999)
            assert await results(app, "quiet") == []
        await app.tick(0.000001)
        assert await results(app, "quiet") == [3]
        [run] = await app.runs(workflow="quiet")
        assert run.input == b"3"
        await app.tick(60)
        await app.publish(IMPORTED, 4)
        await app.tick(5)
        assert await results(app, "quiet") == [3, 4]


async def test_evt_16_hundreds_of_events_are_one_run(world: World) -> None:
    async with world.app(quiet) as app:
        await asyncio.gather(*(app.publish(IMPORTED, number) for number in range(520)))
        await app.publish(IMPORTED, "last")
        await app.tick(4.99)
        assert await results(app, "quiet") == []
        await app.tick(0.01)
        assert await results(app, "quiet") == ["last"]
        latest = await app.get_run("acc:row.imported:quiet").latest()
        assert latest.id == "acc:row.imported:quiet~2"
        assert await latest.status() is Status.SUSPENDED


async def test_evt_16_by_key(world: World) -> None:
    @workflow(on_event=[Debounce(IMPORTED, window=5, key="doc"), "other"])
    async def save(ctx: Context, row: Any) -> Any:
        return row["text"]

    async with world.app(save) as app:
        for doc, text in (("a", "1"), ("b", "2"), ("a", "3")):
            await app.publish(IMPORTED, {"doc": doc, "text": text})
        await app.publish("other", {"text": "at once"})
        assert await results(app, "save") == ["at once"]
        await app.tick(5)
        assert sorted(await results(app, "save")) == ["2", "3", "at once"]


# ---------------------------------------------------------------- bad input


@pytest.mark.parametrize(
    ("make", "kind", "words"),
    [
        (lambda: Batch("", max=1, window=1), InvalidId, "an event's name is empty"),
        (lambda: Batch("e", max=0, window=1), UsageError, "from 1 to 1,000, not 0"),
        (lambda: Batch("e", max=1_001, window=1), UsageError, "from 1 to 1,000"),
        (lambda: Batch("e", max=True, window=1), UsageError, "whole number"),
        (lambda: Batch("e", max=1.5, window=1), UsageError, "whole number"),  # type: ignore[arg-type]
        (lambda: Batch("e", max=1, window=0), UsageError, r"window of Batch\('e'\) must be positive"),
        (lambda: Batch("e", max=1, window="5s"), UsageError, "must be seconds or a timedelta"),  # type: ignore[arg-type]
        (lambda: Debounce("e", window=-1), UsageError, r"window of Debounce\('e'\) must be positive"),
        (lambda: Debounce("e", window=1, key=""), UsageError, "names fields by their names"),
        (lambda: Debounce("e", window=1, key=5), UsageError, "names fields by their names"),  # type: ignore[arg-type]
        (lambda: Debounce("e\x00", window=1), InvalidId, "not printable"),
        (lambda: workflow(on_event=5), UsageError, "on_event of workflow 'w' must be the name of an event"),  # type: ignore[call-overload]
        (lambda: workflow(on_event=["a", 5]), UsageError, "holds 5, which is neither"),  # type: ignore[list-item]
        (lambda: workflow(on_event={"a": 1}), UsageError, "must be the name of an event"),
        (lambda: workflow(on_event=""), InvalidId, "an event's name is empty"),
        (lambda: workflow(on_event=["a", Debounce("a", window=1)]), UsageError, "has event 'a' twice"),
        (
            lambda: workflow(on_event="a", singleton=Singleton()),
            UsageError,
            "is a singleton, which events cannot start",
        ),
    ],
)
def test_bad_declarations_are_refused(make: Any, kind: type[Exception], words: str) -> None:
    async def w(ctx: Context, event: Any) -> None: ...

    def declare() -> None:
        made = make()
        made(w)

    with pytest.raises(kind, match=words):
        declare()


# ---------------------------------------------------------------- what goes along


async def test_obs_runs_that_events_start_take_the_publishers_carrier_along(world: World) -> None:
    @workflow(on_event=[IMPORTED, Batch("row", max=2, window=60)])
    async def traced(ctx: Context, event: Any) -> dict[str, str]:
        return dict(ctx.carrier)

    async with world.app(traced) as app:
        tenant = ["red"]
        app.carry(capture=lambda: {"tenant": tenant[0]}, restore=lambda carrier: None)
        await app.publish(IMPORTED, 1)
        assert await results(app, "traced") == [{"tenant": "red"}]
        await app.publish("row", 1)
        tenant[0] = "blue"
        await app.publish("row", 2)
        assert await results(app, "traced") == [{"tenant": "red"}, {"tenant": "blue"}]
