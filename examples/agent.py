"""An agent on a language model: it thinks, calls tools, asks a person before it spends money, and can be watched word by word.

    python examples/agent.py ask dinner "a table for four, tonight"   # writes the question down, and is done
    python examples/agent.py serve                # works on questions, until Ctrl-C; kill it as you like
    python examples/agent.py watch dinner         # from another terminal: each word as it comes, until the answer
    python examples/agent.py approve dinner yes   # or no, today or next week

Everything is kept in agent.db, in the current folder. The model is a script, so that no key and no network is needed; it hangs
up in the middle of its second thought once, as models do.
"""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import AsyncIterator, Callable, Coroutine
from dataclasses import dataclass, field
from datetime import timedelta

from perdure import Context, Perdure, PerdureError, SignalTimeout, current_step, log, step, stream, workflow

#: What costs money is asked for first.
ASK_FIRST = {"book_table"}


@dataclass
class Call:
    """A tool that the model wants to be called."""

    tool: str
    arguments: dict[str, str]


@dataclass
class Message:
    """A line of the conversation."""

    role: str
    text: str
    call: Call | None = None


@dataclass
class Talk:
    """All that was said so far: what the model is given each time."""

    messages: list[Message] = field(default_factory=list)

    def say(self, role: str, text: str, call: Call | None = None) -> None:
        self.messages.append(Message(role, text, call))


# ---------------------------------------------------------------- the model, which is a script


SCRIPT = [
    ("I look up what is free.", Call("find_tables", {"when": "tonight"})),
    ("There is a table at the Blue Door. I book it.", Call("book_table", {"where": "the Blue Door"})),
]


async def model(messages: list[Message], hangs_up: bool) -> AsyncIterator[str | Call]:
    """What a real one would do over HTTP: words as they come, and perhaps a tool to call at the end."""
    turn = sum(message.role == "model" for message in messages)
    if turn < len(SCRIPT):
        text, call = SCRIPT[turn]
    else:
        text, call = f"Done: {messages[-1].text}.", None
    for number, word in enumerate(text.split(" ")):
        if hangs_up and turn == 1 and number == 4:
            raise ConnectionError("the model hung up")
        await asyncio.sleep(0.01)
        yield word
    if call is not None:
        yield call


# ---------------------------------------------------------------- the steps


@step(max_attempts=4, base=timedelta(milliseconds=100))
async def think(messages: list[Message]) -> Message:
    """One answer of the model. Its words go to a stream while they come; an attempt that fails is made again, words and all."""
    words: list[str] = []
    call: Call | None = None
    tokens = stream("tokens")
    async for part in model(messages, hangs_up=current_step().attempt == 1):
        if isinstance(part, Call):
            call = part
        else:
            tokens.write(part)
            words.append(part)
    log.info("%d words, %s", len(words), f"then {call.tool}" if call else "and no tool")
    return Message("model", " ".join(words), call)


@step(max_attempts=3)
async def find_tables(when: str) -> str:
    print(f"looked for tables {when}", flush=True)
    return "the Blue Door has one at eight"


@step(max_attempts=3)
async def book_table(where: str) -> str:
    """May be called twice for one booking: the key tells the restaurant that it is the same."""
    print(f"booked {where} under {current_step().key.split(':')[0]}", flush=True)
    return f"{where}, at eight"


TOOLS: dict[str, Callable[[str], Coroutine[object, object, str]]] = {
    "find_tables": find_tables,
    "book_table": book_table,
}


# ---------------------------------------------------------------- the agent


@workflow(tags=["agent"])
async def agent(ctx: Context, question: str) -> str:
    talk = Talk()
    talk.say("user", question)
    while True:
        answer = await think(talk.messages)
        talk.say("model", answer.text, answer.call)
        if answer.call is None:
            return answer.text
        tool, arguments = answer.call.tool, list(answer.call.arguments.values())
        if tool in ASK_FIRST and not await approved(ctx, f"{tool} {' '.join(arguments)}"):
            talk.say("tool", "a person said no, so nothing was booked")
            continue
        talk.say("tool", await TOOLS[tool](*arguments))


async def approved(ctx: Context, what: str) -> bool:
    ctx.stream("tokens").write(f"[may I {what}?]")
    try:
        return await ctx.wait_for_signal("approve", type=bool, timeout=timedelta(days=7))
    except SignalTimeout:
        return False


# ---------------------------------------------------------------- the commands


app = Perdure("sqlite:///agent.db", lease=5)


async def ask(name: str, question: str) -> None:
    async with app.client() as client:
        run = await client.start(agent, question, id=f"agent:{name}")
        print(f"{run.id} is {await run.status()}")


async def serve() -> None:
    done = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, done.set)
    app.register(agent)
    async with app:
        print("serving", flush=True)
        await done.wait()


async def watch(name: str) -> None:
    async with app.client() as client:
        run = client.get_run(f"agent:{name}", agent)
        async for chunk in run.stream("tokens", type=str):
            if chunk.index == 0 and chunk.attempt > 1:
                print("(the model hung up, and begins again)", flush=True)
            print(chunk.value, flush=True)
        print(f"=> {await run.result()}")


async def approve(name: str, answer: str) -> None:
    async with app.client() as client:
        await client.get_run(f"agent:{name}").signal("approve", answer == "yes")


COMMANDS: dict[str, Callable[..., Coroutine[object, object, None]]] = {
    "ask": ask,
    "serve": serve,
    "watch": watch,
    "approve": approve,
}


def main(arguments: list[str]) -> None:
    if not arguments or arguments[0] not in COMMANDS:
        sys.exit(__doc__)
    try:
        asyncio.run(COMMANDS[arguments[0]](*arguments[1:]))
    except PerdureError as error:
        sys.exit(f"{error.code}: {error}")


if __name__ == "__main__":
    main(sys.argv[1:])
