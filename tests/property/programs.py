"""What the constructs of a random program do: ordinary asyncio code and every operation of an instance.

A program writes down everything it sees. Whatever differs between two runs of it, shows there or in the commands.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import gc
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine
from random import Random
from typing import Any
from uuid import UUID

import msgspec

import perdure
from perdure.core.instance import Instance
from perdure.core.loop import OpFuture
from perdure.model import values
from perdure.model.failure import Failure
from perdure.model.gates import Ask
from perdure.model.policy import RetryPolicy
from perdure.model.run import NewRun
from tests.property.grammar import Node

POLICY = RetryPolicy(max_attempts=3)
REFUSAL = Failure(type="perdure.model.errors:NotRegistered", message="no such workflow", code="not_registered")

VARIABLE: contextvars.ContextVar[int] = contextvars.ContextVar("VARIABLE", default=-1)

Meaning = Callable[["Program", Node], Coroutine[Any, Any, Any]]
KINDS: dict[str, Meaning] = {}


def kind(meaning: Meaning) -> Meaning:
    KINDS[meaning.__name__.removesuffix("_")] = meaning
    return meaning


class Program:
    """A workflow definition that runs one tree, once. `chaos` decides when the garbage collector comes by."""

    def __init__(self, tree: Node, chaos: Random | None = None) -> None:
        self.tree = tree
        self.seen: list[Any] = []
        self.spawned: list[str] = []
        self.kept: list[Any] = []
        self._chaos = chaos
        self._run: Instance | None = None

    # -- what the core asks for ---------------------------------------------------------------------------------------

    def start(self, instance: Instance) -> Coroutine[Any, Any, Any]:
        self._run = instance
        return self._main()

    def encode_result(self, value: Any) -> bytes:
        return values.encode(value, what="the result")

    async def _main(self) -> str:
        self.see("begins", VARIABLE.get())
        await self.do(self.tree)
        self.see("ends")
        return "ended"

    # -- what the constructs use --------------------------------------------------------------------------------------

    @property
    def run(self) -> Instance:
        assert self._run is not None
        return self._run

    async def do(self, node: Node) -> Any:
        return await KINDS[node.kind](self, node)

    def see(self, *what: Any) -> None:
        self.seen.append(shown(what))
        if self._chaos is not None and self._chaos.random() < 0.1:
            gc.collect(self._chaos.randint(0, 1))

    def step(self, name: str) -> OpFuture[Any]:
        return self.run.step(name, b"null", policy=POLICY, decode=decode)

    def undoable(self, name: str) -> OpFuture[Any]:
        """A step that is undone by one that says of what and from what."""

        def undo(input: bytes | None, output: bytes) -> OpFuture[Any]:
            self.see("undoes", name, input, output)
            payload = b"[%b,%b]" % (input or b"null", output)
            return self.run.step(f"compensate:{name}", payload, policy=POLICY, decode=decode, undoes=True)

        return self.run.step(name, b"null", policy=POLICY, decode=decode, undo=undo)

    def task(self, node: Node) -> asyncio.Task[Any]:
        return asyncio.create_task(self.do(node))

    def signal(self, name: str, token: str | None, seconds: int) -> OpFuture[Any]:
        # Long waits are not bounded.
        timeout = (seconds + 1) * 1_000_000 if seconds < 30 else None
        return self.run.signal(name, token=token, timeout=timeout, decode=decode)

    def published(self, name: str, match: int, seconds: int) -> OpFuture[Any]:
        timeout = (seconds + 1) * 1_000_000 if seconds < 30 else None
        data = b'{"x":%d}' % match if match else None
        return self.run.event(name, match=data, timeout=timeout, decode=decode)

    def child(self, id: str) -> NewRun:
        return msgspec.structs.replace(self.run.run, id=id, seed=self.run.run.seed + self.run.reserve())


decode = values.decoder(Any)


def shown(thing: Any) -> Any:
    """A thing as it can be compared: errors by class and text."""
    if isinstance(thing, BaseExceptionGroup):
        return (type(thing).__name__, thing.message, [shown(error) for error in thing.exceptions])
    if isinstance(thing, BaseException):
        return (type(thing).__name__, str(thing))
    if isinstance(thing, list | tuple):
        return [shown(item) for item in thing]
    return thing


def outcome(task: asyncio.Future[Any]) -> Any:
    if task.cancelled():
        return "cancelled"
    return shown(task.exception() or task.result())


async def guarded(program: Program, work: Awaitable[Any]) -> Any:
    try:
        return await work
    except Exception as error:
        program.see("failed", error)
        return None


# ---------------------------------------------------------------- operations


@kind
async def step(program: Program, node: Node) -> Any:
    result = await program.step(f"step{node.numbers[0]}")
    program.see("result", result)
    return result


@kind
async def queued(program: Program, node: Node) -> Any:
    gate = Ask(seq=program.run.reserve(), name=f"queue{node.numbers[0] % 2}")
    result = await program.run.step(f"queued{node.numbers[0]}", b"null", policy=POLICY, decode=decode, gate=gate)
    program.see("queued", result)
    return result


@kind
async def local(program: Program, node: Node) -> Any:
    call = program.run.local(f"local{node.numbers[0]}", lambda: node.numbers[0], policy=POLICY, decode=decode)
    result = await call
    program.see("local", result)
    return result


@kind
async def undoable(program: Program, node: Node) -> Any:
    result = await program.undoable(f"step{node.numbers[0]}")
    program.see("done", result)
    return result


@kind
async def sleep(program: Program, node: Node) -> None:
    await asyncio.sleep(node.numbers[0] - 3)  # some are no timers at all
    program.see("slept", program.run.now)


@kind
async def yield_(program: Program, node: Node) -> None:
    for _ in range(node.numbers[0] % 7):
        await asyncio.sleep(0)


@kind
async def signal(program: Program, node: Node) -> Any:
    value = await program.signal("ab"[node.numbers[0] % 2], None, node.numbers[1])
    program.see("signal", value)
    return value


@kind
async def token(program: Program, node: Node) -> Any:
    value = await program.signal("c", f"token{node.numbers[0] % 3}", node.numbers[1])
    program.see("token", value)
    return value


@kind
async def update(program: Program, node: Node) -> Any:
    due = program.run.now + (node.numbers[1] + 1) * 1_000_000 if node.numbers[1] < 30 else None
    value = await program.run.update("ab"[node.numbers[0] % 2], due=due, decode=decode)
    program.see("update", value)
    program.run.set_value(f"update:{value}", b"1")  # the answer
    return value


@kind
async def published(program: Program, node: Node) -> Any:
    value = await program.published("e", node.numbers[0] % 3, node.numbers[1])
    program.see("event", value)
    return value


@kind
async def send(program: Program, node: Node) -> None:
    program.run.send(f"reply:{node.numbers[0]}", b"1")


@kind
async def child(program: Program, node: Node) -> Any:
    id = f"{program.run.run.id}.child.{program.run.reserve()}"
    refusal = REFUSAL if node.numbers[0] < 10 else None
    value = await program.run.child(program.child(id), decode=decode, refusal=refusal)
    program.see("child", value)
    return value


@kind
async def spawn(program: Program, node: Node) -> None:
    id = f"{program.run.run.id}.child.{program.run.reserve()}"
    program.run.spawn(program.child(id))
    program.spawned.append(id)


@kind
async def join(program: Program, node: Node) -> Any:
    refusal = REFUSAL if node.numbers[0] < 10 else None
    id = program.spawned[node.numbers[0] % len(program.spawned)] if program.spawned else "unheard-of"
    value = await program.run.join(id, decode=decode, refusal=refusal)
    program.see("joined", value)
    return value


@kind
async def fan(program: Program, node: Node) -> Any:
    first = program.run.reserve()
    ids = [f"{program.run.run.id}.all.{first}.{index}" for index in range(node.numbers[0] % 4)]
    futures = [program.run.child(program.child(id), decode=decode) for id in ids]
    results = await asyncio.gather(*futures, return_exceptions=True)
    program.see("fan", results)
    return len(results)


@kind
async def stream(program: Program, node: Node) -> None:
    program.run.write(f"stream{node.numbers[0] % 2}", b"%d" % node.numbers[0])


@kind
async def value(program: Program, node: Node) -> None:
    program.run.set_value(f"value{node.numbers[0] % 3}", b"%d" % node.numbers[0])


@kind
async def attributes(program: Program, node: Node) -> None:
    program.run.put_attributes(b'{"a%d":%d}' % (node.numbers[0] % 3, node.numbers[1]))


@kind
async def patched(program: Program, node: Node) -> None:
    if program.run.patched(f"patch{node.numbers[0] % 2}"):
        await program.step("new path")
    program.see("patched", program.run.patched(f"patch{node.numbers[0] % 2}"))


@kind
async def random(program: Program, node: Node) -> None:
    number = program.run.random.randint(0, 99)
    program.see("random", number, UUID(int=program.run.random.getrandbits(128), version=4).hex)
    if number < 50:
        await program.step(f"by chance {number}")


@kind
async def now(program: Program, node: Node) -> None:
    program.see("now", program.run.now, asyncio.get_running_loop().time())


@kind
async def variable(program: Program, node: Node) -> None:
    program.see("variable", VARIABLE.get())
    VARIABLE.set(node.numbers[0])


@kind
async def fail(program: Program, node: Node) -> None:
    errors = (ValueError, KeyError, TimeoutError, asyncio.CancelledError, RuntimeError)
    raise errors[node.numbers[0] % len(errors)](f"own {node.numbers[0]}")


@kind
async def callback(program: Program, node: Node) -> None:
    loop = asyncio.get_running_loop()
    fired: asyncio.Future[int] = loop.create_future()

    def call() -> None:
        program.run.set_value("called", b"1")
        if not fired.done():
            fired.set_result(program.run.now)

    def give_up() -> None:
        if not fired.done():
            fired.set_result(-1)

    handle = loop.call_later(node.numbers[0] - 3, call)
    if node.numbers[1] < 20:
        loop.call_at(loop.time() + node.numbers[1], handle.cancel)
        loop.call_at(loop.time() + node.numbers[1] + 1, give_up)
    program.see("fired", await fired)


@kind
async def unawaited(program: Program, node: Node) -> None:
    program.kept.append(program.step(f"unawaited{node.numbers[0]}"))


@kind
async def race(program: Program, node: Node) -> None:
    """Bare operations against each other: the first wins, the others are given up."""
    runners = {program.step(f"lane{lane}") for lane in range(2 + node.numbers[0] % 4)}
    runners.add(program.signal("a", None, node.numbers[0]))
    done, pending = await asyncio.wait(runners, return_when=asyncio.FIRST_COMPLETED)
    for loser in pending:
        loser.cancel()
    program.see("won", [outcome(winner) for winner in done], len(pending))


@kind
async def task_of_step(program: Program, node: Node) -> None:
    loop = asyncio.get_running_loop()
    made: asyncio.Task[Any] = loop.create_task(program.step(f"in a task {node.numbers[0]}"))  # type: ignore[arg-type]
    program.see("task of step", await made)


@kind
async def continue_(program: Program, node: Node) -> None:
    program.run.continue_as_new(program.child(program.run.run.id + "~1"))


# ---------------------------------------------------------------- control flow


@kind
async def sequence(program: Program, node: Node) -> Any:
    last = None
    for part in node.parts:
        last = await program.do(part)
    return last


@kind
async def guard(program: Program, node: Node) -> Any:
    return await guarded(program, program.do(node.parts[0]))


@kind
async def gather(program: Program, node: Node) -> Any:
    results = await asyncio.gather(
        *(program.do(part) for part in node.parts), return_exceptions=node.numbers[0] % 2 == 0
    )
    program.see("gathered", results)
    return len(results)


@kind
async def group(program: Program, node: Node) -> None:
    try:
        async with asyncio.TaskGroup() as tasks:
            for part in node.parts[1:]:
                tasks.create_task(program.do(part))
            if node.numbers[0] % 2:
                await program.do(node.parts[0])
    except* Exception as errors:
        program.see("group failed", errors)


@kind
async def timeout(program: Program, node: Node) -> None:
    limit = asyncio.timeout(node.numbers[0] - 3)
    try:
        async with limit:
            await program.do(node.parts[0])
    except TimeoutError:
        program.see("out of time", limit.expired())


@kind
async def timeout_at(program: Program, node: Node) -> None:
    loop = asyncio.get_running_loop()
    limit = asyncio.timeout_at(loop.time() + node.numbers[0])
    try:
        async with limit:
            await program.step("first")
            limit.reschedule(None if node.numbers[1] < 10 else loop.time() + node.numbers[1])
            await program.do(node.parts[0])
    except TimeoutError:
        program.see("out of time", limit.expired())


@kind
async def wait_for(program: Program, node: Node) -> None:
    try:
        program.see("in time", await asyncio.wait_for(program.do(node.parts[0]), node.numbers[0] - 3))
    except TimeoutError:
        program.see("out of time")


@kind
async def wait(program: Program, node: Node) -> None:
    modes = (asyncio.FIRST_COMPLETED, asyncio.FIRST_EXCEPTION, asyncio.ALL_COMPLETED)
    tasks = [program.task(part) for part in node.parts]
    limit = None if node.numbers[1] < 30 else node.numbers[1] - 29
    done, pending = await asyncio.wait(tasks, timeout=limit, return_when=modes[node.numbers[0] % 3])
    for task in done:  # sets: their order must be that of every replay
        program.see("done", outcome(task))
        await guarded(program, program.step("after"))
    for task in pending:
        task.cancel("not needed")
    if pending:
        await asyncio.wait(pending)
    program.see("all", [outcome(task) for task in tasks])


@kind
async def completed(program: Program, node: Node) -> None:
    """Over coroutines: what asyncio's own must not be given."""
    for following in perdure.as_completed([program.do(part) for part in node.parts]):
        try:
            program.see("next", await following)
        except (Exception, asyncio.CancelledError) as error:
            program.see("next failed", error)
        await guarded(program, program.step("then"))


