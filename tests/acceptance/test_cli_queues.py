"""`perdure queues`: who holds a slot, who waits for one, and since when."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta
from pathlib import Path

from perdure import Context, Perdure, Singleton, step, workflow
from tests.acceptance import shop
from tests.acceptance.conftest import Call


@step(queue="emails")
async def send(who: str) -> None:
    await asyncio.Event().wait()


@workflow
async def mail(ctx: Context, who: str) -> None:
    await send.using(queue_key=who, priority=3)(who)


@workflow(singleton=Singleton(key="k"))
async def alone(ctx: Context) -> None:
    await ctx.wait_for_signal("go")


async def _begun(app: Perdure) -> None:
    for name in ("ada", "bob"):
        await app.start(mail, name, id=name)
        await app.get_run(name).wait() if name == "bob" else None
        await app.start(alone, id=f"alone {name}")
    await app.get_run("alone ada").wait()
    await app.get_run("alone bob").wait()


def work(folder: Path, look: Callable[[], None], begin: Callable[[Perdure], Awaitable[None]] = _begun) -> None:
    """While an app is at work and has begun, look."""

    async def run() -> None:
        app = Perdure(shop.url(folder), include=[], drain=0.001)
        app.register(mail, alone)
        app.queue("emails", concurrency=1, rate=(100, timedelta(minutes=1)), fairness="key")
        async with app:
            await begin(app)
            await asyncio.to_thread(look)

    asyncio.run(run())


def test_queue_it_lists_queues_and_singletons(call: Call, tmp_path: Path) -> None:
    def look() -> None:
        answer = call("queues")
        assert answer.code == 0
        head, first, second = answer.out.splitlines()
        assert head.split() == ["queue", "key", "namespace", "held", "waiting", "longest", "held"]
        assert first.split()[:5] == ["emails", "default", "1/1", "1", "ada,"]
        assert second.split()[:5] == ["singleton:alone", "k", "default", "1/1", "1"]

    work(tmp_path, look)


def test_f79_it_shows_who_holds_a_queue_and_who_waits_and_since_when(call: Call, tmp_path: Path) -> None:
    def look() -> None:
        answer = call("queues", "emails")
        title, head, first, second = answer.out.splitlines()
        assert title == "emails (default): 1 at once, 100 in 1 min; 1 held, 1 waiting"
        assert head.split() == ["run", "workflow", "step", "state", "priority", "key", "since"]
        assert first.split()[:6] == ["ada", "mail", "0", "held", "3", "ada"]
        assert second.split()[:6] == ["bob", "mail", "0", "waiting", "3", "bob"]
        assert second.endswith("ago")

    work(tmp_path, look)


def test_queue_it_says_the_same_to_programs(call: Call, tmp_path: Path) -> None:
    def look() -> None:
        [queue] = call("queues", "emails", "--json").json["queues"]
        [holder], [waiter] = queue.pop("holders"), queue.pop("waiters")
        assert queue == {
            "name": "emails",
            "key": "",
            "namespace": "default",
            "concurrency": 1,
            "rate": {"count": 100, "seconds": 60.0},
            "order": "fifo",
            "fairness": "key",
            "held": 1,
            "waiting": 1,
            "next_at": None,
        }
        assert (holder["run"], waiter["run"]) == ("ada", "bob")
        assert waiter.keys() == {"run", "workflow", "step", "priority", "key", "since"}
        [single] = call("queues", "singleton:alone", "--json").json["queues"]
        assert [each["step"] for each in (*single["holders"], *single["waiters"])] == [None, None]

    work(tmp_path, look)


def test_queue_a_run_that_waits_in_line_says_so(call: Call, tmp_path: Path) -> None:
    def look() -> None:
        [step_waits] = call("runs", "show", "bob", "--json").json["waits"]
        assert (step_waits["what"], step_waits["name"]) == ("queue", "emails")
        [run_waits] = call("runs", "show", "alone bob", "--json").json["waits"]
        assert (run_waits["what"], run_waits["name"]) == ("queue", "singleton:alone k")
        assert "begins when its turn comes" in call("runs", "show", "alone bob").out

    work(tmp_path, look)


def test_queue_where_there_is_none_it_says_so(call: Call, tmp_path: Path) -> None:
    call("migrate")
    assert "no queue is declared" in call("queues").out
    assert call("queues", "--json").json == {"queues": []}
    assert "there is no queue 'x'" in call("queues", "x").out
    assert call("queues", "").code == 2


def test_queue_a_store_that_is_not_there_is_told(call: Call) -> None:
    assert call("queues").code == 1
