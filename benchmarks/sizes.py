"""How much of each workload is run."""

from __future__ import annotations

from dataclasses import dataclass, replace


@dataclass(frozen=True)
class Sizes:
    """The defaults are what `make bench` measures and what the targets are about."""

    #: How often everything is measured anew, each time on a fresh file; what is reported is the median.
    repeats: int = 5
    #: Bare commits before each measurement: as many as there are steps in a row, since the first thousands on a fresh file are
    #: slower than later ones, with and without Perdure.
    raw_commits: int = 1000
    #: Runs (or steps) of the same kind that go before each measurement and are not counted.
    warm: int = 100
    one_step_runs: int = 1000
    sequential_steps: int = 1000
    runs3: int = 2000
    runs3_in_flight: int = 200
    signals: int = 300
    parallel: int = 500
    loops: tuple[int, ...] = (100, 300, 1000, 3000)
    recovered: int = 500
    #: Seconds: the lease of the process that is killed.
    recovered_lease: float = 2.0
    parked: int = 10_000
    #: Runs that have ended or wait, beside which claims and commits are measured.
    others: tuple[int, ...] = (10_000, 1_000_000)
    claims: int = 200
    imports: int = 15


#: Enough to see that every piece runs.
TINY = Sizes(
    repeats=1,
    raw_commits=5,
    warm=2,
    one_step_runs=5,
    sequential_steps=5,
    runs3=6,
    runs3_in_flight=3,
    signals=3,
    parallel=5,
    loops=(1, 2, 3, 4),
    recovered=4,
    recovered_lease=0.3,
    parked=20,
    others=(20, 200),
    claims=5,
    imports=1,
)


def slower(sizes: Sizes) -> Sizes:
    """For an engine that is many times slower: fewer of what is counted one by one. Rates and medians stay comparable."""
    return replace(
        sizes,
        warm=min(sizes.warm, 50),
        one_step_runs=min(sizes.one_step_runs, 300),
        sequential_steps=min(sizes.sequential_steps, 500),
        runs3=min(sizes.runs3, 500),
        signals=min(sizes.signals, 100),
        parked=min(sizes.parked, 2000),
    )
