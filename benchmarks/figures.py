"""What is reported: each figure with its unit, its target, and what the same work would cost as bare commits.

The raw limit of a figure is the time (or rate) of as many single-row commits as the work has facts to make durable: a run of
one step has two, its beginning and its end; a signal to a parked run two, the signal and the end. A ratio above 1 is the work
of group commit: several facts shared one commit. Where many runs or steps are at work together, the bare commits are those of
as many connections as the store likes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from benchmarks.sizes import Sizes

#: A loop is linear if a wait costs at most so much more in it than in the loop where it costs least; a claim or a commit does
#: not grow with the table if it costs at most so much more in the large one. (A single commit varies more than a loop of them.)
_LINEAR = 1.3
_FLAT = 2.0

#: What to reach on each store, in the figure's unit.
_TARGETS: Mapping[str, Mapping[str, float]] = {
    "sqlite": {
        "one_step_p50_ms": 1.2,
        "runs3_per_s": 3000,
        "signal_p50_ms": 2,
        "parallel_s": 0.06,
        "recover_s": 0.7,
    },
    "postgres": {
        "one_step_p50_ms": 1.5,
        "runs3_per_s": 3000,
        "signal_p50_ms": 3,
        "signal_across_p50_ms": 10,
        "parallel_s": 0.1,
        "recover_s": 1,
    },
}
#: The share of the raw limit that steps in a row must reach.
_SHARES: Mapping[str, float] = {"sqlite": 0.5, "postgres": 0.6}


@dataclass(frozen=True)
class Raw:
    """Bare commits a second."""

    #: One after another.
    alone: float
    #: As many at once as serve the store best.
    many: float


@dataclass(frozen=True)
class Figure:
    """One number of the report. Names are without the store's prefix."""

    name: str
    what: str
    unit: str
    #: Facts to make durable; of a rate, for each of what it counts. None: it is not about them.
    facts: float | None = None
    #: True: these facts come from many at once.
    many: bool = False
    #: What to reach, in the figure's unit; of a rate at least, of all others at most.
    target: float | None = None
    #: The target as a share of the raw limit instead.
    share: float | None = None
    #: How many waits a loop has.
    waits: int | None = None
    #: The figure that this one must not exceed by much: the same work on little data.
    like: str | None = None

    @property
    def is_rate(self) -> bool:
        return self.unit == "/s"

    def limit(self, raw: Raw) -> float | None:
        """The figure if all its time were bare commits."""
        if self.facts is None:
            return None
        commits = raw.many if self.many else raw.alone
        if self.is_rate:
            return commits / self.facts
        return self.facts / commits * (1e3 if self.unit == "ms" else 1)

    def ratio(self, value: float, raw: Raw) -> float | None:
        """1: as fast as bare commits, 0.5: half as fast."""
        limit = self.limit(raw)
        if limit is None or value == 0:
            return None
        return value / limit if self.is_rate else limit / value

    def goal(self) -> str:
        """The target in words."""
        if self.share is not None:
            return f">= {self.share:g} of raw"
        if self.waits is not None:
            return "linear"
        if self.like is not None:
            return "does not grow"
        if self.target is None:
            return ""
        return f"{'>=' if self.is_rate else '<='} {self.target:,g} {self.unit}"

    def reached(self, values: Mapping[str, float], raw: Raw, of: tuple[Figure, ...]) -> bool | None:
        """Whether the target is reached; None without one. `of`: all figures, among which loops find each other."""
        value = values[self.name]
        if self.share is not None:
            return (self.ratio(value, raw) or 0) >= self.share
        if self.waits is not None:
            least = min(values[each.name] / each.waits for each in of if each.waits is not None)
            return value / self.waits <= _LINEAR * least
        if self.like is not None:
            return value <= _FLAT * values[self.like]
        if self.target is None:
            return None
        return value >= self.target if self.is_rate else value <= self.target


def figures(sizes: Sizes, store: str) -> tuple[Figure, ...]:
    """The figures that every store has, with the targets of this one, in the order of the report."""
    steps, parallel, recovered = sizes.sequential_steps, sizes.parallel, sizes.recovered
    targets = _TARGETS[store]
    return (
        Figure("one_step_p50_ms", "a run of one step, median", "ms", facts=2, target=targets["one_step_p50_ms"]),
        Figure("one_step_p99_ms", "a run of one step, 99th percentile", "ms", facts=2),
        Figure(
            "sequential_steps_per_s", f"{steps:,} steps in a row", "/s", facts=(steps + 1) / steps, share=_SHARES[store]
        ),
        Figure(
            "runs3_per_s",
            f"{sizes.runs3:,} runs of 3 steps, {sizes.runs3_in_flight} in flight",
            "/s",
            facts=4,
            many=True,
            target=targets["runs3_per_s"],
        ),
        Figure("signal_p50_ms", "signal to completion, median", "ms", facts=2, target=targets["signal_p50_ms"]),
        Figure(
            f"parallel{parallel}_s",
            f"{parallel} steps at once",
            "s",
            facts=parallel + 1,
            many=True,
            target=targets["parallel_s"],
        ),
        *(
            Figure(f"loop_{count}_s", f"a loop of {count:,} waits for a signal", "s", facts=2 * count + 1, waits=count)
            for count in sizes.loops
        ),
        Figure(
            f"recover{recovered}_s",
            f"{recovered} runs cut off by SIGKILL",
            "s",
            facts=2 * recovered,
            many=True,
            target=targets["recover_s"],
        ),
        Figure("parked_kib", f"a waiting run, kept in memory (of {sizes.parked:,})", "KiB", target=4),
        # None, that is: a process of this size grows by one or two MiB by itself.
        Figure("evicted_kib", f"a waiting run, evicted (of {sizes.parked:,})", "KiB", target=0.2),
    )


def fleet_figures(sizes: Sizes) -> tuple[Figure, ...]:
    """The figures of a store that many processes share over a network, with their targets."""
    across = _TARGETS["postgres"]["signal_across_p50_ms"]
    return (
        Figure("signal_across_p50_ms", "signal to completion, from process to process", "ms", facts=2, target=across),
        Figure(
            "runs3_2proc_per_s",
            f"2 processes, each {sizes.runs3:,} runs of 3 steps, {sizes.runs3_in_flight} in flight",
            "/s",
            facts=4,
            many=True,
        ),
        *(
            Figure(
                f"{verb}_{short(count)}_ms",
                f"{what} beside {count:,} ended and waiting runs",
                "ms",
                facts=1,
                like=None if count == sizes.others[0] else f"{verb}_{short(sizes.others[0])}_ms",
            )
            for verb, what in (("claim", "claiming a run"), ("commit", "ending a run"))
            for count in sizes.others
        ),
    )


def short(count: int) -> str:
    """10000: `10k`, 1000000: `1m`."""
    for factor, letter in ((1_000_000, "m"), (1000, "k")):
        if count >= factor and count % factor == 0:
            return f"{count // factor}{letter}"
    return str(count)


IMPORT = Figure("import_ms", "import perdure", "ms", target=80)
