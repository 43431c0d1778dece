"""The test servers: found, brought along, shared by workers, left behind by killed sessions, killed and restarted."""

from __future__ import annotations

import asyncio
import os
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import asyncpg
import psutil  # type: ignore[import-untyped]
import pytest

from tests.servers import databases, folder, pgbouncer, postgres, undertaker, wheel
from tests.servers.databases import Databases, Schema
from tests.servers.folder import Folder
from tests.servers.own import PORTS, OwnServer, PrivateServer, free_ports
from tests.servers.pgbouncer import PgBouncer
from tests.servers.postgres import Server
from tests.servers.sql import Admin

ROOT = Path(__file__).parents[2]

NEWEST = wheel.versions()[-1]

#: A session of its own, of tests that say which server they had.
SUITE = """
import pytest
from pathlib import Path

@pytest.mark.parametrize("number", range(4))
def test_it(postgres_schema, postgres_admin, postgres_server, number):
    version = postgres_admin.value("SHOW server_version")
    port = postgres_server.url().rpartition(":")[2]
    with Path("said").open("a") as said:
        said.write(f"{postgres_server.name} {version} {port}\\n")
"""


def session(path: Path, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run `SUITE` as a session that shares nothing with ours."""
    (path / "conftest.py").write_text('pytest_plugins = ["tests.servers.fixtures"]', encoding="utf-8")
    (path / "test_suite.py").write_text(SUITE, encoding="utf-8")
    ours = (
        *("CI", "PYTEST_ADDOPTS", "PYTEST_XDIST_WORKER"),
        *(postgres.NAMES, postgres.FOLDER, postgres.URL, postgres.PORT, postgres.ONE),
    )
    environment = {name: value for name, value in os.environ.items() if name not in ours}
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-c", os.devnull, "--rootdir", str(path)]
    return subprocess.run(
        [*command, *arguments, str(path)],
        capture_output=True,
        text=True,
        env={**environment, "PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path]), **variables},
        cwd=path,
        check=False,
    )


def silent_port() -> int:
    return next(free_ports())


def test_where_no_server_listens_the_wheel_brings_its_oldest_and_its_newest(tmp_path: Path) -> None:
    done = session(tmp_path, "-n", "2", PERDURE_TEST_POSTGRES_PORT=str(silent_port()))
    assert "8 passed" in done.stdout, done.stdout
    said = sorted(line.split() for line in set((tmp_path / "said").read_text().splitlines()))
    # One line a server, so both workers had the same.
    assert [(name, version.partition(".")[0]) for name, version, _ in said] == [("16", "16"), ("18", "18")]
    for _, _, port in said:
        with pytest.raises(OSError, match="refused"):
            socket.create_connection(("127.0.0.1", int(port.partition("/")[0])))


def test_the_address_that_is_given_is_the_only_server(tmp_path: Path) -> None:
    with PrivateServer() as server:
        done = session(tmp_path, PERDURE_TEST_POSTGRES_URL=server.url())
        assert "4 passed" in done.stdout, done.stdout
        assert (tmp_path / "said").read_text().startswith("given 18.")
        with Admin(server.url()) as admin:
            assert admin.value("SELECT count(*) FROM pg_database WHERE starts_with(datname, 'perdure')") == 0


def test_a_server_on_the_usual_port_is_found_beside_the_newest_of_the_wheel() -> None:
    with PrivateServer("16") as server:
        assert postgres.find({postgres.PORT: str(server.port)}) == ["usual", NEWEST]


def test_a_server_that_asks_for_a_password_is_not_taken() -> None:
    with PrivateServer() as server:
        with Admin(server.url()) as admin:
            rules = Path(admin.value("SHOW hba_file"))
        rules.write_text("host all all 127.0.0.1/32 scram-sha-256\n", encoding="utf-8")
        server.restart()
        assert postgres.find({postgres.PORT: str(server.port)}) == ["16", "18"]


def test_something_else_on_the_usual_port_is_not_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(postgres, "KNOCK", 0.1)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        # Accepted by the kernel, answered by nobody.
        assert postgres.find({postgres.PORT: str(listener.getsockname()[1])}) == ["16", "18"]


def test_a_server_is_restarted_on_its_port_and_keeps_what_was_committed() -> None:
    with PrivateServer(settings={"max_connections": 17}) as server, Admin(server.url()) as admin:
        assert server.port in PORTS
        assert admin.value("SHOW max_connections") == "17"
        assert [admin.value(f"SHOW {name}") for name in ("fsync", "synchronous_commit", "full_page_writes")] == [
            "on"
        ] * 3
        admin.execute("CREATE TABLE kept (number int)")
        ways: list[Callable[[], None]] = [server.kill, lambda: server.stop("immediate"), server.stop, server.kill]
        for number, way in enumerate(ways):
            admin.execute("INSERT INTO kept VALUES ($1)", number)
            before, port = server.pid, server.port
            way()
            assert not psutil.pid_exists(before) or psutil.Process(before).status() == psutil.STATUS_ZOMBIE
            server.start()
            assert (server.pid != before, server.port) == (True, port)
        assert [row[0] for row in admin.rows("SELECT number FROM kept ORDER BY 1")] == [0, 1, 2, 3]
        assert "was not properly shut down" in server.log()


def test_a_server_that_does_not_start_says_why() -> None:
    with pytest.raises(wheel.ServerFailed, match="max_connections"), PrivateServer(settings={"max_connections": -1}):
        pass


def test_a_server_goes_with_a_process_that_is_killed() -> None:
    code = """if True:
        import sys
        from tests.servers.own import PrivateServer
        with PrivateServer() as server:
            print(server.pid, flush=True)
            sys.stdin.read()
    """
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT
    ) as owner:
        assert owner.stdout is not None
        pid = owner.stdout.readline()
        server = psutil.Process(int(pid))
        owner.kill()
    assert undertaker.left([server], 30) == []


def test_what_a_session_left_behind_goes_at_the_next_start(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.servers.own.guard", print)
    # As if owner and undertaker were both killed: a server runs, and nobody holds its folder.
    with Folder.claim() as claimed, tempfile.TemporaryDirectory(dir=claimed.path) as place:
        left = Path(place) / f"{folder.PREFIX}left"
        left.mkdir(mode=0o711)
        left.parent.chmod(0o711)
        (left / "alive").touch()
        stale = left / "postgres-18-stale"
        stale.mkdir()
        # A number that is another's by now.
        (stale / "postmaster.pid").write_text(f"{os.getpid()}\n", encoding="utf-8")
        server = OwnServer(left)
        server.start()
        process = psutil.Process(server.pid)
        folder.sweep(left.parent)
        folder.sweep(claimed.path.parent)
        assert (undertaker.running(process), left.exists(), claimed.path.exists()) == (False, False, True)
    assert not claimed.path.exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="platform: only root runs servers as another user")
def test_a_wheel_that_the_servers_user_cannot_reach_is_copied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    closed = tmp_path / "closed"
    installed = wheel._install("18")
    (closed / wheel.PACKAGE).mkdir(parents=True, mode=0o700)
    shutil.copytree(installed, closed / wheel.PACKAGE / installed.name, symlinks=True)
    libraries = f"{wheel.PACKAGE}.libs"
    shutil.copytree(installed.parents[1] / libraries, closed / libraries)
    closed.chmod(0o700)
    monkeypatch.setattr(wheel, "_install", lambda _: closed / wheel.PACKAGE / installed.name)
    with PrivateServer() as server, Admin(server.url()) as admin:
        assert admin.value("SHOW data_directory").startswith(str(server._folder))
        assert wheel.programs("18", server._folder).is_relative_to(server._folder)
        assert admin.value("SELECT 1") == 1


def test_a_schema_is_the_tests_own_and_goes(
    databases_on: Callable[[Server], Databases], postgres_server: Server, postgres_schema: Schema, postgres_admin: Admin
) -> None:
    postgres_databases = databases_on(postgres_server)
    with postgres_databases.schema(
        postgres_schema.url, "Any [label], however long it may be, with a quote's trouble"
    ) as own:
        assert own.url == postgres_schema.url
        assert own.name != postgres_schema.name
        postgres_admin.execute(f"CREATE SCHEMA {own.name}; CREATE TABLE {own.name}.things (id int)")
    assert postgres_admin.value("SELECT count(*) FROM pg_namespace WHERE nspname = $1", own.name) == 0
    assert postgres_admin.value("SHOW synchronous_commit") == "off"


async def test_connections_that_a_test_leaves_open_fail_it(
    databases_on: Callable[[Server], Databases],
    postgres_server: Server,
    postgres_schema: Schema,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(databases, "PATIENCE", 0.1)
    left = await asyncpg.connect(postgres_schema.url, server_settings={"application_name": "left"})
    with (
        pytest.raises(AssertionError, match=r"left open: .*left, idle"),
        databases_on(postgres_server).schema(postgres_schema.url, "x"),
    ):
        pass
    with pytest.raises(asyncpg.PostgresConnectionError):
        await left.execute("SELECT 1")


def test_a_fixture_may_choose_among_servers(schema_on: Callable[[Server], Schema]) -> None:
    made = [schema_on(server) for server in postgres.servers() for _ in range(2)]
    assert len(set(made)) == len(made)


MAKE = """
    CREATE SCHEMA {0};
    CREATE TABLE {0}.migrations (number int); INSERT INTO {0}.migrations VALUES (1);
    CREATE TABLE {0}.parents (id bigserial PRIMARY KEY);
    CREATE TABLE {0}.children (parent bigint REFERENCES {0}.parents);
    CREATE FUNCTION {0}.clock() RETURNS timestamptz LANGUAGE sql AS 'SELECT clock_timestamp()';
"""


@pytest.mark.parametrize(
    ("change", "same"),
    [
        ("ANALYZE {0}.parents", True),
        ("CREATE OR REPLACE FUNCTION {0}.clock() RETURNS timestamptz LANGUAGE sql AS 'SELECT now()'", False),
        ("ALTER TABLE {0}.children ADD COLUMN name text", False),
        ("INSERT INTO {0}.migrations VALUES (2)", False),
        ("CREATE TABLE {0}.others (id int)", False),
        ("DROP SCHEMA {0} CASCADE", False),
    ],
    ids=["analyzed", "function", "column", "record", "table", "dropped"],
)
def test_a_kept_schema_comes_back_empty_and_is_made_anew_if_a_test_changed_it(
    databases_on: Callable[[Server], Databases], postgres_server: Server, change: str, same: bool
) -> None:
    databases = databases_on(postgres_server)
    admin = databases.admin(databases.quick())
    made: list[str] = []

    def make(schema: Schema) -> None:
        admin.execute(MAKE.format(schema.name))
        made.append(schema.name)

    names: list[str] = []
    for last in ("SELECT 1", change, "SELECT 1", "SELECT 1"):
        with databases.kept_schema(make) as schema:
            names.append(schema.name)
            counts = [admin.value(f"SELECT count(*) FROM {schema.name}.{table}") for table in ("migrations", "parents")]
            assert counts == [1, 0]
            assert admin.value(f"INSERT INTO {schema.name}.parents DEFAULT VALUES RETURNING id") == 1
            admin.execute(f"INSERT INTO {schema.name}.children VALUES (1)")
            admin.execute(last.format(schema.name))
    assert len(set(names)) == len(made) == (1 if same else 2)
    assert names[2] == names[3]


def test_a_database_is_durable_if_asked(postgres_database: Callable[..., str]) -> None:
    for durable, setting in ((True, "on"), (False, "off")):
        with Admin(postgres_database(f"asked_{setting}", durable=durable)) as admin:
            assert admin.value("SHOW synchronous_commit") == setting


def test_databases_of_killed_sessions_go_and_those_in_use_stay() -> None:
    with (
        PrivateServer() as server,
        Admin(server.url()) as admin,
    ):
        for name in ("perdure_test_dead_gw0_quick", "perdure_test_busy_gw0_quick", "perdure_other"):
            admin.execute(f"CREATE DATABASE {name}")
        with Admin(server.url("perdure_test_busy_gw0_quick")) as busy:
            busy.execute("SELECT 1")
            given = Given(server.url())
            ours = Databases(given)
            url = ours.create("quick")
            names = {row[0] for row in admin.rows("SELECT datname FROM pg_database WHERE datname LIKE 'perdure%'")}
            assert names == {"perdure_test_busy_gw0_quick", "perdure_other", url.rpartition("/")[2].partition("?")[0]}
            ours.close()
            assert admin.value("SELECT count(*) FROM pg_database WHERE datname LIKE 'perdure%'") == 2


class Given(Server):
    """A server by its address."""

    def __init__(self, url: str) -> None:
        super().__init__("given")
        object.__setattr__(self, "_url", url)

    def url(self, database: str = "postgres") -> str:
        address: str = self.__dict__["_url"]
        return address.replace("/postgres?", f"/{database}?")


async def test_a_bouncer_hands_one_connection_to_many_clients(postgres_schema: Schema) -> None:
    with PgBouncer(postgres_schema.url, {"default_pool_size": 1}) as bouncer:
        clients = [await asyncpg.connect(bouncer.url, statement_cache_size=0) for _ in range(3)]
        assert len({await one.fetchval("SELECT pg_backend_pid()") for one in clients}) == 1
        await asyncio.gather(*(one.close() for one in clients))


def test_a_bouncer_leads_to_the_same_schema(bouncer_schema: Schema, postgres_schema: Schema) -> None:
    assert bouncer_schema.name == postgres_schema.name
    assert bouncer_schema.url != postgres_schema.url


def test_a_bouncer_that_does_not_start_says_why(postgres_schema: Schema) -> None:
    with pytest.raises(wheel.ServerFailed, match="auth_type"), PgBouncer(postgres_schema.url, {"auth_type": "none"}):
        pass


def test_without_a_bouncer_a_test_says_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pgbouncer, "PLACES", ("no-such-program",))
    with pytest.raises(pytest.skip.Exception, match="apt-get install pgbouncer"):
        PgBouncer("postgresql://postgres@127.0.0.1/postgres")
