"""The supervisor of workers, where a real worker would not get: signals between two lines, lines that are cut off."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Sequence
from typing import Any

import pytest

from perdure.cli.supervisor import Child, Event, Supervisor

SLEEPS = [sys.executable, "-c", "import sys; sys.stdin.read()"]


def test_f53_a_second_signal_finds_a_process_that_is_just_being_born(monkeypatch: pytest.MonkeyPatch) -> None:
    born, go = threading.Event(), threading.Event()
    made: list[subprocess.Popen[bytes]] = []
    real = subprocess.Popen

    def slow(*arguments: Any, **options: Any) -> subprocess.Popen[bytes]:
        made.append(real(*arguments, **options))
        born.set()
        go.wait()
        return made[0]

    monkeypatch.setattr(subprocess, "Popen", slow)
    one = Supervisor(lambda fd: SLEEPS, 1)
    starting = threading.Thread(target=one._start, args=(0,))
    starting.start()
    born.wait()
    killing = threading.Thread(target=one._kill)  # what the signal's handler does
    killing.start()
    go.set()
    killing.join()
    assert made[0].wait(10) == -9
    starting.join()
    for timer in one._timers:
        timer.cancel()
    assert made[0].stdin is not None
    made[0].stdin.close()


def test_what_a_killed_process_was_cut_off_in_saying_is_passed_over() -> None:
    said: list[Event] = []
    ended = threading.Event()

    def command(fd: int) -> Sequence[str]:
        return [sys.executable, "-c", f"""import os; os.write({fd}, b'{{"event": "ready"}}\\n{{"event": "re')"""]

    child = Child(command, 0, lambda _, event: said.append(event), lambda _, code: ended.set())
    assert ended.wait(30)
    child.drain()
    assert said == [{"event": "ready"}]
