"""How a history becomes spans of time, and how those are drawn."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from perdure.cli.text import duration, instant, iso, paragraph, plain, relative
from perdure.cli.timechart import Bar, chart
from perdure.cli.timeline import Kind, Span, bounds, rows
from perdure.model.failure import Failure, encode_failure
from perdure.model.history import Entry, Event, Op

BOOM = encode_failure(Failure("builtins:ValueError", "boom"))


def step(event: Event, at: int, began: int | None = None, due: int | None = None) -> Entry:
    return Entry(event, 0, Op.STEP, "charge", BOOM if "FAILED" in event.name else b"1", at, due, began)


def spans(*entries: Entry, now: int = 1000) -> list[tuple[int, int, str]]:
    (row,) = rows(entries, now)
    return [(span.start, span.end, str(span.kind)) for span in row.spans]


def test_a_step_waits_for_its_turn_and_then_works() -> None:
    entries = [step(Event.SCHEDULED, 100), step(Event.RESOLVED, 300, began=150)]
    assert spans(*entries) == [(100, 150, "wait"), (150, 300, "work")]


def test_each_failed_attempt_is_seen_and_the_waits_between() -> None:
    entries = [
        step(Event.SCHEDULED, 100),
        step(Event.ATTEMPT_FAILED, 200, began=100, due=400),
        step(Event.ATTEMPT_FAILED, 500, began=400, due=700),
    ]
    assert spans(*entries) == [(100, 200, "failed"), (200, 400, "wait"), (400, 500, "failed"), (500, 1000, "open")]
    assert spans(*entries, step(Event.RESOLVED, 800, began=700))[-2:] == [(500, 700, "wait"), (700, 800, "work")]
    assert spans(*entries, step(Event.FAILED, 800, began=700))[-1] == (700, 800, "failed")


def test_a_step_that_is_abandoned_or_cut_off_ends_in_a_wait() -> None:
    scheduled = step(Event.SCHEDULED, 100)
    assert spans(scheduled, step(Event.ABANDONED, 300)) == [(100, 300, "wait")]
    cut = step(Event.ATTEMPT_CUT, 100)
    assert spans(scheduled, cut) == [(100, 1000, "open")]
    assert spans(scheduled, cut, step(Event.RESOLVED, 900, began=800)) == [(100, 800, "wait"), (800, 900, "work")]


@pytest.mark.parametrize(
    ("op", "event", "kind"),
    [
        (Op.TIMER, Event.RESOLVED, "wait"),
        (Op.SIGNAL, Event.RESOLVED, "wait"),
        (Op.SIGNAL, Event.FAILED, "failed"),
        (Op.CHILD, Event.RESOLVED, "work"),
        (Op.CHILD, Event.FAILED, "failed"),
    ],
)
def test_what_is_awaited_is_one_span(op: Op, event: Event, kind: str) -> None:
    issued = Entry(Event.SCHEDULED, 0, op, "x", None, 100)
    assert spans(issued) == [(100, 1000, "open")]
    assert spans(issued, Entry(event, 0, op, "x", BOOM, 300)) == [(100, 300, kind)]


def test_what_nobody_waits_for_is_a_moment() -> None:
    assert spans(Entry(Event.SCHEDULED, 0, Op.VALUE, "x", b"1", 100)) == [(100, 100, "work")]


def test_clocks_that_disagree_give_no_negative_time() -> None:
    entries = [
        step(Event.SCHEDULED, 500),
        step(Event.ATTEMPT_FAILED, 400, began=300),
        step(Event.RESOLVED, 450, began=420),
    ]
    assert all(start <= end for start, end, _ in spans(*entries, now=0))
    assert bounds(rows(entries, 0), 0, 0) == (0, 500)
    assert bounds([], 7, 7) == (7, 8)


def draw(*drawn: Span, width: int = 10, last: int = 100) -> str:
    console = Console(file=io.TextIOWrapper(io.BytesIO(), encoding="ascii"), width=width, force_terminal=False)
    with console.capture() as captured:
        console.print(Bar(drawn, 0, last))
    return captured.get().rstrip("\n")


def test_a_bar_lies_where_its_time_is() -> None:
    assert draw(Span(0, 100, Kind.WORK)) == "=========="
    assert draw(Span(0, 45, Kind.WAIT), Span(50, 79, Kind.OPEN)) == "-----~~~  "
    assert draw(Span(95, 95, Kind.FAILED)) == "         x"


def test_the_most_telling_wins_a_cell_that_is_shared() -> None:
    assert draw(Span(12, 13, Kind.FAILED), Span(0, 40, Kind.WORK), Span(0, 100, Kind.WAIT)) == "=x===-----"


def test_a_bar_never_leaves_its_line() -> None:
    assert draw(Span(-500, 2000, Kind.WORK), width=4) == "===="
    assert draw(Span(200, 300, Kind.WORK), width=4) == "   ="


def test_there_is_room_for_inputs_only_on_a_wide_screen() -> None:
    entries = [Entry(Event.SCHEDULED, 0, Op.STEP, "charge", b'"somebody"', 100), step(Event.RESOLVED, 300, began=150)]
    for width, shown in ((80, False), (160, True)):
        console = Console(file=io.StringIO(), width=width)
        with console.capture() as captured:
            console.print(chart(rows(entries, 0), 0, 300, width))
        assert ("somebody" in captured.get()) == shown
        assert "charge" in captured.get()


def test_times_beyond_the_calendar_are_no_error() -> None:
    assert iso(None) is None
    assert iso(0) == "1970-01-01T00:00:00.000000Z"
    assert iso(10**18) == "@1000000000000.000000"
    assert instant(10**18) == instant(10**18 + 1) == "@1000000000000"
    assert instant(-(10**18)) == "@-1000000000000"


def test_durations_have_two_units_at_most() -> None:
    assert [duration(seconds * 1_000_000) for seconds in (59, 60, 3599, 3600, 86_399, 400 * 86_400)] == [
        "59 s", "1 min", "59 min 59 s", "1 h", "23 h 59 min", "400 d"
    ]  # fmt: skip
    assert (relative(5_000_000, 7_000_000), relative(9_000_000, 7_000_000)) == ("2.0 s ago", "in 2.0 s")
    assert duration(-1500) == "-1.5 ms"


def test_text_is_cut_and_made_harmless() -> None:
    assert plain("abcdef", 4) == "abc…"
    assert plain("\ud800\x00\u2028é") == r"\ud800\x00\u2028é"
    assert paragraph("a\tb\n\x1b[1mc\r\n").plain == "a   b\n\\x1b[1mc\\r\n"
