"""`python -m benchmarks.chart`: the picture and the table for the README, from the numbers of `make bench-peers`.

The picture shows work a second, so that in all of it a longer bar is better: a run of 2 ms is 500 runs a second. Each pair of
bars has a scale of its own. The table has the figures as they were measured.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path

from benchmarks.children import ROOT
from benchmarks.figures import Figure, figures
from benchmarks.sizes import Sizes
from benchmarks.table import number

#: Where the README has the table: between these lines, which stay.
BEGIN, END = "<!-- peers: made by python -m benchmarks.chart -->", "<!-- end of peers -->"

_WIDTH, _LEFT, _RIGHT = 760, 250, 90
_BAR, _GAP, _TOP = 15, 14, 58

_STYLE = """
text { font: 13px system-ui, -apple-system, "Segoe UI", sans-serif; fill: #1f2328; }
.title { font-size: 15px; font-weight: 600; }
.note, .value { fill: #59636e; }
.name { text-anchor: end; dominant-baseline: central; }
.value { dominant-baseline: central; font-variant-numeric: tabular-nums; }
.ours { fill: #1a7f64; }
.theirs { fill: #afb8c1; }
.axis { stroke: #d1d9e0; }
@media (prefers-color-scheme: dark) {
  text { fill: #f0f6fc; }
  .note, .value { fill: #9198a1; }
  .ours { fill: #3fb68b; }
  .theirs { fill: #656c76; }
  .axis { stroke: #3d444d; }
}
"""


@dataclass(frozen=True)
class Pair:
    """A kind of work, a second, on both."""

    what: str
    ours: float
    theirs: float


@dataclass(frozen=True)
class Store:
    """A store on which both were measured: the prefix of its figures, and what people call it."""

    name: str
    title: str


STORES = (Store("postgres", "PostgreSQL"), Store("sqlite", "SQLite"))


def pairs(numbers: Mapping[str, float], store: str, sizes: Sizes) -> list[Pair]:
    """What the picture shows: all as work a second."""

    def both(name: str, work: float | None) -> tuple[float, float]:
        ours, theirs = numbers[f"{store}.{name}"], numbers[f"dbos_{store}.{name}"]
        return (ours, theirs) if work is None else (work / ours, work / theirs)

    parallel, recovered = sizes.parallel, sizes.recovered
    return [
        Pair("runs of one step, one by one", *both("one_step_p50_ms", 1e3)),
        Pair("steps in a row", *both("sequential_steps_per_s", None)),
        Pair(f"runs of 3 steps, {sizes.runs3_in_flight} in flight", *both("runs3_per_s", None)),
        Pair("signals to completion, one by one", *both("signal_p50_ms", 1e3)),
        Pair(f"steps of a run, {parallel} at once", *both(f"parallel{parallel}_s", parallel)),
        Pair(f"runs recovered after a kill, of {recovered}", *both(f"recover{recovered}_s", recovered)),
    ]


def svg(title: str, rows: Sequence[Pair]) -> str:
    """Two bars for each kind of work, one under the other, each with its value."""
    height = _TOP + len(rows) * (2 * _BAR + _GAP)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" role="img" aria-label="{escape(title)}">',
        f"<style>{_STYLE}</style>",
        f'<text class="title" x="0" y="18">{escape(title)}</text>',
        f'<rect class="ours" x="{_LEFT}" y="29" width="12" height="12" rx="2"/><text x="{_LEFT + 18}" y="40">Perdure</text>',
        f'<rect class="theirs" x="{_LEFT + 92}" y="29" width="12" height="12" rx="2"/>',
        f'<text x="{_LEFT + 110}" y="40">DBOS</text><text class="note" x="{_LEFT + 168}" y="40">longer is better</text>',
        f'<line class="axis" x1="{_LEFT}" y1="{_TOP - 6}" x2="{_LEFT}" y2="{height - _GAP + 6}"/>',
    ]
    for position, row in enumerate(rows):
        top = _TOP + position * (2 * _BAR + _GAP)
        parts.append(f'<text class="name" x="{_LEFT - 10}" y="{top + _BAR}">{escape(row.what)}</text>')
        longest = max(row.ours, row.theirs)
        for line, (kind, value) in enumerate((("ours", row.ours), ("theirs", row.theirs))):
            length = max(1.0, value / longest * (_WIDTH - _LEFT - _RIGHT))
            y = top + line * _BAR
            parts += [
                f'<rect class="{kind}" x="{_LEFT}" y="{y}" width="{length:.1f}" height="{_BAR - 1}" rx="2"/>',
                f'<text class="value" x="{_LEFT + length + 7:.1f}" y="{y + _BAR / 2}">{_rate(value)}</text>',
            ]
    return "\n".join([*parts, "</svg>", ""])


def _rate(value: float) -> str:
    return f"{value:,.0f} /s" if value >= 10 else f"{value:.1f} /s"


def table(report: Mapping[str, object], sizes: Sizes) -> str:
    """The figures on all stores in the report, in Markdown, with where and how they were measured."""
    numbers = _numbers(report)
    stores = _measured(numbers)
    heads = [f"{engine} on {store.title}" for store in stores for engine in ("Perdure", "DBOS")]
    lines = [f"| | {' | '.join(heads)} |", f"|---|{'---:|' * len(heads)}"]
    for figure in figures(sizes, stores[0].name):
        if f"dbos_{stores[0].name}.{figure.name}" not in numbers:
            continue
        cells = (
            number(numbers[f"{prefix}{store.name}.{figure.name}"], figure.unit)
            for store in stores
            for prefix in ("", "dbos_")
        )
        lines.append(f"| {_what(figure)} | {' | '.join(cells)} |")
    settings = report["settings"]
    assert isinstance(settings, dict)
    said = [f"{settings[store.name]}; {settings[f'dbos_{store.name}']}" for store in stores]
    # With its warning, if there is one: numbers of a busy machine must not pass for those of a quiet one.
    place = str(report["machine"]).replace("\n", ". ").removesuffix(".")
    return "\n".join([*lines, "", f"Measured by `make bench-peers` on {place}. {'. '.join(said)}.", ""])


def _what(figure: Figure) -> str:
    """Without how many: DBOS gets fewer of what is counted one by one."""
    special = {
        "sequential_steps_per_s": "steps in a row",
        "runs3_per_s": "runs of 3 steps, 200 in flight",
        "parked_kib": "memory of a waiting run",
    }
    return special.get(figure.name, figure.what)


def _numbers(report: Mapping[str, object]) -> Mapping[str, float]:
    numbers = report["numbers"]
    assert isinstance(numbers, dict)
    return numbers


def _measured(numbers: Mapping[str, float]) -> list[Store]:
    return [store for store in STORES if f"dbos_{store.name}.one_step_p50_ms" in numbers]


def between(text: str, inner: str) -> str:
    """A page with what stands between the two marks replaced. Raises `ValueError` if it has not both."""
    before, _, rest = text.partition(BEGIN)
    old, mark, after = rest.partition(END)
    if not mark:
        raise ValueError(f"the page has no lines {BEGIN!r} and {END!r}")
    del old
    return f"{before}{BEGIN}\n\n{inner}\n{END}{after}"


def draw(source: Path, folder: Path, page: Path, sizes: Sizes) -> None:
    """Make the pictures (`<store>.svg` in `folder`) and the table in `page` from a report of `make bench-peers`."""
    report = json.loads(source.read_text())
    numbers = _numbers(report)
    folder.mkdir(parents=True, exist_ok=True)
    for store in _measured(numbers):
        title = f"Work a second on {store.title}"
        (folder / f"{store.name}.svg").write_text(svg(title, pairs(numbers, store.name, sizes)))
    page.write_text(between(page.read_text(), table(report, sizes)))


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.chart", description="Draw what make bench-peers measured."
    )
    parser.add_argument(
        "--report", type=Path, default=ROOT / "build" / "peers.json", help="what make bench-peers wrote"
    )
    chosen = parser.parse_args()
    if not chosen.report.exists():
        sys.exit(f"{chosen.report} is not there; run make bench-peers first")
    draw(chosen.report, ROOT / "docs" / "peers", ROOT / "README.md", Sizes())


if __name__ == "__main__":
    main()
