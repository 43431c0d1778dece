"""The report for people."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from statistics import median

from benchmarks.figures import Figure

_HEAD = ("", "measured", "least .. most", "raw limit", "ratio", "target", "")


def store_table(figures: tuple[Figure, ...], samples: Mapping[str, Sequence[float]], raw: float) -> str:
    """All figures of a store beside their raw limits and targets. `samples`: of each figure, all that was measured."""
    values = {name: median(measured) for name, measured in samples.items()}
    return _aligned([_HEAD, *(_row(figure, samples[figure.name], values, raw, figures) for figure in figures)])


def number(value: float, unit: str) -> str:
    """With its unit, in about three digits."""
    if unit == "/s":
        return f"{value:,.0f} /s"
    return f"{value:,.3f} {unit}" if abs(value) < 10 else f"{value:,.1f} {unit}"


def _row(
    figure: Figure, measured: Sequence[float], values: Mapping[str, float], raw: float, figures: tuple[Figure, ...]
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


def _aligned(rows: Iterable[tuple[str, ...]]) -> str:
    """The first column and the last two to the left, the others to the right."""
    listed = list(rows)
    widths = [max(len(row[column]) for row in listed) for column in range(len(_HEAD))]
    lefts = (0, len(_HEAD) - 2, len(_HEAD) - 1)
    return "\n".join(
        "  ".join(
            cell.ljust(width) if column in lefts else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in listed
    )
