"""The benchmark's pieces run and say what they measured. (How fast is no matter of tests: `make bench`.)"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

import benchmarks.__main__
from benchmarks import chart, report
from benchmarks.__main__ import run
from benchmarks.address import joined, parted
from benchmarks.figures import Figure, Raw, figures
from benchmarks.peers import DbosOnSqlite
from benchmarks.postgres import NoServer, Postgres
from benchmarks.sizes import TINY, Sizes
from benchmarks.subject import measure
from benchmarks.table import store_table
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
ENGINES = ("postgres", "dbos_postgres", "sqlite", "dbos_sqlite")
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
    assert [workload.__name__ for workload in COMPARED] == [workload.__name__ for workload in DbosOnSqlite.workloads]


def test_every_piece_runs_on_postgres(postgres_server: Server) -> None:
    with Postgres(postgres_server.url()) as subject:
        assert "synchronous_commit=on" in subject.settings()
        measured = measure([subject], TINY, lambda _: None)["postgres"]
    flat = measured.flat("postgres")
    assert flat.keys() == {
        "postgres.raw_inserts_1_per_s",
        "postgres.raw_inserts_16_per_s",
        *(f"postgres.{figure.name}" for figure in subject.figures(TINY)),
    }
    assert min(value for name, value in flat.items() if not name.endswith("_kib")) > 0
    shown = store_table(subject.figures(TINY), measured.samples, measured.raw)
    assert "from process to process" in shown
    assert "beside 200 ended and waiting runs" in shown


def test_the_figures_of_postgres_have_their_names() -> None:
    with_sqlite = {figure.name for figure in figures(Sizes(), "sqlite")}
    assert {figure.name for figure in Postgres("").figures(Sizes())} - with_sqlite == {
        "signal_across_p50_ms",
        "runs3_2proc_per_s",
        "claim_10k_ms",
        "claim_1m_ms",
        "commit_10k_ms",
        "commit_1m_ms",
    }


@pytest.mark.parametrize("database", ["postgresql://a@b:1/c", "postgresql://a@b:1/c?sslmode=disable"])
def test_a_schema_rides_in_a_stores_address(database: str) -> None:
    assert parted(joined(database, "here_1")) == (database, "here_1")


def test_the_picture_and_the_table_are_made_of_the_report(tmp_path: Path) -> None:
    names = [figure.name for figure in figures(Sizes(), "postgres") if not figure.name.startswith(("loop", "evicted"))]
    numbers = {f"{engine}.{name}": 2.0 if "dbos" in engine else 4000.0 for engine in ENGINES for name in names}
    report_file, page = tmp_path / "peers.json", tmp_path / "README.md"
    settings = {engine: f"how {engine} is set" for engine in ENGINES}
    report_file.write_text(json.dumps({"machine": "here\nbusy", "settings": settings, "numbers": numbers}))
    page.write_text(f"before\n\n{chart.BEGIN}\nold\n{chart.END}\n\nafter\n")
    chart.draw(report_file, tmp_path / "peers", page, Sizes())
    text = page.read_text()
    chart.draw(report_file, tmp_path / "peers", page, Sizes())
    assert page.read_text() == text
    assert text.startswith(f"before\n\n{chart.BEGIN}\n\n| | Perdure on PostgreSQL |")
    assert text.endswith(f"{chart.END}\n\nafter\n")
    assert "| steps in a row | 4,000 /s | 2 /s | 4,000 /s | 2 /s |" in text
    assert "on here. busy. how postgres is set; how dbos_postgres is set. how sqlite" in text
    assert "old" not in text
    for store in ("postgres", "sqlite"):
        picture = ET.parse(tmp_path / "peers" / f"{store}.svg").getroot()
        values = [
            each.text for each in picture.iter("{http://www.w3.org/2000/svg}text") if each.get("class") == "value"
        ]
        assert len(values) == 12
        assert "4,000 /s" in values


def test_a_page_without_a_place_for_the_table_is_refused() -> None:
    with pytest.raises(ValueError, match="has no lines"):
        chart.between("nothing here", "a table")


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
