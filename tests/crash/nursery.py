"""Forks workers on demand, so that a few hundred of them can be killed in seconds.

`python -m tests.crash.nursery URL PIPE MAP LEASE` reads slot numbers from standard input, one a line; answers each with the pid
of a new worker. A worker opens its app after the fork (nothing is open before it), and serves until it is killed. It marks in
its slot of the shared map where it is (see `marks`), so that whoever kills it can say what the kill hit. On SIGUSR1 it writes
the stacks of all its threads to standard error.
"""

from __future__ import annotations

import asyncio
import faulthandler
import mmap
import os
import signal
import sys

from perdure import Perdure
from tests.crash import load
from tests.crash.marks import SIZE, Marks


def serve(url: str, marks: Marks, lease: float) -> None:
    async def run() -> None:
        app = Perdure(url, include=[load], lease=lease, poll=0.05, audit=1.0, max_recoveries=100_000)
        async with app:
            marks.opening(False)
            await asyncio.Event().wait()

    marks.watch(url)
    asyncio.run(run())


def main() -> None:
    url, pipe, path, lease = sys.argv[1], int(sys.argv[2]), sys.argv[3], float(sys.argv[4])
    load.pipe = pipe
    faulthandler.register(signal.SIGUSR1, all_threads=True)
    with open(path, "r+b") as file:
        shared = mmap.mmap(file.fileno(), SIZE)
    for line in sys.stdin:
        marks = Marks(shared, int(line))
        marks.opening(True)
        pid = os.fork()
        if pid == 0:
            try:
                serve(url, marks, lease)
            finally:
                os._exit(1)
        sys.stdout.write(f"{pid}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
