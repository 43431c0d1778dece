"""Real processes, really killed: see `crash`. By hand: `python -m tests.crash.crash 400 7`."""

from __future__ import annotations

import sys
from pathlib import Path

from tests.crash.crash import crash

SEED = 42


async def test_f14_f28_a_mixed_load_survives_kills_anywhere(tmp_path: Path) -> None:
    report = await crash(60, SEED, tmp_path)
    sys.stdout.write(f"{report}\n")
    assert report.problems == []
    assert report.in_step, "no kill landed inside a step"
    assert report.in_commit, "no kill landed inside a commit"
