"""Stores that several processes can share."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.servers import postgres
from tests.servers.databases import Schema
from tests.servers.migrated import migrate


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A store of the test's own: on a file, and on the older of the session's servers."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'store.db'}?synchronous=OFF"
    servers = postgres.servers()
    if not servers:
        pytest.skip(f"no PostgreSQL: {postgres.URL} is not set, none listens locally, and no wheel brings one")
    schema: Schema = request.getfixturevalue("kept_schema_on")(servers[0], migrate)
    return schema.store
