"""`perdure worker --processes N`: workers as processes of their own, started, watched, drained and ended by this one.

One thread does everything, one thing at a time; other threads, timers and the signal handler only put things to do into its
queue. No code of the user's is imported here, and no store opened.

A child is told to drain by the end of its standard input. So it also drains if this process is killed, and a signal that a
service manager sends to all processes of a service at once counts once. Each child leads a session of its own: Ctrl-C in a
terminal is for this process alone.
"""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import threading
from collections.abc import Callable, Sequence
from queue import SimpleQueue
from typing import Any, Final, TypeAlias

import msgspec

from perdure.cli.exits import DONE, FAILED
from perdure.cli.stopping import await_eof, stopping

log = logging.getLogger("perdure.worker")

#: Seconds before a process that died is replaced: the first time, and at most. They double each time, and begin anew when a
#: process has lived for so long.
FIRST_PAUSE: Final = 0.5
LONGEST_PAUSE: Final = 30.0
_STABLE: Final = 60.0
#: Seconds that what a child has said is waited for after its end: what it forked may hold its pipe open.
_LAST_WORDS: Final = 1.0

Event: TypeAlias = dict[str, Any]


class Child:
    """A worker process in its place, from 0. `said` and `ended` are called in threads."""

    def __init__(
        self,
        command: Callable[[int], Sequence[str]],
        place: int,
        said: Callable[[Child, Event], None],
        ended: Callable[[Child, int], None],
    ) -> None:
        self.place = place
        reading, writing = os.pipe()
        try:
            self._process = subprocess.Popen(
                command(writing), stdin=subprocess.PIPE, pass_fds=(writing,), start_new_session=True
            )
        except BaseException:
            os.close(reading)
            raise
        finally:
            os.close(writing)
        self.pid = self._process.pid

        def listen() -> None:
            with open(reading, "rb") as lines:
                for line in lines:
                    try:
                        event = msgspec.json.decode(line)
                    except msgspec.DecodeError:
                        continue  # It was killed in the middle of it.
                    said(self, event)

        def wait() -> None:
            code = self._process.wait()
            listener.join(_LAST_WORDS)
            ended(self, code)

        listener = threading.Thread(target=listen, name="perdure-child", daemon=True)
        listener.start()
        threading.Thread(target=wait, name="perdure-child-end", daemon=True).start()

    def drain(self) -> None:
        """Have it stop as by its first SIGTERM. Any number of times."""
        if self._process.stdin is not None:
            self._process.stdin.close()

    def kill(self) -> None:
        """At once. Also from a signal handler."""
        self._process.kill()


class Supervisor:
    """Keeps `count` workers alive. `command` makes a child's command from the file number that it tells its events to.

    `tell` is given the events of all, each with the child's `pid`.
    """

    def __init__(
        self, command: Callable[[int], Sequence[str]], count: int, tell: Callable[[Event], None] | None = None
    ) -> None:
        self._command = command
        self._count = count
        self._tell = tell
        self._todo: SimpleQueue[Callable[[], None]] = SimpleQueue()
        self._children: list[Child] = []
        #: Makes the child that is being started.
        self._birth: threading.Thread | None = None
        #: The next pause of each place where a process died.
        self._pauses: dict[int, float] = {}
        #: What waits for its time.
        self._timers: dict[threading.Timer, None] = {}
        #: True once a child served.
        self._served = False
        self._stopping = False
        self._code = DONE

    def run(self, *, stop_on_eof: bool = False) -> int:
        """Until told to stop, and all have ended. Main thread. Returns the exit code: `FAILED` if one did not end well.

        The first child is started alone: what is wrong with the app ends it, and us with its exit code, and is said once.
        """

        def told() -> None:
            self._todo.put(self._stop)

        with stopping(told, self._kill):
            if stop_on_eof:
                threading.Thread(target=await_eof, args=(told,), name="perdure-eof", daemon=True).start()
            self._start(0)
            while self._children or not self._stopping:
                self._todo.get()()
        for timer in self._timers:
            timer.cancel()
        return self._code

    def _start(self, place: int) -> None:
        if self._stopping:
            return
        failed: list[BaseException] = []

        def bear() -> None:
            try:
                child = Child(self._command, place, self._put_said, self._put_ended)
            except BaseException as error:
                failed.append(error)
            else:
                self._children.append(child)
                self._after(_STABLE, lambda: self._stable(child))

        # In a thread: a signal comes to this one, and must not find a process that nobody knows of yet.
        self._birth = birth = threading.Thread(target=bear, name="perdure-birth", daemon=True)
        birth.start()
        birth.join()
        self._birth = None
        if failed:
            raise failed[0]

    def _put_said(self, child: Child, event: Event) -> None:
        self._todo.put(lambda: self._said(child, event))

    def _put_ended(self, child: Child, code: int) -> None:
        self._todo.put(lambda: self._ended(child, code))

    def _after(self, seconds: float, do: Callable[[], None]) -> None:
        def ring() -> None:
            self._todo.put(lambda: self._timers.pop(timer, None))
            self._todo.put(do)

        timer = threading.Timer(seconds, ring)
        timer.daemon = True
        self._timers[timer] = None
        timer.start()

    def _said(self, child: Child, event: Event) -> None:
        if self._tell is not None:
            self._tell({**event, "pid": child.pid})
        if event.get("event") == "ready" and not self._served:
            self._served = True
            for place in range(1, self._count):
                self._start(place)

    def _ended(self, child: Child, code: int) -> None:
        self._children.remove(child)
        child.drain()
        restart = self._served and not self._stopping
        pause = self._pauses.get(child.place, FIRST_PAUSE) if restart else None
        if self._tell is not None:
            self._tell({"event": "process.ended", "pid": child.pid, "code": code, "restarts_in": pause})
        if pause is not None:
            log.warning("process %d ended with %s; another takes its place in %g s", child.pid, _shown(code), pause)
            self._pauses[child.place] = min(2 * pause, LONGEST_PAUSE)
            self._after(pause, lambda: self._start(child.place))
            return
        if code != DONE:
            log.error("process %d ended with %s", child.pid, _shown(code))
            self._code = FAILED if self._served or code < 0 else code
        self._stopping = True

    def _stable(self, child: Child) -> None:
        if child in self._children:
            self._pauses.pop(child.place, None)

    def _stop(self) -> None:
        self._stopping = True
        log.info("draining %d processes; another signal ends them at once", len(self._children))
        for child in self._children:
            child.drain()

    def _kill(self) -> None:
        if self._birth is not None and self._birth.ident is not None:
            self._birth.join(_LAST_WORDS)
        for child in tuple(self._children):
            child.kill()


def _shown(code: int) -> str:
    try:
        return f"exit code {code}" if code >= 0 else signal.Signals(-code).name
    except ValueError:
        return f"signal {-code}"