@kind
async def as_completed(program: Program, node: Node) -> None:
    for following in asyncio.as_completed([program.task(part) for part in node.parts]):
        try:
            program.see("next", await following)
        except (Exception, asyncio.CancelledError) as error:
            program.see("next failed", error)
        await guarded(program, program.step("then"))


@kind
async def shield(program: Program, node: Node) -> None:
    try:
        await asyncio.wait_for(asyncio.shield(program.do(node.parts[0])), node.numbers[0] / 2)
    except TimeoutError:
        program.see("shielded from its timeout")


@kind
async def background(program: Program, node: Node) -> None:
    tasks = [program.task(part) for part in node.parts]
    if node.numbers[0] % 2:
        program.kept += tasks
    del tasks
    await asyncio.sleep(1 + node.numbers[0] % 5)


@kind
async def cancel(program: Program, node: Node) -> None:
    task = program.task(node.parts[0])
    if node.numbers[0] > 5:
        await asyncio.sleep(node.numbers[0] / 2)
    program.see("cancels", task.cancel("enough"), task.cancelling())
    try:
        program.see("survived", await task)
    except asyncio.CancelledError as error:
        program.see("was cancelled", error)


@kind
async def try_(program: Program, node: Node) -> None:
    try:
        await program.do(node.parts[0])
    except Exception as error:
        program.see("caught", error)
        if node.numbers[0] % 4 == 0:
            raise
    else:
        program.see("no error")
    finally:
        await program.do(node.parts[-1])


