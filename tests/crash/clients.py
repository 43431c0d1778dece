"""What the clients of the crash test do with each kind of run, and how it must end. Clients are never killed."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from random import Random
from typing import Any

from perdure import Perdure, RunCancelled, RunFailed, RunHandle
from tests.crash import load

#: How a run ended: its result, or the class and text of the error.
End = Any

#: Starts the run of that id with that input and does what is to be done to it; returns the end it was told.
Client = Callable[[Perdure, str, int, Random], Awaitable[End]]

LETTERS = 8


async def end_of(run: RunHandle[Any]) -> End:
    try:
        return await run.result()
    except (RunFailed, RunCancelled) as error:
        return type(error).__name__


async def _plain(app: Perdure, run_id: str, n: int, rng: Random) -> End:
    name = run_id.partition(":")[0]
    return await end_of(await app.start(name, n, id=run_id))


async def _mailbox(app: Perdure, run_id: str, n: int, rng: Random) -> End:
    run = await app.start(load.mailbox, [], LETTERS, id=run_id)
    for i in range(LETTERS):
        await run.signal("mail", n + i, id=f"{i}")
        await run.signal("mail", n + i, id=f"{i}")  # as a sender does that lost the answer
    for i in range(LETTERS):
        # And the whole lot once more; the run may have ended meanwhile, but those messages did arrive.
        await run.signal("mail", n + i, id=f"{i}")
    return await end_of(run)


async def _approval(app: Perdure, run_id: str, n: int, rng: Random) -> End:
    token = f"approve:{run_id}"
    early = rng.random() < 0.5
    if early:
        await app.signal("approve", n, token=token, id="first")
    run = await app.start(load.approval, n, id=run_id)
    if not early:
        await app.signal("approve", n, token=token, id="first")
    await app.signal("approve", n, token=token, id="first")
    return await end_of(run)


async def _revived(app: Perdure, run_id: str, n: int, rng: Random) -> End:
    run = await app.start(load.revived, n, id=run_id)
    while (end := await end_of(run)) == "RunFailed":
        await run.requeue()
    return end


async def _patient(app: Perdure, run_id: str, n: int, rng: Random) -> End:
    run = await app.start(load.patient, n % 3, id=run_id)
    if rng.random() < 0.7:
        await run.wait()  # until it waits; else it is cancelled wherever it is
    await run.cancel("enough")
    return await end_of(run)


CLIENTS: dict[str, Client] = {
    "sequence": _plain,
    "fan": _plain,
    "timers": _plain,
    "family": _plain,
    "doomed": _plain,
    "mailbox": _mailbox,
    "approval": _approval,
    "revived": _revived,
    "patient": _patient,
}


def expected(name: str, n: int) -> End:
    """How a run of that workflow with that input must end."""
    match name:
        case "sequence":
            return _sequence(n)
        case "fan":
            return _fan(n)
        case "family":
            return _sequence(n) + _fan(n) + _fan(n + 1) + _fan(n + 2)
        case "mailbox":
            return [n + i for i in range(LETTERS)]
        case "revived":
            return 2 * n
        case "doomed":
            return "RunFailed"
        case "patient":
            return "RunCancelled"
        case _:
            return n


def _sequence(n: int) -> int:
    return sum(n + i for i in range(6))


def _fan(n: int) -> int:
    return sum(n + i for i in range(4)) + 2 * n
