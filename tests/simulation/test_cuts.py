"""A process is cut off before and after each commit and each claim of it: another one takes over, and all is as it must be.

Cut off in two ways: killed, or stopped for several leases and then going on as if nothing had happened.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator

import pytest

from perdure.model.history import Event, Op
from perdure.model.ids import step_id
from tests.simulation import programs, scenarios
from tests.simulation.cuts import STORIES, Story
from tests.simulation.fleet import SETTINGS, Fleet, simulated
from tests.simulation.process import Process, Weather

#: Verbs of the first process that are cut. (Renewals and audits leave nothing half done.)
CUT = ("write", "claim", "release")


def stop(process: Process) -> None:
    process.stop(4 * SETTINGS["lease"])


def told(story: Story, cut: int, harm: Callable[[Process], None], size: int) -> tuple[Fleet, int]:
    """Tell the story, doing harm to the first process at its cut-th place; how many places there were."""
    places = 0
    durable: Counter[str] = Counter()

    def at(process: Process, when: str, verb: str) -> None:
        nonlocal places
        if process is first and verb in CUT:
            if places == cut:
                durable.update({key: fleet.truth.done[key] for key in results(fleet)})
                fleet.tell(f"cut {when} {verb}")
                harm(process)
            places += 1

    with simulated("cuts", include=[programs], weather=Weather(slow=0.0), size=size) as fleet:
        first = fleet.favourite = fleet.spawn()
        fleet.on_verb = at
        fleet.run(scenarios.to_the_end(fleet, story))
        fleet.director_runs(scenarios.verify(fleet))
    for key, times in durable.items():
        if fleet.truth.done[key] != times:
            fleet.trouble(f"step {key} was done again after its result was durable")
    return fleet, places


def results(fleet: Fleet) -> Iterator[str]:
    """The keys of the steps that have their result in the store."""
    tables = fleet.store._tables
    for (incarnation, _), entry in tables.entries.items():
        if entry.event is Event.RESOLVED and entry.op is Op.STEP:
            yield step_id(tables.actors[incarnation].run.id, incarnation, entry.seq)


@pytest.mark.parametrize(("harm", "size"), [(Process.kill, 1), (stop, 2)], ids=["killed", "stopped"])
@pytest.mark.parametrize("name", STORIES)
def test_cut_off_at_every_commit(name: str, harm: Callable[[Process], None], size: int) -> None:
    whole, places = told(STORIES[name], -1, harm, size)
    assert whole.problems == []
    assert places >= 4, "nothing to cut"
    cuts: list[str] = []
    for cut in range(places):
        fleet, _ = told(STORIES[name], cut, harm, size)
        struck = [line for line in fleet.tale if ": cut " in line]
        assert len(struck) == 1, "this cut hit nothing"
        cuts += struck
        assert fleet.problems == [], f"{name}, {struck[0]}"
    for place in ("before write", "after write", "before claim", "after claim"):
        assert any(place in line for line in cuts), f"no cut {place}"
