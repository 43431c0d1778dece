"""Forks workers on demand, so that a few hundred of them can be killed in seconds.

`python -m tests.crash.nursery URL PIPE MAP` reads slot numbers from standard input, one a line; answers each with the pid of a
new worker. A worker opens its app after the fork (nothing is open before it), and serves until it is killed. It marks in its
slot of the shared map where it is, so that whoever kills it can say what the kill hit. On SIGUSR1 it writes the stacks of all
its threads to standard error.
"""

from __future__ import annotations

import asyncio
import faulthandler
import mmap
import os
import signal
import sys
from typing import Any

from perdure import Perdure
from perdure.stores.sqlite import writer
from tests.crash import load

SLOTS = 64

#: What a slot says.
SERVING, IN_COMMIT, OPENING = 0, 1, 2

#: Seconds.
LEASE = 0.5


def serve(url: str, marks: mmap.mmap, slot: int) -> None:
    transact: Any = writer.Writer._transact

    def marked(self: Any, *args: Any) -> Any:
        marks[slot] = IN_COMMIT
        try:
            return transact(self, *args)
        finally:
            marks[slot] = SERVING

    writer.Writer._transact = marked  # type: ignore[assignment, method-assign]

    async def run() -> None:
        app = Perdure(url, include=[load], lease=LEASE, poll=0.05, audit=1.0, max_recoveries=100_000)
        async with app:
            marks[slot] = SERVING
            await asyncio.Event().wait()

    asyncio.run(run())


def main() -> None:
    url, pipe, path = sys.argv[1], int(sys.argv[2]), sys.argv[3]
    load.pipe = pipe
    faulthandler.register(signal.SIGUSR1, all_threads=True)
    with open(path, "r+b") as file:
        marks = mmap.mmap(file.fileno(), SLOTS)
    for line in sys.stdin:
        slot = int(line)
        marks[slot] = OPENING
        pid = os.fork()
        if pid == 0:
            try:
                serve(url, marks, slot)
            finally:
                os._exit(1)
        sys.stdout.write(f"{pid}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
