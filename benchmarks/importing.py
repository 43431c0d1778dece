"""Import time: what `import perdure` takes in a fresh interpreter whose files are compiled and in the system's cache."""

from __future__ import annotations

import statistics
import subprocess
import sys
from time import perf_counter

_STATEMENT = "from time import perf_counter as t; a = t(); import perdure; print(t() - a)"


def import_ms(count: int) -> float:
    """Milliseconds of the import statement alone, measured around it; the median of `count` processes."""
    taken = [float(subprocess.check_output([sys.executable, "-c", _STATEMENT])) for _ in range(count + 1)]
    return statistics.median(taken[1:]) * 1e3  # the first one may have compiled


def interpreter_ms(count: int) -> float:
    """Milliseconds that a Python takes from start to end with nothing to do."""
    taken: list[float] = []
    for _ in range(count):
        began = perf_counter()
        subprocess.run([sys.executable, "-c", "pass"], check=True)
        taken.append(perf_counter() - began)
    return statistics.median(taken) * 1e3
