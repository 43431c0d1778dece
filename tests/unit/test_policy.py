"""Retry policies: how often, and how long between."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.model.errors import UsageError
from perdure.model.policy import Backoff, RetryPolicy

MS = 1000
YEAR = 365 * 86400 * 1_000_000


def delays(policy: RetryPolicy, failures: int) -> list[int]:
    return [policy.delay(n, 0.0) for n in range(1, failures + 1)]


def test_local_03_max_attempts_counts_all_attempts_so_that_one_means_no_retry() -> None:
    assert RetryPolicy().max_attempts == 1
    assert not RetryPolicy().again(1, retryable=True)
    three = RetryPolicy(max_attempts=3)
    assert [three.again(failures, retryable=True) for failures in (1, 2, 3, 4)] == [True, True, False, False]


def test_local_04_a_fatal_error_is_never_tried_again() -> None:
    assert not RetryPolicy(max_attempts=5).again(1, retryable=False)


def test_local_05_exponential_waits_double_by_default() -> None:
    assert delays(RetryPolicy(max_attempts=3, base=20 * MS), 2) == [20 * MS, 40 * MS]


def test_local_06_waits_stop_growing_at_the_cap() -> None:
    policy = RetryPolicy(base=100 * MS, cap=250 * MS)
    assert delays(policy, 4) == [100 * MS, 200 * MS, 250 * MS, 250 * MS]


def test_fixed_waits_are_all_the_same_and_capped_too() -> None:
    assert delays(RetryPolicy(backoff="fixed", base=70, factor=3.0), 3) == [70, 70, 70]
    assert delays(RetryPolicy(backoff="fixed", base=70, cap=50), 2) == [50, 50]


def test_jitter_takes_away_at_most_its_part() -> None:
    policy = RetryPolicy(base=100 * MS, jitter=0.25)
    assert policy.delay(1, 0.0) == 100 * MS
    assert policy.delay(1, 0.5) == 87_500
    assert policy.delay(1, math.nextafter(1.0, 0.0)) >= 75 * MS


def test_no_base_means_no_wait() -> None:
    assert delays(RetryPolicy(base=0, factor=100.0), 3) == [0, 0, 0]


@given(
    failures=st.integers(1, 10**6),
    backoff=st.sampled_from(["fixed", "exp"]),
    base=st.integers(0, 10**18) | st.just(10**400),
    factor=st.floats(0.1, 100.0),
    cap=st.integers(0, 10**18) | st.just(10**400),
    jitter=st.floats(0.0, 1.0),
    chance=st.floats(0.0, 1.0, exclude_max=True),
)
def test_f71_no_wait_ever_overflows_is_negative_or_beyond_its_bounds(
    failures: int, backoff: Backoff, base: int, factor: float, cap: int, jitter: float, chance: float
) -> None:
    policy = RetryPolicy(max_attempts=10**6 + 1, backoff=backoff, base=base, factor=factor, cap=cap, jitter=jitter)
    wait = policy.delay(failures, chance)
    whole = policy.delay(failures, 0.0)
    assert type(wait) is int
    assert 0 <= wait <= whole <= min(cap, 32 * YEAR)
    assert wait >= int(whole * (1.0 - jitter)) - 1
    if backoff == "fixed" or factor >= 1.0:
        assert whole >= min(base, cap, 31 * YEAR) - 1


@given(st.floats(1.0, 100.0), st.integers(1, 10**9), st.integers(1, 2000))
def test_f71_growing_waits_never_shrink(factor: float, base: int, failures: int) -> None:
    policy = RetryPolicy(base=base, factor=factor)
    assert policy.delay(failures, 0.0) <= policy.delay(failures + 1, 0.0)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"max_attempts": 0}, "max_attempts must be at least 1"),
        ({"max_attempts": -3}, "max_attempts must be at least 1"),
        ({"backoff": "linear"}, 'backoff must be "fixed" or "exp", not \'linear\''),
        ({"base": -1}, "cannot be negative"),
        ({"cap": -1}, "cannot be negative"),
        ({"jitter": 1.5}, "jitter must be between 0 and 1"),
        ({"jitter": math.nan}, "jitter must be between 0 and 1"),
        ({"factor": 0.0}, "factor must be above 0"),
        ({"factor": math.inf}, "factor must be above 0 and at most 1000"),
        ({"factor": math.nan}, "factor must be above 0"),
        ({"timeout": 0}, "timeout must be positive"),
    ],
)
def test_policies_that_make_no_sense_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        RetryPolicy(**options)
