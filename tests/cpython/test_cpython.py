"""CPython's own tests for tasks, futures, timeouts, groups, locks, queues and generators, on the workflow loop.

Each of its modules runs in a process of its own: they change what is global (the event loop policy, hooks, loggers).
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from perdure.core import loop
from tests.cpython.excluded import EXCLUDED
from tests.cpython.suite import MODULES

ROOT = Path(__file__).parents[2]

#: The Pythons whose tests were looked through. A newer one's may ask for what a workflow must not have.
KNOWN = ((3, 11), (3, 12), (3, 13))


def marker(module: str) -> Path:
    """Stands for: some interpreter of this machine has passed this module on the loop as it is now."""
    state = hashlib.sha256(Path(str(loop.__file__)).read_bytes()).hexdigest()[:16]
    return ROOT / "build" / "cpython" / f"{module}-{state}"


def run(module: str) -> dict[str, Any]:
    command = [sys.executable, "-m", "tests.cpython.suite", module]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    report: dict[str, Any] = json.loads(done.stdout)
    return report


@pytest.mark.skipif(sys.version_info[:2] not in KNOWN, reason="platform: the tests of this Python were not tried yet")
@pytest.mark.parametrize("module", MODULES)
def test_cpython(module: str) -> None:
    report = run(module)
    if "missing" in report:
        elsewhere = "platform: another Python ran it; " if marker(module).exists() else ""
        pytest.skip(f"{elsewhere}this Python ships without its own tests: {report['missing']}")
    assert report["broken"] == {}
    assert report["ran"] >= MODULES[module][1], "hardly a test ran: have CPython's classes other names now?"
    assert report["loops"] >= report["ran"] / 2, "the tests ran on other loops than ours"
    assert report["handles"] > 0
    marker(module).parent.mkdir(parents=True, exist_ok=True)
    marker(module).touch()


@pytest.mark.skipif(sys.version_info[:2] not in KNOWN, reason="platform: the tests of this Python were not tried yet")
@pytest.mark.parametrize("module", EXCLUDED)
def test_every_excluded_test_breaks_or_is_gone(module: str) -> None:
    """The table stays short: what works has no place in it."""
    command = [sys.executable, "-m", "tests.cpython.suite", module, "--excluded"]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=True)
    report: dict[str, Any] = json.loads(done.stdout)
    if "missing" in report:
        pytest.skip(f"platform: {report['missing']}")
    broken = {name.partition(" ")[0] for name in report["broken"]}
    assert sorted(set(report["tried"]) - broken) == []
