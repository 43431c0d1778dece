"""The crash test on PostgreSQL, long: `make soak`, or `python -m tests.crash.soak [RUNS] [SEED]`.

Prints how far it is, then the report; fails if anything was wrong, or if it did not hit what it should.
"""

from __future__ import annotations

import asyncio
import os
import platform
import random
import sys
import tempfile
import time
from pathlib import Path

from tests.crash.crash import crash
from tests.crash.postgres_site import private_site
from tests.crash.report import Plan

RUNS = 20_000


def plan_of(runs: int) -> Plan:
    """Four workers, and a kill each few hundred steps."""
    return Plan(workers=4, kills=runs // 100, runs=runs, crowd=200, pace=(20, 600), lease=1.5, patience=120)


async def main() -> int:
    if not all(map(str.isdigit, sys.argv[1:])):
        sys.stderr.write(f"{__doc__}")
        return 2
    runs = int(sys.argv[1]) if len(sys.argv) > 1 else RUNS
    seed = int(sys.argv[2]) if len(sys.argv) > 2 else random.randrange(10**9)
    plan, began = plan_of(runs), time.monotonic()

    def progress(text: str) -> None:
        sys.stderr.write(f"{time.monotonic() - began:6.0f} s: {text}\n")
        sys.stderr.flush()

    with tempfile.TemporaryDirectory() as name, private_site() as site:
        folder = Path(name)
        report = await crash(site, plan, seed, folder, progress)
        if report.problems:
            sys.stderr.write((folder / "errors").read_text(errors="replace")[-20_000:])
        version, seconds = await asyncio.to_thread(site.version), time.monotonic() - began
    lines = [
        f"seed {seed}; {plan.workers} workers, leases of {plan.lease} s, {plan.crowd} runs at a time; {seconds:.0f} s",
        f"PostgreSQL {version}; Python {platform.python_version()} on {platform.system()}, {os.cpu_count()} cores",
        *report.lines(),
        *report.problems[:50],
        *report.missing,
    ]
    sys.stdout.write("\n".join(lines) + "\n")
    return 1 if report.problems or report.missing else 0


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