@kind
async def on_cancel(program: Program, node: Node) -> None:
    """Clean up after a cancel: with or without going on, and with or without `uncancel`."""
    try:
        await program.do(node.parts[0])
    except asyncio.CancelledError:
        task = asyncio.current_task()
        assert task is not None
        program.see("told to stop", task.cancelling())
        if node.numbers[0] % 2:
            task.uncancel()
        await program.do(node.parts[1])
        if node.numbers[1] % 2:
            raise


async def numbers(program: Program, node: Node) -> AsyncGenerator[int, None]:
    try:
        for index, part in enumerate(node.parts):
            await guarded(program, program.do(part))
            yield index
    finally:
        program.see("generator ends")
        await program.step("generator's clean-up")


@kind
async def generator(program: Program, node: Node) -> None:
    """Used up, broken off, closed, or kept for later."""
    way, last = node.numbers[0] % 4, node.numbers[1] % 3
    if way == 0:
        program.see("all", [index async for index in numbers(program, node)])
    elif way == 1:
        async for index in numbers(program, node):
            program.see("item", index)
            if index == last:
                break
    elif way == 2:
        async with contextlib.aclosing(numbers(program, node)) as items:
            async for index in items:
                if index == last:
                    break
    else:
        items = numbers(program, node)
        program.see("first", await anext(items))
        program.kept.append(items)
    await program.step("after the generator")


