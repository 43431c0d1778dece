"""Simulations by hand: `python -m tests.simulation.soak COUNT [FIRST]` runs so many seeds.

Prints those that show a problem; of a single seed also the tale.
"""

from __future__ import annotations

import sys
from random import Random
from time import perf_counter

from tests.simulation import programs, scenarios
from tests.simulation.fleet import simulated
from tests.simulation.process import Weather

CALM = Weather()
#: Everything at once.
STORM = Weather(
    unavailable=0.02,
    lost_answer=0.02,
    crash_in_verb=0.01,
    stop_in_verb=0.01,
    crash=0.001,
    stop=0.001,
    leave=0.002,
    lost_hint=0.3,
    jump=0.001,
)


def weather(rng: Random) -> Weather:
    """Each trouble by itself, or several."""
    fields = STORM.__dict__
    return Weather(**{name: likely if rng.random() < 0.6 else 0.0 for name, likely in fields.items()})


class Outcome:
    """What came of one seed."""

    def __init__(self, seed: object, count: int = 12, calm: bool = False) -> None:
        rng = Random(f"story {seed}")
        chosen = CALM if calm else weather(rng)
        with simulated(seed, include=[programs], weather=chosen, size=rng.randrange(1, 5)) as fleet:
            fleet.run(scenarios.story(fleet, rng, count))
            fleet.director_runs(scenarios.verify(fleet))
            self.problems = fleet.problems
            self.tale = fleet.tale
            self.begun, self.cut = fleet.truth.begun, fleet.truth.cut
            self.seconds = fleet.seconds()
            self.callbacks = fleet.callbacks


def main() -> None:
    count, first = int(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 0
    began, bad = perf_counter(), 0
    begun = cut = crashes = stops = 0
    for seed in range(first, first + count):
        outcome = Outcome(seed)
        begun, cut = begun + outcome.begun, cut + outcome.cut
        crashes += sum(line.endswith("is killed") for line in outcome.tale)
        stops += sum("is stopped" in line for line in outcome.tale)
        if outcome.problems:
            bad += 1
            sys.stdout.write(f"seed {seed}: {len(outcome.problems)} problems\n")
            for problem in outcome.problems[:5]:
                sys.stdout.write(f"    {problem[:400]}\n")
        if count == 1:
            sys.stdout.write("\n".join(outcome.tale) + "\n")
    sys.stdout.write(
        f"{count} seeds in {perf_counter() - began:.0f} s: {crashes} crashes, {stops} stops, {begun} attempts of steps, "
        f"{cut} of them cut off; {bad} seeds with problems\n"
    )


if __name__ == "__main__":
    main()
