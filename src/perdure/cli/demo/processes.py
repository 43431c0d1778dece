"""Worker processes of the demo: started, stopped dead in their tracks, killed, drained."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from perdure.cli.demo.workflows import STORE

_APP = "perdure.cli.demo.workflows:app"
#: Seconds that a worker is given to drain.
_PATIENCE = 15.0
_TAIL = 2000


class WorkerProcess:
    """A `perdure worker` of the demo. It drains by itself if we are gone: its standard input ends then."""

    def __init__(self, store: str, folder: Path, log: Path) -> None:
        self._log = log
        # -P: whatever lies in the folder cannot take the place of a module. -W: the library's tests have odd literals.
        command = [sys.executable, "-P", "-W", "ignore", "-m", "perdure.cli", "worker", _APP, "--stop-on-eof"]
        with log.open("ab") as errors:
            self._process = subprocess.Popen(
                command,
                cwd=folder,
                env={**os.environ, STORE: store},
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=errors,
                # Ctrl-C is for us alone: we see to the worker.
                start_new_session=True,
            )
        self.pid = self._process.pid

    @property
    def gone(self) -> bool:
        """True if it has ended."""
        return self._process.poll() is not None

    def kill_if(self, wanted: Callable[[], bool]) -> bool:
        """Stop the process dead, ask `wanted`, and then kill it with SIGKILL or let it go on. True if it was killed.

        While it is stopped nothing moves: what `wanted` sees is what the kill meets.
        """
        os.kill(self.pid, signal.SIGSTOP)
        # Sent is not stopped: wait until the kernel says so.
        _, status = os.waitpid(self.pid, os.WUNTRACED)
        if not os.WIFSTOPPED(status):
            self._process.returncode = os.waitstatus_to_exitcode(status)
            return False
        if wanted():
            self._process.kill()
            self._process.wait()
            self.close()
            return True
        os.kill(self.pid, signal.SIGCONT)
        return False

    def drain(self) -> int:
        """Ask it to stop and wait; it is killed if it does not. Returns its exit code."""
        self._process.terminate()
        try:
            return self._process.wait(_PATIENCE)
        except subprocess.TimeoutExpired:
            self._process.kill()
            return self._process.wait()
        finally:
            self.close()

    def close(self) -> None:
        """Let go of it; a process that still runs is killed."""
        if not self.gone:
            self._process.kill()
            self._process.wait()
        if self._process.stdin is not None:
            self._process.stdin.close()

    def tail(self) -> str:
        """The end of its log."""
        return self._log.read_text(encoding="utf-8", errors="replace")[-_TAIL:]
