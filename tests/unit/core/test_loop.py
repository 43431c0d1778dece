"""The loop: ordinary asyncio where it is pure, a clear word where it would reach out, and an end where it never would."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextvars
import gc
import signal as signals
import socket
import sys
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from perdure.core.ambient import current
from perdure.core.instance import Instance
from perdure.core.loop import TURN_HANDLES, WorkflowLoop, new_loop
from perdure.model.errors import DeadlockError, ForbiddenInWorkflow
from tests.unit.core.driving import SECOND, START, Driven, Main, step

# ---------------------------------------------------------------- what is forbidden


async def nothing() -> None: ...


def loop() -> asyncio.AbstractEventLoop:
    return asyncio.get_running_loop()


FORBIDDEN: dict[str, Callable[[], Any]] = {
    "run_in_executor": lambda: loop().run_in_executor(None, print),
    "to_thread": lambda: asyncio.to_thread(print),
    "create_connection": lambda: loop().create_connection(asyncio.Protocol, "localhost", 1),
    "open_connection": lambda: asyncio.open_connection("localhost", 1),
    "start_server": lambda: asyncio.start_server(lambda r, w: None, "localhost", 0),
    "create_server": lambda: loop().create_server(asyncio.Protocol, "localhost", 0),
    "create_datagram_endpoint": lambda: loop().create_datagram_endpoint(asyncio.DatagramProtocol),
    "getaddrinfo": lambda: loop().getaddrinfo("localhost", 1),
    "sock_recv": lambda: loop().sock_recv(socket.socket.__new__(socket.socket), 1),
    "subprocess": lambda: asyncio.create_subprocess_exec("true"),
    "shell": lambda: asyncio.create_subprocess_shell("true"),
    "call_soon_threadsafe": lambda: loop().call_soon_threadsafe(print),
    "add_signal_handler": lambda: loop().add_signal_handler(signals.SIGTERM, print),
    "add_reader": lambda: loop().add_reader(0, print),
    "connect_read_pipe": lambda: loop().connect_read_pipe(asyncio.Protocol, sys.stdin),
    "run_forever": lambda: loop().run_forever(),
    "run_until_complete": lambda: loop().run_until_complete(asyncio.Future()),
    "stop": lambda: loop().stop(),
    "set_debug": lambda: loop().set_debug(True),
    "set_task_factory": lambda: loop().set_task_factory(None),
    "set_exception_handler": lambda: loop().set_exception_handler(None),
    "shutdown_asyncgens": lambda: loop().shutdown_asyncgens(),
}


@pytest.mark.parametrize("call", FORBIDDEN.values(), ids=FORBIDDEN.keys())
def test_whatever_reaches_out_says_put_it_in_a_step(call: Callable[[], Any]) -> None:
    async def body(run: Instance) -> None:
        result = call()
        if result is not None:
            await result

    error = Driven(body).error()
    assert isinstance(error, ForbiddenInWorkflow)
    assert "cannot be used in a workflow body" in str(error)
    assert "Put it in a step" in str(error)


def test_every_method_of_asyncios_loop_is_either_ours_or_forbidden() -> None:
    ours = {*vars(WorkflowLoop)}
    theirs = {name for name, member in vars(asyncio.AbstractEventLoop).items() if callable(member)}
    assert theirs - ours <= {"__class__", "__doc__", "__init__", "__new__", "__subclasshook__"}


def test_a_user_may_catch_what_is_forbidden() -> None:
    async def body(run: Instance) -> str:
        try:
            await asyncio.to_thread(print)
        except ForbiddenInWorkflow as error:
            return error.code
        return "allowed"

    assert Driven(body).output() == "forbidden_in_workflow"


def test_a_future_of_another_loop_fails_with_a_word_on_what_to_do() -> None:
    other = asyncio.new_event_loop()
    try:
        foreign: asyncio.Future[int] = other.create_future()

        async def body(run: Instance) -> None:
            await foreign

        error = Driven(body).error()
    finally:
        other.close()
    assert isinstance(error, RuntimeError)
    assert "attached to a different loop" in str(error)
    assert any("put it in a step" in note for note in error.__notes__)


def test_a_concurrent_future_cannot_resolve_a_body() -> None:
    outside: concurrent.futures.Future[int] = concurrent.futures.Future()

    async def body(run: Instance) -> None:
        await asyncio.wrap_future(outside)

    assert isinstance(Driven(body).fault(), DeadlockError)


def test_another_loop_cannot_be_run_inside_a_body() -> None:
    async def body(run: Instance) -> str:
        work = nothing()
        try:
            asyncio.run(work)
        except RuntimeError as error:
            work.close()
            return str(error)
        return "it ran"

    assert "cannot be called from a running event loop" in Driven(body).output()


# ---------------------------------------------------------------- what never ends


@pytest.mark.parametrize("handles", [100, None])
def test_a_spin_blocks_the_run(handles: int | None) -> None:
    async def body(run: Instance) -> None:
        while True:  # noqa: ASYNC110
            await asyncio.sleep(0)

    driven = Driven(body, handles=handles)
    assert isinstance(driven.fault(), DeadlockError)
    assert "run 'run1' (test@1)" in str(driven.fault())
    assert "sleep(0)" in str(driven.fault())


def test_a_spin_in_a_background_task_blocks_the_run() -> None:
    async def spin() -> None:
        while True:  # noqa: ASYNC110
            await asyncio.sleep(0)

    async def body(run: Instance) -> None:
        await step(run, "a")
        task = asyncio.create_task(spin())
        await step(run, "b")
        task.cancel()

    driven = Driven(body, handles=100)
    driven.result(0)
    assert isinstance(driven.fault(), DeadlockError)


def test_many_handles_in_one_turn_are_fine() -> None:
    assert TURN_HANDLES >= 1_000_000

    async def work(run: Instance) -> None:
        for _ in range(20):
            await asyncio.sleep(0)

    async def body(run: Instance) -> int:
        await asyncio.gather(*(work(run) for _ in range(1000)))
        return 1

    assert Driven(body).output() == 1


async def waits_for_itself(run: Instance) -> None:
    await asyncio.Event().wait()


async def locks_itself_out(run: Instance) -> None:
    lock = asyncio.Lock()
    async with lock, lock:
        pass


async def waits_for_an_empty_queue(run: Instance) -> None:
    await step(run, "a")
    await asyncio.Queue[int]().get()


async def waits_for_each_other(run: Instance) -> None:
    tasks: list[asyncio.Task[None]] = []

    async def waits(other: int) -> None:
        await tasks[other]

    tasks += [asyncio.create_task(waits(1)), asyncio.create_task(waits(0))]
    await asyncio.wait(tasks)


@pytest.mark.parametrize("main", [waits_for_itself, locks_itself_out, waits_for_an_empty_queue, waits_for_each_other])
def test_a_deadlock_blocks_the_run(main: Main) -> None:
    driven = Driven(main)
    if driven.turn.outcome is None:
        driven.result(0)
    assert isinstance(driven.fault(), DeadlockError)
    assert "can never happen" in str(driven.fault())


def test_what_waits_for_an_operation_somewhere_is_no_deadlock() -> None:
    async def body(run: Instance) -> Any:
        event = asyncio.Event()

        async def sets() -> None:
            await step(run, "a")
            event.set()

        task = asyncio.create_task(sets())
        await event.wait()
        return task.done()

    driven = Driven(body)
    assert driven.turn.outcome is None
    driven.result(0)
    assert driven.output() is True


def test_a_blocked_instance_stays_blocked_and_only_counts_its_messages() -> None:
    async def body(run: Instance) -> None:
        await step(run, "a")
        await waits_for_itself(run)

    driven = Driven(body)
    driven.result(0)
    fault = driven.fault()
    driven.signal("go")
    driven.cancel()
    assert driven.fault() is fault
    assert driven.instance.inbox.seen == 2


# ---------------------------------------------------------------- F47


async def pieces(run: Instance, name: str) -> str:
    return str(await step(run, name))


def test_f47_as_completed_over_coroutines_is_refused() -> None:
    """Its order would be that of a set of coroutines: by address."""

    async def body(run: Instance) -> str:
        work = [pieces(run, "a"), pieces(run, "b"), pieces(run, "c")]
        try:
            for following in asyncio.as_completed(work):
                await following
        except ForbiddenInWorkflow as error:
            return str(error)
        finally:
            for one in work:
                one.close()
        return "accepted"

    message = Driven(body).output()
    assert "as_completed over coroutines" in message
    assert "perdure.as_completed" in message


def test_f47_as_completed_over_tasks_and_operations_works() -> None:
    async def body(run: Instance) -> list[str]:
        work: list[asyncio.Future[Any]] = [asyncio.create_task(pieces(run, name)) for name in "abc"]
        work.append(step(run, "d"))
        return [await following for following in asyncio.as_completed(work)]

    driven = Driven(body)
    order = {operation.name: seq for seq, operation in driven.instance.pending.items()}
    for name in "cdab":
        driven.result(order[name], name)
    assert driven.output() == ["c", "d", "a", "b"]


def test_f47_the_order_of_a_set_of_tasks_is_that_of_every_replay() -> None:
    async def body(run: Instance) -> None:
        done, _ = await asyncio.wait([asyncio.create_task(pieces(run, f"{number}")) for number in range(20)])
        for task in done:
            run.set_value(await task, b"1")

    driven = Driven(body)
    for seq in range(20):
        driven.result(seq, f"{seq}")  # the driver replays the history each time
    order = [entry.name for entry in driven.history if entry.op == "value"]
    assert sorted(order, key=int) == [f"{number}" for number in range(20)]
    assert order != sorted(order, key=int)  # a set's own order: else this proves nothing


def by_gather(run: Instance) -> list[asyncio.Future[Any]]:
    return [asyncio.gather(step(run, "a")), asyncio.gather(step(run, "b"))]


def by_hand(run: Instance) -> list[asyncio.Future[Any]]:
    return [asyncio.Future(), asyncio.Future()]


@pytest.mark.parametrize("make", [by_gather, by_hand])
def test_f47_a_set_of_futures_that_the_loop_did_not_make_is_refused(
    make: Callable[[Instance], list[asyncio.Future[Any]]],
) -> None:
    async def body(run: Instance) -> None:
        await asyncio.wait(make(run))

    error = Driven(body).error()
    assert isinstance(error, ForbiddenInWorkflow)
    assert "whose order changes from process to process" in str(error)


def test_f47_one_future_has_no_order() -> None:
    async def body(run: Instance) -> list[Any]:
        done, _ = await asyncio.wait([asyncio.gather(step(run, "a"), step(run, "b"))])
        return [future.result() for future in done]

    driven = Driven(body)
    driven.result(0, 1)
    driven.result(1, 2)
    assert driven.output() == [[1, 2]]


def test_hashes_of_runs_do_not_meet_in_asyncios_own_sets() -> None:
    hashes: set[int] = set()
    for seed in range(100):
        made = new_loop(_NoHost(), seed)
        hashes |= {hash(made.create_future()) for _ in range(100)}
    assert len(hashes) == 10_000


class _NoHost:
    def issue_timer(self, due: int, handle: object) -> int:
        raise AssertionError("no timer was asked for")

    def complain(self, what: str, error: BaseException | None) -> None:
        """Nobody is told."""

    def abandon(self, seq: int) -> None:
        raise AssertionError("nothing was abandoned")


# ---------------------------------------------------------------- beside the host and beside each other


def test_two_instances_in_one_host_do_not_meet() -> None:
    async def body(run: Instance) -> list[str]:
        names = [await step(run, "a"), await step(run, "b")]
        assert current() is run
        task = asyncio.current_task()
        assert task is not None
        return [*names, task.get_name(), str(len(asyncio.all_tasks()))]

    async def host() -> None:
        task = asyncio.current_task()
        assert current() is None
        one, two = Driven(body, id="one"), Driven(body, id="two")
        one.result(0, "one a")
        two.result(0, "two a")
        await asyncio.sleep(0)
        two.result(1, "two b")
        one.result(1, "one b")
        assert one.output() == ["one a", "one b", "test", "1"]
        assert two.output() == ["two a", "two b", "test", "1"]
        assert asyncio.current_task() is task
        assert asyncio.all_tasks() == {task}
        assert current() is None

    asyncio.run(host())


def test_an_instance_inside_the_turn_of_another_leaves_it_as_it_was() -> None:
    async def inner(run: Instance) -> int:
        return 1

    async def outer(run: Instance) -> list[Any]:
        task = asyncio.current_task()
        result = Driven(inner, id="inner").output()
        return [result, current() is run, asyncio.current_task() is task, await step(run, "a")]

    driven = Driven(outer)
    driven.result(0, "a")
    assert driven.output() == [1, True, True, "a"]


VARIABLE: contextvars.ContextVar[str] = contextvars.ContextVar("VARIABLE", default="fresh")


def test_context_variables_leak_neither_in_nor_out() -> None:
    async def subtask() -> str:
        before = VARIABLE.get()
        VARIABLE.set("subtask's")
        return before

    async def body(run: Instance) -> list[str]:
        at_first = VARIABLE.get()
        VARIABLE.set("body's")
        await step(run, "a")
        inherited = await asyncio.create_task(subtask())
        return [at_first, VARIABLE.get(), inherited]

    VARIABLE.set("host's")
    driven = Driven(body)
    assert VARIABLE.get() == "host's"
    contextvars.copy_context().run(driven.result, 0)
    assert driven.output() == ["fresh", "body's", "body's"]
    assert VARIABLE.get() == "host's"
    VARIABLE.set("fresh")


# ---------------------------------------------------------------- time


def test_the_clock_of_the_loop_is_the_runs() -> None:
    async def body(run: Instance) -> list[Any]:
        begun = (loop().time(), run.now)
        await asyncio.sleep(1.5)
        return [begun, (loop().time(), run.now)]

    driven = Driven(body)
    driven.advance(at=1.5)
    assert driven.output() == [
        [START / SECOND, START],
        [START / SECOND + 1.5, START + 1_500_000],
    ]


def test_tasks_are_kept_alive_by_the_loop() -> None:
    """asyncio itself holds tasks weakly: a task that nobody refers to could vanish at the collector's whim."""

    async def body(run: Instance) -> None:
        async def background() -> None:
            await asyncio.sleep(1)
            run.set_value("alive", b"1")

        asyncio.create_task(background())  # noqa: RUF006  # that is the point
        await asyncio.sleep(2)

    driven = Driven(body)
    gc.collect()
    driven.advance(at=1)
    assert driven.commit is not None
    assert driven.commit.values == (("alive", b"1"),)


