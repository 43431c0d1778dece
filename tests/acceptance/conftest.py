"""The program, called in this process; and what it is called for."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from click.testing import CliRunner

from perdure.cli.command import perdure
from tests.acceptance import shop


class Answer(NamedTuple):
    """What a command said, and its exit code."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """The answer of a command with `--json`."""
        return json.loads(self.out)


Call = Callable[..., Answer]


@pytest.fixture
def call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Call:
    """Call `perdure` in an empty folder, with the test's store in the environment. An error that is not told is raised."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PERDURE_STORE", shop.url(tmp_path))
    monkeypatch.setenv("COLUMNS", "120")

    def call(*arguments: str, stdin: str | None = None) -> Answer:
        result = CliRunner().invoke(perdure, arguments, input=stdin, prog_name="perdure")
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        return Answer(result.exit_code, result.stdout, result.stderr)

    return call
