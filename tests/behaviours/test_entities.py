"""ENT: objects that live for ever, each in a run of its own, one operation at a time."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import pytest

from perdure import (
    Context,
    InvalidArguments,
    InvalidId,
    InvalidValue,
    NotInWorkflow,
    RunEnded,
    RunFailed,
    RunNotFound,
    Status,
    UsageError,
    step,
    workflow,
)
from perdure.model.history import Op
from perdure.patterns.entity import call_entity, context, entity, signal_entity
from tests.behaviours.world import Barrier, World


class TooPoor(Exception):
    """More was asked for than there is."""


@entity(name="counter")
class Counter:
    count: int = 0

    async def add(self, n: int = 1) -> int:
        self.count += n
        return self.count

    async def spoil(self, how: str) -> int:
        self.count += 1000
        if how == "raises":
            raise TooPoor("no")
        if how == "answers badly":
            return "x"  # type: ignore[return-value]
        self.count = object()  # type: ignore[assignment]
        return 1


@entity(link=3)
class Short:
    items: list[str] = field(default_factory=list)

    async def put(self, item: str) -> int:
        self.items.append(item)
        return len(self.items)


@dataclass
class Move:
    to: str
    amount: int


async def settle(world: World, *apps: Any) -> None:
    for _ in range(20):
        for app in apps:
            await app.settle()


async def test_ent_01_operations_come_one_at_a_time_in_order(world: World) -> None:
    async with world.app() as app:
        counter = app.entity(Counter, "u1")
        assert [await counter.add(), await counter.add(n=1), await counter.add(1)] == [1, 2, 3]
        assert await app.entity_state(Counter, "u1") == Counter(3)


async def test_ent_01_many_callers_share_turns(world: World) -> None:
    async with world.app() as app, world.client() as client:
        await app.entity(Counter, "u1").add(0)
        callers = [(app, client)[n % 2].entity(Counter, "u1").add(1) for n in range(60)]
        waiting = asyncio.gather(*callers)
        while not waiting.done():
            await settle(world, app, client)
        assert sorted(waiting.result()) == list(range(1, 61))


async def test_ent_01_an_operation_that_waits_holds_up_the_next(world: World) -> None:
    barrier, order = Barrier(), list[str]()

    @step
    async def slow(name: str) -> None:
        order.append(f"{name} begins")
        await barrier.wait()
        order.append(f"{name} ends")

    @entity
    class Busy:
        last: str = ""

        async def work(self, name: str) -> str:
            before, self.last = self.last, name
            await slow(name)
            return before

    async with world.app() as app:
        busy = app.entity(Busy, "b")
        first = asyncio.ensure_future(busy.work("a"))
        await barrier.reached.wait()
        second = asyncio.ensure_future(busy.work("b"))
        await app.settle(steps=False)
        assert order == ["a begins"]
        barrier.open()
        assert [await first, await second] == ["", "a"]
        assert order == ["a begins", "a ends", "b begins", "b ends"]


async def test_ent_02_another_key_is_another_state(world: World) -> None:
    async with world.app() as app:
        assert await app.entity(Counter, "u1").add(5) == 5
        assert await app.entity(Counter, "u2").add(1) == 1
        assert await app.entity_state(Counter, "u1") == Counter(5)


async def test_ent_03_a_workflow_calls_and_sleeps_until_it_is_answered(world: World) -> None:
    barrier = Barrier()

    @step
    async def slow() -> None:
        await barrier.wait()

    @entity(name="vault")
    class Vault:
        gold: int = 0

        async def put(self, n: int) -> Move:
            await slow()
            self.gold += n
            return Move("vault", self.gold)

    @workflow
    async def miner(ctx: Context, n: int) -> Move:
        return await call_entity(ctx, Vault, "v").put(n)

    async with world.app(miner) as app:
        run = await app.start(miner, 7, id="m")
        await barrier.reached.wait()
        await app.settle(steps=False)
        assert await run.status() is Status.SUSPENDED
        barrier.open()
        assert await run.result() == Move("vault", 7)
        assert await app.entity_state(Vault, "v") == Vault(7)
        assert [s.name for s in await run.steps()] == ["reply", "call operation 'put' of entity vault:v"]
        assert (await run.steps())[0].input == b"reply:m:0"


async def test_ent_03_what_the_operation_raised_is_raised_in_the_workflow(world: World) -> None:
    @workflow
    async def spender(ctx: Context) -> list[str]:
        told: list[str] = []
        for how in ("raises", "answers badly", "breaks"):
            try:
                await call_entity(ctx, Counter, "u1").spoil(how)
            except (TooPoor, InvalidValue) as error:
                told.append(type(error).__name__)
        return told

    async with world.app(spender) as app:
        assert await (await app.start(spender)).result() == ["TooPoor", "InvalidValue", "InvalidValue"]
        assert await app.entity_state(Counter, "u1") == Counter(0)


async def test_ent_03_a_crash_while_calling_calls_once(world: World) -> None:
    barrier = Barrier()

    @step
    async def slow() -> None:
        await barrier.wait()

    @workflow
    async def caller(ctx: Context) -> list[int]:
        first = await call_entity(ctx, Counter, "u1").add(1)
        await slow()
        return [first, await call_entity(ctx, Counter, "u1").add(1)]

    gate = world.gate()
    async with world.app(caller, store=gate, drain=0.001) as lost:
        gate.mute("release")
        gate.mute("depart")
        await lost.start(caller, id="c")
        await barrier.reached.wait()
    barrier.open()
    async with world.app(caller, Counter.__dict__["__perdure_workflow__"]) as app:
        await app.tick(31)
        assert await app.get_run("c").result() == [1, 2]
        assert await app.entity_state(Counter, "u1") == Counter(2)


async def test_ent_03_a_delivery_whose_answer_was_lost_is_made_once(world: World) -> None:
    """The step that delivers runs at least once: its process dies after the message is durable, before that is known."""

    @workflow
    async def caller(ctx: Context) -> int:
        return await call_entity(ctx, Counter, "u1").add(1)

    gate = world.gate()
    async with world.app(caller, store=gate, drain=0.001) as lost:
        stop = gate.stop("after", "write", lambda batch: any(_starts_entity(write) for write in batch))
        await lost.start(caller, id="c")
        await stop.reached.wait()
        gate.mute("write")
        gate.mute("release")
        gate.mute("depart")
        stop.release()
        await lost.engine.executor.committer.give_up()
    async with world.app(caller, Counter.__dict__["__perdure_workflow__"]) as app:
        await app.tick(31)
        assert await app.get_run("c").result() == 1
        assert await app.entity_state(Counter, "u1") == Counter(1)


def _starts_entity(write: Any) -> bool:
    return getattr(getattr(write, "run", None), "id", "").startswith("entity:")


async def test_ent_04_its_run_has_its_name_and_key_as_id(world: World) -> None:
    async with world.app() as app:
        await app.entity(Counter, "u1").add()
        run = await app.get_run("entity:counter:u1").info()
        assert (run.workflow, run.status) == ("entity:counter", Status.SUSPENDED)


async def test_ent_05_errors_are_told_and_leave_the_state_and_the_entity_as_they_were(world: World) -> None:
    async with world.app() as app:
        counter = app.entity(Counter, "u1")
        await counter.add(2)
        with pytest.raises(TooPoor, match="no"):
            await counter.spoil("raises")
        with pytest.raises(InvalidValue, match="says it returns int"):
            await counter.spoil("answers badly")
        with pytest.raises(InvalidValue, match="the state of entity 'counter'"):
            await counter.spoil("breaks")
        assert await counter.add(1) == 3


async def test_ent_06_a_long_life_is_many_short_links_and_nothing_is_lost(world: World) -> None:
    async with world.app() as app, world.client() as client:
        short = app.entity(Short, "s")
        assert [await short.put(str(n)) for n in range(10)] == list(range(1, 11))
        waiting = asyncio.gather(*((app, client)[n % 2].entity(Short, "s").put(f"more {n}") for n in range(20)))
        while not waiting.done():
            await settle(world, app, client)
        assert sorted(waiting.result()) == list(range(11, 31))
        state = await client.entity_state(Short, "s")
        assert state.items[:10] == [str(n) for n in range(10)]
        assert len(state.items) == 30
        last = await app.get_run("entity:Short:s").latest()
        assert last.id == "entity:Short:s~10"
        assert len([s for s in await app.get_run("entity:Short:s~4").steps() if s.op is Op.UPDATE]) == 3


async def test_ent_06_a_fresh_process_finds_the_newest_link(world: World) -> None:
    async with world.app() as app:
        for n in range(7):
            await app.entity(Short, "s").put(str(n))
    async with world.app() as other:
        assert await other.entity(Short, "s").put("x") == 8
        assert (await other.entity_state(Short, "s")).items[-1] == "x"


async def test_ent_07_a_signal_from_a_workflow_is_sent_once(world: World) -> None:
    @workflow
    async def pings(ctx: Context) -> None:
        assert await signal_entity(ctx, Counter, "u1").add(1) is None
        await ctx.wait_for_signal("go")
        await signal_entity(ctx, Counter, "u1").add(1)

    async with world.app(pings) as app:
        await app.start(pings, id="p")
        await app.settle()
        assert await app.entity_state(Counter, "u1") == Counter(1)
    async with world.app(pings) as app:  # replayed
        await app.get_run("p").signal("go")
        await run_to_end(app, "p")
        assert await app.entity_state(Counter, "u1") == Counter(2)


async def run_to_end(app: Any, run_id: str) -> None:
    await app.get_run(run_id).result()
    await app.settle()


async def test_ent_an_operation_may_use_the_context_and_other_entities(world: World) -> None:
    @entity(name="account")
    class Account:
        balance: int = 0

        async def deposit(self, amount: int) -> int:
            if self.balance + amount < 0:
                raise TooPoor(f"only {self.balance}")
            self.balance += amount
            return self.balance

        async def move(self, to: str, amount: int) -> int:
            await self.deposit(-amount)
            await call_entity(context(), Account, to).deposit(amount)
            return self.balance

    async with world.app() as app:
        ada, bob = app.entity(Account, "ada"), app.entity(Account, "bob")
        await ada.deposit(10)
        assert await ada.move("bob", 4) == 6
        assert await bob.deposit(0) == 4
        with pytest.raises(TooPoor, match="only 6"):
            await ada.move("bob", 7)
        assert (await app.entity_state(Account, "ada")).balance == 6


async def test_ent_who_gives_up_does_not_take_the_call_back(world: World) -> None:
    async with world.client() as client:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.2):
                await client.entity(Counter, "u1").add(1)
        async with world.app() as app:
            assert await app.entity(Counter, "u1").add(1) == 2


async def test_ent_one_that_was_ended_or_deleted(world: World) -> None:
    async with world.app() as app:
        counter = app.entity(Counter, "u1")
        await counter.add(1)
        await app.get_run("entity:counter:u1").cancel()
        with pytest.raises(RunEnded):
            await counter.add(1)
        await app.get_run("entity:counter:u1").delete()
        assert await counter.add(1) == 1


async def test_ent_bad_calls_write_nothing(world: World) -> None:
    async with world.app() as app:
        counter: Any = app.entity(Counter, "u1")
        for args in (("x",), (1, 2)):
            with pytest.raises(InvalidArguments, match=r"entity 'counter'\.add"):
                await counter.add(*args)
        with pytest.raises(InvalidValue):
            await counter.add(object())
        with pytest.raises(UsageError, match="no operation 'addd'; its async methods are add, spoil"):
            counter.addd(1)
        with pytest.raises(UsageError, match="no operation 'count'"):
            _ = counter.count
        with pytest.raises(AttributeError):
            _ = counter._private
        assert repr(counter) == "<entity counter:u1>"
        bad: Any
        for bad in ("", "a\nb", 5, "k" * 300):
            with pytest.raises(InvalidId):
                app.entity(Counter, bad)
        for bad in (int, 5, Move):
            with pytest.raises(UsageError, match="is no entity"):
                app.entity(bad, "k")
        with pytest.raises(RunNotFound):
            await app.entity_state(Counter, "u1")
        with pytest.raises(NotInWorkflow):
            context()
        with pytest.raises(NotInWorkflow):
            await call_entity(_Elsewhere(), Counter, "u1").add(1)  # type: ignore[arg-type]
        assert await app.runs() == []

    @workflow
    async def inside(ctx: Context) -> None:
        async def misuse() -> None:
            await call_entity(ctx, Counter, "u1").add(1)

        await ctx.local_step("misuse", misuse)

    async with world.app(inside) as app:
        run = await app.start(inside)
        with pytest.raises(RunFailed, match="outside its workflow function"):
            await run.result()


class _Elsewhere:
    run_id = "r"


def test_ent_classes_that_cannot_be_entities() -> None:
    bad: Any

    class Idle:
        n: int = 0

    class Needy:
        n: int

        async def op(self) -> None: ...

    for bad, options, text in (
        (5, {}, "needs a class"),
        (Idle, {}, "has no operation"),
        (Needy, {}, "field 'n' of entity 'Needy' needs a default"),
        (Counter, {"name": "a:b"}, "may have no colon"),
        (Counter, {"name": ""}, "an entity's name is empty"),
        (Counter, {"link": 0}, "link must be"),
    ):
        with pytest.raises(UsageError, match=text):
            entity(**options)(bad)


async def test_ent_timers_and_signals_work_inside(world: World) -> None:
    @entity
    class Sleeper:
        woken: int = 0

        async def nap(self, seconds: float) -> int:
            await asyncio.sleep(seconds)
            self.woken += 1
            return self.woken

    async with world.app() as app:
        sleeper = app.entity(Sleeper, "s")
        assert await sleeper.nap(0) == 1
        waiting = [asyncio.ensure_future(sleeper.nap(10)) for _ in range(2)]
        while (await app.get_run("entity:Sleeper:s").info()).inbox < 3:
            await app.settle()
        await app.tick(timedelta(seconds=19))
        assert [one.done() for one in waiting] == [True, False]
        await app.tick(1)
        assert [await one for one in waiting] == [2, 3]
