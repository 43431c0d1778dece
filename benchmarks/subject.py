"""What is measured: a store under test, and how its figures are gathered.

Everything is measured several times, in rounds: each round measures everything once, each time on a fresh store and after a
moment of bare commits, so that a disturbance of the machine hits one sample of some figures and not all of one. Medians are
reported.
"""

from __future__ import annotations

import asyncio
import os
import platform
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Protocol, TypeAlias

from benchmarks.figures import Figure, Raw
from benchmarks.sizes import Sizes

#: Measures on the store of a URL that nobody has used; gives its figures by name.
Workload: TypeAlias = Callable[[str, Sizes], dict[str, float]]
#: Of every figure all that was measured.
Samples: TypeAlias = Mapping[str, Sequence[float]]
#: Called with what is being done.
Say: TypeAlias = Callable[[str], None]


class Subject(Protocol):
    """A store under test. Its name is the prefix of its figures."""

    name: str
    #: What is measured on it in each round, and what in the first one alone: it hardly varies, and takes long.
    workloads: Sequence[Workload]
    once: Sequence[Workload]

    def url(self) -> str:
        """A store that nobody has used; the one before is not needed any more."""
        ...

    def raw(self, count: int, warm: int) -> dict[str, float]:
        """Commits a second of small rows, after `warm` others, without Perdure, where its data would lie.

        By the names they have in the report: the first is of `count` commits one after another, the last of as many as the
        store can take at once.
        """
        ...

    def settings(self) -> str:
        """What of the store matters for its speed, as the store itself says it."""
        ...

    def figures(self, sizes: Sizes) -> tuple[Figure, ...]:
        """What is reported of it, with its targets."""
        ...


@dataclass(frozen=True)
class Measured:
    """All that was measured of one subject."""

    samples: Samples
    raws: Samples

    @property
    def raw(self) -> Raw:
        values = [median(each) for each in self.raws.values()]
        return Raw(alone=values[0], many=values[-1])

    def flat(self, prefix: str) -> dict[str, float]:
        """Medians by name."""
        both = {**self.raws, **self.samples}
        return {f"{prefix}.{name}": median(measured) for name, measured in both.items()}


def here(workload: Callable[[str, Sizes], Awaitable[dict[str, float]]]) -> Workload:
    """An async workload on a fresh event loop of this process."""

    def run(url: str, sizes: Sizes) -> dict[str, float]:
        async def main() -> dict[str, float]:
            return await workload(url, sizes)

        return asyncio.run(main())

    run.__name__ = workload.__name__
    return run


def measure(subjects: Sequence[Subject], sizes: Sizes, say: Say) -> dict[str, Measured]:
    """All figures of each subject, by its name. The subjects take turns within a round, so that all see the same machine."""
    samples: dict[str, dict[str, list[float]]] = {subject.name: {} for subject in subjects}
    raws: dict[str, dict[str, list[float]]] = {subject.name: {} for subject in subjects}
    for number in range(sizes.repeats):
        for subject, workload in _in_turns(subjects, first=number == 0):
            say(f"round {number + 1} of {sizes.repeats}: {subject.name}, {workload.__name__}")
            _add(raws[subject.name], subject.raw(sizes.raw_commits, sizes.warm))
            _add(samples[subject.name], workload(subject.url(), sizes))
    return {name: Measured(samples[name], raws[name]) for name in samples}


def _in_turns(subjects: Sequence[Subject], *, first: bool) -> Iterable[tuple[Subject, Workload]]:
    """Each workload on one subject after another, in the order of the subject that has most."""
    lists = [[*subject.workloads, *(subject.once if first else ())] for subject in subjects]
    for position in range(max(map(len, lists))):
        for subject, workloads in zip(subjects, lists, strict=True):
            if position < len(workloads):
                yield subject, workloads[position]


def _add(samples: dict[str, list[float]], measured: Mapping[str, float]) -> None:
    for name, value in measured.items():
        samples.setdefault(name, []).append(value)


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
