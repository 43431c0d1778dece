"""The rules of tests/conftest.py, tried on a throw-away suite that fails in each way."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

SUITE = """
import asyncio
import pytest

async def test_async_passes(tmp_path):
    await asyncio.sleep(0)
    assert tmp_path.is_dir()

async def test_async_fails():
    await asyncio.sleep(0)
    assert False, "reached"

@pytest.mark.skip(reason="no server")
def test_skipped(): ...

@pytest.mark.skip(reason="platform: needs another Python")
def test_elsewhere(): ...

@pytest.mark.xfail(reason="known", strict=True)
def test_known():
    assert False
"""


def run(folder: Path, ci: bool) -> str:
    environment = {name: value for name, value in os.environ.items() if name not in ("CI", "PYTEST_ADDOPTS")}
    environment["PYTHONPATH"] = str(ROOT)  # The copied conftest names a plugin of ours.
    if ci:
        environment["CI"] = "true"
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-ra",
        "-p",
        "no:cacheprovider",
        "-c",
        os.devnull,
        "--rootdir",
        str(folder),
    ]
    done = subprocess.run(
        [*command, str(folder)], capture_output=True, text=True, env=environment, cwd=folder, check=False
    )
    return done.stdout


@pytest.fixture
def suite(tmp_path: Path) -> Path:
    source = Path(__file__).parent.parent / "conftest.py"
    (tmp_path / "conftest.py").write_text(source.read_text(encoding="utf-8"), encoding="utf-8")
    (tmp_path / "test_suite.py").write_text(SUITE, encoding="utf-8")
    return tmp_path


def test_async_tests_run_and_their_failures_show(suite: Path) -> None:
    out = run(suite, ci=False)
    assert "FAILED test_suite.py::test_async_fails - AssertionError: reached" in out
    assert "1 failed, 1 passed, 2 skipped, 1 xfailed" in out


def test_in_ci_a_skip_is_a_failure_unless_the_platform_is_the_reason(suite: Path) -> None:
    out = run(suite, ci=True)
    assert "In CI a skip is a failure: Skipped: no server" in out
    assert "SKIPPED [1] test_suite.py:16: platform: needs another Python" in out
    assert "1 failed, 1 passed, 1 skipped, 1 xfailed, 1 error" in out


def test_in_ci_a_module_that_skips_itself_is_an_error(suite: Path) -> None:
    (suite / "test_suite.py").write_text("import pytest\npytest.importorskip('no_such_driver')\n", encoding="utf-8")
    assert "1 skipped in" in run(suite, ci=False)
    out = run(suite, ci=True)
    assert "In CI a skip is a failure: Skipped: could not import 'no_such_driver'" in out
    assert "1 error in" in out
