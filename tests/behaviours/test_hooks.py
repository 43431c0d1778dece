"""HOOK and TASK: webhooks by signed links, breakpoints, and work that is done elsewhere."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from datetime import timedelta
from typing import Any

import pytest

from perdure import (
    Context,
    FatalError,
    InvalidId,
    InvalidValue,
    RunFailed,
    RunNotFound,
    SignalTimeout,
    Status,
    StoreUnavailable,
    UsageError,
    workflow,
)
from perdure.cli.waits import waits
from perdure.console import webhooks
from perdure.model.history import Op
from perdure.model.steps import State
from tests.behaviours.world import Barrier, World

SECRET = "0123456789abcdef" * 4
BASE = "https://example.org/hooks"
LINKS = {"secret": SECRET, "webhook_url": f"{BASE}/"}


async def post(
    application: Any,
    path: str,
    body: bytes = b"null",
    *,
    method: str = "POST",
    kind: str = "application/json",
    chunk: int = 1 << 30,
    declared: bool = True,
    **headers: str,
) -> tuple[int, str, Mapping[str, str]]:
    """What the application answers: status, text, headers."""
    given = [(b"Content-Type", kind.encode())]
    given += [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()]
    if declared:
        given.append((b"content-length", str(len(body)).encode()))
    parts = [body[at : at + chunk] for at in range(0, len(body), chunk)] or [b""]
    events = [
        {"type": "http.request", "body": part, "more_body": index < len(parts) - 1} for index, part in enumerate(parts)
    ]
    sent: list[Any] = []

    async def receive() -> Any:
        return events.pop(0)

    async def send(event: Any) -> None:
        sent.append(event)

    await application({"type": "http", "method": method, "path": path, "headers": given}, receive, send)
    start, answer = sent
    return start["status"], answer["body"].decode(), {k.decode(): v.decode() for k, v in start["headers"]}


@workflow
async def hooked(ctx: Context, how: str) -> Any:
    hook = ctx.webhook()
    ctx.on_query("url", lambda: hook.url)
    ctx.set_value("token", hook.token)
    if how == "bytes":
        return (await hook.wait(type=bytes)).decode("latin-1")
    if how == "twice":
        return [await hook.wait(), await hook.wait()]
    if how == "bounded":
        try:
            return await hook.wait(timeout=5)
        except SignalTimeout as error:
            return f"{error.timeout:g}: {error}"
    return await hook.wait()


async def path_of(run: Any) -> str:
    return str(await run.query("url")).removeprefix("https://example.org")


async def test_hook_01_its_token_is_its_place_and_its_url_leads_there(world: World) -> None:
    async with world.app(hooked, **LINKS) as app, world.client(hooked, **LINKS) as client:
        run = await app.start(hooked, "", id="r1")
        await app.settle()
        assert await run.value("token") == "wh:r1:0"
        url = await run.query("url")
        assert url.startswith(f"{BASE}/")
        assert await client.get_run("r1").query("url") == url  # also when it is replayed
        assert (await run.steps())[0].state is State.PENDING


async def test_hook_02_what_is_posted_is_what_the_wait_gives(world: World) -> None:
    async with world.app(hooked, **LINKS) as app:
        run = await app.start(hooked, "", id="r1")
        await app.settle()
        status, _, _ = await post(webhooks(app), await path_of(run), b'{"paid": true}')
        assert status == 202
        assert await run.result() == {"paid": True}
        other = await app.start(hooked, "", id="r2")
        await app.signal(token="wh:r2:0", payload="by hand")
        assert await other.result() == "by hand"


async def test_hook_02_from_a_process_that_only_talks_to_the_store(world: World) -> None:
    async with world.app(hooked, **LINKS) as worker, world.client(**LINKS) as web:
        run = await worker.start(hooked, "", id="r1")
        await worker.settle()
        assert (await post(webhooks(web), await path_of(run), b"7"))[0] == 202
        assert await run.result() == 7


@pytest.mark.parametrize("in_time", [True, False])
async def test_hook_03_a_bounded_wait(world: World, in_time: bool) -> None:
    async with world.app(hooked, **LINKS) as app:
        run = await app.start(hooked, "bounded", id="r1")
        await app.tick(4.9 if in_time else 5)
        if in_time:
            await app.signal(token="wh:r1:0", payload="early enough")
            assert await run.result() == "early enough"
        else:
            assert await run.result() == ("5: run 'r1' (hooked@1) waited 5 seconds for token 'wh:r1:0', and none came")


async def test_hook_03_what_came_before_the_bounded_wait_is_taken(world: World) -> None:
    barrier = Barrier()

    @workflow
    async def later(ctx: Context) -> list[Any]:
        hook = ctx.webhook()
        await ctx.local_step("gate", barrier.wait)
        got = [await hook.wait(timeout=0)]
        got.append(await hook.wait(timeout=10))
        return got

    async with world.app(later) as app:
        run = await app.start(later, id="r1")
        await barrier.reached.wait()
        await app.signal(token="wh:r1:0", payload=1)
        barrier.open()
        await app.settle()
        await app.signal(token="wh:r1:0", payload=2)
        assert await run.result() == [1, 2]


async def test_hook_two_hooks_are_two_places(world: World) -> None:
    @workflow
    async def pair(ctx: Context) -> list[str]:
        one, two = ctx.webhook(), ctx.webhook()
        return [one.token, two.token, await two.wait(type=str), await one.wait(type=str)]

    async with world.app(pair) as app:
        run = await app.start(pair, id="r1")
        await app.signal(token="wh:r1:0", payload="one")
        await app.signal(token="wh:r1:1", payload="two")
        assert await run.result() == ["wh:r1:0", "wh:r1:1", "two", "one"]


async def test_hook_several_deliveries_come_one_by_one_each_key_once(world: World) -> None:
    async with world.app(hooked, **LINKS) as app:
        run = await app.start(hooked, "twice", id="r1")
        await app.settle()
        web, path = webhooks(app), await path_of(run)
        for body, key in ((b"1", "a"), (b"1", "a"), (b"2", "b")):
            assert (await post(web, path, body, Idempotency_Key=key))[0] == 202
            await app.settle()
        assert await run.result() == [1, 2]


@pytest.mark.parametrize(
    ("kind", "body", "arrives"),
    [
        ("application/json", b'{"a": [1, 2.5, null, "\\u00e9"]}', {"a": [1, 2.5, None, "é"]}),
        ("application/vnd.api+json; charset=utf-8", b"[]", []),
        (
            "application/x-www-form-urlencoded",
            b"choice=yes&by=ada+l&by=bob&note=",
            {"choice": "yes", "by": "bob", "note": ""},
        ),
    ],
)
async def test_hook_the_content_type_says_what_a_body_is(world: World, kind: str, body: bytes, arrives: Any) -> None:
    async with world.app(hooked, **LINKS) as app:
        run = await app.start(hooked, "", id="r1")
        await app.settle()
        assert (await post(webhooks(app), await path_of(run), body, kind=kind))[0] == 202
        assert await run.result() == arrives


async def test_hook_any_other_body_arrives_as_bytes(world: World) -> None:
    data = bytes(range(256)) * 40
    async with world.app(hooked, **LINKS) as app:
        run = await app.start(hooked, "bytes", id="r1")
        await app.settle()
        assert (await post(webhooks(app), await path_of(run), data, kind="image/png", chunk=1000))[0] == 202
        assert (await run.result()).encode("latin-1") == data


async def test_hook_what_is_forged_or_wrong_is_refused_and_nothing_is_written(world: World) -> None:
    async with world.app(hooked, **LINKS) as app:
        run = await app.start(hooked, "", id="r1")
        other = await app.start(hooked, "", id="r2")
        await app.settle()
        web, path = webhooks(app, limit=100), await path_of(run)
        name, _, signature = path.rpartition("/")[2].partition(".")
        swapped = (await path_of(other)).rpartition("/")[2].partition(".")[0]
        forged = [
            "",
            ".",
            "x",
            name,
            f"{name}.",
            f"{swapped}.{signature}",
            f"{name}.{signature[:-2]}",
            f"{name}.{'A' * 43}",
        ]
        forged += [f"{name}.{signature}é", f"{name}=.{signature}", f".{signature}"]
        for text in forged:
            assert (await post(web, f"/hooks/{text}"))[0] == 404, text
        status, _, headers = await post(web, path, method="GET")
        assert (status, headers["allow"]) == (405, "POST")
        for declared in (True, False):
            assert (await post(web, path, b"1" * 101, declared=declared, chunk=30))[0] == 413
        for body in (b"", b"{", b"NaN", b'"\\ud800"', b"[" * 99):
            assert (await post(web, path, body))[0] == 400, body
        assert (await post(web, path, b"a=%ff", kind="application/x-www-form-urlencoded"))[0] == 400
        assert (await post(web, path, b"1", Idempotency_Key="x" * 256))[0] == 400
        assert (await run.info()).inbox == 0
        async with world.client(secret="another secret, but as long as it must be") as stranger:
            assert (await post(webhooks(stranger), path))[0] == 404
        async with world.client(secret=["the new secret, which signs from now on", SECRET]) as newer:
            assert (await post(webhooks(newer), path))[0] == 202
        await run.result()
        status, text, _ = await post(web, path)
        assert (status, text) == (410, "nobody waits here any more\n")


async def test_hook_while_the_store_is_away_the_caller_shall_try_again(world: World) -> None:
    gate = world.gate()
    async with world.app(hooked, **LINKS) as app, world.client(store=gate, patience=0.01, **LINKS) as web:
        run = await app.start(hooked, "", id="r1")
        await app.settle()
        path = await path_of(run)
        gate.fail("before", "get", StoreUnavailable("away"), times=1000)
        answer = asyncio.ensure_future(post(webhooks(web), path))
        await world.pass_time(answer)
        status, _, headers = answer.result()
        assert (status, headers["retry-after"]) == (503, "5")


async def test_hook_the_application_knows_how_servers_start_and_end(world: World) -> None:
    async with world.app(**LINKS) as app:
        events = [{"type": "lifespan.startup"}, {"type": "lifespan.shutdown"}]
        sent: list[Any] = []

        async def receive() -> Any:
            return events.pop(0)

        async def send(event: Any) -> None:
            sent.append(event["type"])

        await webhooks(app)({"type": "lifespan"}, receive, send)
        assert sent == ["lifespan.startup.complete", "lifespan.shutdown.complete"]


async def test_hook_bad_settings_and_uses(world: World) -> None:
    bad: Any
    for bad in ("short", "", 5, [], ["x" * 40, "short"]):
        with pytest.raises(UsageError, match="secret must be a text of at least 32 characters") as raised:
            world.app(secret=bad)
        assert "short'" not in str(raised.value)
    for bad in ("example.org", "ftp://x", "https://x y", 5, "https://x/?a=1"):
        with pytest.raises(UsageError, match="webhook_url must be a URL like"):
            world.app(webhook_url=bad)
    assert SECRET not in repr(world.app(**LINKS).settings)
    async with world.app(hooked) as app, world.client(secret=SECRET) as client:
        with pytest.raises(UsageError, match="links are signed: set Perdure"):
            webhooks(app)
        for bad in (0, -1, True, "1", 1 << 30):
            with pytest.raises(UsageError, match="limit must be"):
                webhooks(client, limit=bad)
        run = await app.start(hooked, "", id="r1")
        await app.settle()
        with pytest.raises(UsageError, match="set Perdure"):
            await run.query("url")

    @workflow
    async def wrong(ctx: Context, how: int) -> None:
        hook = ctx.webhook()
        if how == 0:
            await hook.wait(timeout=-1)
        elif how == 1:
            await ctx.local_step("in", hook.wait)
        else:
            await ctx.local_step("in", ctx.webhook)

    async with world.app(wrong) as app:
        for how, text in enumerate(("cannot be negative", "outside its workflow", "outside its workflow")):
            run = await app.start(wrong, how)
            await run.wait()
            assert text in str((await run.info()).reason)


async def test_hook_a_body_that_does_not_fit_is_told_at_the_wait(world: World) -> None:
    @workflow
    async def strict(ctx: Context) -> str:
        hook = ctx.webhook()
        try:
            await hook.wait(type=int)
        except InvalidValue as error:
            return str(error)
        return "fitted"

    async with world.app(strict) as app:
        run = await app.start(strict, id="r1")
        await app.signal(token="wh:r1:0", payload="x")
        assert "what came to <webhook wh:r1:0> does not fit its type int" in await run.result()


# ---------------------------------------------------------------- stopping on purpose


@workflow
async def stepwise(ctx: Context, label: str | None) -> str:
    await ctx.breakpoint(label)
    await ctx.breakpoint("second")
    return "through"


@pytest.mark.parametrize(("label", "name"), [(None, "breakpoint"), ("first", "breakpoint:first")])
async def test_hook_05_a_breakpoint_is_written_down_and_suspends(world: World, label: str | None, name: str) -> None:
    async with world.app(stepwise) as app:
        run = await app.start(stepwise, label, id="r1")
        assert await run.wait() is Status.SUSPENDED
        [point] = await run.steps()
        assert (point.name, point.state, point.input) == (name, State.PENDING, b"bp:r1:0")


async def test_hook_06_resume_lets_it_go_on(world: World) -> None:
    async with world.app(stepwise) as app, world.client() as operator:
        run = await app.start(stepwise, "first", id="r1")
        await app.settle()
        there = operator.get_run("r1")
        assert not await there.resume("other")
        assert not await there.resume("second")  # not there yet
        assert await there.resume("first")
        await app.settle()
        assert not await there.resume("first")
        assert await there.resume()
        assert await run.result() == "through"
        assert not await there.resume()
        with pytest.raises(RunNotFound):
            await operator.get_run("nobody").resume()
        with pytest.raises(InvalidId):
            await run.resume("")


async def test_hook_06_two_who_resume_at_once_let_it_go_on_once(world: World) -> None:
    async with world.app(stepwise) as app:
        run = await app.start(stepwise, "first", id="r1")
        await app.settle()
        assert any(await asyncio.gather(*(run.resume("first") for _ in range(5))))
        await app.settle()
        assert [point.state for point in await run.steps()] == [State.COMPLETED, State.PENDING]


async def test_hook_06_a_run_that_waits_for_something_else_is_left_alone(world: World) -> None:
    async with world.app(hooked) as app:
        run = await app.start(hooked, "", id="r1")
        await app.settle()
        before = await run.info()
        assert not await run.resume()
        assert not await run.complete_task("webhook")
        assert await run.info() == before


# ---------------------------------------------------------------- external tasks


class Carrier:
    """What does the work elsewhere."""

    def __init__(self) -> None:
        self.asked = 0
        self.fails = 0

    async def ship(self) -> str:
        self.asked += 1
        if self.asked <= self.fails:
            raise ConnectionError("busy")
        return "parcel 7"


def shipping(carrier: Carrier, **options: Any) -> Any:
    @workflow(name="shipping")
    async def body(ctx: Context) -> Any:
        try:
            return await ctx.task("ship", carrier.ship, **options)
        except (FatalError, ConnectionError, SignalTimeout) as error:
            return [type(error).__name__, str(error), getattr(error, "code", ""), getattr(error, "details", None)]

    return body


async def test_task_01_it_is_asked_for_once_and_its_result_comes(world: World) -> None:
    carrier = Carrier()
    body = shipping(carrier)
    async with world.app(body) as app:
        run = await app.start(body, id="r1")
        await app.settle()
        assert await run.status() is Status.SUSPENDED
    async with world.app(body) as other, world.client() as client:
        assert await client.get_run("r1").complete_task("ship", {"at": "door"})
        assert await other.get_run("r1").result() == {"at": "door"}
        assert not await client.get_run("r1").complete_task("ship", {"at": "sea"})
    assert carrier.asked == 1


async def test_task_02_one_that_failed_raises_a_fatal_error(world: World) -> None:
    body = shipping(Carrier())
    async with world.app(body) as app:
        run = await app.start(body, id="r1")
        await app.settle()
        assert not await run.fail_task("sail", "no wind")
        assert await run.fail_task("ship", ValueError("lost at sea"), code="lost", details={"n": 1})
        assert await run.result() == ["FatalError", 'task "ship" failed: lost at sea', "lost", {"n": 1}]


async def test_task_04_the_dispatch_is_a_local_step_with_retries(world: World) -> None:
    carrier = Carrier()
    carrier.fails = 2
    body = shipping(carrier, max_attempts=3, base=10, backoff="fixed")
    async with world.app(body) as app:
        run = await app.start(body, id="r1")
        await app.tick(30)
        wait, dispatch = await run.steps()
        assert (wait.op, wait.name, wait.input) == (Op.SIGNAL, "task:ship", b"task:r1:0")
        assert (dispatch.op, dispatch.name, dispatch.attempts) == (Op.LOCAL, "task:dispatch:ship", 3)
        assert await run.complete_task("ship", 1)
        assert await run.result() == 1


async def test_task_04_a_dispatch_that_fails_for_good_raises(world: World) -> None:
    carrier = Carrier()
    carrier.fails = 9
    body = shipping(carrier)
    async with world.app(body) as app:
        run = await app.start(body, id="r1")
        assert (await run.result())[:2] == ["ConnectionError", "busy"]
        assert [step.state for step in await run.steps()] == [State.ABANDONED, State.FAILED]


async def test_task_an_answer_that_is_faster_than_the_dispatch_is_kept(world: World) -> None:
    barrier = Barrier()

    @workflow
    async def eager(ctx: Context) -> list[int]:
        first = await ctx.task("ship", barrier.wait, type=int)
        return [first, await ctx.task("ship", lambda: None, type=int)]

    async with world.app(eager) as app:
        run = await app.start(eager, id="r1")
        await barrier.reached.wait()
        assert await run.complete_task("ship", 1)
        await run.complete_task("ship", 1)  # told again: it is no answer to the next task of that name
        barrier.open()
        await app.settle()
        assert await run.status() is Status.SUSPENDED
        assert await run.complete_task("ship", 2)
        assert await run.result() == [1, 2]


async def test_task_a_crash_in_the_dispatch_asks_again_with_one_wait(world: World) -> None:
    barrier, calls = Barrier(), list[int]()

    async def ask() -> None:
        calls.append(1)
        await barrier.wait()

    @workflow
    async def cut(ctx: Context) -> Any:
        return await ctx.task("ship", ask, max_attempts=3)

    async with world.doomed(cut) as lost:
        await lost.start(cut, id="r1")
        await barrier.reached.wait()
    barrier.open()
    async with world.app(cut) as app:
        await app.tick(31)
        run = app.get_run("r1")
        assert await run.complete_task("ship", "done")
        assert await run.result() == "done"
        assert len(calls) == 2


async def test_task_it_may_take_so_long_and_no_longer(world: World) -> None:
    body = shipping(Carrier(), within=timedelta(hours=1))
    async with world.app(body) as app:
        run = await app.start(body, id="r1")
        await app.tick(timedelta(minutes=59))
        assert await run.status() is Status.SUSPENDED
        await app.tick(timedelta(minutes=1))
        assert (await run.result())[0] == "SignalTimeout"
        assert not await run.complete_task("ship", 1)


async def test_task_bad_input(world: World) -> None:
    bad: Any
    body = shipping(Carrier())
    async with world.app(body) as app:
        run = await app.start(body, id="r1")
        await app.settle()
        before = await run.info()
        with pytest.raises(InvalidValue):
            await run.complete_task("ship", object())
        with pytest.raises(InvalidValue):
            await run.fail_task("ship", "x", details=object())
        for bad in (5, None):
            with pytest.raises(UsageError, match="fails with a text or an error"):
                await run.fail_task("ship", bad)
        with pytest.raises(InvalidId):
            await run.complete_task("")
        with pytest.raises(RunNotFound):
            await app.get_run("nobody").complete_task("ship")
        assert await run.info() == before

    @workflow
    async def wrong(ctx: Context, how: int) -> None:
        options: Any = [{"name": ""}, {"dispatch": 5}, {"within": -1}, {"tries": 3}, {"type": 5}][how]
        await ctx.task(**{"name": "t", "dispatch": print, **options})

    async with world.app(wrong) as app:
        for how in range(5):
            run = await app.start(wrong, how)
            with pytest.raises(RunFailed) as raised:
                await run.result()
            assert isinstance(raised.value.__cause__, UsageError), how


# ---------------------------------------------------------------- shown


async def test_sig_14_waits_are_shown_as_what_they_are(world: World) -> None:
    @workflow
    async def many(ctx: Context) -> None:
        hook = ctx.webhook()
        waiting: list[Any] = [
            hook.wait(),
            ctx.breakpoint("label"),
            ctx.breakpoint(),
            ctx.task("ship", lambda: None),
            ctx.wait_for_signal("by name"),
            ctx.wait_for_signal("paid", token="order:1"),
            ctx.wait_for_signal("paid", token="event:b3JkZXIucGFpZA:7"),
            ctx.wait_for_signal("paid", token="event:???"),
            ctx.wait_for_signal("end", token="child:c1"),
            ctx.wait_for_update("change"),
        ]
        await asyncio.gather(*waiting)

    async with world.app(many) as app:
        run = await app.start(many, id="r1")
        await app.settle()
        found = waits(await run.info(), await run.steps(), {}, world.clock.now())
        assert {(wait.what, wait.name) for wait in found} == {
            ("webhook", "wh:r1:0"),
            ("breakpoint", "label"),
            ("breakpoint", next(w.name for w in found if w.what == "breakpoint" and w.name != "label")),
            ("task", "ship"),
            ("signal", "by name"),
            ("token", "order:1"),
            ("event", "order.paid"),
            ("token", "event:???"),
            ("child", "c1"),
            ("update", "change"),
        }
        assert json.dumps([wait.name for wait in found])
