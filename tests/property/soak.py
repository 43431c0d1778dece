"""Many random programs: `python -m tests.property.soak 20000 [first seed]`, or a digest: `... soak --digest 200`.

A seed that fails is printed with its program; `tests/property/test_regressions.py` is where it belongs then.
"""

from __future__ import annotations

import argparse
import gc
import sys
from collections import Counter

from tests.property.properties import Broken, Recording, check_seed, digest


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("count", type=int)
    parser.add_argument("first", type=int, nargs="?", default=0)
    parser.add_argument("--digest", action="store_true")
    options = parser.parse_args()
    seeds = range(options.first, options.first + options.count)
    if options.digest:
        sys.stdout.write(digest(seeds) + "\n")
        return 0
    gc.freeze()  # collections see what the programs leave, not what was imported
    failed = 0
    totals: Counter[str] = Counter()
    for number, seed in enumerate(seeds, 1):
        try:
            count(totals, check_seed(seed))
        except Broken as error:
            failed += 1
            sys.stdout.write(f"{error}\n")
        if number % 1000 == 0 or number == options.count:
            sys.stdout.write(f"{number} programs, {failed} failed; {dict(totals)}\n")
            sys.stdout.flush()
    return 1 if failed else 0


def count(totals: Counter[str], recording: Recording) -> None:
    """What the programs were good for."""
    outcome = recording.outcome
    totals[
        "blocked" if isinstance(outcome, str) else "open" if outcome is None else type(outcome).__name__.lower()
    ] += 1
    totals["requeued"] += sum(boundary.shown is None for boundary in recording.boundaries)
    totals["commits"] += len(recording.boundaries)
    totals["operations"] += sum(entry.event == 0 for entry in recording.history)


if __name__ == "__main__":
    sys.exit(main())
