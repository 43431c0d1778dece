"""The programs whose histories are kept. Together they cover every kind of operation and every kind of entry.

What a body here issues, and in which order, is for ever: a history of it is in `histories/`, and a change that today's code
would not survive is just what the test is there to find. Change nothing; write another program and record that one too.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

from perdure import (
    Batch,
    ChildFailed,
    Context,
    Debounce,
    EventTimeout,
    FatalError,
    GatherError,
    RunHandle,
    SignalTimeout,
    Undo,
    as_completed,
    current_step,
    log,
    step,
    stream,
    workflow,
)
from perdure.model.cancelling import CancelOrder
from perdure.model.commit import Send
from perdure.model.messages import MessageKind, Outgoing
from perdure.patterns.accumulate import accumulate
from perdure.patterns.entity import call_entity, definition_of, entity, signal_entity
from perdure.stores.memory import MemoryStore
from perdure.testing import TestApp

# ---------------------------------------------------------------- steps


@dataclass
class Item:
    name: str
    price: Decimal
    ordered: datetime
    tags: set[str]


@step
async def price(item: Item, factor: int = 1) -> Decimal:
    return item.price * factor


@step
def label(item: Item) -> bytes:
    return item.name.encode()


@step(max_attempts=3, base=10, backoff="fixed")
async def flaky() -> int:
    if current_step().attempt < 3:
        raise ConnectionError("not yet")
    return current_step().attempt


@step(max_attempts=2, base=5)
async def hopeless(code: str) -> None:
    raise FatalError("never", code=code) if code else ValueError("no code")


@workflow
async def steps(ctx: Context, item: Item) -> list[str]:
    seen = [str(await price(item)), str(await price(item, factor=3))]
    ctx.set_value("progress", {"seen": seen})
    seen.append((await ctx.step(label, item)).decode())
    seen.append(await ctx.local_step("stamp", item.ordered.isoformat, type=str))
    seen.append(str(await ctx.side_effect(lambda: 4)))
    seen.append(str(await flaky()))
    for code in ("spent", ""):
        try:
            await hopeless(code)
        except (FatalError, ValueError) as error:
            seen.append(f"{type(error).__name__}: {error}")
    ctx.set_value("progress", {"seen": seen})
    return [*seen, str(ctx.uuid4()), str(ctx.random.getrandbits(32)), ctx.now().isoformat()]


async def drive_steps(app: TestApp) -> RunHandle[Any]:
    item = Item("lamp", Decimal("9.50"), datetime(2025, 1, 1, tzinfo=UTC), {"b", "a"})
    run = await app.start(steps, item, id="golden")
    await app.tick(60)
    return run


# ---------------------------------------------------------------- asyncio


@step
async def echo(value: int) -> int:
    return value


async def _slept(seconds: float, value: int) -> int:
    await asyncio.sleep(seconds)
    return await echo(value)


@workflow
async def concurrency(ctx: Context) -> dict[str, Any]:
    found: dict[str, Any] = {}
    found["gather"] = await asyncio.gather(echo(1), echo(2), _slept(3, 3))
    done, pending = await asyncio.wait(
        [asyncio.create_task(_slept(n % 2, n)) for n in range(8)], return_when=asyncio.FIRST_COMPLETED
    )
    # Sets of tasks: what is issued next depends on their order.
    found["first"] = [await echo(10 + task.result()) for task in done]
    found["rest"] = [await echo(10 + await task) for task in pending]
    found["completed"] = [await one for one in as_completed([_slept(2, 20), _slept(1, 21), echo(22)])]
    try:
        async with asyncio.timeout(5):
            await asyncio.gather(_slept(1, 30), _slept(50, 31))
    except TimeoutError:
        found["timeout"] = ctx.now().isoformat()
    found["in time"] = await asyncio.wait_for(_slept(1, 40), timeout=5)
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(_slept(n, 50 + n)) for n in (2, 1)]
    found["group"] = [task.result() for task in tasks]
    try:
        async with asyncio.TaskGroup() as group:
            group.create_task(_slept(100, 60))
            group.create_task(_failing())
    except ExceptionGroup as error:
        found["failed group"] = str(error.exceptions[0])
    await ctx.sleep_until(ctx.now() + timedelta(days=1))
    found["queue"] = await _queue()
    return found


async def _failing() -> None:
    await asyncio.sleep(1)
    await hopeless("group")


async def _queue() -> list[int]:
    queue: asyncio.Queue[int] = asyncio.Queue(maxsize=1)
    lock, got = asyncio.Lock(), list[int]()

    async def put() -> None:
        for n in range(3):
            await queue.put(await echo(n))

    async def take() -> None:
        for _ in range(3):
            async with lock:
                got.append(await queue.get())

    await asyncio.gather(put(), take())
    return got


async def drive_concurrency(app: TestApp) -> RunHandle[Any]:
    run = await app.start(concurrency, id="golden")
    await app.tick(timedelta(days=2))
    return run


# ---------------------------------------------------------------- signals


@workflow
async def signals(ctx: Context) -> list[Any]:
    got: list[Any] = [await ctx.wait_for_signal("go", type=int)]
    got.append(await ctx.wait_for_signal("go", type=int))
    got.append(await ctx.wait_for_signal("payment", token="order:7"))
    try:
        await ctx.wait_for_signal("never", timeout=30)
    except SignalTimeout as error:
        got.append(error.timeout)
    try:
        await ctx.wait_for_signal("never", token="order:8", timeout=30)
    except SignalTimeout as error:
        got.append(str(error))
    got.append(await ctx.wait_for_signal("late", timeout=100))
    left = asyncio.ensure_future(ctx.wait_for_signal("left"))
    done, _ = await asyncio.wait(
        [left, asyncio.ensure_future(ctx.wait_for_signal("right"))], return_when="FIRST_COMPLETED"
    )
    return got + [one.result() for one in done]


async def drive_signals(app: TestApp) -> RunHandle[Any]:
    run = await app.signal_with_start(signals, id="golden", signal="go", payload=1)
    await run.signal("go", 2)
    await run.signal("right", "side")  # long before it is waited for
    await app.settle()
    await app.signal(token="order:7", payload={"paid": True})
    await app.tick(61)
    await run.signal("late", "but here")
    await app.settle()
    return run


# ---------------------------------------------------------------- children


@workflow
async def leaf(ctx: Context, n: int) -> int:
    if n < 0:
        raise ValueError(f"{n} is too small")
    await asyncio.sleep(n)
    return await echo(n)


@workflow
async def children(ctx: Context) -> dict[str, Any]:
    found: dict[str, Any] = {"child": await ctx.child(leaf, 1)}
    try:
        await ctx.child(leaf, -1, id="golden-failing")
    except ChildFailed as error:
        found["failed"] = [error.status, str(error.__cause__)]
    handle = await ctx.start_child(leaf, 2)
    found["all"] = await ctx.all(leaf, [3, 0, 1])
    try:
        await ctx.all(leaf, [1, -2, 2])
    except GatherError as error:
        found["gather"] = [error.results, [(index, id) for index, id, _ in error.failures]]
    try:
        await ctx.all(leaf, [50, -3], mode="fail_fast")
    except GatherError as error:
        found["fail fast"] = error.results
    found["joined"] = await handle.result()
    try:
        async with asyncio.timeout(5):
            await ctx.child(leaf, 500)
    except TimeoutError:
        found["cancelled"] = True
    try:
        await ctx.child("nobody-knows-it", 1)
    except ChildFailed as error:
        found["unknown"] = error.status
    await leaf.start(1)
    found["run"] = await leaf.run(2)
    return found


async def drive_children(app: TestApp) -> RunHandle[Any]:
    run = await app.start(children, id="golden")
    await app.tick(600)
    return run


# ---------------------------------------------------------------- continue-as-new


@workflow
async def links(ctx: Context, count: int, kept: list[str]) -> list[str]:
    kept.append(await ctx.wait_for_signal("more", type=str))
    kept.append(str(ctx.uuid4()))
    if count == 2:
        return kept
    return ctx.continue_as_new(count + 1, kept)


async def drive_links(app: TestApp) -> RunHandle[Any]:
    run = await app.start(links, 1, [], id="golden")
    for word in ("a", "b"):
        await run.signal("more", word)
    await app.settle()
    return run


async def drive_second_link(app: TestApp) -> RunHandle[Any]:
    await drive_links(app)
    return app.get_run("golden~1")


# ---------------------------------------------------------------- patches


@workflow
async def patched(ctx: Context) -> list[int]:
    found = [await echo(1)]
    if ctx.patched("twice"):
        found.append(await echo(2))
    await asyncio.sleep(10)
    if ctx.patched("thrice"):
        found.append(await echo(3))
    return found


@workflow(name="patched")
async def before_the_patches(ctx: Context) -> list[int]:
    found = [await echo(1)]
    await asyncio.sleep(10)
    return found


async def drive_patched(app: TestApp) -> RunHandle[Any]:
    run = await app.start(patched, id="golden")
    await app.tick(10)
    return run


async def drive_before_the_patches(app: TestApp) -> RunHandle[Any]:
    run = await app.start(before_the_patches, id="golden")
    await app.tick(10)
    return run


# ---------------------------------------------------------------- logs


@step(max_attempts=2, base=1)
async def talkative(n: int) -> int:
    log.info("attempt %d", current_step().attempt)
    with log.sub_process("part"):
        log.heartbeat({"n": n})
    if current_step().attempt == 1:
        raise ConnectionError("not yet")
    return n


@workflow
async def logged(ctx: Context) -> list[int]:
    log.info("a body's lines leave no trace")
    found = [await talkative(1), *await asyncio.gather(talkative(2), echo(3))]
    found.append(await ctx.local_step("say", _say))
    return found


def _say() -> int:
    log.warning("said")
    return 4


async def drive_logged(app: TestApp) -> RunHandle[Any]:
    run = await app.start(logged, id="golden")
    await app.tick(60)
    return run


# ---------------------------------------------------------------- streams


@step
async def streaming(n: int) -> int:
    for word in range(n):
        stream("words").write(word)
    return n


@workflow
async def streamed(ctx: Context) -> int:
    ctx.stream("words").write("begin")
    total = sum(await asyncio.gather(streaming(2), streaming(3)))
    stream("others").write({"total": total})
    await asyncio.sleep(1)
    ctx.stream("words").write("end")
    return total


async def drive_streamed(app: TestApp) -> RunHandle[Any]:
    run = await app.start(streamed, id="golden")
    await app.tick(60)
    return run


# ---------------------------------------------------------------- what operators and crashes do


class Outside:
    """What the steps meet."""

    healthy = False
    gate = asyncio.Event()


@step(max_attempts=2, base=1)
async def broken(n: int) -> int:
    if not Outside.healthy:
        raise ConnectionError("down")
    return n


@workflow
async def requeued(ctx: Context) -> list[int]:
    first = await echo(1)
    try:
        await broken(0)
    except ConnectionError:
        await asyncio.sleep(1)  # something was built on this failure: it stays
    return [first, *await asyncio.gather(broken(2), _slept(1000, 3))]


async def drive_requeued(app: TestApp) -> RunHandle[Any]:
    Outside.healthy = False
    run = await app.start(requeued, id="golden")
    await app.tick(60)
    Outside.healthy = True
    await run.requeue()
    await app.tick(2000)
    return run


@workflow
async def cut_off(ctx: Context) -> int:
    return await stuck(5)


@step
async def stuck(n: int) -> int:
    await Outside.gate.wait()
    return n


async def drive_cut_off(app: TestApp) -> RunHandle[Any]:
    Outside.gate = asyncio.Event()
    store = app.store
    assert isinstance(store, MemoryStore)
    async with TestApp(cut_off, store=store.view(), clock=app.clock, drain=0.001) as lost:
        await lost.start(cut_off, id="golden")
        await lost.settle(steps=False)
    Outside.gate.set()
    await app.settle()
    return app.get_run("golden")


@workflow
async def cancelled(ctx: Context) -> str:
    try:
        await asyncio.gather(ctx.wait_for_signal("never"), _slept(100, 1))
    except asyncio.CancelledError:
        await echo(2)
        raise
    return "not cancelled"


async def drive_cancelled(app: TestApp) -> RunHandle[Any]:
    run = await app.start(cancelled, id="golden")
    await app.settle()
    cancel = Outgoing(kind=MessageKind.CANCEL, run_id="golden")  # the cancel that lets the body clean up
    await app.engine.ask(Send(cancel))
    await app.settle()
    return run


@workflow
async def failed(ctx: Context) -> None:
    await asyncio.sleep(1)
    try:
        raise KeyError("inner")
    except KeyError as error:
        raise FatalError("outer", code="golden", details={"n": 1}) from error


async def drive_failed(app: TestApp) -> RunHandle[Any]:
    run = await app.start(failed, id="golden")
    await app.tick(1)
    return run


# ---------------------------------------------------------------- updates


@workflow
async def updates(ctx: Context) -> list[Any]:
    first = await ctx.wait_for_update("add", type=int)
    first.answer({"sum": first.arg})
    second = await ctx.wait_for_update("add", type=int)  # the first of two that comes does not fit: it is rejected
    got: list[Any] = [first.arg, await echo(second.arg)]
    second.reject("too late")
    try:
        await ctx.wait_for_update("never", timeout=30)
    except SignalTimeout as error:
        got.append(str(error))
    left = asyncio.ensure_future(ctx.wait_for_update("left"))
    right = asyncio.ensure_future(ctx.wait_for_update("right"))
    await asyncio.wait([left, right], return_when="FIRST_COMPLETED")
    left.cancel()
    got.append(right.result().arg)
    (await ctx.wait_for_update("left")).answer()
    return got


async def drive_updates(app: TestApp) -> RunHandle[Any]:
    run = await app.start(updates, id="golden")
    for number, arg in enumerate((1, "odd", 2)):
        await run.update("add", arg, id=f"add-{number}")
    await app.tick(31)
    await run.update("right", "side", id="right")
    await app.settle()
    await run.update("left", id="left")
    await app.settle()
    return run


# ---------------------------------------------------------------- undos


@step
async def take_back(undo: Undo[int, int]) -> int:
    return undo.input - undo.output


@step(compensate=take_back, max_attempts=2, base=1)
async def give(n: int) -> int:
    if n < 0 and current_step().attempt == 1:
        raise ConnectionError("once more")
    return n


@step(compensate=take_back)
async def give_slowly(n: int) -> int:
    await Outside.gate.wait()
    return n


@workflow
async def undone(ctx: Context) -> None:
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(give_slowly(1), 5)  # let go, and undone while the body goes on
    await give(2)
    await ctx.local_step("local", lambda: 3, compensate=lambda undo: None)
    await asyncio.gather(give(4), give_slowly(5), _fails_late(), give(-6))


async def _fails_late() -> None:
    await asyncio.sleep(10)
    raise ValueError("golden")


async def drive_undone(app: TestApp) -> RunHandle[Any]:
    Outside.gate = asyncio.Event()
    run = await app.start(undone, id="golden")
    await app.tick(5, steps=False)
    Outside.gate.set()
    await app.settle()
    Outside.gate.clear()
    await app.tick(20, steps=False)
    Outside.gate.set()
    await app.settle()
    return run


# ---------------------------------------------------------------- attributes


@workflow
async def attributed(ctx: Context) -> None:
    ctx.upsert_attributes({"stage": "begun", "size": 1})
    await ctx.wait_for_signal("go")
    ctx.upsert_attributes({"size": 2.5})
    ctx.upsert_attributes({"done": True, "notes": ["kept"]})


async def drive_attributed(app: TestApp) -> RunHandle[Any]:
    run = await app.start(attributed, id="golden", attributes={"size": 0, "plan": "pro"})
    await app.settle()
    await run.signal("go")
    await app.settle()
    return run


async def drive_forked(app: TestApp) -> RunHandle[Any]:
    run = await app.start(forks, id="golden")
    await app.settle()
    await run.signal("go")
    await app.settle()
    seq = next(one.seq for one in await run.steps() if one.input is not None and b"13" in one.input)
    fork = await run.fork(seq)
    await app.settle()
    return fork


@workflow
async def forks(ctx: Context) -> list[Any]:
    got: list[Any] = [await echo(ctx.random.randint(0, 9)), await ctx.child(leaf, 0)]
    late = asyncio.ensure_future(ctx.wait_for_signal("go"))
    got += await asyncio.gather(echo(11), echo(12), echo(13))
    return [*got, await late, ctx.random.randint(0, 9)]


# ---------------------------------------------------------------- events


@workflow
async def events(ctx: Context) -> list[Any]:
    found: list[Any] = [await ctx.wait_for_event("paid", match={"order.id": 1}, type=Item)]
    both = asyncio.gather(ctx.wait_for_event("sent", match={"to": "b"}), ctx.wait_for_event("sent"))
    found += await both
    try:
        await ctx.wait_for_event("returned", timeout=timedelta(days=1))
    except EventTimeout as error:
        found.append(error.timeout)
    late = asyncio.ensure_future(ctx.wait_for_event("returned", match={"order": 1}))
    await asyncio.sleep(1)
    late.cancel()
    return [str(each) for each in found]


async def drive_events(app: TestApp) -> RunHandle[Any]:
    run = await app.start(events, id="golden")
    await app.settle()
    paid = {"order": {"id": 1}, "name": "lamp", "price": "9.50", "ordered": "2025-01-01T00:00:00Z", "tags": []}
    await app.publish("paid", paid | {"order": {"id": 2}})
    await app.publish("paid", paid)
    await app.settle()
    await app.publish("sent", {"to": "a"})
    await app.publish("sent", {"to": "b"})
    await app.tick(timedelta(days=2))
    return run


#: What collects events is a workflow too, whose runs live for ever.
@workflow(name="batched", on_event=[Batch("row", max=3, window=60), Debounce("save", window=5)])
async def batched(ctx: Context, event: Any) -> None: ...


async def _rows(app: TestApp) -> None:
    app.register(batched)
    for number in range(4):
        await app.publish("row", number)
    await app.tick(60)
    for number in range(3):
        await app.publish("save", number)
        await app.tick(3)
    await app.tick(5)


async def drive_full_batch(app: TestApp) -> RunHandle[Any]:
    await _rows(app)
    return app.get_run("acc:row:batched")


async def drive_elapsed_batch(app: TestApp) -> RunHandle[Any]:
    await _rows(app)
    return app.get_run("acc:row:batched~1")


async def drive_debounced(app: TestApp) -> RunHandle[Any]:
    await _rows(app)
    return app.get_run("acc:save:batched")


@workflow
async def undone_below(ctx: Context) -> None:
    await give(1)
    await ctx.wait_for_signal("never")


@workflow
async def cancelled_with_undo(ctx: Context) -> str:
    await give(2)
    await ctx.start_child(undone_below)
    try:
        await asyncio.gather(ctx.child(undone_below), _slept(100, 1))
    finally:
        await echo(3)
    return "not cancelled"


async def drive_cancelled_with_undo(app: TestApp) -> RunHandle[Any]:
    run = await app.start(cancelled_with_undo, id="golden")
    await app.settle()
    # As `run.cancel(compensate=True)` sends it, but for the id drawn for each call.
    await app.engine.ask(Send(CancelOrder("golden", "golden").message("golden")))
    await app.settle()
    return run


# ---------------------------------------------------------------- where the world comes in


@workflow
async def places(ctx: Context) -> list[Any]:
    hook, other = ctx.webhook(), ctx.webhook()
    got: list[Any] = [hook.token, other.token]
    await ctx.breakpoint("look")
    got.append(await hook.wait())
    try:
        await other.wait(timeout=30)
    except SignalTimeout as error:
        got.append(str(error))
    got.append(await other.wait(type=int))
    got.append(await ctx.task("ship", lambda: "asked", type=str))
    try:
        await ctx.task("ship", lambda: "asked", within=100)
    except FatalError as error:
        got.append([str(error), error.code, error.details])
    return got


async def drive_places(app: TestApp) -> RunHandle[Any]:
    run = await app.start(places, id="golden")
    await app.signal(token="wh:golden:0", payload="early")
    await app.settle()
    await run.resume()
    await app.tick(31)
    await app.signal(token="wh:golden:1", payload=7)
    await app.settle()
    await run.complete_task("ship", "parcel")
    await app.settle()
    await run.fail_task("ship", "lost", code="lost", details=[1])
    await app.settle()
    return run


# ---------------------------------------------------------------- queues


@step(queue="golden", max_attempts=2, base=5)
async def queued_step(n: int) -> int:
    if n == 2 and current_step().attempt == 1:
        raise ValueError("again")
    return n


@workflow
async def queued(ctx: Context) -> list[Any]:
    seen: list[Any] = list(await asyncio.gather(*(queued_step(n) for n in range(4))))
    try:
        async with asyncio.timeout(3):
            await ctx.wait_for_signal("never")
    except TimeoutError:
        seen.append("late")
    seen.append(await queued_step.using(queue=None)(5))
    waiting = asyncio.ensure_future(queued_step.using(queue_key="k", priority=3)(6))
    await asyncio.sleep(0)
    waiting.cancel()
    return [*seen, await queued_step(7)]


async def drive_queued(app: TestApp) -> RunHandle[Any]:
    app.queue("golden", concurrency=2, fairness="key")
    run = await app.start(queued, id="golden")
    await app.tick(5)
    await app.tick(3)
    return run


# ---------------------------------------------------------------- entities


@entity(name="golden", link=4)
class Golden:
    items: list[str] = field(default_factory=list)

    async def put(self, item: str) -> int:
        self.items.append(item)
        return len(self.items)

    async def slowly(self, item: str) -> str:
        await asyncio.sleep(1)
        self.items.append(str(await echo(len(item))))
        return item


@workflow
async def puts(ctx: Context) -> list[Any]:
    got: list[Any] = [await call_entity(ctx, Golden, "g").put("one")]
    await signal_entity(ctx, Golden, "g").put("two")
    got.append(await call_entity(ctx, Golden, "g").slowly("three"))
    return got


async def drive_puts(app: TestApp) -> RunHandle[Any]:
    run = await app.start(puts, id="golden")
    await app.tick(2)
    return run


async def drive_entity(app: TestApp) -> RunHandle[Any]:
    await app.entity(Golden, "g").put("outside")
    await drive_puts(app)
    return app.get_run("entity:golden:g")


LIVE: Any = definition_of(Golden).workflow


# ---------------------------------------------------------------- their names

Drive = Callable[[TestApp], Coroutine[Any, Any, RunHandle[Any]]]


@dataclass(frozen=True)
class Program:
    """`recorded` is what lived the history, `today` the code that it must fit."""

    today: Any
    drive: Drive
    recorded: Any = None


PROGRAMS = {
    "steps": Program(steps, drive_steps),
    "concurrency": Program(concurrency, drive_concurrency),
    "signals": Program(signals, drive_signals),
    "children": Program(children, drive_children),
    "first-link": Program(links, drive_links),
    "last-link": Program(links, drive_second_link),
    "patched": Program(patched, drive_patched),
    "before-the-patches": Program(patched, drive_before_the_patches, recorded=before_the_patches),
    "requeued": Program(requeued, drive_requeued),
    "cut-off": Program(cut_off, drive_cut_off),
    "cancelled": Program(cancelled, drive_cancelled),
    "failed": Program(failed, drive_failed),
    "logged": Program(logged, drive_logged),
    "puts": Program(puts, drive_puts),
    "entity": Program(LIVE, drive_entity),
    "places": Program(places, drive_places),
    "updates": Program(updates, drive_updates),
    "events": Program(events, drive_events),
    "full-batch": Program(accumulate, drive_full_batch),
    "elapsed-batch": Program(accumulate, drive_elapsed_batch),
    "debounced": Program(accumulate, drive_debounced),
    "undone": Program(undone, drive_undone),
    "cancelled-with-undo": Program(cancelled_with_undo, drive_cancelled_with_undo),
    "attributes": Program(attributed, drive_attributed),
    "forked": Program(forks, drive_forked),
    "queued": Program(queued, drive_queued),
    "streamed": Program(streamed, drive_streamed),
}
