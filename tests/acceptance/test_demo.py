"""`perdure demo` on a small tree: real worker processes, a real SIGKILL, and the proof of what it left."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import sysconfig
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import psutil  # type: ignore[import-untyped]
import pytest

from perdure.cli.demo import chart, report, sources
from perdure.cli.demo.analysis import FileFacts, Function, examine
from perdure.cli.demo.proof import Evidence, prove
from perdure.cli.demo.sidelog import Mark, SideLog, ended, in_flight

ROOT = Path(__file__).parents[2]
COMMAND = [sys.executable, "-W", "error", "-m", "perdure.cli", "demo"]
HOSTILE = "<script>alert(1)</script>\"'&"


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Some packages of the standard library: enough work to be interrupted."""
    root = tmp_path_factory.mktemp("tree")
    for name in ("asyncio", "email", "encodings", "json", "unittest"):
        (root / name).symlink_to(Path(sysconfig.get_path("stdlib"), name))
    # os.walk does not follow links below its root, so that the packages are copied by linking their files.
    for link in list(root.iterdir()):
        target = link.resolve()
        link.unlink()
        for file in target.rglob("*.py"):
            copy = root / target.name / file.relative_to(target)
            copy.parent.mkdir(parents=True, exist_ok=True)
            copy.symlink_to(file)
    (root / "bad.py").write_text("def f(:\n")
    return root


def test_the_demo_kills_finishes_and_proves(tree: Path, tmp_path: Path) -> None:
    done = subprocess.run(
        [*COMMAND, "--root", str(tree), "--json"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=110,
        check=False,
    )
    assert done.returncode == 0, done.stderr + done.stdout
    told = json.loads(done.stdout)
    files = [file for found in sources.find(str(tree)).values() for file in found]
    assert told["totals"]["files"] == told["proof"]["files"] == len(files) > 200
    assert told["totals"]["unparsed"] == 1
    assert told["proof"]["complaints"] == []
    assert told["proof"]["cut"] >= 1
    assert told["proof"]["kept"] > 0

    # What it proves can be seen from outside too: in the side log, and in the page that it made.
    marks = SideLog(tmp_path / "build" / "demo" / "side.log").read()
    assert {mark.file for mark in marks if mark.at == "end"} == set(files)
    assert len({mark.pid for mark in marks}) == 2
    assert len([mark for mark in marks if mark.attempt > 1]) >= told["proof"]["cut"]
    assert Path(told["report"]) == tmp_path / "build" / "demo" / "report.html"
    assert f"{len(files):,}" in Path(told["report"]).read_text()

    look = told["look"].split()
    shown = subprocess.run(
        [sys.executable, "-m", "perdure.cli", *look[1:], "--json"],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    run = json.loads(shown.stdout)
    assert (run["status"], run["output"]["files"]) == ("completed", len(files))


def test_ctrl_c_takes_the_worker_along(tmp_path: Path) -> None:
    # Over the whole standard library: it must not be done before the signal comes.
    demo = subprocess.Popen(
        [*COMMAND, "--dir", str(tmp_path / "d")],
        stderr=subprocess.PIPE,
        stdout=subprocess.PIPE,
        # A shell that runs the tests in the background has it ignored, and children inherit that.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # noqa: PLW1509
    )
    assert demo.stderr is not None
    assert b"begins" in demo.stderr.readline()
    workers = psutil.Process(demo.pid).children()
    assert len(workers) == 1
    demo.send_signal(signal.SIGINT)
    _, err = demo.communicate(timeout=60)
    assert demo.returncode == 130
    assert b"Traceback" not in err
    gone, alive = psutil.wait_procs(workers, timeout=30)
    assert (len(gone), alive) == (1, [])


def test_a_killed_demo_leaves_no_worker_behind(tree: Path, tmp_path: Path) -> None:
    demo = subprocess.Popen([*COMMAND, "--root", str(tree), "--dir", str(tmp_path / "d")], stderr=subprocess.PIPE)
    assert demo.stderr is not None
    assert b"begins" in demo.stderr.readline()
    workers = psutil.Process(demo.pid).children()
    demo.kill()
    demo.communicate(timeout=60)
    gone, alive = psutil.wait_procs(workers, timeout=30)
    assert (len(gone), alive) == (1, [])


def test_a_tree_without_python_is_told(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    done = subprocess.run(
        [*COMMAND, "--root", "empty"], cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 1
    assert done.stderr == f"perdure: there is no Python file below {tmp_path / 'empty'}\n"


# -- the proof can fail -----------------------------------------------------------------------------------------------


def mark(at: str, key: str, attempt: int = 1) -> Mark:
    return Mark(at, key, attempt, f"{key}.py", 1)


BEFORE = [mark("begin", "a"), mark("end", "a"), mark("begin", "b"), mark("begin", "c"), mark("end", "c")]
AFTER = [mark("begin", "b", 2), mark("end", "b", 2), mark("begin", "c", 2), mark("end", "c", 2)]
FILES = ["a.py", "b.py", "c.py"]


def evidence(**changes: Any) -> Evidence:
    found: dict[str, Any] = {
        "files": FILES,
        "before": BEFORE,
        "marks": BEFORE + AFTER,
        "durable": frozenset({"a"}),
        "counted": FILES,
    }
    return Evidence(**(found | changes))


def test_a_kill_that_was_recovered_is_proven() -> None:
    proof = prove(evidence())
    assert (proof.files, proof.kept, proof.cut, proof.unrecorded, proof.others) == (3, 1, 1, 1, 0)
    assert proof.complaints == ()


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"marks": BEFORE + AFTER[2:]}, "was never analysed to its end: b.py"),
        ({"marks": [*BEFORE, AFTER[0], *AFTER[2:]]}, "was cut off and never ran again to its end: b"),
        ({"durable": frozenset({"a", "c"})}, "ran again though its result was on disk: c"),
        ({"counted": ["a.py", "b.py"]}, "is not in the report exactly once: c.py"),
        ({"counted": [*FILES, "a.py"]}, "is not in the report exactly once: a.py"),
        ({"counted": [*FILES, "x.py"]}, "is in the report but not among the files: x.py"),
        ({"marks": [*BEFORE, mark("begin", "b"), *AFTER[1:]]}, "used the number of an attempt twice: b"),
        ({"before": BEFORE[:2], "marks": BEFORE + AFTER}, "no step was cut off in flight: the kill proved nothing"),
        (
            {"marks": [*BEFORE, *AFTER, Mark("begin", "d", 1, "a.py", 1), Mark("end", "d", 1, "a.py", 1)]},
            "was analysed by more than one step: a.py",
        ),
    ],
)
def test_whatever_is_missing_from_the_proof_is_a_complaint(changes: dict[str, Any], complaint: str) -> None:
    assert complaint in prove(evidence(**changes)).complaints


