"""A temporary folder for servers that do not outlive the process that claimed it.

Rules:
- The owner holds an exclusive lock on the file `alive`; the kernel takes it back from a process that dies.
- Whoever starts a server in the folder calls `guard` first: then an undertaker waits for that lock, and ends the servers.
- If the undertaker died too, the next `claim` on this machine finds a folder that nobody holds, and does the same.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import secrets
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType

from tests.servers import undertaker

PREFIX = "perdure-servers-"


class Folder:
    """A folder of this process. Its path is traversable for all, since servers may run under another user."""

    def __init__(self, path: Path, alive: int) -> None:
        self.path = path
        self._alive = alive

    @classmethod
    def claim(cls) -> Folder:
        """A new folder; what sessions that are gone left behind is ended and removed on the way."""
        parent = roomy()
        sweep(parent)
        # Made under another name: a sweep must never see it without its lock.
        new = Path(tempfile.mkdtemp(prefix=f".{PREFIX}", dir=parent))
        new.chmod(0o711)
        alive = os.open(new / "alive", os.O_CREAT | os.O_RDWR, 0o600)
        fcntl.flock(alive, fcntl.LOCK_EX)
        return cls(new.rename(parent / f"{PREFIX}{secrets.token_hex(4)}"), alive)

    def close(self) -> None:
        """End the servers, remove the folder. The second time nothing happens."""
        if self._alive >= 0:
            undertaker.bury(self.path)
            # Said aloud, since a child that was forked without exec holds the same lock.
            fcntl.flock(self._alive, fcntl.LOCK_UN)
            os.close(self._alive)
            self._alive = -1

    def __enter__(self) -> Folder:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def guard(path: Path) -> None:
    """See to it that the servers in a claimed folder end with its owner. Any process may call it, before it starts one."""
    subprocess.run([sys.executable, undertaker.__file__, path], check=True, stdin=subprocess.DEVNULL)


def sweep(parent: Path) -> None:
    """Remove every folder of ours that nobody holds, and end what still runs in it."""
    for path in parent.glob(f"{PREFIX}*"):
        with contextlib.suppress(OSError):
            if path.stat().st_uid != os.geteuid():
                continue
            with exclusive(path / "alive", wait=False):
                undertaker.bury(path)


@contextlib.contextmanager
def exclusive(file: Path, wait: bool = True) -> Iterator[None]:
    """Hold the lock of a file.

    Raises:
        FileNotFoundError: It does not exist.
        BlockingIOError: Somebody holds it, and `wait` is false.
    """
    handle = os.open(file, os.O_RDWR)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    finally:
        os.close(handle)


def roomy() -> Path:
    """Where temporary folders go; as root, a place that other users can reach."""
    usual = Path(tempfile.gettempdir())
    if os.geteuid() != 0:
        return usual
    for place in (usual, Path("/tmp"), Path("/var/tmp")):
        if all(one.stat().st_mode & stat.S_IXOTH for one in (place, *place.parents)):
            return place
    return usual
