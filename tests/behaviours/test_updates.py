"""QRY-06, QRY-07: updates are checked before they are sent, taken in order, answered once; an unread one is never lost."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import pytest

from perdure import (
    Accepted,
    Context,
    InvalidId,
    InvalidValue,
    NameTaken,
    NotInWorkflow,
    NotRegistered,
    Rejected,
    RunEnded,
    RunNotFound,
    SignalTimeout,
    Status,
    UsageError,
    step,
    workflow,
)
from perdure.model.history import Op
from tests.behaviours.world import Barrier, World, ends, parks


@dataclass
class Decision:
    by: str
    yes: bool = True


@workflow
async def approval(ctx: Context) -> str:
    update = await ctx.wait_for_update("approve", type=Decision)
    update.answer(f"thank you, {update.arg.by}")
    return update.arg.by


@workflow
async def account(ctx: Context, balance: int) -> int:
    """Never ends by itself."""
    while True:
        update = await ctx.wait_for_update("add", type=int)
        if balance + update.arg < 0:
            update.reject(f"only {balance} there")
            continue
        balance += update.arg
        update.answer(balance)
        if balance > 1000:
            return balance


async def asked(run: Any, name: str, arg: Any = None, **options: Any) -> Any:
    return await run.update(name, arg, wait="answered", **options)


async def test_qry_06_what_a_validator_rejects_is_not_sent(world: World) -> None:
    async with world.app(approval) as app:

        @app.update_validator(approval, "approve")
        def checks(decision: Decision) -> str | None:
            return None if decision.yes else f"{decision.by} said no"

        run = await app.start(approval, id="r1")
        await app.settle()
        before = await run.info()
        outcome = await run.update("approve", Decision("ada", yes=False))
        assert outcome == Rejected("ada said no")
        assert not outcome
        assert await run.info() == before
        assert before.status is Status.SUSPENDED


async def test_qry_07_an_update_is_accepted_and_its_argument_arrives(world: World) -> None:
    async with world.app(approval) as app:
        app.update_validator(approval, "approve")(lambda arg: None)
        run = await app.start(approval, id="r1")
        await app.settle()
        outcome = await run.update("approve", Decision("ada"), id="u1")
        assert outcome == Accepted("u1", None)
        assert outcome
        assert await run.result() == "ada"


async def test_qry_07_without_a_validator_it_is_accepted(world: World) -> None:
    async with world.app(approval) as app:
        run = await app.start(approval, id="r1")
        assert await asked(run, "approve", Decision("ada"), type=str) == Accepted(
            (await run.steps())[1].name.removeprefix("update:"), "thank you, ada"
        )
        assert await run.result() == "ada"


async def test_qry_updates_are_answered_in_order_each_to_its_sender(world: World) -> None:
    async with world.app(account) as app:
        run = await app.start(account, 0, id="r1")
        for n in range(1, 20):
            await run.update("add", n, id=f"u{n}")
        answers = await asyncio.gather(*(asked(run, "add", n, id=f"u{n}") for n in range(1, 20)))
        assert [answer.answer for answer in answers] == [n * (n + 1) // 2 for n in range(1, 20)]
        assert await asked(run, "add", -500) == Rejected("only 190 there")


async def test_qry_an_answer_comes_from_another_process(world: World) -> None:
    async with world.app(account) as worker, world.client(account) as client:
        await worker.start(account, 5, id="r1")
        await worker.settle()
        run = client.get_run("r1")
        waiting = [asyncio.ensure_future(asked(run, "add", n)) for n in (1, 2)]
        for _ in range(50):
            await worker.settle()
            await client.settle()
        assert max([(await one).answer for one in waiting]) == 8


async def test_qry_the_same_id_again_asks_once_and_gets_the_same_answer(world: World) -> None:
    async with world.app(account) as app, world.client(account) as client:
        run = await app.start(account, 0, id="r1")
        first, second = await asyncio.gather(asked(run, "add", 7, id="u"), asked(run, "add", 7, id="u"))
        assert first == second == Accepted("u", 7)
        assert await asked(client.get_run("r1"), "add", 7, id="u") == Accepted("u", 7)
        await run.signal("unrelated", id="u2")  # ids of signals are others
        assert await asked(run, "add", 1, id="u2") == Accepted("u2", 8)


async def test_qry_the_answer_is_there_also_after_the_end(world: World) -> None:
    async with world.app(approval) as app:
        run = await app.start(approval, id="r1")
        await run.update("approve", Decision("ada"), id="u")
        await run.result()
        assert await asked(run, "approve", Decision("ada"), id="u") == Accepted("u", "thank you, ada")
        with pytest.raises(RunEnded, match=r"has ended \(completed\)"):
            await run.update("approve", Decision("bob"), id="u2")


async def test_qry_an_update_and_a_signal_of_one_name_are_two_things(world: World) -> None:
    @workflow
    async def both(ctx: Context) -> list[Any]:
        update = await ctx.wait_for_update("go")
        update.answer()
        return [update.arg, await ctx.wait_for_signal("go")]

    async with world.app(both) as app:
        run = await app.start(both)
        await run.signal("go", "signal")
        await app.settle()
        assert await run.status() is Status.SUSPENDED
        assert (await asked(run, "go", "update")).answer is None
        assert await run.result() == ["update", "signal"]


# ---------------------------------------------------------------- the end of the run


async def test_qry_an_update_meets_the_last_turn_and_is_taken(world: World) -> None:
    """It was accepted, so the run may not end over it: the body gets it first."""

    @workflow
    async def lazy(ctx: Context) -> str:
        await ctx.wait_for_signal("end")
        try:
            update = await ctx.wait_for_update("last", timeout=0)
        except SignalTimeout:
            return "nobody"
        update.answer("in time")
        return str(update.arg)

    gate = world.gate()
    async with world.app(lazy, store=gate) as app, world.client(lazy) as client:
        run = await app.start(lazy, id="r1")
        await app.settle()
        stop = gate.stop("before", "write", ends)
        await run.signal("end")
        await stop.reached.wait()
        assert await client.get_run("r1").update("last", "me", id="u") == Accepted("u", None)
        stop.release()
        assert await run.result() == "me"
        assert await asked(run, "last", "me", id="u") == Accepted("u", "in time")


@pytest.mark.parametrize("how", ["ends", "fails", "cancelled"])
async def test_qry_who_waits_for_a_run_that_ends_without_an_answer_is_told(world: World, how: str) -> None:
    @workflow
    async def deaf(ctx: Context) -> None:
        await ctx.wait_for_signal("end")
        if how == "fails":
            raise ValueError("oh")

    async with world.app(deaf) as app, world.client(deaf) as client:
        run = await app.start(deaf, id="r1")
        await app.settle()
        waiting = [asyncio.ensure_future(asked(one.get_run("r1"), "never")) for one in (app, client)]
        for process in (app, client, app):
            await process.settle()
        await (run.cancel() if how == "cancelled" else run.signal("end"))
        for _ in range(20):
            await app.settle()
            await client.settle()
        for one in waiting:
            with pytest.raises(RunEnded, match=r"has ended .* and never answered update 'never' to run 'r1'"):
                await one


async def test_qry_an_update_that_was_taken_and_not_answered(world: World) -> None:
    @workflow
    async def forgetful(ctx: Context) -> str:
        return str((await ctx.wait_for_update("u")).arg)

    async with world.app(forgetful) as app:
        run = await app.start(forgetful, id="r1")
        with pytest.raises(RunEnded, match="never answered"):
            await asked(run, "u", "x")
        assert await run.result() == "x"


async def test_qry_a_deleted_run_answers_nobody(world: World) -> None:
    async with world.app(approval) as app:
        run = await app.start(approval, id="r1", delay=60)
        waiting = asyncio.ensure_future(asked(run, "approve", Decision("ada")))
        await app.settle()
        await run.delete()
        with pytest.raises(RunNotFound):
            await waiting


# ---------------------------------------------------------------- chains


@workflow
async def chain(ctx: Context, link: int) -> str:
    first = await ctx.wait_for_update("a", type=int)
    if first.arg == 0:
        first.answer("the end")
        return "done"
    if first.arg > 1:
        first.answer(f"link {link}")
    return ctx.continue_as_new(link + 1)


async def test_qry_unread_updates_go_over_to_the_next_link_and_are_answered_there(world: World) -> None:
    async with world.client(chain) as client:
        run = await client.start(chain, 0, id="r1")
        for n in range(5):
            await run.update("a", n + 2, id=f"u{n}")
        async with world.app(chain) as app:
            held = app.get_run("r1")
            answers = await asyncio.gather(*(asked(held, "a", n + 2, id=f"u{n}") for n in range(5)))
            assert [answer.answer for answer in answers] == [f"link {n}" for n in range(5)]
            assert (await held.latest()).id == "r1~5"
            assert (await asked(held, "a", 0)).answer == "the end"


async def test_qry_what_was_taken_along_is_rejected(world: World) -> None:
    async with world.app(chain) as app:
        run = await app.start(chain, 0, id="r1")
        assert await asked(run, "a", 1) == Rejected("the workflow went on without answering")
        assert (await run.latest()).id == "r1~1"


async def test_qry_a_run_may_continue_over_an_unread_update(world: World) -> None:
    """Under load there always is one: it goes over, and the turn is not thrown away for it."""
    gate = world.gate()
    async with world.app(chain, store=gate) as app, world.client(chain) as client:
        run = await app.start(chain, 0, id="r1")
        await app.settle()
        stop = gate.stop("before", "write", ends)
        await run.update("a", 2, id="u0")
        await stop.reached.wait()
        await client.get_run("r1").update("a", 3, id="u1")
        stop.release()
        assert (await asked(run, "a", 3, id="u1")).answer == "link 1"
        taken = [s for s in await run.steps() if s.op is Op.UPDATE]
        assert len(taken) == 1


# ---------------------------------------------------------------- waiting for updates


async def test_qry_a_bounded_wait_runs_out(world: World) -> None:
    @workflow
    async def bounded(ctx: Context) -> str:
        try:
            await ctx.wait_for_update("u", timeout=timedelta(seconds=5))
        except SignalTimeout as error:
            return f"{error.signal} {error.timeout:g}: {error}"
        return "came"

    async with world.app(bounded) as app:
        run = await app.start(bounded, id="r1")
        await app.tick(4)
        assert await run.status() is Status.SUSPENDED
        await app.tick(1)
        assert await run.result() == ("u 5: run 'r1' (bounded@1) waited 5 seconds for update 'u', and none came")


async def test_qry_an_argument_that_does_not_fit_is_rejected_and_the_wait_goes_on(world: World) -> None:
    async with world.app(account) as app:
        run = await app.start(account, 0, id="r1")
        outcome = await asked(run, "add", "much")
        assert isinstance(outcome, Rejected)
        assert "the argument of update 'add' of run 'r1'" in outcome.reason
        assert (await asked(run, "add", 1)).answer == 1


async def test_qry_a_wait_whose_task_was_cancelled_takes_nothing(world: World) -> None:
    @workflow
    async def picky(ctx: Context) -> list[Any]:
        never = asyncio.ensure_future(ctx.wait_for_update("u"))
        never.cancel()  # before it began
        begun = asyncio.ensure_future(ctx.wait_for_update("u"))
        await ctx.wait_for_signal("go")
        begun.cancel()
        update = await ctx.wait_for_update("u")
        update.answer("mine")
        return [never.cancelled(), update.arg]

    async with world.app(picky) as app:
        run = await app.start(picky, id="r1")
        await app.settle()
        await run.signal("go")
        assert (await asked(run, "u", 1)).answer == "mine"
        assert await run.result() == [True, 1]


async def test_qry_an_answer_after_a_step_is_told_when_it_is_durable(world: World) -> None:
    barrier = Barrier()

    @step
    async def work(n: int) -> int:
        await barrier.wait()
        return n * 2

    @workflow
    async def worker(ctx: Context) -> None:
        update = await ctx.wait_for_update("double", type=int)
        update.answer(await work(update.arg))
        await ctx.wait_for_signal("end")

    gate = world.gate()
    async with world.app(worker, store=gate) as app:
        run = await app.start(worker, id="r1")
        waiting = asyncio.ensure_future(asked(run, "double", 4))
        await barrier.reached.wait()
        stop = gate.stop("before", "write", parks)
        barrier.open()
        await stop.reached.wait()
        assert not waiting.done()
        stop.release()
        assert (await waiting).answer == 8


async def test_qry_a_crash_between_taking_and_answering_answers_once(world: World) -> None:
    barrier, calls = Barrier(), list[str]()

    @step
    async def work(n: int) -> int:
        calls.append("work")
        await barrier.wait()
        return n

    @workflow
    async def worker(ctx: Context) -> int:
        update = await ctx.wait_for_update("u", type=int)
        update.answer(await work(update.arg))
        return update.arg

    async with world.doomed(worker) as lost:
        run = await lost.start(worker, id="r1")
        await run.update("u", 3, id="u")
        await barrier.reached.wait()
    barrier.open()
    async with world.app(worker) as app:
        await app.tick(31)
        again = app.get_run("r1")
        assert await asked(again, "u", 3, id="u") == Accepted("u", 3)
        assert await again.result() == 3
        assert len([s for s in await again.steps() if s.op is Op.VALUE]) == 1


async def test_qry_giving_up_the_wait_does_not_take_the_update_back(world: World) -> None:
    async with world.app(account) as app:
        run = await app.start(account, 0, id="r1", delay=60)
        with pytest.raises(TimeoutError, match="ask again with id='u' to wait on"):
            await asked(run, "add", 5, id="u", timeout=0.01)
        await app.tick(60)
        assert await asked(run, "add", 5, id="u") == Accepted("u", 5)


# ---------------------------------------------------------------- bad input


async def test_qry_without_the_code_it_is_only_sent_if_told_to(world: World) -> None:
    async with world.app(approval) as app, world.client() as stranger:
        run = await app.start(approval, id="r1")
        await app.settle()
        with pytest.raises(NotRegistered, match=r"cannot be validated here, so it was not sent: .*unvalidated=True"):
            await stranger.get_run("r1").update("approve", Decision("ada"))
        assert (await run.info()).inbox == 0
        outcome = await stranger.get_run("r1").update("approve", {"by": "ada"}, id="u", unvalidated=True)
        assert outcome == Accepted("u", None)
        await app.settle()
        assert await run.result() == "ada"


async def test_qry_bad_updates_write_nothing(world: World) -> None:
    async with world.app(approval) as app:
        run = await app.start(approval, id="r1")
        await app.settle()
        before = await run.info()
        bad: Any
        for name, bad in (("", {}), ("a\n", {}), ("u", {"id": " "}), ("u", {"id": "x" * 256})):
            with pytest.raises(InvalidId):
                await run.update(name, 1, **bad)
        for bad in ({"wait": "sent"}, {"timeout": -1, "wait": 3}, {"timeout": "soon"}):
            with pytest.raises(UsageError):
                await run.update("u", 1, **bad)
        with pytest.raises(InvalidValue, match="the argument of update 'u' to run 'r1'"):
            await run.update("u", object())
        with pytest.raises(InvalidValue):
            await run.update("u", 1, type=5)
        with pytest.raises(RunNotFound):
            await app.get_run("nobody").update("u")
        assert await run.info() == before
        assert await run.history() == await run.history()


async def test_qry_bad_answers_are_told_in_the_body(world: World) -> None:
    outside: list[Any] = []

    @workflow
    async def wrong(ctx: Context) -> list[str]:
        update = await ctx.wait_for_update("u")
        told: list[str] = []
        reason: Any = 5
        calls: list[Callable[[], None]] = [lambda: update.answer(object()), lambda: update.reject(reason)]
        for call in calls:
            try:
                call()
            except UsageError as error:
                told.append(str(error))
        try:
            await ctx.local_step("inside", update.answer)
        except NotInWorkflow as error:
            told.append(str(error))
        outside.append(update)
        update.answer(1)
        try:
            update.answer(2)
        except UsageError as error:
            told.append(str(error))
        return told

    async with world.app(wrong) as app:
        run = await app.start(wrong, id="r1")
        assert (await asked(run, "u")).answer == 1
        texts = await run.result()
        assert [
            part in text
            for part, text in zip(
                ("the answer to update 'u'", "must be a text", "outside its workflow", "was answered before"),
                texts,
                strict=True,
            )
        ] == [True] * 4
        with pytest.raises(NotInWorkflow):
            outside[-1].answer(3)


async def test_qry_bad_validators(world: World) -> None:
    async with world.app(approval) as app:

        async def waits(arg: Any) -> None: ...

        bad: Any
        for bad in (waits, 5, lambda: None, pow):
            with pytest.raises(UsageError, match="the validator of update 'approve' of workflow 'approval'"):
                app.update_validator(approval, "approve")(bad)
        with pytest.raises(UsageError):
            app.update_validator(5, "approve")  # type: ignore[arg-type]
        with pytest.raises(InvalidId):
            app.update_validator(approval, "")

        @app.update_validator("approval", "odd")
        def odd(arg: int) -> Any:
            if arg == 0:
                raise ValueError("zero")
            return True

        with pytest.raises(NameTaken):
            app.update_validator(approval, "odd")(lambda arg: None)
        app.update_validator(approval, "odd")(odd)
        run = await app.start(approval, id="r1")
        assert await run.update("odd", 0) == Rejected("zero")
        assert "does not fit its type int" in str(await run.update("odd", "x"))
        with pytest.raises(UsageError, match="must return a reason or None, not True"):
            await run.update("odd", 1)
        assert (await run.info()).inbox == 0


async def test_qry_many_waiters_in_another_process_are_one_reader(world: World) -> None:
    gate = world.gate()
    async with world.app(account) as worker, world.client(account, store=gate) as client:
        await worker.start(account, 0, id="r1", delay=60)
        run = client.get_run("r1")
        waiting = [asyncio.ensure_future(asked(run, "add", 1, id=f"u{n}")) for n in range(100)]
        while (await run.info()).inbox < 100:
            await client.settle()
        gate.calls.clear()
        await worker.tick(60)
        for _ in range(20):
            await worker.settle()
            await client.settle()
        assert sorted([(await one).answer for one in waiting]) == list(range(1, 101))
        assert gate.calls.get("values", 0) + gate.calls.get("get", 0) + gate.calls.get("standing", 0) < 60


async def test_f16_an_answer_asked_for_while_others_are_read_is_looked_for_too(world: World) -> None:
    """The run has ended: what is not looked for now must not count as never given."""

    @workflow
    async def answers(ctx: Context) -> None:
        ctx.set_value("a", 1)
        ctx.set_value("b", 2)

    gate = world.gate()
    async with world.app(answers) as app, world.client(store=gate) as client:
        run = await app.start(answers, id="r1")
        await run.result()
        key = (await run.info()).key
        reading = gate.stop("before", "values")
        first = asyncio.create_task(client.engine.answers.wait(key, "a"))
        await reading.reached.wait()
        second = asyncio.create_task(client.engine.answers.wait(key, "b"))
        await asyncio.sleep(0)
        reading.release()
        assert [await first, await second] == [b"1", b"2"]