def test_a_step_that_ran_twice_for_no_known_reason_is_counted() -> None:
    again = [mark("begin", "a", 2), mark("end", "a", 2)]
    proof = prove(evidence(before=[*BEFORE, *again], marks=[*BEFORE, *again, *AFTER]))
    assert (proof.others, proof.complaints) == (1, ())


def test_the_side_log_is_read_as_it_grows_whole_lines_only(tmp_path: Path) -> None:
    path = tmp_path / "side.log"
    log = SideLog(path)
    assert log.read() == []
    path.write_bytes(b'{"at":"begin","key":"k","attempt":1,"file":"f","pid":1}\n{"at":"end","k')
    assert in_flight(log.read()) == {"k"}
    with path.open("ab") as file:
        file.write(b'ey":"k","attempt":1,"file":"f","pid":1}\n')
    assert (in_flight(log.read()), ended(log.marks)) == (set(), {"k"})


# -- what it finds and shows ------------------------------------------------------------------------------------------


SOURCE = """\
import os
from sys import path

class A:
    def long(self):
        async def inner():
            pass

def f(): ...
"""


def test_a_file_is_counted_as_it_is_written(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text(SOURCE)
    facts = examine(str(tmp_path), "a.py")
    assert (facts.bytes, facts.lines, facts.functions, facts.classes, facts.imports) == (len(SOURCE), 9, 3, 1, 2)
    assert facts.longest == [Function("A.long", 3), Function("A.long.inner", 2), Function("f", 1)]
    (tmp_path / "b.py").write_bytes(b"x = 1\n\x00")
    assert (examine(str(tmp_path), "b.py").lines, examine(str(tmp_path), "b.py").problem is None) == (2, False)
    (tmp_path / "c.py").write_text("-" * 100_000 + "1")
    assert examine(str(tmp_path), "c.py").functions == 0


def test_files_of_others_are_left_out(tmp_path: Path) -> None:
    for name in ("a.py", "pkg/b.py", "pkg/sub/c.py", "site-packages/d.py", "pkg/__pycache__/e.py", "pkg/f.txt"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    assert sources.find(str(tmp_path)) == {"pkg": ["pkg/b.py", "pkg/sub/c.py"], "(top level)": ["a.py"]}


class Page(HTMLParser):
    """The tags of a page and its text."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.text = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        assert not [name for name, _ in attrs if name.startswith("on") or name in ("src", "href")], attrs

    def handle_data(self, data: str) -> None:
        self.text += data


def test_f89_the_report_escapes_what_it_shows_and_needs_nothing_else(tmp_path: Path) -> None:
    facts = [FileFacts(HOSTILE, 10, 20, 1, 1, 1, [Function(HOSTILE, 5)]), FileFacts("b", 1, 1, problem=HOSTILE)]
    path = tmp_path / "report.html"
    totals = report.write(str(path), HOSTILE, {HOSTILE: facts, "empty": []})
    page = Page(path.read_text())
    assert (totals.files, totals.lines, totals.unparsed) == (2, 21, 1)
    assert "script" not in page.tags
    assert page.text.count(HOSTILE) >= 5
    assert page.tags.count("svg") == 1
    assert [file.name for file in tmp_path.iterdir()] == ["report.html"]


def test_a_bar_is_as_long_as_its_value() -> None:
    drawn = chart.bars("t", [("a", 200), ("b", 100), ("c", 0)], "lines")
    whole, half, none = (float(length) for length in re.findall(r'd="M\S+ \S+?h([\d.]+)q', drawn))
    rounding = 3
    assert abs(whole + rounding - 2 * (half + rounding)) < 0.2
    assert none == 0
    assert chart.bars("t", [], "lines").endswith("</svg>")
