"""Import time: what `import perdure` takes in a fresh interpreter whose files are compiled and in the system's cache."""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
from time import perf_counter

_STATEMENT = "from time import perf_counter as t; a = t(); import perdure; print(t() - a)"


def import_ms(count: int) -> float:
    """Milliseconds of the import statement alone, measured around it; the median of `count` processes."""
    # The first one compiles what has changed, and keeps it: also where the environment forbids that, as in some containers.
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    command = [sys.executable, "-c", _STATEMENT]
    taken = [float(subprocess.check_output(command, env=environment)) for _ in range(count + 1)]
    return statistics.median(taken[1:]) * 1e3


def interpreter_ms(count: int) -> float:
    """Milliseconds that a Python takes from start to end with nothing to do."""
    taken: list[float] = []
    for _ in range(count):
        began = perf_counter()
        subprocess.run([sys.executable, "-c", "pass"], check=True)
        taken.append(perf_counter() - began)
    return statistics.median(taken) * 1e3
