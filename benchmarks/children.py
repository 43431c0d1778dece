"""Measuring in a process of its own: it writes a line when it is ready, or its figure as the last one."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]


def begin(module: str, *arguments: str) -> subprocess.Popen[str]:
    """Start a module of this package; its standard output is read line by line, and lines can be told to it."""
    command = [sys.executable, "-m", module, *arguments]
    return subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def line(process: subprocess.Popen[str]) -> str:
    """The next line that a process writes. Raises if it ends without one."""
    assert process.stdout is not None
    text = process.stdout.readline()
    if not text:
        raise RuntimeError(f"{process.args!r} ended with status {process.wait()} and no figure; see its error output")
    return text.strip()


def tell(process: subprocess.Popen[str], text: str) -> None:
    """Write a line to a process."""
    assert process.stdin is not None
    process.stdin.write(text + "\n")
    process.stdin.flush()


def end(process: subprocess.Popen[str]) -> None:
    """Kill it, if it has not ended by itself, and let go of it."""
    process.kill()
    with process:
        pass


def figure(module: str, *arguments: str) -> float:
    """The number that a module of this package prints."""
    with begin(module, *arguments) as process:
        return float(line(process))
