"""A seeded fleet: see `fleet` for how, `scenarios` for what, and `soak` for more seeds by hand.

A seed that fails becomes a test of its own here, or, if its story can be told in a few lines, in `test_found`.
"""

from __future__ import annotations

import pytest

from perdure.engine import executor
from tests.simulation.soak import Outcome


@pytest.mark.parametrize("seed", range(30))
def test_every_story_ends_as_it_must(seed: int) -> None:
    assert Outcome(seed).problems == []


@pytest.mark.parametrize("seed", range(3))
def test_in_calm_weather_nothing_is_lost_or_done_twice(seed: int) -> None:
    """Not even steps that take longer than a lease."""
    outcome = Outcome(seed, calm=True)
    assert outcome.problems == []
    tale = "\n".join(outcome.tale)
    assert "begins attempt 1 of slow" in tale
    assert "ATTEMPT_CUT" not in tale


def test_a_seed_tells_the_same_story_every_time() -> None:
    first, second = Outcome("again"), Outcome("again")
    assert first.tale == second.tale
    assert (first.seconds, first.callbacks) == (second.seconds, second.callbacks)


def test_troubles_strike_inside_steps_and_between_a_verb_and_its_answer() -> None:
    wanted = {"is killed", "is stopped", "closes", "the clock jumps", "Fenced", "Moved", "Exists", "ATTEMPT_CUT"}
    cut = 0
    for seed in range(30, 60):
        outcome = Outcome(seed)
        assert outcome.problems == []
        cut += outcome.cut
        tale = "\n".join(outcome.tale)
        wanted = {what for what in wanted if what not in tale}
        if cut and not wanted:
            return
    pytest.fail(f"in thirty stories there was none of {wanted}, and {cut} things were cut off")


def test_a_fault_of_the_engine_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """The simulation itself is tested: an engine that starts steps before their commit must not get through."""
    submit = executor.Executor._submit

    def hasty(self, held, turn, commit) -> None:  # type: ignore[no-untyped-def]
        submit(self, held, turn, commit)
        for operation in turn.issued:
            if operation.seq in held.instance.steps:
                self._attempt(held, operation)

    monkeypatch.setattr(executor.Executor, "_submit", hasty)
    assert any(Outcome(seed).problems for seed in range(5))