@kind
async def cycle(program: Program, node: Node) -> None:
    """Leaves a generator to the collector."""
    items = numbers(program, node)
    program.see("first", await anext(items))
    circle: list[Any] = [items]
    circle.append(circle)


# ---------------------------------------------------------------- asyncio's own tools


@kind
async def event(program: Program, node: Node) -> None:
    happened = asyncio.Event()

    async def waits(part: Node) -> None:
        await happened.wait()
        await guarded(program, program.do(part))

    async def sets() -> None:
        await guarded(program, program.do(node.parts[0]))
        happened.set()

    await asyncio.gather(*(waits(part) for part in node.parts[1:]), sets(), return_exceptions=True)


@kind
async def lock(program: Program, node: Node) -> None:
    held = asyncio.Lock()

    async def holds(part: Node) -> None:
        async with held:
            program.see("has the lock")
            await program.do(part)

    program.see("locked", await asyncio.gather(*(holds(part) for part in node.parts), return_exceptions=True))


@kind
async def semaphore(program: Program, node: Node) -> None:
    slots = asyncio.BoundedSemaphore(1 + node.numbers[0] % 2)

    async def uses(part: Node) -> None:
        async with slots:
            await program.do(part)

    program.see("used", await asyncio.gather(*(uses(part) for part in node.parts), return_exceptions=True))


