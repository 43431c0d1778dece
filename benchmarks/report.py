"""What the benchmark's commands have in common: options, progress, and the file of numbers."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping
from pathlib import Path

from benchmarks.children import ROOT
from benchmarks.sizes import TINY, Sizes

#: All numbers of this machine, by name.
BENCH = ROOT / "build" / "bench.json"


def options(program: str, what: str, rounds: int) -> tuple[Sizes, Path]:
    """The sizes and the output that the command line asks for; `rounds` is how many there are unless it says."""
    parser = argparse.ArgumentParser(prog=program, description=what)
    parser.add_argument(
        "--output", type=Path, default=BENCH, help="where the numbers go; what others wrote there stays"
    )
    parser.add_argument("--rounds", type=int, default=rounds, help="how often everything is measured")
    parser.add_argument("--tiny", action="store_true", help="only see that every piece runs; its numbers mean nothing")
    chosen = parser.parse_args()
    return TINY if chosen.tiny else Sizes(repeats=chosen.rounds), chosen.output.resolve()


def say(text: str) -> None:
    """Progress, where somebody looks on."""
    if sys.stderr.isatty():
        print(f"\r\033[K{text}", end="", file=sys.stderr, flush=True)


def read(path: Path) -> dict[str, float]:
    """The numbers in a file; none if it is not there."""
    if not path.exists():
        return {}
    flat: dict[str, float] = json.loads(path.read_text())
    return flat


def write(path: Path, flat: Mapping[str, float]) -> None:
    """Put numbers into a file, beside those that are there under other names."""
    path.parent.mkdir(parents=True, exist_ok=True)
    rounded = {name: round(value, 6) for name, value in flat.items()}
    path.write_text(json.dumps(read(path) | rounded, indent=2) + "\n")
    print(f"\nWritten to {path}")
