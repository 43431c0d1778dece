"""A horizontal bar chart as inline SVG. Colours come from the page's style; every text is escaped."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

_ROW, _BAR, _LABEL, _WIDTH, _FIGURES = 26, 16, 150, 760, 84


def bars(title: str, rows: Sequence[tuple[str, int]], unit: str) -> str:
    """A bar for each (name, value), as long as its value, which is written at its end."""
    longest = max((value for _, value in rows), default=0) or 1
    height = _ROW * len(rows)
    parts = [
        f'<svg viewBox="0 0 {_WIDTH} {height}" role="img" aria-label="{escape(title)}">',
        f'<line class="axis" x1="{_LABEL}" y1="0" x2="{_LABEL}" y2="{height}"/>',
    ]
    for number, (name, value) in enumerate(rows):
        top = number * _ROW + (_ROW - _BAR) / 2
        middle = number * _ROW + _ROW / 2
        length = round(value / longest * (_WIDTH - _LABEL - _FIGURES), 1)
        parts += [
            f"<g><title>{escape(name)}: {value:,} {escape(unit)}</title>",
            f'<text class="name" x="{_LABEL - 10}" y="{middle}">{escape(_short(name))}</text>',
            f'<path class="bar" d="{_shape(_LABEL, top, length)}"/>',
            f'<text class="value" x="{_LABEL + length + 8}" y="{middle}">{value:,}</text></g>',
        ]
    return "".join([*parts, "</svg>"])


def _shape(x: float, y: float, length: float) -> str:
    """A bar with its free end rounded: the other stands on the axis."""
    round_by = min(3.0, length)
    return (
        f"M{x} {y}h{length - round_by:.1f}q{round_by} 0 {round_by} {round_by}v{_BAR - 2 * round_by}"
        f"q0 {round_by} -{round_by} {round_by}h-{length - round_by:.1f}z"
    )


def _short(name: str, limit: int = 20) -> str:
    return name if len(name) <= limit else name[: limit - 1] + "…"
