"""Durations and times: what means how many microseconds, and what means nothing."""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.model.durations import SECOND, instant, micros, parse_duration, positive_micros
from perdure.model.errors import UsageError

UNITS = {"ms": 1000, "s": SECOND, "m": 60 * SECOND, "h": 3600 * SECOND, "d": 86400 * SECOND, "w": 604800 * SECOND}


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("500ms", 0.5),
        ("30s", 30),
        ("15m", 900),
        ("2h", 7200),
        ("7d", 604800),
        ("2w", 1209600),
        ("7 days", 604800),
        ("1 day", 86400),
        ("3 weeks", 1814400),
        ("1.5h", 5400),
        ("0.5 minutes", 30),
        ("  10 Seconds ", 10),
        ("0s", 0),
    ],
)
def test_time_03_texts_of_a_number_and_a_unit_are_durations(text: str, seconds: float) -> None:
    assert parse_duration(text) == seconds * SECOND


@pytest.mark.parametrize(
    "text",
    [
        "",
        "5",
        "s",
        "5 x",
        "5 parsecs",
        "-5s",
        "1e3s",
        "1,5h",
        "5s 3m",
        ".5h",
        "5.",
        "5.s",
        "5ss",
        "5 dayss",
        "5mss",
        "nan s",
        "inf d",
    ],
)
def test_time_03_any_other_text_is_refused_with_examples(text: str) -> None:
    with pytest.raises(UsageError, match=r"is no duration; write for example 500ms, 30s, 15m, 1\.5h, 7d or 2w"):
        parse_duration(text)


@pytest.mark.parametrize("text", ["9999999w", "1" * 400 + "d"])
def test_texts_beyond_what_can_be_stored_are_refused(text: str) -> None:
    with pytest.raises(UsageError, match="longer than any store can hold"):
        parse_duration(text)


@given(st.integers(0, 10_000), st.sampled_from(sorted(UNITS)))
def test_time_03_whole_numbers_of_every_unit_are_exact(number: int, unit: str) -> None:
    assert parse_duration(f"{number}{unit}") == parse_duration(f"{number} {unit.upper()}") == number * UNITS[unit]


@given(st.timedeltas(timedelta(days=-1_000_000), timedelta(days=1_000_000)))
def test_a_timedelta_is_exact_to_the_microsecond(value: timedelta) -> None:
    assert micros(value) == value // timedelta(microseconds=1)


@given(st.floats(-1e9, 1e9))
def test_seconds_are_rounded_to_the_microsecond(value: float) -> None:
    assert abs(micros(value) - value * SECOND) <= 0.5
    assert micros(int(value)) == int(value) * SECOND


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_durations_that_are_not_finite_are_refused(value: float) -> None:
    with pytest.raises(UsageError, match="the delay must be finite"):
        micros(value, "the delay")


@pytest.mark.parametrize("value", [True, "5", None, Decimal(5), datetime(2024, 1, 1, tzinfo=UTC)])
def test_other_types_are_no_durations(value: Any) -> None:
    with pytest.raises(UsageError, match=r"the delay must be seconds or a timedelta, not "):
        micros(value, "the delay")


@pytest.mark.parametrize("value", [1e12, -1e300, 10**400, timedelta.max, timedelta.min])
def test_durations_that_no_store_can_hold_are_refused(value: Any) -> None:
    with pytest.raises(UsageError, match="longer than any store can hold"):
        micros(value)


@pytest.mark.parametrize("value", [0, -1, 0.0000001, timedelta(0), timedelta(microseconds=-1)])
def test_a_duration_that_must_be_positive_says_so(value: Any) -> None:
    with pytest.raises(UsageError, match="the timeout must be positive"):
        positive_micros(value, "the timeout")
    assert positive_micros(timedelta(microseconds=1), "the timeout") == 1


def test_an_instant_is_an_aware_datetime_or_seconds_since_the_epoch() -> None:
    assert instant(0) == 0
    assert instant(1.5) == 1_500_000
    assert instant(datetime(1970, 1, 2, tzinfo=UTC)) == 86400 * SECOND
    assert instant(datetime(1970, 1, 1, 2, tzinfo=timezone(timedelta(hours=2)))) == 0
    assert instant(datetime(1969, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC)) == -1


@given(st.datetimes(datetime(1800, 1, 1), datetime(2200, 1, 1), timezones=st.just(UTC)))
def test_an_instant_is_exact_to_the_microsecond(when: datetime) -> None:
    assert datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=instant(when)) == when


def test_a_datetime_without_a_zone_is_refused_with_what_to_write_instead() -> None:
    with pytest.raises(UsageError, match=r"start_at 2024-01-01T00:00:00 has no time zone; use an aware datetime"):
        instant(datetime(2024, 1, 1), "start_at")
