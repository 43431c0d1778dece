"""What a crash test does to a system at the least, and what it did."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Plan:
    """At least so many kills, and at least so many runs started."""

    workers: int = 2
    kills: int = 60
    runs: int = 0
    #: So many runs are unfinished at a time.
    crowd: int = 12
    #: So many attempts of steps end between two blows.
    pace: tuple[int, int] = (1, 40)
    #: How often it is a pause, and not a kill.
    pausing: float = 0.15
    #: Seconds.
    lease: float = 0.5
    #: Seconds that a run may take. They take a second or two.
    patience: float = 60


@dataclass
class Hits:
    """Blows of one kind, and where they landed."""

    all: int = 0
    in_step: int = 0
    in_commit: int = 0
    opening: int = 0


@dataclass
class Report:
    """What was hit, and what came of it."""

    kills: Hits = field(default_factory=Hits)
    pauses: Hits = field(default_factory=Hits)
    #: Runs that a process which had been paused still held to be its own, and that the store refused it.
    fenced: int = 0
    #: Commits that were asked again since their answer was lost; those that had been applied the first time.
    asked: int = 0
    adopted: int = 0
    started: int = 0
    runs: int = 0
    entries: int = 0
    attempts: int = 0
    cut: int = 0
    #: Attempts that a process began after it had been paused for so long that another one had gone on.
    stale: int = 0
    #: What was done to the store itself, in words.
    store: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    #: What should have been hit, and was not.
    missing: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        return "\n".join([*self.lines(), *(f"  {problem}" for problem in self.problems[:20])])

    def lines(self) -> list[str]:
        asked = self.asked + self.adopted
        return [
            f"{self.kills.all} kills: {_where(self.kills)}",
            f"{self.pauses.all} pauses longer than the lease: {_where(self.pauses)}",
            f"{self.fenced} runs were fenced off from processes that had been paused",
            *self.store,
            f"{asked} commits asked again, since their answer was lost; {self.adopted} of them had been applied",
            f"{self.started} runs started, {self.runs} with their children and links, {self.entries} rows of history",
            f"{self.attempts} attempts of steps, {self.cut} of them cut off, {self.stale} begun by a process that had slept",
            f"{len(self.problems)} problems",
        ]

    def missed(self) -> list[str]:
        """What must happen in such a test and did not: one that hits nothing proves nothing."""
        return [
            what
            for count, what in (
                (self.kills.in_step, "no kill landed inside a step"),
                (self.kills.in_commit, "no kill landed inside a commit"),
                (self.pauses.all, "nothing was paused"),
            )
            if not count
        ]


def _where(hits: Hits) -> str:
    return f"{hits.in_step} inside a step, {hits.in_commit} inside a commit, {hits.opening} while opening"
