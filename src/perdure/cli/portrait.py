"""`perdure runs show` for people: a run's facts, its timeline, and what it waits for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from msgspec import Struct
from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from perdure.cli.text import duration, instant, paragraph, relative, styled
from perdure.cli.timechart import chart
from perdure.cli.timeline import Row
from perdure.cli.waits import Wait
from perdure.model.failure import Failure, decode_failure
from perdure.model.history import Op
from perdure.model.messages import Message
from perdure.model.run import DEFAULT_NAMESPACE, TERMINAL, Run, Status
from perdure.model.steps import State

STATUS_STYLES: Mapping[Status, str] = {
    Status.PENDING: "cyan",
    Status.RUNNING: "cyan",
    Status.SUSPENDED: "yellow",
    Status.BLOCKED: "bold magenta",
    Status.COMPLETED: "green",
    Status.FAILED: "bold red",
    Status.CANCELLED: "red",
    Status.DEAD: "bold red",
}

#: Characters of a value that are shown, unless all is asked for.
_VALUE_LENGTH = 300
#: Microseconds: a run that began so soon began when it was created.
_AT_ONCE = 1000
#: Lines of the timeline, and of what the run waits for, unless all are asked for.
_ROWS = 100
_WAITS = 20
#: Lines of the steps' logs.
_LINES = 30
_LEVEL_STYLES: Mapping[str, str] = {"debug": "dim", "warning": "yellow", "error": "red"}


class Portrait(Struct, frozen=True, kw_only=True):
    """All that is drawn of a run."""

    run: Run
    rows: Sequence[Row]
    waits: Sequence[Wait]
    messages: Sequence[Message]
    now: int
    #: Columns of the screen.
    width: int
    #: With every line of the timeline, whole values and tracebacks.
    whole: bool = False


def draw(portrait: Portrait) -> RenderableType:
    """The picture."""
    run = portrait.run
    begin = run.started_at or run.created_at
    end = run.ended_at or portrait.now
    parts: list[RenderableType] = [title(run, end - begin), Padding(_facts(portrait), (0, 0, 1, 2))]
    rows, hidden = _chosen(portrait)
    if rows:
        parts.append(Padding(chart(rows, begin, end, portrait.width - 2), (0, 0, 0, 2)))
    if hidden:
        parts.append(Text(f"  and {hidden:,} completed operations; --all shows them", style="dim"))
    if portrait.waits:
        parts += [Text("\nWaits for", style="bold"), Padding(_waits(portrait), (0, 0, 0, 2))]
    said = _said(rows, portrait.whole)
    if said is not None:
        parts += [Text("\nLog", style="bold"), Padding(said, (0, 0, 0, 2))]
    parts += _error(run, whole=portrait.whole)
    return Group(*parts)


def title(run: Run, took: int) -> Text:
    """The run's id, how it stands, and how long it took (or has been taking) in microseconds."""
    title = styled(run.id, "bold")
    title.append("  ").append(str(run.status), STATUS_STYLES[run.status])
    return title.append(f"  {'in' if run.status in TERMINAL else 'for'} {duration(took)}", "dim")


def _facts(portrait: Portrait) -> Table:
    grid = Table.grid(padding=(0, 2, 0, 0))
    grid.add_column(style="dim")
    grid.add_column(overflow="fold")
    for name, value in _named_facts(portrait):
        grid.add_row(name, value)
    return grid


def _named_facts(portrait: Portrait) -> Iterator[tuple[str, Text]]:
    run, now = portrait.run, portrait.now
    limit = None if portrait.whole else _VALUE_LENGTH
    yield "workflow", styled(f"{run.workflow} {run.version}")
    yield "created", Text(f"{instant(run.created_at)}  ({relative(run.created_at, now)})")
    if run.started_at is not None and run.started_at - run.created_at >= _AT_ONCE:
        yield "began", Text(f"{duration(run.started_at - run.created_at)} later")
    if run.deadline is not None and run.status not in TERMINAL:
        yield "times out", Text(f"{instant(run.deadline)}  ({relative(run.deadline, now)})")
    if run.namespace != DEFAULT_NAMESPACE:
        yield "namespace", styled(run.namespace)
    if run.priority is not None:
        yield "priority", Text(str(run.priority))
    if run.tags:
        yield "tags", styled(", ".join(run.tags))
    if run.parent is not None:
        yield "parent", styled(f"{run.parent.id} (operation {run.parent.seq})")
    if run.continued_to is not None:
        yield "goes on as", styled(run.continued_to)
    if run.owner is not None:
        yield "worker", styled(run.owner)
    if run.recoveries:
        yield "recovered", Text(f"{run.recoveries} times since it last made progress", style="yellow")
    if portrait.messages:
        yield "unread", styled(", ".join(f"{m.kind} {m.token or m.name}" for m in portrait.messages), limit=limit)
    yield "input", _value(run.input, limit)
    if run.output is not None:
        yield "output", _value(run.output, limit)


