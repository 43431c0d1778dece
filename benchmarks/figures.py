"""What is reported: each figure with its unit, its target, and what the same work would cost as bare commits.

The raw limit of a figure is the time (or rate) of as many single-row commits as the work has facts to make durable: a run of
one step has two, its beginning and its end; a signal to a parked run two, the signal and the end. A ratio above 1 is the work
of group commit: several facts shared one commit.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from benchmarks.sizes import Sizes

#: A loop is linear if a wait costs at most so much more in it than in the loop where it costs least.
_LINEAR = 1.3


@dataclass(frozen=True)
class Figure:
    """One number of the report. Names are without the store's prefix."""

    name: str
    what: str
    unit: str
    #: Facts to make durable; of a rate, for each of what it counts. None: it is not about them.
    facts: float | None = None
    #: What to reach, in the figure's unit; of a rate at least, of all others at most.
    target: float | None = None
    #: The target as a share of the raw limit instead.
    share: float | None = None
    #: How many waits a loop has.
    waits: int | None = None

    @property
    def is_rate(self) -> bool:
        return self.unit == "/s"

    def limit(self, raw: float) -> float | None:
        """The figure if all its time were bare commits, of which `raw` are made a second."""
        if self.facts is None:
            return None
        if self.is_rate:
            return raw / self.facts
        return self.facts / raw * (1e3 if self.unit == "ms" else 1)

    def ratio(self, value: float, raw: float) -> float | None:
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
        if self.target is None:
            return ""
        return f"{'>=' if self.is_rate else '<='} {self.target:,g} {self.unit}"

    def reached(self, values: Mapping[str, float], raw: float, of: tuple[Figure, ...]) -> bool | None:
        """Whether the target is reached; None without one. `of`: all figures, among which loops find each other."""
        value = values[self.name]
        if self.share is not None:
            return (self.ratio(value, raw) or 0) >= self.share
        if self.waits is not None:
            least = min(values[each.name] / each.waits for each in of if each.waits is not None)
            return value / self.waits <= _LINEAR * least
        if self.target is None:
            return None
        return value >= self.target if self.is_rate else value <= self.target


def figures(sizes: Sizes) -> tuple[Figure, ...]:
    """All figures that a store has, in the order of the report."""
    steps, parallel, recovered = sizes.sequential_steps, sizes.parallel, sizes.recovered
    return (
        Figure("one_step_p50_ms", "a run of one step, median", "ms", facts=2, target=1.2),
        Figure("one_step_p99_ms", "a run of one step, 99th percentile", "ms", facts=2),
        Figure("sequential_steps_per_s", f"{steps:,} steps in a row", "/s", facts=(steps + 1) / steps, share=0.5),
        Figure(
            "runs3_per_s",
            f"{sizes.runs3:,} runs of 3 steps, {sizes.runs3_in_flight} in flight",
            "/s",
            facts=4,
            target=3000,
        ),
        Figure("signal_p50_ms", "signal to completion, median", "ms", facts=2, target=2),
        Figure(f"parallel{parallel}_s", f"{parallel} steps at once", "s", facts=parallel + 1, target=0.06),
        *(
            Figure(f"loop_{count}_s", f"a loop of {count:,} waits for a signal", "s", facts=2 * count + 1, waits=count)
            for count in sizes.loops
        ),
        Figure(f"recover{recovered}_s", f"{recovered} runs cut off by SIGKILL", "s", facts=2 * recovered, target=0.7),
        Figure("parked_kib", f"a waiting run, kept in memory (of {sizes.parked:,})", "KiB", target=4),
        # None, that is: a process of this size grows by one or two MiB by itself.
        Figure("evicted_kib", f"a waiting run, evicted (of {sizes.parked:,})", "KiB", target=0.2),
    )


IMPORT = Figure("import_ms", "import perdure", "ms", target=80)
