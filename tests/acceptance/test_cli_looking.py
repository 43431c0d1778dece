"""`perdure runs list` and `runs show`: what they say, and that looking changes nothing."""

from __future__ import annotations

import asyncio
import re
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from perdure import Perdure, RunHandle, RunUnsuccessful
from tests.acceptance import shop
from tests.acceptance.conftest import Call

#: Everything that could move a terminal's cursor, colour it, or turn its text around.
DANGEROUS = re.compile(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]")
HOSTILE = "[red]x[/red] \x1b]0;owned\x07\x1b[2J\u202egnp.exe\r\n:smile: \x9b31m"


def seed(folder: Path, *starts: tuple[Any, ...]) -> list[Any]:
    """Start these (workflow, *input) as run-0, run-1..., and let each come to rest."""

    async def run() -> list[Any]:
        async with shop.app(folder) as app:
            handles: list[RunHandle[Any]] = []
            for number, (workflow, *inputs) in enumerate(starts):
                handles.append(await app.start(workflow, *inputs, id=f"run-{number}"))
                await shop.rested(handles[-1])
            return [await handle.info() for handle in handles]

    return asyncio.run(run())


def tamper(folder: Path, statement: str, *values: object) -> None:
    with closing(sqlite3.connect(folder / "shop.db")) as connection, connection:
        connection.execute(statement, values)


def test_list_shows_the_newest_first(call: Call, tmp_path: Path) -> None:
    seed(tmp_path, (shop.add, 1), (shop.fail, 2), (shop.approve,))
    answer = call("runs", "list")
    lines = [line.split() for line in answer.out.splitlines()]
    assert [line[:4] for line in lines[1:]] == [
        ["run-2", "approve", "1", "suspended"],
        ["run-1", "fail", "1", "failed"],
        ["run-0", "add", "3", "completed"],
    ]
    assert "no 2" in answer.out
    assert (answer.code, answer.err) == (0, "")


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (["--status", "failed"], ["run-1"]),
        (["--status", "failed", "--status", "completed"], ["run-1", "run-0"]),
        (["--workflow", "add"], ["run-0"]),
        (["--tag", "sums"], ["run-0"]),
        (["--namespace", "elsewhere"], []),
        (["--limit", "1"], ["run-2"]),
    ],
)
def test_list_filters(call: Call, tmp_path: Path, options: list[str], expected: list[str]) -> None:
    seed(tmp_path, (shop.add, 1), (shop.fail, 2), (shop.approve,))
    assert [run["id"] for run in call("runs", "list", "--json", *options).json["runs"]] == expected


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (["--attribute", "customer=42"], ["run-1", "run-0"]),
        (["--attribute", 'customer="42"'], ["run-2"]),
        (["--attribute", "plan=pro"], ["run-1"]),
        (["--attribute", 'plan="pro"'], ["run-1"]),
        (["--attribute", "plan=null"], ["run-2"]),
        (["--attribute", "note=a=b"], ["run-0"]),
        (["--attribute", "note="], ["run-2"]),
        (["--attribute", "customer=42", "--attribute", "plan=free"], ["run-0"]),
        (["--attribute", "customer=42", "--attribute", "plan=free", "--tag", "vip"], []),
        (["--attribute", "customer=43"], []),
    ],
)
def test_list_by_attribute(call: Call, tmp_path: Path, options: list[str], expected: list[str]) -> None:
    async def run() -> None:
        async with shop.app(tmp_path).client() as app:
            several: list[dict[str, Any]] = [
                {"customer": 42, "plan": "free", "note": "a=b"},
                {"customer": 42, "plan": "pro"},
                {"customer": "42", "plan": None, "note": ""},
            ]
            for number, attributes in enumerate(several):
                await app.start(shop.add, 1, id=f"run-{number}", attributes=attributes)

    asyncio.run(run())
    assert [run["id"] for run in call("runs", "list", "--json", *options).json["runs"]] == expected


@pytest.mark.parametrize("option", ["customer", "=42", "a=[1]", 'a={"b":1}', "a=" + "x" * 300])
def test_an_attribute_that_nothing_can_be_found_by_is_refused(call: Call, tmp_path: Path, option: str) -> None:
    seed(tmp_path)
    answer = call("runs", "list", "--attribute", option)
    assert answer.code == 2
    assert "attribute" in answer.err


