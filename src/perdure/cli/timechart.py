"""The timeline of a run as a table of bars, drawn to the width that is there."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console, ConsoleOptions, RenderResult
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from perdure.cli.output import table
from perdure.cli.text import duration, plain, styled
from perdure.cli.timeline import Kind, Row, Span, bounds
from perdure.model.failure import decode_failure
from perdure.model.history import Op
from perdure.model.steps import State

#: Sign, plain sign, and style of each kind, the most telling last: it wins where several share a cell.
_LOOKS = {
    Kind.WAIT: ("─", "-", "dim"),
    Kind.OPEN: ("╌", "~", "cyan"),
    Kind.WORK: ("━", "=", "green"),
    Kind.FAILED: ("━", "x", "red"),
}
_RANK = {kind: rank for rank, kind in enumerate(_LOOKS)}
_STATES = {
    State.FAILED: "red",
    State.RETRYING: "yellow",
    State.PENDING: "cyan",
    State.ABANDONED: "dim",
    State.LET_GO: "dim",
}

#: Columns a bar takes at least and at most, and what the other columns of the chart take about.
_NARROW, _WIDE, _OTHERS = 10, 60, 62
#: Columns from which on there is room for the begin of each step's input, and how much of it.
_ROOMY, _INPUT_LENGTH = 140, 36
_ERROR_LENGTH = 300


class Bar:
    """Spans of time, drawn in whole cells."""

    def __init__(self, spans: Sequence[Span], first: int, last: int) -> None:
        self._spans = spans
        self._first = first
        self._length = last - first

    def __rich_measure__(self, console: Console, options: ConsoleOptions) -> Measurement:
        return Measurement(_NARROW, _WIDE)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        cells: list[Kind | None] = [None] * max(options.max_width, 1)
        for span in sorted(self._spans, key=lambda span: _RANK[span.kind]):
            begin, end = self._cell(span.start, len(cells)), self._cell(span.end, len(cells))
            cells[begin : end + 1] = [span.kind] * (end + 1 - begin)
        bar = Text(no_wrap=True)
        for kind in cells:
            sign, ascii_sign, style = _LOOKS[kind] if kind is not None else (" ", " ", "")
            bar.append(ascii_sign if options.ascii_only else sign, style)
        yield bar

    def _cell(self, time: int, width: int) -> int:
        return min(width - 1, max(0, (time - self._first) * width // self._length))


def chart(rows: Sequence[Row], start: int, end: int, width: int) -> Table:
    """A line for each operation: what, when after `start`, how long, and its bar on a common scale."""
    first, last = bounds(rows, start, end)
    room = min(_WIDE, max(_NARROW, width - _OTHERS))
    drawn = table("#", "operation", "after", "took", numbers=("#", "after", "took"))
    drawn.add_column(_scale(room, duration(last - first)), width=room, no_wrap=True)
    for row in rows:
        took = "" if row.step.op in (Op.SPAWN, Op.VALUE, Op.STREAM) else duration(row.took)
        after = duration(max(0, row.step.issued_at - start))
        drawn.add_row(
            str(row.step.seq), _operation(row, roomy=width >= _ROOMY), after, took, Bar(row.spans, first, last)
        )
    return drawn


def _scale(room: int, length: str) -> Text:
    return Text("0" + length.rjust(room - 1), style="dim")


def _operation(row: Row, *, roomy: bool) -> Text:
    step = row.step
    words = Text(overflow="fold")
    words.append(str(step.op), "dim")
    if step.op is not Op.TIMER:
        words.append(f" {plain(step.name)}")
    if roomy and step.op is Op.STEP and step.input is not None:
        words.append(f" {plain(step.input.decode('utf-8', 'replace'), _INPUT_LENGTH)}", "dim")
    if step.state is not State.COMPLETED:
        words.append(f" {step.state}", _STATES[step.state])
    if step.attempts > 1:
        words.append(f", {step.attempts} attempts", "dim")
    if step.cut:
        words.append(f", {step.cut} cut off", "yellow")
    if step.error is not None and step.state in (State.FAILED, State.RETRYING):
        failure = decode_failure(step.error)
        kind = failure.type.rpartition(":")[2]
        words.append("\n").append(styled(f"{kind}: {failure.message}", "red", _ERROR_LENGTH))
    return words