@kind
async def queue(program: Program, node: Node) -> None:
    items: asyncio.Queue[int] = asyncio.PriorityQueue(1 + node.numbers[0] % 2)

    async def produces() -> None:
        for index, part in enumerate(node.parts):
            await guarded(program, program.do(part))
            await items.put(-index)

    producer = asyncio.create_task(produces())
    for _ in node.parts:
        program.see("got", await items.get())
        await guarded(program, program.step("handle"))
        items.task_done()
    await items.join()
    await producer


@kind
async def condition(program: Program, node: Node) -> None:
    changed = asyncio.Condition()
    level = 0

    async def waits(part: Node) -> None:
        async with changed:
            await changed.wait_for(lambda: level > 0)
        await guarded(program, program.do(part))

    async def raises() -> None:
        nonlocal level
        await guarded(program, program.do(node.parts[0]))
        async with changed:
            level += 1
            changed.notify_all()

    await asyncio.gather(*(waits(part) for part in node.parts[1:]), raises(), return_exceptions=True)


@kind
async def barrier(program: Program, node: Node) -> None:
    meeting = asyncio.Barrier(len(node.parts))

    async def comes(part: Node) -> None:
        await guarded(program, program.do(part))
        program.see("meets", await meeting.wait())

    program.see("met", await asyncio.gather(*(comes(part) for part in node.parts), return_exceptions=True))


@kind
async def kept(program: Program, node: Node) -> None:
    """An operation issued now and awaited later."""
    call = program.step(f"kept{node.numbers[0]}")
    try:
        await program.do(node.parts[0])
    finally:
        program.see("kept", await call)


@kind
async def branch(program: Program, node: Node) -> None:
    """The result decides which way to go."""
    result = await guarded(program, program.step("decide"))
    await program.do(node.parts[0 if isinstance(result, int) and result % 2 else 1])


@kind
async def retry(program: Program, node: Node) -> Any:
    for attempt in range(1 + node.numbers[0] % 3):
        try:
            return await program.do(node.parts[0])
        except Exception as error:
            program.see("try again", attempt, error)
            await asyncio.sleep(2**attempt)
    return None
