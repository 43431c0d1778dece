"""`perdure start`: runs are started as asked, once, and with --wait their end decides the exit code."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.acceptance import shop
from tests.acceptance.conftest import Call

PROGRAM = """
from pathlib import Path

from perdure import Perdure
from tests.acceptance import shop
from tests.acceptance.shop import add, approve, chain, fail

app = Perdure({url!r})
idle = Perdure({url!r}, consume=False)
lost = Perdure("memory://")
number = 42


def make():
    return Perdure({url!r})


async def late():
    return app


def broken():
    raise OSError("no such luck")
"""


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A module of the user's in the current folder; its name."""
    monkeypatch.setattr(sys, "path", list(sys.path))
    name = f"{tmp_path.name}_program"
    (tmp_path / f"{name}.py").write_text(PROGRAM.format(url=shop.url(tmp_path)))
    yield name
    sys.modules.pop(name, None)


def test_start_starts_and_runs_nothing(call: Call, program: str) -> None:
    answer = call("start", f"{program}:app", "add", "5", "--id", "sum", "--tag", "vip", "--priority", "3", "--json")
    assert answer.code == 0
    assert (answer.json["id"], answer.json["status"]) == ("sum", "pending")
    assert (answer.json["tags"], answer.json["priority"]) == (["sums", "vip"], 3)
    assert call("runs", "show", "sum", "--json").json["status"] == "pending"


def test_the_same_id_starts_once(call: Call, program: str) -> None:
    for input in ("5", "6"):
        assert call("start", f"{program}:app", "add", input, "--id", "sum", "--wait").code == 0
    assert len(call("runs", "list", "--json").json["runs"]) == 1
    assert call("runs", "show", "sum", "--json").json["output"] == 11


@pytest.mark.parametrize("input", ["4", '{"a": 4}', '{"a": 3, "b": 3}'])
def test_waiting_prints_the_output(call: Call, program: str, input: str) -> None:
    answer = call("start", f"{program}:app", "add", input, "--wait")
    assert answer.code == 0, answer.err
    assert answer.out.splitlines()[-1] == "9"
    assert "completed" in answer.out.splitlines()[0]


def test_an_input_comes_from_standard_input(call: Call, program: str) -> None:
    assert call("start", f"{program}:app", "add", "-", "--wait", "--json", stdin="[1").code == 2
    assert call("start", f"{program}:app", "add", "-", "--wait", "--json", stdin="1").json["output"] == 3


def test_a_run_that_fails_is_exit_code_1(call: Call, program: str) -> None:
    answer = call("start", f"{program}:make", "fail", "1", "--wait", "--id", "f")
    assert answer.code == 1
    assert answer.err == "perdure: run 'f' failed: no 1\n"
    assert call("start", f"{program}:make", "fail", "1", "--wait", "--id", "f", "--json").json["status"] == "failed"


def test_waiting_follows_a_chain_to_its_end(call: Call, program: str) -> None:
    answer = call("start", f"{program}:app", "chain", "2", "--id", "c", "--wait", "--json")
    assert (answer.json["id"], answer.json["output"]) == ("c~2", 7)


def test_waiting_gives_up_and_the_run_goes_on(call: Call, program: str) -> None:
    answer = call("start", f"{program}:app", "approve", "--id", "a", "--wait", "--timeout", "10ms")
    assert answer.code == 1
    assert "it is suspended, and goes on" in answer.err
    assert call("runs", "show", "a", "--json").json["status"] == "suspended"


def test_a_delay_and_a_timeout_are_the_runs_own(call: Call, program: str) -> None:
    command = ("start", f"{program}:app", "add", "1", "--delay", "2h", "--execution-timeout", "3h", "--json")
    run = call(*command).json
    assert (run["status"], run["started_at"]) == ("suspended", None)
    assert run["created_at"] < run["wake_at"] < run["deadline"]


@pytest.mark.parametrize(
    "arguments",
    [
        ["add"],
        ["add", '"four"'],
        ["add", "{a: 4}"],
        ["add", '{"a": 1, "c": 2}'],
        ["approve", "1"],
        ["nothing", "1"],
        ["add", "1", "--version", "4"],
        ["add", "1", "--id", " "],
        ["add", "1", "--id", ""],
        ["add", "1", "--delay", "soon"],
        ["add", "1", "--delay", "0s"],
        ["add", "1", "--timeout", "1s"],
        ["add", "1", "--tag", ""],
    ],
)
def test_f5_a_start_that_cannot_be_is_misuse_and_writes_no_run(call: Call, program: str, arguments: list[str]) -> None:
    assert call("migrate").code == 0
    answer = call("start", f"{program}:app", *arguments)
    assert answer.code == 2
    assert answer.out == ""
    assert call("runs", "list", "--json").json["runs"] == []


@pytest.mark.parametrize(
    ("reference", "code", "says"),
    [
        ("{}", 2, "names no app"),
        ("{}:", 2, "names no app"),
        ("./x.py:app", 2, "names no app"),
        ("no_such_module_here:app", 2, "there is no module no_such_module_here"),
        ("{}:nothing", 2, "has no 'nothing'"),
        ("{}:app.nothing", 2, "has no 'app.nothing'"),
        ("{}:number", 2, "is a int, not an app"),
        ("{}:late", 2, "returned a coroutine, not an app"),
        ("{}:broken", 1, "no such luck"),
        ("{}:lost", 2, "keeps its runs in memory"),
    ],
)
def test_a_reference_that_leads_nowhere_says_so(call: Call, program: str, reference: str, code: int, says: str) -> None:
    answer = call("start", reference.format(program), "add", "1")
    assert answer.code == code
    assert says in answer.err


def test_an_app_in_memory_can_be_waited_for(call: Call, program: str) -> None:
    assert call("start", f"{program}:lost", "add", "1", "--wait", "--json").json["output"] == 3


def test_what_a_users_module_raises_is_shown_from_its_own_line_on(call: Call, tmp_path: Path, program: str) -> None:
    for name, code in (("raises", "1 / 0"), ("unparsable", "def f(:"), ("needs", "import missing_thing")):
        module = f"{program}_{name}"
        (tmp_path / f"{module}.py").write_text(f"{code}\n")
        answer = call("start", f"{module}:app", "add")
        assert answer.code == 1, answer
        assert code in answer.err or "missing_thing" in answer.err
        assert "importlib" not in answer.err
        assert "perdure/cli" not in answer.err


def test_a_module_is_found_below_the_current_folder(call: Call, tmp_path: Path, program: str) -> None:
    package = f"{program}_package"
    (tmp_path / package).mkdir()
    (tmp_path / package / "main.py").write_text((tmp_path / f"{program}.py").read_text())
    assert call("start", f"{package}.main:app", "add", "1", "--wait", "--json").json["output"] == 3
    sys.modules.pop(f"{package}.main")
    sys.modules.pop(package)
