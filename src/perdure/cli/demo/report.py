"""The report: one HTML page that needs nothing else, no script and no network."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path

from perdure.cli.demo.analysis import FileFacts
from perdure.cli.demo.chart import bars

#: Bars of the chart, and lines of the table of long functions.
_BARS = 15
_LONG = 20


@dataclass(frozen=True)
class Totals:
    """What the report counts."""

    files: int
    bytes: int
    lines: int
    functions: int
    classes: int
    imports: int
    unparsed: int


def write(path: str, title: str, packages: Mapping[str, Sequence[FileFacts]]) -> Totals:
    """Write the page, whole or not at all, and return what it counts."""
    facts = [one for files in packages.values() for one in files]
    totals = total(facts)
    page = Path(path)
    draft = page.with_name(f"{page.name}.{os.getpid()}.part")
    draft.write_text(_page(title, packages, facts, totals), encoding="utf-8")
    draft.replace(page)
    return totals


def total(facts: Iterable[FileFacts]) -> Totals:
    """Sums over files."""
    listed = list(facts)
    return Totals(
        files=len(listed),
        bytes=sum(one.bytes for one in listed),
        lines=sum(one.lines for one in listed),
        functions=sum(one.functions for one in listed),
        classes=sum(one.classes for one in listed),
        imports=sum(one.imports for one in listed),
        unparsed=sum(one.problem is not None for one in listed),
    )


def _page(title: str, packages: Mapping[str, Sequence[FileFacts]], facts: Sequence[FileFacts], totals: Totals) -> str:
    sums = sorted(((name, total(files)) for name, files in packages.items()), key=lambda one: -one[1].lines)
    chart = [(name, one.lines) for name, one in sums[:_BARS]]
    rest = sum(one.lines for _, one in sums[_BARS:])
    if rest:
        chart.append((f"{len(sums) - _BARS} others", rest))
    body = [
        f"<header><h1>{escape(title)}</h1><p>Every file is one durable step, every package a workflow of its own.</p>",
        _tiles(totals),
        "</header><section><h2>Lines by package</h2>",
        f'<div class="wide">{bars("Lines by package", chart, "lines")}</div>',
        "</section><section><h2>Longest functions</h2>",
        _longest(facts),
        "</section><section><h2>Packages</h2>",
        _packages(sums),
        "</section>",
        _unparsed(facts),
        "<footer>Made by <code>perdure demo</code>.</footer>",
    ]
    return _FRAME.format(title=escape(title), style=_STYLE, body="\n".join(body))


def _tiles(totals: Totals) -> str:
    figures = [
        ("files", f"{totals.files:,}"),
        ("of source", f"{totals.bytes / 1_000_000:,.1f} MB"),
        ("lines", f"{totals.lines:,}"),
        ("functions", f"{totals.functions:,}"),
        ("classes", f"{totals.classes:,}"),
        ("imports", f"{totals.imports:,}"),
    ]
    tiles = "".join(f"<div><dd>{value}</dd><dt>{name}</dt></div>" for name, value in figures)
    return f"<dl>{tiles}</dl>"


def _longest(facts: Iterable[FileFacts]) -> str:
    found = sorted(((f.lines, f.name, one.file) for one in facts for f in one.longest), reverse=True)[:_LONG]
    rows: list[list[str | int]] = [[f"<code>{escape(name)}</code>", escape(file), n] for n, name, file in found]
    return _table(["Function", "File", "Lines"], rows)


def _packages(sums: Sequence[tuple[str, Totals]]) -> str:
    rows: list[list[str | int]]
    rows = [[escape(name), one.files, one.lines, one.functions, one.classes, one.imports] for name, one in sums]
    return _table(["Package", "Files", "Lines", "Functions", "Classes", "Imports"], rows)


def _unparsed(facts: Iterable[FileFacts]) -> str:
    rows: list[list[str | int]] = [[escape(one.file), escape(one.problem)] for one in facts if one.problem is not None]
    if not rows:
        return ""
    heading = "<h2>Not parsed</h2><p>Counted by size and lines alone.</p>"
    return f"<section>{heading}{_table(['File', 'Why'], rows)}</section>"


def _table(head: Sequence[str], rows: Iterable[Sequence[str | int]]) -> str:
    """Texts are HTML already; numbers stand to the right."""
    rows = list(rows)
    numbers = [bool(rows) and isinstance(cell, int) for cell in (rows[0] if rows else head)]
    cells = ['<th class="n">' if number else "<th>" for number in numbers]
    lines = ["<tr>" + "".join(f"{cell}{name}</th>" for cell, name in zip(cells, head, strict=True)) + "</tr>"]
    for row in rows:
        shown = (f'<td class="n">{cell:,}</td>' if isinstance(cell, int) else f"<td>{cell}</td>" for cell in row)
        lines.append("<tr>" + "".join(shown) + "</tr>")
    return f'<div class="wide"><table>{"".join(lines)}</table></div>'


_FRAME = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<title>{title}</title>
<style>{style}</style>
</head>
<body>
{body}
</body>
</html>
"""

_STYLE = """
:root { color-scheme: light dark;
  --page: #fbfbf9; --card: #fff; --ink: #1d1e20; --soft: #65676b; --line: #e4e4df; --bar: #2f6fb2 }
@media (prefers-color-scheme: dark) {
  :root { --page: #141517; --card: #1c1e21; --ink: #e8e8e6; --soft: #9b9ea4; --line: #303338; --bar: #6ba6e8 }
}
* { box-sizing: border-box }
body { margin: 0 auto; padding: 2.5rem 1.25rem; max-width: 58rem; background: var(--page); color: var(--ink);
  font: 15px/1.5 system-ui, "Segoe UI", "Helvetica Neue", "DejaVu Sans", sans-serif }
h1 { font-size: 1.75rem; line-height: 1.2; margin: 0 }
h2 { font-size: 1.05rem; margin: 0 0 .9rem }
p { color: var(--soft); margin: .4rem 0 1.2rem }
section, dl div { background: var(--card); border: 1px solid var(--line); border-radius: 8px }
section { padding: 1.2rem 1.4rem; margin: 1.25rem 0 }
dl { display: grid; grid-template-columns: repeat(auto-fit, minmax(8.5rem, 1fr)); gap: .75rem; margin: 1.5rem 0 }
dl div { padding: .8rem 1rem }
dd { margin: 0; font-size: 1.4rem; font-weight: 600; font-variant-numeric: tabular-nums; letter-spacing: -.01em }
dt { color: var(--soft); font-size: .85rem }
svg { display: block; width: 100%; min-width: 34rem; height: auto; font-size: 13px }
svg .bar { fill: var(--bar) }
svg .axis { stroke: var(--line) }
svg text { fill: var(--ink); dominant-baseline: central }
svg .name { text-anchor: end }
svg .value { fill: var(--soft); font-variant-numeric: tabular-nums }
.wide { overflow-x: auto }
table { border-collapse: collapse; width: 100%; min-width: 34rem; font-size: .9rem }
th { text-align: left; font-weight: 500; color: var(--soft) }
th, td { padding: .3rem 1rem .3rem 0; border-bottom: 1px solid var(--line); overflow-wrap: anywhere }
tr:last-child td { border-bottom: 0 }
.n { text-align: right; font-variant-numeric: tabular-nums; padding-right: 0; padding-left: 1rem; white-space: nowrap }
code { font: .92em/1.4 ui-monospace, "SF Mono", Menlo, Consolas, "DejaVu Sans Mono", monospace }
footer { color: var(--soft); font-size: .85rem; text-align: center }
"""