def _value(data: bytes, limit: int | None) -> Text:
    return styled(data.decode("utf-8", "replace"), limit=limit)


def _chosen(portrait: Portrait) -> tuple[list[Row], int]:
    """The lines to draw and how many are left out: of the middle, and only what went well at the first attempt."""
    rows = list(portrait.rows)
    surplus = len(rows) - _ROWS
    if portrait.whole or surplus <= 0:
        return rows, 0
    dull = [index for index, row in enumerate(rows) if row.step.state is State.COMPLETED and row.step.attempts < 2]
    start = max(0, (len(dull) - surplus) // 2)
    left_out = set(dull[start : start + surplus])
    return [row for index, row in enumerate(rows) if index not in left_out], len(left_out)


def _waits(portrait: Portrait) -> Table:
    grid = Table.grid(padding=(0, 2, 0, 0))
    for _ in range(3):
        grid.add_column(overflow="fold")
    shown = portrait.waits if portrait.whole else portrait.waits[:_WAITS]
    for wait in shown:
        times = Text(f"for {duration(max(0, portrait.now - wait.since))}", style="dim")
        if wait.until is not None:
            times.append(f", until {instant(wait.until)} ({relative(wait.until, portrait.now)})")
        name = Text(wait.what, style="dim")
        if wait.what != Op.TIMER:
            name.append(" ").append(styled(wait.name, "bold"))
        grid.add_row(name, times, styled(wait.detail, limit=None if portrait.whole else _VALUE_LENGTH))
    if len(shown) < len(portrait.waits):
        grid.add_row(Text(f"and {len(portrait.waits) - len(shown):,} more; --all shows them", style="dim"))
    return grid


def _said(rows: Sequence[Row], whole: bool) -> Table | None:
    """What the steps that are drawn said, the newest lines."""
    lines = sorted(
        ((line.at, row.step, line) for row in rows for line in row.step.log), key=lambda each: (each[0], each[1].seq)
    )
    progress = [(row.step, row.step.progress) for row in rows if row.step.progress is not None]
    if not lines and not progress:
        return None
    grid = Table.grid(padding=(0, 2, 0, 0))
    for _ in range(3):
        grid.add_column(overflow="fold")
    hidden = 0 if whole else max(0, len(lines) - _LINES)
    if hidden:
        grid.add_row(Text(f"{hidden:,} more; --all shows them", style="dim"))
    limit = None if whole else _VALUE_LENGTH
    for at, step, line in lines[hidden:]:
        text = line.message
        if line.process is not None:
            text = f"{line.process}: {line.outcome} in {duration(line.took or 0)}" + (f": {text}" if text else "")
        who = styled(f"#{step.seq} {step.name}" + (f" ({line.attempt})" if step.attempts > 1 else ""), "dim")
        grid.add_row(Text(instant(at), style="dim"), who, styled(text, _LEVEL_STYLES.get(line.level, ""), limit))
    for step, last in progress:
        who = styled(f"#{step.seq} {step.name}", "dim")
        grid.add_row(
            Text(instant(last.at), style="dim"), who, Text("progress ").append(_value(bytes(last.value), limit))
        )
    return grid


def _error(run: Run, *, whole: bool) -> Iterator[RenderableType]:
    if run.error is None or run.status is Status.BLOCKED:
        return
    failure: Failure | None = decode_failure(run.error)
    yield Text("\nError", style="bold")
    while failure is not None:
        kind = failure.type.rpartition(":")[2]
        yield Padding(styled(f"{kind}: {failure.message}", "red", None if whole else 2000), (0, 0, 0, 2))
        if whole and failure.traceback:
            yield Padding(paragraph(failure.traceback.rstrip("\n"), "dim"), (0, 0, 0, 2))
        failure = failure.cause
        if failure is not None:
            yield Text("  caused by", style="dim")
