"""Ends that are kept for a while: the newest, and no more than a few megabytes of them."""

from __future__ import annotations

from perdure.engine.endings import Ending, Endings
from perdure.model.run import RunKey, Status


def ended(endings: Endings, incarnation: int, size: int) -> None:
    ending = Ending(Status.COMPLETED, b"x" * size, None)
    endings.ended(RunKey(f"r{incarnation}", incarnation), ending)


def kept(endings: Endings, most: int) -> list[int]:
    return [incarnation for incarnation in range(most) if endings.recent(incarnation) is not None]


def test_the_newest_ends_are_kept_as_long_as_their_outputs_are_a_few_megabytes() -> None:
    endings = Endings()
    for incarnation in range(100):
        ended(endings, incarnation, 64 * 1024)
    assert kept(endings, 100) == list(range(36, 100))
    ended(endings, 0, 64 * 1024 + 1)
    assert kept(endings, 100) == list(range(36, 100))


def test_what_was_forgotten_or_told_again_does_not_count() -> None:
    endings = Endings()
    for _ in range(3):
        for incarnation in range(64):
            ended(endings, incarnation, 64 * 1024)
        assert kept(endings, 64) == list(range(64))
        for incarnation in range(64):
            endings.touched(RunKey(f"r{incarnation}", incarnation))
        assert kept(endings, 64) == []
    for incarnation in (1, 1, 1):
        ended(endings, incarnation, 64 * 1024)
    for incarnation in range(2, 65):
        ended(endings, incarnation, 64 * 1024)
    assert kept(endings, 65) == list(range(1, 65))


def test_a_thousand_small_ends_are_kept() -> None:
    endings = Endings()
    for incarnation in range(1500):
        ended(endings, incarnation, 4)
    assert kept(endings, 1500) == list(range(500, 1500))
