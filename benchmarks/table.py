"""The report for people."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from statistics import median

from benchmarks.figures import Figure, Raw

_HEAD = ("", "measured", "least .. most", "raw limit", "ratio", "target", "")


def store_table(figures: tuple[Figure, ...], samples: Mapping[str, Sequence[float]], raw: Raw) -> str:
    """All figures of a store beside their raw limits and targets. `samples`: of each figure, all that was measured."""
    values = {name: median(measured) for name, measured in samples.items()}
    rows = [_HEAD, *(_row(figure, samples[figure.name], values, raw, figures) for figure in figures)]
    return aligned(rows, lefts=(0, len(_HEAD) - 2, len(_HEAD) - 1))


def bare_line(raw: Raw) -> str:
    """The raw limits themselves."""
    if raw.many == raw.alone:
        return f"bare single-row commits: {number(raw.alone, '/s')}"
    return f"bare single-row commits: {number(raw.alone, '/s')} one after another, {number(raw.many, '/s')} at once"


def number(value: float, unit: str) -> str:
    """With its unit, in about three digits."""
    if unit == "/s":
        return f"{value:,.0f} /s"
    return f"{value:,.3f} {unit}" if abs(value) < 10 else f"{value:,.1f} {unit}"


def _row(
    figure: Figure, measured: Sequence[float], values: Mapping[str, float], raw: Raw, figures: tuple[Figure, ...]
) -> tuple[str, ...]:
    value = values[figure.name]
    limit, ratio = figure.limit(raw), figure.ratio(value, raw)
    reached = figure.reached(values, raw, figures)
    what = figure.what if figure.waits is None else f"{figure.what} ({value / figure.waits * 1e3:.3f} ms each)"
    return (
        what,
        number(value, figure.unit),
        f"{_bare(min(measured), figure.unit)} .. {_bare(max(measured), figure.unit)}",
        "" if limit is None else number(limit, figure.unit),
        "" if ratio is None else f"{ratio:.2f}",
        figure.goal(),
        "" if reached is None else "reached" if reached else "MISSED",
    )


def _bare(value: float, unit: str) -> str:
    return number(value, unit).rsplit(" ", 1)[0]


def aligned(rows: Iterable[tuple[str, ...]], lefts: Sequence[int]) -> str:
    """The columns of these numbers to the left, the others to the right."""
    listed = list(rows)
    widths = [max(map(len, column)) for column in zip(*listed, strict=True)]
    return "\n".join(
        "  ".join(
            cell.ljust(width) if column in lefts else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in listed
    )
