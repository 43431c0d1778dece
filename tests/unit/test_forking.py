"""F52: a fork waits until nobody is inside SQLite."""

from __future__ import annotations

import os
import threading

import pytest

from perdure.stores.sqlite.forking import Crossing

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="platform: no fork")


def test_f52_a_fork_waits_for_whoever_is_inside_and_keeps_others_out() -> None:
    crossing = Crossing()
    entered, leave, forking, forked, go_on = (threading.Event() for _ in range(5))
    order: list[str] = []

    def first() -> None:
        with crossing.inside():
            entered.set()
            leave.wait()
            order.append("first is out")

    def fork() -> None:
        forking.set()
        crossing._before()
        order.append("fork")
        forked.set()
        go_on.wait()
        order.append("forked")
        crossing._after_in_parent()

    def second() -> None:
        with crossing.inside():
            order.append("second is in")

    threads = [threading.Thread(target=first), threading.Thread(target=fork), threading.Thread(target=second)]
    threads[0].start()
    entered.wait()
    threads[1].start()
    forking.wait()
    leave.set()
    forked.wait()
    threads[2].start()
    go_on.set()
    for thread in threads:
        thread.join()
    assert order == ["first is out", "fork", "forked", "second is in"]


def test_f52_in_the_child_nobody_is_inside() -> None:
    """Whoever was inside in the parent, and whoever had the lock, is not there to come out."""
    crossing = Crossing()
    held = crossing.inside()
    held.__enter__()
    crossing._lock.acquire()
    crossing._after_in_child()
    with crossing.inside():
        pass
    crossing._before()  # at once
    crossing._after_in_parent()