def test_pages_follow_each_other_and_end(call: Call, tmp_path: Path) -> None:
    seed(tmp_path, *[(shop.add, n) for n in range(5)])
    pages: list[list[str]] = []
    before: list[str] = []
    while True:
        page = call("runs", "list", "--json", "--limit", "2", *before).json
        pages.append([run["id"] for run in page["runs"]])
        if page["next"] is None:
            break
        assert f"--before {page['next']}" in call("runs", "list", "--limit", "2", *before).out
        before = ["--before", str(page["next"])]
    assert pages == [["run-4", "run-3"], ["run-2", "run-1"], ["run-0"]]


def test_a_run_as_a_document(call: Call, tmp_path: Path) -> None:
    (run,) = seed(tmp_path, (shop.add, 4))
    shown = call("runs", "show", "run-0", "--json").json
    assert {key: shown[key] for key in ("id", "workflow", "version", "status", "input", "output", "tags", "waits")} == {
        "id": "run-0",
        "workflow": "add",
        "version": "3",
        "status": "completed",
        "input": {"a": 4},
        "output": 9,
        "tags": ["sums"],
        "waits": [],
    }
    assert [(s["seq"], s["kind"], s["name"], s["state"], s["output"]) for s in shown["steps"]] == [
        (0, "step", "double", "completed", 8)
    ]
    assert shown["incarnation"] == run.incarnation
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z", shown["created_at"])


def test_a_failed_run_tells_each_attempt_and_its_error(call: Call, tmp_path: Path) -> None:
    seed(tmp_path, (shop.fail, 3))
    picture = call("runs", "show", "run-0").out
    assert "run-0  failed" in picture
    assert "step refuse failed, 2 attempts" in picture
    assert "ValueError: no 3" in picture
    assert "Traceback" not in picture
    assert "line" in call("runs", "show", "run-0", "--all").out
    (step,) = call("runs", "show", "run-0", "--json").json["steps"]
    assert (step["attempts"], step["error"]["type"]) == (2, "builtins:ValueError")


def test_a_waiting_run_says_for_what_since_when_and_until_when(call: Call, tmp_path: Path) -> None:
    seed(tmp_path, (shop.approve,), (shop.open_door, "front"), (shop.nap,), (shop.family,))

    async def child_rests() -> None:
        async with shop.app(tmp_path) as app:
            await app.get_run("run-3-child").wait(timeout=30)

    asyncio.run(child_rests())
    assert re.search(r"Waits for\n  signal approve  for .*, until .* \(in 59 min", call("runs", "show", "run-0").out)
    assert re.search(r"Waits for\n  token front  for [^,\n]*\n", call("runs", "show", "run-1").out)
    assert re.search(r"Waits for\n  timer  for .*, until .* \(in 23 h", call("runs", "show", "run-2").out)
    assert re.search(r"Waits for\n  child run-3-child  for .* is suspended", call("runs", "show", "run-3").out)
    (wait,) = call("runs", "show", "run-0", "--json").json["waits"]
    assert (wait["what"], wait["name"], wait["since"] < wait["until"]) == ("signal", "approve", True)


def test_a_run_that_nobody_serves_waits_for_a_worker(call: Call, tmp_path: Path) -> None:
    async def start() -> None:
        async with shop.app(tmp_path).client() as client:
            await client.start(shop.add, 1, id="run-0")
            await client.start(shop.add, 1, id="later", delay=3600)

    asyncio.run(start())
    assert re.search(r"worker add 3  for .* no worker has taken it yet", call("runs", "show", "run-0").out)
    assert re.search(r"start add 3  for .* until .*it begins then", call("runs", "show", "later").out)


def test_a_blocked_run_shows_why(call: Call, tmp_path: Path) -> None:
    seed(tmp_path, (shop.approve,))
    tamper(tmp_path, "UPDATE history SET name = 'other' WHERE op = 'signal'")

    async def wake() -> None:
        async with shop.app(tmp_path) as app:
            run = app.get_run("run-0")
            await run.signal("approve", "yes")
            blocked = asyncio.Event()
            app.subscribe(lambda event: blocked.set() if event.kind == "run.blocked" else None)
            if await run.status() != "blocked":
                await asyncio.wait_for(blocked.wait(), 30)

    asyncio.run(wake())
    picture = call("runs", "show", "run-0").out
    assert "run-0  blocked" in picture
    assert re.search(r"code approve 1 .*'other'", picture.replace("\n", " "))


