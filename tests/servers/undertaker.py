"""Ends the servers of a folder and removes it, as soon as the folder's owner is gone, however it went.

    python undertaker.py FOLDER

The owner holds an exclusive lock on FOLDER/alive. This program goes into the background and asks for the same lock: it gets it
in the moment the owner lets go of it or dies, `kill -9` included, without looking at the clock. `folder.py` has the other half.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import signal
import sys
from collections.abc import Iterable
from pathlib import Path

import psutil  # type: ignore[import-untyped]

#: Seconds that a server gets to end by itself.
PATIENCE = 10.0

#: Seconds between two looks at a process that is not our child, for which there is no event on every platform.
GLANCE = 0.02


def bury(folder: Path) -> None:
    """End the servers that have their pid files in `folder`, at once and without a checkpoint, and remove the folder."""
    end(process for file in sorted(folder.glob("*/*.pid")) if (process := named(file, folder)) is not None)
    shutil.rmtree(folder, ignore_errors=True)


def named(file: Path, folder: Path) -> psutil.Process | None:
    """The running process that a pid file names; none where the number meanwhile belongs to another process."""
    with contextlib.suppress(OSError, ValueError, IndexError, psutil.Error):
        process = psutil.Process(int(file.read_text(encoding="utf-8").splitlines()[0]))
        if any(str(folder) in argument for argument in process.cmdline()):
            return process
    return None


def end(processes: Iterable[psutil.Process]) -> None:
    """Quit each process, and its children; kill those that do not heed that."""
    family: list[psutil.Process] = []
    for process in processes:
        with contextlib.suppress(psutil.NoSuchProcess):
            family += [*process.children(recursive=True), process]
            process.send_signal(signal.SIGQUIT)
    for process in left(family, PATIENCE):
        with contextlib.suppress(psutil.NoSuchProcess):
            process.kill()
    left(family, PATIENCE)


def left(processes: Iterable[psutil.Process], patience: float) -> list[psutil.Process]:
    """Wait until the processes have ended; after `patience` seconds, those that have not.

    A zombie has ended: where nobody takes in orphans (a container's first process may not), it stays one for good.
    """
    alive = list(processes)
    for _ in range(round(patience / GLANCE)):
        alive = [process for process in alive if running(process)]
        if not alive:
            break
        with contextlib.suppress(psutil.TimeoutExpired):
            alive[0].wait(GLANCE)
    return alive


def running(process: psutil.Process) -> bool:
    try:
        return bool(process.is_running() and process.status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


def main() -> None:
    folder = Path(sys.argv[1])
    # Opened before the parent returns: the folder's owner may go on and remove it.
    alive = os.open(folder / "alive", os.O_RDWR)
    if os.fork():
        os._exit(0)
    os.setsid()  # Ctrl-C in the tests' terminal is not meant for us.
    fcntl.flock(alive, fcntl.LOCK_EX)
    bury(folder)


if __name__ == "__main__":
    main()
