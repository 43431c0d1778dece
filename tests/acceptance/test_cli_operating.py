"""`perdure runs count`, `pause`, `unpause`, `redispatch`, `fork`, and acting on all runs that filters find."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance import shop
from tests.acceptance.conftest import Call
from tests.acceptance.test_cli_acting import live, results


def seed(folder: Path) -> None:
    """Three runs that wait, with attributes."""

    async def run() -> None:
        async with shop.app(folder) as app:
            for number in range(3):
                handle = await app.start(
                    shop.approve, id=f"run-{number}", attributes={"amount": number * 100, "plan": "pro"}, origin="web"
                )
                await shop.rested(handle)

    asyncio.run(run())


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (["--attr", "amount>0"], ["run-2", "run-1"]),
        (["--attr", "amount >= 100", "--attr", "amount<200"], ["run-1"]),
        (["--attr", "amount!=100"], ["run-2", "run-0"]),
        (["--attr", "plan>=pro", "--origin", "web"], ["run-2", "run-1", "run-0"]),
        (["--attr", "plan<pro"], []),
        (["--origin", "cron"], []),
        (["--tag", "a", "--tag", "b"], []),
    ],
)
def test_attr_03_list_by_comparison(call: Call, tmp_path: Path, options: list[str], expected: list[str]) -> None:
    seed(tmp_path)
    assert [run["id"] for run in call("runs", "list", "--json", *options).json["runs"]] == expected


@pytest.mark.parametrize("option", ["amount", "amount>", "amount>true", "amount~3", ">3"])
def test_a_condition_that_is_none_is_refused(call: Call, tmp_path: Path, option: str) -> None:
    seed(tmp_path)
    answer = call("runs", "list", "--attr", option)
    assert answer.code == (0 if option == "amount>" else 2)  # an empty text is a text


def test_ret_14_count(call: Call, tmp_path: Path) -> None:
    seed(tmp_path)
    assert call("runs", "count").out == "3\n"
    assert call("runs", "count", "--attr", "amount>0", "--json").json == {"count": 2}
    counted = call("runs", "count", "--by", "status", "--by", "origin", "--json").json
    assert counted == {"counts": [{"status": "suspended", "origin": "web", "runs": 3}]}
    assert "suspended" in call("runs", "count", "--by", "status").out


def test_pause_and_unpause(call: Call, tmp_path: Path) -> None:
    seed(tmp_path)
    assert call("runs", "pause", "run-0").out == "run-0: paused\n"
    assert call("runs", "pause", "run-0").out == "run-0: was paused already\n"
    shown = call("runs", "show", "run-0", "--json").json
    assert shown["paused_at"] is not None
    assert [wait["what"] for wait in shown["waits"]] == ["unpause"]
    assert call("signal", "run-0", "approve", '"ada"').code == 0
    assert call("runs", "unpause", "run-0").out == "run-0: unpaused\n"
    assert results(tmp_path, "run-0") == ["ada"]
    assert call("runs", "pause", "run-0").code == 1


def test_pause_what_filters_find(call: Call, tmp_path: Path) -> None:
    seed(tmp_path)
    dry = call("runs", "pause", "--attr", "amount>0", "--dry-run", "--json").json
    assert dry["runs"] == [{"id": "run-2", "outcome": "done"}, {"id": "run-1", "outcome": "done"}]
    assert dry["dry_run"] is True
    assert dry["counts"]["done"] == 2
    answer = call("runs", "pause", "--attr", "amount>0")
    assert answer.out.splitlines() == ["run-2: paused", "run-1: paused", "2 of 2 runs paused"]
    assert call("runs", "unpause", "--status", "suspended").out.splitlines()[-1] == "2 of 3 runs unpaused"


def test_retry_and_delete_what_filters_find(call: Call, tmp_path: Path) -> None:
    live(tmp_path, (shop.fail, 1), (shop.fail, 2), (shop.approve,))
    answer = call("runs", "retry", "--workflow", "fail", "--dry-run")
    assert answer.out.splitlines()[-1] == "2 of 2 runs would be retried"
    assert call("runs", "retry", "--workflow", "fail").code == 0
    assert call("runs", "list", "--status", "pending", "--json").json["runs"][0]["id"] == "run-1"
    assert call("runs", "delete", "--workflow", "fail").code == 2
    assert call("runs", "delete", "--workflow", "fail", "--dry-run").code == 0
    assert call("runs", "count").out == "3\n"
    assert call("runs", "delete", "--workflow", "fail", "--yes").out.splitlines()[-1] == "2 of 2 runs deleted"
    assert call("runs", "count").out == "1\n"


@pytest.mark.parametrize("verb", ["retry", "delete", "pause", "unpause", "cancel"])
@pytest.mark.parametrize("arguments", [[], ["run-0", "--status", "failed"]], ids=["neither", "both"])
def test_runs_are_named_or_described(call: Call, tmp_path: Path, verb: str, arguments: list[Any]) -> None:
    seed(tmp_path)
    answer = call("runs", verb, *arguments)
    assert answer.code == 2
    assert f"runs {verb} takes the ids of runs, or filters" in answer.err


def test_fork_and_redispatch(call: Call, tmp_path: Path) -> None:
    seed(tmp_path)
    answer = call("runs", "redispatch", "run-0")
    assert answer.out == "run-0: suspended, 0 steps to be tried again\n"
    fork = call("runs", "fork", "run-0", "0", "--json").json["run"]
    assert fork.startswith("run-0~fork~")
    assert call("signal", fork, "approve", '"eve"').code == 0
    assert results(tmp_path, fork) == ["eve"]
    assert call("runs", "fork", "run-0", "7").code == 2
    assert call("runs", "fork", "none", "0").code == 1