def test_finished_tasks_are_let_go() -> None:
    async def body(run: Instance) -> None:
        for _ in range(10_000):
            await asyncio.create_task(nothing())
        await step(run, "a")

    driven = Driven(body)
    assert len(driven.instance.loop.live_tasks()) == 1
    assert len(asyncio.all_tasks(driven.instance.loop)) == 1
    assert len(driven.instance.loop._tasks) < 100


def test_a_step_call_is_as_good_as_a_coroutine() -> None:
    async def body(run: Instance) -> list[Any]:
        made: Any = step(run, "a")
        task: asyncio.Task[Any] = asyncio.create_task(made)
        also: Coroutine[Any, Any, Any] = step(run, "b")  # type: ignore[assignment]
        async with asyncio.TaskGroup() as group:
            grouped = group.create_task(also)
        return [await task, grouped.result()]

    driven = Driven(body)
    driven.result(1, "b")
    driven.result(0, "a")
    assert driven.output() == ["a", "b"]


def test_unretrieved_errors_of_tasks_are_the_bodys_own_business() -> None:
    async def body(run: Instance) -> str:
        async def fails() -> None:
            raise ValueError

        task = asyncio.create_task(fails())
        await asyncio.sleep(1)
        return "done" if task.done() else "?"

    driven = Driven(body)
    driven.advance(at=1)
    assert driven.output() == "done"
