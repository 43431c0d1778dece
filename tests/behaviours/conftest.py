"""Every behaviour holds on every store, and however parked instances are kept.

`PERDURE_TEST_CACHE` = on | 0 | random: keep them all, none, or drop them by chance (seeded by the test's name).
"""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest

from tests.behaviours.world import CACHES, Fickle, World
from tests.servers import postgres
from tests.servers.migrated import migrate

CACHE = os.environ.get("PERDURE_TEST_CACHE", "on")


@pytest.fixture(params=["memory", "sqlite", "postgres"])
def world(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    if CACHE not in CACHES:
        raise pytest.UsageError(f"PERDURE_TEST_CACHE must be one of {', '.join(CACHES)}, not {CACHE!r}")
    if CACHE == "random":
        monkeypatch.setattr(Fickle, "chance", random.Random(request.node.nodeid))
        monkeypatch.setattr("perdure.engine.executor.Cache", Fickle)
    match request.param:
        case "memory":
            url = "memory://"
        case "sqlite":
            url = f"sqlite:///{tmp_path / 'store.db'}?synchronous=OFF"
        case _:
            servers = postgres.servers()
            if not servers:
                pytest.skip("no PostgreSQL")
            url = request.getfixturevalue("kept_schema_on")(servers[0], migrate).store
    return World(url, CACHE)
