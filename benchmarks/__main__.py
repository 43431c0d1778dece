"""`python -m benchmarks`: measure, print beside raw limits and targets, and write a flat object of numbers.

Everything is measured several times, in rounds: each round measures everything once, each time on a fresh file and after a
moment of bare commits, so that a disturbance of the machine hits one sample of some figures and not all of one. Medians are
reported.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import platform
import sys
import tempfile
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from statistics import median
from typing import Protocol, TypeAlias

from benchmarks import memory, recovery, speed
from benchmarks.children import ROOT
from benchmarks.figures import IMPORT, figures
from benchmarks.importing import import_ms, interpreter_ms
from benchmarks.sizes import TINY, Sizes
from benchmarks.sqlite import Sqlite
from benchmarks.table import number, store_table

#: Measures on the store of a URL that nobody has used; gives its figures by name.
Workload: TypeAlias = Callable[[str, Sizes], dict[str, float]]
#: Of every figure all that was measured.
Samples: TypeAlias = dict[str, list[float]]


class Subject(Protocol):
    """A store under test. Its name is the prefix of its figures."""

    name: str

    def url(self) -> str:
        """A store that nobody has used."""
        ...

    def raw_commits(self, count: int, warm: int) -> float:
        """Commits a second of `count` small rows, after `warm` others, without Perdure, where its data would lie."""
        ...

    async def settings(self) -> str:
        """What of the store matters for its speed, as the store itself says it."""
        ...


def here(workload: Callable[[str, Sizes], Awaitable[dict[str, float]]]) -> Workload:
    """An async workload on a fresh event loop of this process."""

    def run(url: str, sizes: Sizes) -> dict[str, float]:
        async def main() -> dict[str, float]:
            return await workload(url, sizes)

        return asyncio.run(main())

    run.__name__ = workload.__name__
    return run


#: Memory is measured once: it hardly varies, and takes long.
ONCE: tuple[Workload, ...] = (memory.parked, memory.evicted)
WORKLOADS: tuple[Workload, ...] = (
    here(speed.one_step),
    here(speed.sequential_steps),
    here(speed.runs_of_three),
    here(speed.signal),
    here(speed.parallel_steps),
    here(speed.loops),
    recovery.recovery,
    *ONCE,
)


def measure(subject: Subject, sizes: Sizes, say: Callable[[str], None]) -> tuple[Samples, float]:
    """All figures of a store, and its bare commits a second (median)."""
    samples: Samples = {}
    raws: list[float] = []
    for number_of_round in range(sizes.repeats):
        for workload in WORKLOADS:
            if workload in ONCE and number_of_round:
                continue
            say(f"round {number_of_round + 1} of {sizes.repeats}: {subject.name}, {workload.__name__}")
            raws.append(subject.raw_commits(sizes.raw_commits, sizes.warm))
            for name, value in workload(subject.url(), sizes).items():
                samples.setdefault(name, []).append(value)
    return samples, median(raws)


def machine() -> str:
    """Where this was measured, and whether something else was at work there."""
    processors = os.cpu_count() or 1
    text = (
        f"{platform.python_implementation()} {platform.python_version()} on {platform.system()} {platform.machine()}, "
        f"{processors} processors"
    )
    if not hasattr(os, "getloadavg"):
        return text
    load = os.getloadavg()[0]
    text += f", load {load:.1f}"
    if load > 1:
        text += "\nSomething else was at work here in the last minute; if it still is, all figures are worse for it."
    return text


def run(sizes: Sizes, output: Path, say: Callable[[str], None]) -> Mapping[str, float]:
    """Measure everything, print it, write `output`."""
    output.parent.mkdir(parents=True, exist_ok=True)
    flat: dict[str, float] = {}
    print(machine())
    # Beside the output, not in the system's folder for temporary files: that may lie in memory, where nothing is durable.
    with tempfile.TemporaryDirectory(prefix="bench-", dir=output.parent) as folder:
        for subject in (Sqlite(Path(folder)),):
            print(asyncio.run(subject.settings()))
            samples, raw = measure(subject, sizes, say)
            print(f"bare single-row commits: {number(raw, '/s')}\n")
            print(store_table(figures(sizes), samples, raw))
            flat[f"{subject.name}.raw_commits_per_s"] = raw
            flat |= {f"{subject.name}.{name}": median(measured) for name, measured in samples.items()}
    flat[IMPORT.name] = import_ms(sizes.imports)
    bare = interpreter_ms(sizes.imports)
    print(
        f"\n{IMPORT.what}: {number(flat[IMPORT.name], 'ms')} (target {IMPORT.goal()}), beside an interpreter that starts and "
        f"ends: {number(bare, 'ms')}, ratio {flat[IMPORT.name] / bare:.2f}"
    )
    output.write_text(json.dumps({name: round(value, 6) for name, value in flat.items()}, indent=2) + "\n")
    print(f"\nWritten to {output}")
    return flat


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description="Measure Perdure on this machine.")
    parser.add_argument("--output", type=Path, default=ROOT / "build" / "bench.json", help="where the numbers go")
    parser.add_argument("--rounds", type=int, default=Sizes().repeats, help="how often everything is measured")
    parser.add_argument("--tiny", action="store_true", help="only see that every piece runs; its numbers mean nothing")
    chosen = parser.parse_args()
    sizes = TINY if chosen.tiny else Sizes(repeats=chosen.rounds)

    def say(text: str) -> None:
        print(f"\r\033[K{text}", end="", file=sys.stderr, flush=True) if sys.stderr.isatty() else None

    run(sizes, chosen.output.resolve(), say)


if __name__ == "__main__":
    main()
