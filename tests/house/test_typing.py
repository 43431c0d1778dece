"""What users write is typed: both checkers, strict, accept the good lines of typing_tests and find every mistake.

A line that is a mistake carries an ignore comment for each checker. Here the comments are taken away: then these lines, and
no others, must be errors.
"""

from __future__ import annotations

import importlib.util
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
CASES = sorted((ROOT / "typing_tests").glob("*.py"))

IGNORES = (re.compile(r"  # type: ignore\[[^]]*\]"), re.compile(r"  # pyright: ignore\[[^]]*\]"))

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("mypy") is None or importlib.util.find_spec("pyright") is None,
    reason="platform: only the environment with the developer tools has the type checkers",
)


def bare(text: str) -> str:
    for ignore in IGNORES:
        text = ignore.sub("", text)
    return text


def mistakes(text: str) -> set[int]:
    """The numbers of the lines that carry an ignore comment."""
    return {number for number, line in enumerate(text.splitlines(), 1) if bare(line) != line}


def run(*command: str) -> str:
    done = subprocess.run([sys.executable, "-m", *command], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 1, f"{command[0]} found nothing, or broke: {done.stdout}{done.stderr}"
    return done.stdout


def mypy(path: Path, cache: Path) -> set[int]:
    found = run("mypy", "--no-error-summary", "--show-absolute-path", f"--cache-dir={cache}", str(path))
    return {int(number) for number in re.findall(rf"^{re.escape(str(path))}:(\d+): error:", found, re.MULTILINE)}


def pyright(path: Path, _: Path) -> set[int]:
    report: Any = json.loads(run("pyright", "--outputjson", str(path)))
    return {one["range"]["start"]["line"] + 1 for one in report["generalDiagnostics"] if one["severity"] == "error"}


def test_there_are_cases() -> None:
    assert CASES
    assert all(mistakes(path.read_text()) for path in CASES)


@pytest.mark.parametrize("path", CASES, ids=lambda path: path.stem)
def test_a_mistake_is_marked_for_both_checkers(path: Path) -> None:
    for number, line in enumerate(path.read_text().splitlines(), 1):
        found = [bool(ignore.search(line)) for ignore in IGNORES]
        assert found[0] == found[1], f"{path.name}:{number} is marked for one checker only"


@pytest.mark.parametrize("checker", [mypy, pyright], ids=["mypy", "pyright"])
@pytest.mark.parametrize("path", CASES, ids=lambda path: path.stem)
def test_every_mistake_is_found_and_nothing_else(path: Path, checker: Any, tmp_path: Path) -> None:
    text = path.read_text()
    copy = tmp_path / path.name
    copy.write_text(bare(text))
    assert checker(copy, tmp_path / "cache") == mistakes(text)
