"""Fixtures for tests that stand on a server; the suite's conftest makes this file a plugin.

- `postgres_server`: a test that asks for it, or for one of the others, runs once on each server of the session.
- `postgres_schema`: address and name of a schema that is the test's own. Commits do not wait for the disk.
- `postgres_migrated`: the same with the store's tables in it: kept from test to test, and emptied; much quicker.
- `postgres_admin`: SQL in the database of these schemas, from outside of what is tested.
- `postgres_database`: a function that makes whole databases: `postgres_database("name", durable=True)`.
- `schema_on`: a function from a server (of `postgres.servers()`) to a schema, for fixtures that choose among several stores.
- `kept_schema_on`: the same with a function that fills the schema, called once: the next tests get the same one, emptied.
- `bouncer_schema`: the same as `postgres_schema`, through a PgBouncer in transaction mode.

Only what a test asks for is started. Servers to kill and restart are made by `own.PrivateServer`.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

import pytest

from tests.servers import postgres
from tests.servers.databases import Databases, Schema
from tests.servers.migrated import migrate
from tests.servers.pgbouncer import PgBouncer
from tests.servers.postgres import Server
from tests.servers.sql import Admin

SESSION = pytest.StashKey[postgres.Session]()


def pytest_configure(config: pytest.Config) -> None:
    # Before the workers of pytest-xdist: they inherit the environment.
    if not hasattr(config, "workerinput"):
        config.stash[SESSION] = postgres.Session()


def pytest_unconfigure(config: pytest.Config) -> None:
    session = config.stash.get(SESSION, None)
    if session is not None:
        session.end()


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "postgres_server" in metafunc.fixturenames:
        names = [server.name for server in postgres.servers()] or ["none"]
        metafunc.parametrize("postgres_server", names, indirect=True, scope="session")


@pytest.fixture(scope="session")
def postgres_server(request: pytest.FixtureRequest) -> Server:
    if request.param == "none":
        pytest.skip(f"no PostgreSQL: {postgres.URL} is not set, none listens locally, and no wheel brings one")
    return Server(request.param)


@pytest.fixture(scope="session")
def databases_on() -> Iterator[Callable[[Server], Databases]]:
    # Not a fixture with parameters: workers go back and forth between servers, and would make and drop databases each time.
    known: dict[Server, Databases] = {}

    def on(server: Server) -> Databases:
        if server not in known:
            known[server] = Databases(server)
        return known[server]

    yield on
    for databases in known.values():
        databases.close()


@pytest.fixture
def schema_on(
    databases_on: Callable[[Server], Databases], request: pytest.FixtureRequest
) -> Iterator[Callable[[Server], Schema]]:
    with contextlib.ExitStack() as made:

        def on(server: Server) -> Schema:
            databases = databases_on(server)
            return made.enter_context(databases.schema(databases.quick(), request.node.originalname))

        yield on


@pytest.fixture
def kept_schema_on(
    databases_on: Callable[[Server], Databases],
) -> Iterator[Callable[[Server, Callable[[Schema], None]], Schema]]:
    with contextlib.ExitStack() as used:

        def on(server: Server, make: Callable[[Schema], None]) -> Schema:
            return used.enter_context(databases_on(server).kept_schema(make))

        yield on


@pytest.fixture
def postgres_schema(postgres_server: Server, schema_on: Callable[[Server], Schema]) -> Schema:
    return schema_on(postgres_server)


@pytest.fixture
def postgres_migrated(
    postgres_server: Server, kept_schema_on: Callable[[Server, Callable[[Schema], None]], Schema]
) -> Schema:
    return kept_schema_on(postgres_server, migrate)


@pytest.fixture
def postgres_admin(postgres_server: Server, databases_on: Callable[[Server], Databases]) -> Admin:
    databases = databases_on(postgres_server)
    return databases.admin(databases.quick())


@pytest.fixture
def postgres_database(
    postgres_server: Server, databases_on: Callable[[Server], Databases]
) -> Iterator[Callable[..., str]]:
    databases = databases_on(postgres_server)
    made: list[str] = []

    def create(name: str, durable: bool = False) -> str:
        made.append(databases.create(name, durable))
        return made[-1]

    yield create
    for url in made:
        databases.drop(url)


@pytest.fixture
def bouncer_schema(postgres_schema: Schema) -> Iterator[Schema]:
    with PgBouncer(postgres_schema.url) as bouncer:
        yield Schema(bouncer.url, postgres_schema.name)
