"""Every pair that can race, stopped at each statement of the one, and then of the other.

Races and their directions take turns on the servers that there are; `PERDURE_TEST_RACES=all` runs every one on each.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable

import pytest

from perdure.stores.postgres import PostgresStore
from perdure.testing import ManualClock
from tests.races.duel import Course, Race, Tally, outcomes
from tests.races.races import RACES
from tests.races.stops import Gate, prepare
from tests.servers import postgres
from tests.servers.databases import Schema
from tests.servers.postgres import Server

Keep = Callable[[Server, Callable[[Schema], None]], Schema]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "race_name" in metafunc.fixturenames:
        servers = [server.name for server in postgres.servers()] or ["none"]
        ways = [(name, turned) for name in RACES for turned in (False, True)]
        if os.environ.get("PERDURE_TEST_RACES") == "all":
            cases = [(server, *way) for server in servers for way in ways]
        else:
            cases = [(servers[(index + index // 2) % len(servers)], *way) for index, way in enumerate(ways)]
        cases.sort(key=lambda case: servers.index(case[0]))  # Its order within a server stays.
        names = [f"{server}-{name}{'-turned' if turned else ''}" for server, name, turned in cases]
        metafunc.parametrize(("server_name", "race_name", "turned"), cases, ids=names)


@pytest.fixture
def stopping(server_name: str, kept_schema_on: Keep) -> Schema:
    if server_name == "none":
        pytest.skip("no PostgreSQL")
    return kept_schema_on(Server(server_name), prepare)


async def run(name: str, turned: bool, schema: Schema) -> tuple[Race, Tally]:
    """The race, as it was run, and how it went. Raises `AssertionError` where an outcome is that of no order."""
    race = RACES[name]
    if turned:
        race = race._replace(one=race.two, two=race.one)
    clock = ManualClock()
    one, two = PostgresStore(schema.store, clock=clock), PostgresStore(schema.store, clock=clock)
    await one.open()
    await two.open()
    try:
        async with Gate(schema) as gate:
            return race, await Course(schema, gate, (one, two), clock).run(race, await outcomes(race))
    finally:
        await one.close()
        await two.close()


async def test_f83_one_after_the_other_comes_to_the_same(race_name: str, turned: bool, stopping: Schema) -> None:
    race, tally = await run(race_name, turned, stopping)
    assert tally.stops
    if not race.anew:
        # All locks were taken in order: nobody had to let go and begin anew.
        assert tally.anew == 0


def unlocked(schema: Schema) -> None:
    prepare(schema, lambda sql: sql.replace("FOR NO KEY UPDATE;", ";"))


def nameless(schema: Schema) -> None:
    prepare(schema, lambda sql: sql.replace("PERFORM pg_advisory_xact_lock(hashtext('@schema@'), _name);", "NULL;"))


def deaf(schema: Schema) -> None:
    """Parks whatever has come."""
    prepare(schema, lambda sql: sql.replace("AND n = _n AND inbox <= _seen", "AND n = _n"))


SPOILED: dict[Callable[[Schema], None], tuple[str, bool]] = {
    unlocked: ("end-cancel", True),
    nameless: ("signal-wait", False),
    deaf: ("park-send", True),
}


@pytest.mark.parametrize("spoil", SPOILED)
def test_the_races_see_what_is_wrong(
    spoil: Callable[[Schema], None], postgres_server: Server, kept_schema_on: Keep
) -> None:
    name, turned = SPOILED[spoil]
    with pytest.raises(AssertionError, match="none of the"):
        asyncio.run(run(name, turned, kept_schema_on(postgres_server, spoil)))
