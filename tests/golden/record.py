"""`python -m tests.golden.record NAME...`: run programs of `tests.golden.programs` and keep their histories, for ever."""

from __future__ import annotations

import asyncio
import sys

import msgspec

from perdure.testing import Recording, TestApp, record
from tests.golden.programs import PROGRAMS, Program
from tests.golden.replaying import HISTORIES, Golden, standings


async def live(program: Program) -> Recording:
    """The history of one life of the program."""
    async with TestApp(program.recorded or program.today) as app:
        return await record(await program.drive(app))


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