def test_unread_messages_are_shown(call: Call, tmp_path: Path) -> None:
    seed(tmp_path, (shop.nap,))
    assert call("signal", "run-0", "hurry").code == 0
    assert re.search(r"unread +signal hurry", call("runs", "show", "run-0").out)
    assert [message["name"] for message in call("runs", "show", "run-0", "--json").json["unread"]] == ["hurry"]


def test_long_runs_are_cut_in_the_middle(call: Call, tmp_path: Path) -> None:
    seed(tmp_path, (shop.approve,))
    copy = (
        "INSERT INTO history WITH RECURSIVE c(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM c WHERE i < 300) "
        "SELECT incarnation, n + 2 * i, {event}, seq + i, 'step', 'lots', '1', at, due, at, 0 "
        "FROM history, c WHERE op = 'signal' AND event = 0"
    )
    tamper(tmp_path, copy.format(event=0))
    tamper(tmp_path, copy.format(event=3).replace("2 * i", "2 * i + 1").replace("op = 'signal' AND", "seq = 0 AND"))
    short, long = call("runs", "show", "run-0").out, call("runs", "show", "run-0", "--all").out
    assert "and 201 completed operations; --all shows them" in short
    assert "signal approve pending" in short
    assert (short.count("step lots"), long.count("step lots")) == (99, 300)


# -- hostile text -----------------------------------------------------------------------------------------------------


@pytest.fixture
def hostile(tmp_path: Path) -> Path:
    """A store with hostile text in every field that holds text. (Names are refused by the API: put there by other means.)"""
    seed(tmp_path, (shop.burst, HOSTILE), (shop.open_door, "front"), (shop.family,))
    for column in ("workflow", "version", "namespace", "owner", "origin"):
        tamper(tmp_path, f"UPDATE runs SET {column} = ?", HOSTILE)
    tamper(tmp_path, "UPDATE runs SET tags = ?", '["[red]\\u001b]0;owned\\u0007\\u202e"]')
    tamper(tmp_path, "UPDATE history SET name = ? WHERE op = 'step'", HOSTILE)
    tamper(tmp_path, "UPDATE history SET payload = ? WHERE op = 'signal' AND event = 0", HOSTILE.encode())
    return tmp_path


def test_f89_hostile_text_is_shown_and_does_nothing(call: Call, hostile: Path) -> None:
    for command in (["list"], ["show", "run-0"], ["show", "run-0", "--all"], ["show", "run-1"], ["show", "run-2"]):
        answer = call("runs", *command)
        assert answer.code == 0, answer.err
        assert DANGEROUS.search(answer.out) is None
        assert "[red]" in answer.out
        assert r"\x1b]0;owned\x07" in answer.out


