"""The benchmark's pieces run and say what they measured. (How fast is no matter of tests: `make bench`.)"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import benchmarks.__main__
from benchmarks import report
from benchmarks.__main__ import run
from benchmarks.figures import Figure, Raw, figures
from benchmarks.peers import DbosOnSqlite
from benchmarks.postgres import NoServer, Postgres
from benchmarks.sizes import TINY, Sizes
from benchmarks.sqlite import Sqlite
from benchmarks.workloads import COMPARED
from tests.servers.postgres import Server

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
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(benchmarks.__main__, "server", no_server)
    output = tmp_path / "build" / "bench.json"
    told: list[str] = []
    run(TINY, output, told.append)
    flat = json.loads(output.read_text())
    assert flat.keys() == {SMALL.get(name, name) for name in NAMES}
    assert all(isinstance(value, float) for value in flat.values())
    timed = [value for name, value in flat.items() if not name.endswith("_kib")]
    assert min(timed) > 0
    shown = capsys.readouterr().out
    assert "SQLite only: there is none" in shown
    assert "journal_mode=wal, synchronous=FULL" in shown
    for figure in figures(TINY, "sqlite"):
        assert figure.what in shown
    assert len([text for text in told if text]) == 9
    assert list(output.parent.iterdir()) == [output]  # the stores it made are gone


@contextmanager
def no_server() -> Iterator[str]:
    raise NoServer("there is none")
    yield ""


def test_the_figures_of_make_bench_have_their_names() -> None:
    names = {f"sqlite.{figure.name}" for figure in figures(Sizes(), "sqlite")}
    assert names | {"sqlite.raw_commits_per_s", "import_ms"} == NAMES


def test_numbers_of_others_stay_in_the_file(tmp_path: Path) -> None:
    output = tmp_path / "build" / "bench.json"
    report.write(output, {"sqlite.a": 1, "sqlite.b": 2})
    report.write(output, {"dbos_sqlite.a": 3, "sqlite.b": 4.12345678})
    assert report.read(output) == {"sqlite.a": 1, "sqlite.b": 4.123457, "dbos_sqlite.a": 3}


def test_what_is_compared_is_in_the_same_order_on_both_sides() -> None:
    assert [workload.__name__ for workload in Sqlite.workloads[:5]] == [
        workload.__name__ for workload in DbosOnSqlite.workloads[:5]
    ]
    assert [workload.__name__ for workload in COMPARED] == [workload.__name__ for workload in DbosOnSqlite.workloads]


def test_bare_commits_through_one_connection_and_through_many(postgres_server: Server) -> None:
    with Postgres(postgres_server.url()) as subject:
        raw = subject.raw(count=32, warm=16)
        assert raw.keys() == {"raw_inserts_1_per_s", "raw_inserts_16_per_s"}
        assert min(raw.values()) > 0
        assert "synchronous_commit=on" in subject.settings()
        assert "schema=perdure_bench_" in subject.url()


def test_a_ratio_is_1_at_the_speed_of_bare_commits() -> None:
    rate = Figure("r", "runs", "/s", facts=4)
    time = Figure("t", "a run", "ms", facts=2)
    raw = Raw(alone=1000, many=4000)
    assert rate.limit(raw) == 250
    assert rate.ratio(500, raw) == 2
    assert time.limit(raw) == 2
    assert time.ratio(4, raw) == 0.5
    assert Figure("m", "many runs", "/s", facts=4, many=True).limit(raw) == 1000
    assert Figure("k", "memory", "KiB").ratio(4, raw) is None


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
    assert figure.reached({"f": value}, Raw(1000, 1000), (figure,)) is reached


def test_a_loop_is_linear_if_no_wait_costs_much_more_than_in_the_cheapest_loop() -> None:
    short = Figure("short", "", "s", waits=100)
    long = Figure("long", "", "s", waits=1000)
    both = (short, long)
    assert long.reached({"short": 1, "long": 11}, Raw(1, 1), both) is True
    assert long.reached({"short": 1, "long": 20}, Raw(1, 1), both) is False
    assert short.reached({"short": 1, "long": 5}, Raw(1, 1), both) is False


def test_work_does_not_grow_if_it_costs_no_more_than_twice_as_much_on_a_large_table() -> None:
    large = Figure("large", "", "ms", like="small")
    assert large.reached({"small": 1, "large": 1.9}, Raw(1, 1), (large,)) is True
    assert large.reached({"small": 1, "large": 2.1}, Raw(1, 1), (large,)) is False
