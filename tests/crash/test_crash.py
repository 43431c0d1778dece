"""Real processes, really killed: see `crash`. The long one on PostgreSQL is `make soak`."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import pytest

from tests.crash.crash import crash
from tests.crash.postgres_site import private_site
from tests.crash.report import Plan
from tests.crash.sites import Site, SqliteSite
from tests.servers import wheel

SEED = 42


def carry_out(site: Site, plan: Plan, folder: Path) -> None:
    # Not an async test: on a busy machine this may take longer than those may.
    report = asyncio.run(crash(site, plan, SEED, folder))
    sys.stdout.write(f"{report}\n")
    assert report.problems == []
    assert report.missing == []


def test_f14_f28_a_mixed_load_survives_kills_anywhere(tmp_path: Path) -> None:
    carry_out(SqliteSite(tmp_path / "crash.db"), Plan(), tmp_path)


@pytest.mark.skipif(not wheel.versions(), reason="no PostgreSQL that could be restarted: the wheel is not there")
def test_f14_f28_and_on_postgresql_lost_connections_and_restarts_of_the_server_too(tmp_path: Path) -> None:
    with private_site() as site:
        plan = Plan(workers=4, kills=16, runs=500, crowd=60, pace=(10, 120), pausing=0.3, lease=1.0, patience=120)
        carry_out(site, plan, tmp_path)
