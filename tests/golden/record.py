"""`python -m tests.golden.record NAME...`: run programs of `tests.golden.programs` and keep their histories, for ever."""

from __future__ import annotations

import asyncio
import sys

import msgspec
from msgspec.structs import replace

from perdure.model.failure import Failure, decode_failure, encode_failure
from perdure.model.history import Entry, Event
from perdure.testing import Recording, TestApp, record
from tests.golden.programs import PROGRAMS, Program
from tests.golden.replaying import HISTORIES, Golden, standings


async def live(program: Program) -> Recording:
    """The history of one life of the program, without what it says of the machine that recorded it."""
    async with TestApp(program.recorded or program.today) as app:
        recording = await record(await program.drive(app))
    return replace(recording, history=tuple(map(_anywhere, recording.history)))


def _anywhere(entry: Entry) -> Entry:
    if entry.event not in (Event.FAILED, Event.ATTEMPT_FAILED) or entry.payload is None:
        return entry
    return replace(entry, payload=encode_failure(_untraced(decode_failure(entry.payload))))


def _untraced(failure: Failure) -> Failure:
    cause = None if failure.cause is None else _untraced(failure.cause)
    return replace(failure, traceback="", cause=cause, group=tuple(map(_untraced, failure.group)))


def golden(program: Program) -> Golden:
    """The program's history, and how its run stood at each commit."""
    recording = asyncio.run(live(program))
    return Golden(msgspec.Raw(recording.dump()), standings(program.today, recording))


def main(names: list[str]) -> None:
    """Write the files. Raises `FileExistsError` for one that is there: nothing here is ever changed."""
    unknown = set(names) - PROGRAMS.keys()
    if unknown or not names:
        sys.exit(f"usage: python -m tests.golden.record NAME..., with names of {', '.join(PROGRAMS)}")
    for name in names:
        data = golden(PROGRAMS[name]).dump()
        try:
            with (HISTORIES / f"{name}.json").open("xb") as file:
                file.write(data)
        except FileExistsError:
            sys.exit(f"{name}.json is there already, and golden histories are never changed: record under another name")


if __name__ == "__main__":
    main(sys.argv[1:])
