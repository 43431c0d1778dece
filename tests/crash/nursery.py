"""Forks workers on demand, so that a few hundred of them can be killed in seconds: `python -m tests.crash.nursery URL PIPE MAP`.

Reads slot numbers from standard input, one a line; answers each with the pid of a new worker. A worker opens its app after the
fork (nothing is open before it), and serves until it is killed. It marks in its slot of the shared map whether it is inside a
transaction, so that whoever kills it can say what the kill hit.
"""

from __future__ import annotations

import asyncio
import mmap
import os
import sys
from typing import Any

from perdure import Perdure
from perdure.stores.sqlite import writer

from tests.crash import load

SLOTS = 64


def serve(url: str, marks: mmap.mmap, slot: int) -> None:
    transact: Any = writer.Writer._transact

    def marked(self: Any, *args: Any) -> Any:
        marks[slot] = 1
        try:
            return transact(self, *args)
        finally:
            marks[slot] = 0

    writer.Writer._transact = marked  # type: ignore[method-assign]

    async def run() -> None:
        app = Perdure(url, include=[load], lease=0.5, poll=0.05, audit=1.0, max_recoveries=100_000)
        async with app:
            await asyncio.Event().wait()

    asyncio.run(run())


def main() -> None:
    url, pipe, path = sys.argv[1], int(sys.argv[2]), sys.argv[3]
    load.pipe = pipe
    with open(path, "r+b") as file:
        marks = mmap.mmap(file.fileno(), SLOTS)
    for line in sys.stdin:
        slot = int(line)
        marks[slot] = 0
        pid = os.fork()
        if pid == 0:
            try:
                serve(url, marks, slot)
            finally:
                os._exit(1)
        print(pid, flush=True)


if __name__ == "__main__":
    main()