def test_f89_not_even_on_a_terminal(call: Call, hostile: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    out = call("runs", "show", "run-0", "--all").out
    ours = re.sub(r"\x1b\[[\d;]*m", "", out)
    assert ours != out, "no colour: this shows nothing of terminals"
    assert DANGEROUS.search(ours) is None


def test_f89_complaints_are_harmless_too(call: Call, tmp_path: Path) -> None:
    seed(tmp_path, (shop.burst, HOSTILE))
    for arguments in (("runs", "show", HOSTILE), ("runs", "cancel", "run-0", "x\x1b[2J"), ("signal", "a\x1b[2J", "b")):
        answer = call(*arguments)
        assert answer.code in (1, 2)
        assert answer.err
        assert DANGEROUS.search(answer.err) is None


def test_f64_what_cannot_be_read_is_marked_and_hides_nothing_else(call: Call, tmp_path: Path) -> None:
    seed(tmp_path, (shop.add, 1), (shop.fail, 1))
    tamper(tmp_path, "UPDATE runs SET output = ? WHERE id = 'run-0'", b'{"trunc')
    tamper(tmp_path, "UPDATE runs SET error = ? WHERE id = 'run-1'", b"\xff{")
    assert [run["id"] for run in call("runs", "list", "--json").json["runs"]] == ["run-1", "run-0"]
    assert "cannot be read" in call("runs", "list").out
    assert "unreadable" in call("runs", "show", "run-0", "--json").json["output"]
    assert '{"trunc' in call("runs", "show", "run-0").out
    assert call("runs", "show", "run-1").code == 0


# -- stores that are not there, or not ours ---------------------------------------------------------------------------

READING = [
    ("runs", "list"),
    ("runs", "show", "x"),
    ("runs", "cancel", "x"),
    ("runs", "retry", "x"),
    ("signal", "x", "y"),
]


@pytest.mark.parametrize("command", READING, ids=" ".join)
def test_reading_creates_no_store(call: Call, tmp_path: Path, command: tuple[str, ...]) -> None:
    answer = call(*command)
    assert answer.code == 1
    assert answer.err.startswith("perdure: there is no store ")
    assert answer.err.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def test_the_store_of_an_option_beats_the_environment(call: Call, tmp_path: Path) -> None:
    seed(tmp_path, (shop.add, 1))
    assert call("runs", "list").code == 0
    assert "there is no store" in call("runs", "list", "--store", "sqlite:///other.db").err


@pytest.mark.parametrize("command", READING, ids=" ".join)
def test_a_file_that_is_not_ours_is_refused_in_one_line_and_left_alone(
    call: Call, tmp_path: Path, command: tuple[str, ...]
) -> None:
    file = tmp_path / "shop.db"
    file.write_bytes(b"meeting notes\n" * 20)
    answer = call(*command)
    assert (answer.code, answer.err.count("\n")) == (1, 1)
    assert "not a SQLite database" in answer.err
    assert file.read_bytes() == b"meeting notes\n" * 20


def test_a_newer_store_is_refused(call: Call, tmp_path: Path) -> None:
    seed(tmp_path, (shop.add, 1))
    tamper(tmp_path, "PRAGMA user_version = 9999")
    answer = call("runs", "list", "--json")
    assert answer.code == 1
    assert '"code":"store_mismatch"' in answer.err
    assert "9999" in answer.err


def test_a_store_without_its_schema_is_for_migrate(call: Call, tmp_path: Path) -> None:
    (tmp_path / "shop.db").touch()
    assert "perdure migrate" in call("runs", "list").err
    assert (tmp_path / "shop.db").read_bytes() == b""


@pytest.mark.parametrize("url", ["memory://", "mysql://x/y", "shop.db"])
def test_a_url_that_no_command_can_read_is_misuse(call: Call, url: str) -> None:
    answer = call("runs", "list", "--store", url)
    assert (answer.code, answer.err.count("\n")) == (2, 1)


def test_cli_08_no_command_but_a_worker_runs_anything(call: Call, tmp_path: Path) -> None:
    async def start() -> None:
        async with shop.app(tmp_path).client() as client:
            await client.start(shop.add, 1, id="due")
            await client.start(shop.add, 1, id="other")

    asyncio.run(start())
    for command in (
        ("runs", "list"),
        ("runs", "show", "due"),
        ("signal", "due", "x"),
        ("runs", "cancel", "other"),
        ("runs", "delete", "other", "--yes"),
        ("migrate",),
    ):
        assert call(*command).code == 0
    shown = call("runs", "show", "due", "--json").json
    assert (shown["status"], shown["started_at"], shown["owner"]) == ("pending", None, None)


def test_unknown_runs_are_not_found(call: Call, tmp_path: Path) -> None:
    seed(tmp_path, (shop.add, 1))
    answer = call("runs", "show", "nobody", "--json")
    assert (answer.code, answer.out) == (1, "")
    assert '"code":"run_not_found"' in answer.err


def test_names_that_cannot_be_are_misuse(call: Call, tmp_path: Path) -> None:
    seed(tmp_path, (shop.add, 1))
    assert call("runs", "show", " ").code == 2
    assert call("runs", "list", "--status", "sleeping").code == 2
    assert call("runs", "list", "--limit", "0").code == 2
    assert call("runs", "cancel").code == 2


def test_the_seed_fails_where_it_says(tmp_path: Path) -> None:
    async def look() -> None:
        async with Perdure(shop.url(tmp_path), consume=False) as app:
            with pytest.raises(RunUnsuccessful, match="no 2"):
                await app.get_run("run-0").result(timeout=30)

    seed(tmp_path, (shop.fail, 2))
    asyncio.run(look())
