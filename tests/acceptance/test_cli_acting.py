"""`perdure signal`, `runs cancel`, `runs retry`, `runs delete`, `migrate`: what they do, and their exit codes."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from perdure.model.errors import StoreMismatch
from perdure.stores.sqlite import SqliteStore
from perdure.testing import ManualClock
from tests.acceptance import shop
from tests.acceptance.conftest import Call


def live(folder: Path, *starts: tuple[Any, ...]) -> None:
    """Start these (workflow, *input) as run-0, run-1..., and let each come to rest."""

    async def run() -> None:
        async with shop.app(folder) as app:
            for number, (workflow, *inputs) in enumerate(starts):
                handle = await app.start(workflow, *inputs, id=f"run-{number}")
                await shop.rested(handle)

    asyncio.run(run())


def results(folder: Path, *ids: str) -> list[Any]:
    """Let workers go on until these runs have ended; what they returned."""

    async def run() -> list[Any]:
        async with shop.app(folder) as app:
            return [await app.get_run(id).result(timeout=30) for id in ids]

    return asyncio.run(run())


def ended(folder: Path, *ids: str) -> list[str]:
    """Let workers go on until these runs have ended; how they stand then."""

    async def run() -> list[str]:
        async with shop.app(folder) as app:
            handles = [app.get_run(id) for id in ids]
            await asyncio.gather(*(handle.result(timeout=30) for handle in handles), return_exceptions=True)
            return [str(await handle.status()) for handle in handles]

    return asyncio.run(run())


# -- signals ----------------------------------------------------------------------------------------------------------


def test_a_signal_reaches_its_run(call: Call, tmp_path: Path) -> None:
    live(tmp_path, (shop.approve,))
    answer = call("signal", "run-0", "approve", '"ada"')
    assert (answer.code, answer.out) == (0, "sent to run run-0\n")
    assert results(tmp_path, "run-0") == ["ada"]


def test_a_signal_reaches_who_waits_for_its_token(call: Call, tmp_path: Path) -> None:
    live(tmp_path, (shop.open_door, "front"))
    assert call("signal", "--token", "front", '"brass"').code == 0
    assert results(tmp_path, "run-0") == ["brass"]


def test_the_same_signal_is_delivered_once(call: Call, tmp_path: Path) -> None:
    live(tmp_path, (shop.nap,))
    for _ in range(2):
        assert call("signal", "run-0", "hurry", "--id", "h1").code == 0
    assert len(call("runs", "show", "run-0", "--json").json["unread"]) == 1


def test_a_payload_comes_from_standard_input(call: Call, tmp_path: Path) -> None:
    live(tmp_path, (shop.approve,))
    assert call("signal", "run-0", "approve", "-", stdin='"grace"').code == 0
    assert results(tmp_path, "run-0") == ["grace"]


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["run-0"],
        ["run-0", "approve", "1", "2"],
        ["run-0", "approve", "ada"],
        ["run-0", "approve", "NaN"],
        ["--token", "t", "1", "2"],
        ["--token", "", "1"],
        ["run-0", "approve", "--namespace", "n"],
        ["run-0", " "],
    ],
)
def test_f35_a_signal_asked_wrongly_is_misuse_and_sends_nothing(
    call: Call, tmp_path: Path, arguments: list[str]
) -> None:
    live(tmp_path, (shop.approve,))
    assert call("signal", *arguments).code == 2
    assert call("runs", "show", "run-0", "--json").json["unread"] == []


def test_a_signal_that_nobody_can_get_fails(call: Call, tmp_path: Path) -> None:
    live(tmp_path, (shop.add, 1))
    ended = call("signal", "run-0", "x", "--json")
    assert (ended.code, ended.out) == (1, "")
    assert '"code":"run_ended"' in ended.err
    assert call("signal", "nobody", "x").code == 1


# -- cancel, retry, delete --------------------------------------------------------------------------------------------


def test_cancel_stops_runs_for_good(call: Call, tmp_path: Path) -> None:
    live(tmp_path, (shop.approve,), (shop.family,))
    answer = call("runs", "cancel", "run-0", "run-1", "--reason", "closed")
    assert (answer.code, answer.out) == (0, "run-0: cancelled\nrun-1: cancelled\n")
    shown = call("runs", "show", "run-0", "--json").json
    assert (shown["status"], shown["error"]["message"]) == ("cancelled", "closed")
    assert call("runs", "show", "run-1-child", "--json").json["status"] == "cancelled"
    assert call("runs", "cancel", "run-0").code == 0, "it is as asked"


def test_f35_cancel_with_undo_is_asked_for_and_done(call: Call, tmp_path: Path) -> None:
    live(tmp_path, (shop.reserved,))
    answer = call("runs", "cancel", "run-0", "--compensate", "--reason", "closed")
    assert (answer.code, answer.out) == (0, "run-0: suspended\n")
    assert ended(tmp_path, "run-0") == ["cancelled"]
    shown = call("runs", "show", "run-0", "--json").json
    assert shown["error"]["message"] == "closed"
    assert [one["name"] for one in shown["steps"]] == ["reserve", "never", "compensate:reserve"]


def test_f35_what_is_not_known_or_does_not_belong_together_is_refused(call: Call, tmp_path: Path) -> None:
    live(tmp_path, (shop.nap,))
    for arguments in (
        ["run-0", "--compensated"],
        ["run-0", "--undo"],
        ["run-0", "--workflow", "nap"],
        ["run-0", "--dry-run"],
        ["--dry-run"],
        ["--namespace", "default"],
        ["--workflow", ""],
        ["--workflow", "nap", "--tag", ""],
        ["--attribute", "customer"],
        ["--status", "asleep"],
        [],
    ):
        assert call("runs", "cancel", *arguments).code == 2, arguments
    assert call("runs", "show", "run-0", "--json").json["status"] == "suspended"


def test_cancel_12_cancel_by_filters(call: Call, tmp_path: Path) -> None:
    live(tmp_path, (shop.nap,), (shop.approve,), (shop.nap,), (shop.add, 1))
    tried = call("runs", "cancel", "--workflow", "nap", "--dry-run")
    assert (tried.code, tried.out) == (0, "run-2: suspended\nrun-0: suspended\n")
    answer = call("runs", "cancel", "--workflow", "nap", "--json")
    assert answer.json == {
        "runs": [{"id": "run-2", "status": "cancelled"}, {"id": "run-0", "status": "cancelled"}],
        "errors": [],
    }
    assert call("runs", "show", "run-1", "--json").json["status"] == "suspended"
    assert call("runs", "cancel", "--workflow", "add").out == "run-3: completed\n"
    assert call("runs", "cancel", "--tag", "none").out == "no run matches\n"


def test_what_cannot_be_cancelled_fails_and_the_others_are_cancelled(call: Call, tmp_path: Path) -> None:
    live(tmp_path, (shop.add, 1), (shop.approve,))
    answer = call("runs", "cancel", "run-0", "nobody", "run-1", "--json")
    assert answer.code == 1
    assert answer.json["runs"] == [{"id": "run-1", "status": "cancelled"}]
    assert [(e["id"], e["code"]) for e in answer.json["errors"]] == [
        ("run-0", "run_ended"),
        ("nobody", "run_not_found"),
    ]


def test_retry_revives_a_failed_run(call: Call, tmp_path: Path) -> None:
    live(tmp_path, (shop.fail, 1))
    answer = call("runs", "retry", "run-0")
    assert (answer.code, answer.out) == (0, "run-0: pending\n")
    assert call("runs", "show", "run-0", "--json").json["error"] is None


def test_retry_leaves_any_other_run_as_it_is(call: Call, tmp_path: Path) -> None:
    live(tmp_path, (shop.add, 1))
    answer = call("runs", "retry", "run-0")
    assert (answer.code, answer.out) == (1, "")
    assert "only failed and dead runs" in answer.err
    assert call("runs", "show", "run-0", "--json").json["status"] == "completed"


def test_retry_does_not_take_a_pending_run_for_its_doing(call: Call, tmp_path: Path) -> None:
    async def start() -> None:
        async with shop.app(tmp_path).client() as client:
            await client.start(shop.add, 1, id="run-0")

    asyncio.run(start())
    answer = call("runs", "retry", "run-0", "--json")
    assert (answer.code, answer.json["errors"][0]["code"]) == (1, "not_retryable")


def test_delete_removes_runs_with_all_below(call: Call, tmp_path: Path) -> None:
    live(tmp_path, (shop.family,), (shop.add, 1))
    answer = call("runs", "delete", "run-0", "nobody", "--yes")
    assert (answer.code, answer.out) == (1, "run-0: deleted\n")
    assert [run["id"] for run in call("runs", "list", "--json").json["runs"]] == ["run-1"]


def test_delete_asks_first_and_does_nothing_if_nobody_can_answer(call: Call, tmp_path: Path) -> None:
    live(tmp_path, (shop.add, 1))
    assert call("runs", "delete", "run-0").code == 2
    assert call("runs", "delete", "run-0", "--json").code == 2
    assert call("runs", "show", "run-0").code == 0


# -- migrate ----------------------------------------------------------------------------------------------------------


def test_migrate_plans_creates_and_then_has_nothing_to_do(call: Call, tmp_path: Path) -> None:
    planned = call("migrate", "--plan", "--json")
    assert (planned.code, planned.json["applied"]) == (1, False)
    assert planned.json["migrations"][0]["number"] == 1
    assert list(tmp_path.iterdir()) == []
    done = call("migrate", "--json")
    assert (done.code, done.json["migrations"]) == (0, planned.json["migrations"])
    assert (tmp_path / "shop.db").exists()
    again = call("migrate")
    assert (again.code, again.out) == (0, "up to date\n")
    assert call("migrate", "--plan").code == 0
    assert call("runs", "list").out == "no runs\n"


def test_migrate_refuses_what_is_not_ours(call: Call, tmp_path: Path) -> None:
    (tmp_path / "shop.db").write_text("notes")
    for arguments in (("migrate",), ("migrate", "--plan")):
        assert call(*arguments).code == 1
    assert (tmp_path / "shop.db").read_text() == "notes"
    assert call("migrate", "--store", "memory://").code == 2


async def test_what_migrate_made_is_what_a_worker_needs(call: Call, tmp_path: Path) -> None:
    store = SqliteStore(str(tmp_path / "shop.db"), clock=ManualClock())
    with pytest.raises(StoreMismatch):
        await store.open(migrate=False)
    await asyncio.to_thread(call, "migrate")
    await store.open(migrate=False)
    await store.close()
