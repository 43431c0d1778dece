"""Every page runs as written, and so does every example in a docstring."""

from __future__ import annotations

import doctest
import importlib
import os
import signal
import subprocess
import sys
import types
from pathlib import Path

import pytest

from tests.house import page, source
from tests.house.page import Block, PageError
from tests.servers import postgres

ROOT = Path(__file__).parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
FIXTURES = Path(__file__).parent / "pages"

#: Seconds one page may take.
LIMIT = 90.0

#: What Python writes on standard error without failing, where a page left something open or unawaited.
COMPLAINTS = ("Exception ignored", "was never awaited", "Task was destroyed", "never retrieved")


def run(path: Path, folder: Path, **variables: str) -> tuple[int, str, str]:
    """Run a page in `folder`, with warnings as errors; (exit status, standard output, standard error)."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": "1", **variables}
    command = [sys.executable, "-W", "error", "-m", "tests.house.page", str(path)]
    # A group of its own, so that what the page started ends with it.
    process = subprocess.Popen(
        command,
        cwd=folder,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        out, err = process.communicate(timeout=LIMIT)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        out, err = process.communicate()
        err += f"\n{path.name} was stopped: it took more than {LIMIT:.0f} s"
    return process.returncode, out, err


@pytest.mark.parametrize("path", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_page_runs_as_written(path: Path, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    text = path.read_text(encoding="utf-8")
    variables: dict[str, str] = {}
    if "DATABASE_URL" in text:
        server, *_ = postgres.servers()
        variables["DATABASE_URL"] = request.getfixturevalue("schema_on")(server).store
    blocks = page.parse(text, str(path))
    if any(block.works for block in blocks):
        status, out, err = run(path, tmp_path, **variables)
        assert status == 0, f"{out}\n{err}"
        assert [line for line in err.splitlines() if any(words in line for words in COMPLAINTS)] == []


def test_blocks_share_a_namespace_and_a_loop(tmp_path: Path) -> None:
    assert run(FIXTURES / "notebook.md", tmp_path) == (0, "the answer is 42\n", "")


def test_blocks_become_files_and_marked_commands_run(tmp_path: Path) -> None:
    assert run(FIXTURES / "project.md", tmp_path) == (0, "", "")
    assert (tmp_path / "shop" / "orders.py").read_text() == "TOTAL = 3\n"


def test_a_failing_block_fails_the_page_and_shows_its_line(tmp_path: Path) -> None:
    bad = tmp_path / "bad.md"
    bad.write_text("# Bad\n\n```python\nx = 1\nassert x == 2\n```\n")
    status, _, err = run(bad, tmp_path)
    assert status == 1
    assert f'File "{bad}", line 5' in err
    assert "assert x == 2" in err


def test_a_failing_command_fails_the_page(tmp_path: Path) -> None:
    bad = tmp_path / "bad.md"
    bad.write_text("<!-- run -->\n```console\n$ exit 3\n```\n")
    status, _, err = run(bad, tmp_path)
    assert status == 1
    assert f"{bad}:3: exit status 3 from: exit 3" in err


def test_a_warning_fails_the_page(tmp_path: Path) -> None:
    bad = tmp_path / "bad.md"
    bad.write_text("```python\nimport warnings\nwarnings.warn('old', DeprecationWarning)\n```\n")
    assert run(bad, tmp_path)[0] == 1


def test_what_a_block_is() -> None:
    text = '<!-- file: a.toml -->\n````toml\nx = "```"\n````\n\n```\nplain\n```\n'
    assert page.parse(text, "p") == [Block("toml", 'x = "```"\n', 3, file="a.toml"), Block("", "plain\n", 7)]


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("x\n```python\n1\n", "p:2: this block is not closed"),
        ("```py\n1\n```", "p:1: write ```python"),
        ("<!-- norun: x -->\n```python\n1\n```", "p:2: the comment above is not"),
        ("<!-- no-run: -->\n```python\n1\n```", "p:2: the comment above is not"),
        ("<!-- run -->\n```python\n1\n```", "p:2: `run` is for console blocks"),
    ],
)
def test_nothing_is_passed_over_by_mistake(text: str, error: str) -> None:
    with pytest.raises(PageError) as raised:
        page.parse(text, "p")
    assert str(raised.value).startswith(error)


def failed_examples(module: types.ModuleType) -> int:
    return doctest.testmod(module, optionflags=doctest.ELLIPSIS).failed


def test_examples_in_docstrings_run() -> None:
    with_examples = [module.name for module in source.read(ROOT / "src" / "perdure") if ">>> " in module.text]
    assert [name for name in with_examples if failed_examples(importlib.import_module(name))] == []


def test_a_wrong_example_in_a_docstring_is_found() -> None:
    assert failed_examples(types.ModuleType("right", ">>> 1 + 1\n2\n")) == 0
    assert failed_examples(types.ModuleType("wrong", ">>> 1 + 1\n3\n")) == 1
