"""The benchmark's pieces run and say what they measured. (How fast is no matter of tests: `make bench`.)"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks.__main__ import run
from benchmarks.figures import Figure, figures
from benchmarks.sizes import TINY, Sizes

NAMES = {
    "sqlite.raw_commits_per_s",
    "sqlite.one_step_p50_ms",
    "sqlite.one_step_p99_ms",
    "sqlite.sequential_steps_per_s",
    "sqlite.runs3_per_s",
    "sqlite.signal_p50_ms",
    "sqlite.parallel500_s",
    "sqlite.loop_100_s",
    "sqlite.loop_300_s",
    "sqlite.loop_1000_s",
    "sqlite.loop_3000_s",
    "sqlite.recover500_s",
    "sqlite.parked_kib",
    "sqlite.evicted_kib",
    "import_ms",
}
#: The names above at the sizes of this test.
SMALL = {
    "sqlite.parallel500_s": f"sqlite.parallel{TINY.parallel}_s",
    "sqlite.loop_100_s": f"sqlite.loop_{TINY.loops[0]}_s",
    "sqlite.loop_300_s": f"sqlite.loop_{TINY.loops[1]}_s",
    "sqlite.loop_1000_s": f"sqlite.loop_{TINY.loops[2]}_s",
    "sqlite.loop_3000_s": f"sqlite.loop_{TINY.loops[3]}_s",
    "sqlite.recover500_s": f"sqlite.recover{TINY.recovered}_s",
}


def test_every_piece_runs_and_the_numbers_are_written_and_shown(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    output = tmp_path / "build" / "bench.json"
    told: list[str] = []
    run(TINY, output, told.append)
    flat = json.loads(output.read_text())
    assert flat.keys() == {SMALL.get(name, name) for name in NAMES}
    assert all(isinstance(value, float) for value in flat.values())
    timed = [value for name, value in flat.items() if not name.endswith("_kib")]
    assert min(timed) > 0
    shown = capsys.readouterr().out
    assert "journal_mode=wal, synchronous=FULL" in shown
    for figure in figures(TINY):
        assert figure.what in shown
    assert len(told) == 9
    assert list(output.parent.iterdir()) == [output]  # the stores it made are gone


def test_the_figures_of_make_bench_have_their_names() -> None:
    names = {f"sqlite.{figure.name}" for figure in figures(Sizes())}
    assert names | {"sqlite.raw_commits_per_s", "import_ms"} == NAMES


def test_a_ratio_is_1_at_the_speed_of_bare_commits() -> None:
    rate = Figure("r", "runs", "/s", facts=4)
    time = Figure("t", "a run", "ms", facts=2)
    assert rate.limit(1000) == 250
    assert rate.ratio(500, 1000) == 2
    assert time.limit(1000) == 2
    assert time.ratio(4, 1000) == 0.5
    assert Figure("k", "memory", "KiB").ratio(4, 1000) is None


@pytest.mark.parametrize(
    ("figure", "value", "reached"),
    [
        (Figure("f", "a rate", "/s", target=10), 10, True),
        (Figure("f", "a rate", "/s", target=10), 9, False),
        (Figure("f", "a time", "ms", target=10), 10, True),
        (Figure("f", "a time", "ms", target=10), 11, False),
        (Figure("f", "a share", "/s", facts=1, share=0.5), 500, True),
        (Figure("f", "a share", "/s", facts=1, share=0.5), 499, False),
        (Figure("f", "no target", "ms"), 1, None),
    ],
)
def test_a_target_is_reached_on_the_right_side(figure: Figure, value: float, reached: bool | None) -> None:
    assert figure.reached({"f": value}, 1000, (figure,)) is reached


def test_a_loop_is_linear_if_no_wait_costs_much_more_than_in_the_cheapest_loop() -> None:
    short = Figure("short", "", "s", waits=100)
    long = Figure("long", "", "s", waits=1000)
    both = (short, long)
    assert long.reached({"short": 1, "long": 11}, 1, both) is True
    assert long.reached({"short": 1, "long": 20}, 1, both) is False
    assert short.reached({"short": 1, "long": 5}, 1, both) is False
