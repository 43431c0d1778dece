"""Roles, privileges, passwords, names of schemas: what is allowed works, what is not is told in a sentence."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from collections.abc import Callable, Iterator
from urllib.parse import parse_qs, quote, urlsplit

import pytest
from click.testing import CliRunner, Result

from perdure import Context, Perdure, StoreUnavailable, workflow
from perdure.cli.command import perdure
from perdure.model.commit import Applied, Cancel, Changed, Create, Delete
from perdure.model.errors import StoreMismatch, UsageError
from perdure.ports.store import RunQuery
from perdure.stores.postgres import PostgresStore
from perdure.stores.postgres.connections import connect
from perdure.stores.postgres.place import place_of
from perdure.testing import ManualClock
from perdure.testing.conformance.kit import new, request, to_token
from tests.servers import wheel
from tests.servers.databases import Schema
from tests.servers.own import PrivateServer, free_ports, loopback
from tests.servers.postgres import Server
from tests.servers.sql import Admin

NAMES = (
    'Ünï-co"de', "UPPER", "it's", "two  words", "a$$b", "a$body$b", "%s{0}", "@schema@", "select", "x" * 63, "é" * 31,
)  # fmt: skip


@pytest.fixture
def role(postgres_admin: Admin) -> Iterator[str]:
    """A role that may log in, and do nothing of its own."""
    name = f"perdure_test_{secrets.token_hex(6)}"
    postgres_admin.execute(f"CREATE ROLE {name} LOGIN")
    yield name
    postgres_admin.execute(f"DROP OWNED BY {name}; DROP ROLE {name}")


def store_as(role: str, schema: Schema) -> PostgresStore:
    return PostgresStore(url_as(role, schema), clock=ManualClock())


def url_as(role: str, schema: Schema) -> str:
    scheme, rest = schema.store.split("://")
    return f"{scheme}://{role}@{rest.partition('@')[2]}"


def call(*arguments: str) -> Result:
    """The program. An error that is not told would be an exception of another kind."""
    result = CliRunner().invoke(perdure, arguments, prog_name="perdure")
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    assert "Traceback" not in result.output
    return result


async def works(store: PostgresStore, *, migrate: bool = True) -> None:
    """A little of everything."""
    await store.open(migrate=migrate)
    try:
        [applied] = await store.write([Create(run=new("r", tags=("x",)))])
        assert isinstance(applied, Applied)
        assert [each.run.id for each in await store.claim(request())] == ["r"]
        assert await store.write([to_token("t")]) == [Applied()]
        assert [run.id for run in await store.runs(RunQuery(tags=("x",)))] == ["r"]
        [changed] = await store.write([Cancel("r", b'"stop"')])
        assert isinstance(changed, Changed)
        await store.write([Delete("r", b'"gone"')])
        assert await store.get("r") is None
    finally:
        await store.close()


GRANTS = """
    GRANT USAGE ON SCHEMA {0} TO {1};
    GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA {0} TO {1};
    GRANT USAGE ON ALL SEQUENCES IN SCHEMA {0} TO {1};
"""


@pytest.mark.parametrize("migrate", [True, False])
async def test_a_role_that_may_only_read_and_write_works_on_a_migrated_schema(
    migrate: bool, role: str, postgres_schema: Schema, postgres_admin: Admin
) -> None:
    store = PostgresStore(postgres_schema.store, clock=ManualClock())
    await store.open()
    await store.close()
    postgres_admin.execute(GRANTS.format(f'"{postgres_schema.name}"', role))
    await works(store_as(role, postgres_schema), migrate=migrate)


async def test_a_role_that_may_create_in_its_schema_only_can_migrate_it(
    role: str, postgres_schema: Schema, postgres_admin: Admin
) -> None:
    postgres_admin.execute(f'CREATE SCHEMA "{postgres_schema.name}" AUTHORIZATION {role}')
    await works(store_as(role, postgres_schema))


def test_a_role_that_may_not_create_is_told_so(role: str, postgres_schema: Schema) -> None:
    with pytest.raises(StoreMismatch, match=r"permission denied for database .* or migrate as one that has it"):
        asyncio.run(store_as(role, postgres_schema).open())
    result = call("migrate", "--store", url_as(role, postgres_schema))
    assert (result.exit_code, "permission denied" in result.stderr) == (1, True)
    assert call("migrate", "--plan", "--store", url_as(role, postgres_schema)).exit_code == 1


def test_a_role_that_may_not_look_is_told_so(role: str, postgres_schema: Schema) -> None:
    assert call("migrate", "--store", postgres_schema.store).exit_code == 0
    for arguments in (["migrate"], ["migrate", "--plan"], ["runs", "list"]):
        result = call(*arguments, "--store", url_as(role, postgres_schema))
        assert (result.exit_code, "permission denied for schema" in result.stderr) == (1, True), result.stderr


def test_migrate_plans_migrates_and_then_has_nothing_to_do(postgres_schema: Schema) -> None:
    planned = call("migrate", "--plan", "--store", postgres_schema.store)
    assert planned.exit_code == 1
    assert "initial" in planned.stdout
    assert call("runs", "list", "--store", postgres_schema.store).exit_code == 1
    assert call("migrate", "--store", postgres_schema.store).exit_code == 0
    assert "up to date" in call("migrate", "--plan", "--store", postgres_schema.store).stdout
    assert call("runs", "list", "--store", postgres_schema.store).exit_code == 0


def test_a_server_that_only_reads_is_told_so(role: str, postgres_schema: Schema, postgres_admin: Admin) -> None:
    postgres_admin.execute(f'CREATE SCHEMA "{postgres_schema.name}" AUTHORIZATION {role}')
    url = url_as(role, postgres_schema)
    postgres_admin.execute(f"ALTER ROLE {role} SET default_transaction_read_only = on")
    for arguments in (["migrate"], ["runs", "list"]):
        assert call(*arguments, "--store", url).exit_code == 1
    assert "takes no writes: is it a replica?" in call("migrate", "--store", url).stderr
    postgres_admin.execute(f"ALTER ROLE {role} SET default_transaction_read_only = off")
    assert call("migrate", "--store", url).exit_code == 0
    postgres_admin.execute(f"ALTER ROLE {role} SET default_transaction_read_only = on")
    assert call("runs", "list", "--store", url).exit_code == 0  # Reading is all it does.

    async def write() -> None:
        store = store_as(role, postgres_schema)
        await store.open()
        try:
            await store.write([Create(run=new("r"))])
        finally:
            await store.close()

    # Once it is open it may be a failover, which passes.
    with pytest.raises(StoreUnavailable, match="is it a replica"):
        asyncio.run(write())


@pytest.mark.parametrize(
    "theirs", ["TABLE {0}.messages (x int)", "FUNCTION {0}.clock_1() RETURNS bigint AS 'SELECT 1' LANGUAGE sql"]
)
def test_a_schema_that_holds_something_of_others_is_left_alone_and_told(
    theirs: str, postgres_schema: Schema, postgres_admin: Admin
) -> None:
    name = f'"{postgres_schema.name}"'
    postgres_admin.execute(f"CREATE SCHEMA {name}; CREATE {theirs.format(name)}")
    result = call("migrate", "--store", postgres_schema.store)
    assert (result.exit_code, "holds something that is not ours; choose another" in result.stderr) == (1, True)
    assert postgres_admin.value(f"SELECT to_regclass('{name}.runs') IS NULL")


def test_where_there_is_no_such_database_role_or_server(postgres_server: Server) -> None:
    missing = postgres_server.url("perdure_test_not_there")
    assert "create the database first" in call("migrate", "--store", missing).stderr
    nobody = url_as("perdure_test_nobody", Schema(postgres_server.url(), "s"))
    assert "perdure_test_nobody" in call("migrate", "--store", nobody).stderr
    dark = loopback(next(free_ports()), "postgres")
    for arguments in (["migrate"], ["migrate", "--plan"], ["runs", "list"]):
        result = call(*arguments, "--store", dark)
        assert (result.exit_code, "cannot be reached" in result.stderr) == (1, True)
    with pytest.raises(StoreUnavailable):
        asyncio.run(PostgresStore(dark, clock=ManualClock()).open())


def test_a_wrong_password_is_told_and_not_shown() -> None:
    if not wheel.versions():
        pytest.skip("no PostgreSQL whose passwords could be set: the wheel is not there")
    with PrivateServer() as server, Admin(server.url()) as admin:
        admin.execute("CREATE ROLE locked LOGIN PASSWORD 'right'")
        lines = "('host all locked 127.0.0.1/32 scram-sha-256'), ('host all all 127.0.0.1/32 trust')"
        admin.execute(f"COPY (VALUES {lines}) TO '{admin.value('SHOW hba_file')}'")
        admin.execute("SELECT pg_reload_conf()")
        url = f"postgresql://locked:hunter2@127.0.0.1:{server.port}/postgres?sslmode=disable"
        while "password" not in (result := call("migrate", "--store", url)).stderr:
            assert "permission denied" in result.stderr  # not reloaded yet
        assert result.exit_code == 1
        assert "check user and password" in result.stderr
        assert "hunter2" not in result.stderr
        right = url.replace("hunter2", "right")
        assert "permission denied for database" in call("migrate", "--store", right).stderr


# -- names of schemas -------------------------------------------------------------------------------------------------


@pytest.fixture
def database(postgres_database: Callable[..., str]) -> str:
    return postgres_database("names")


def named(database: str, name: str) -> str:
    return f"{database}{'&' if '?' in database else '?'}schema={quote(name)}"


async def test_f86_schemas_of_any_name_work_and_do_not_see_each_other(database: str) -> None:
    stores = [PostgresStore(named(database, name), clock=ManualClock()) for name in NAMES]
    for store in stores:
        await works(store)
        assert await asyncio.to_thread(store.plan) == []
    for store in stores:
        await store.open(migrate=False)
        [created] = await store.write([Create(run=new("same"))])
        assert isinstance(created, Applied)
        await store.write([to_token("t", b"1")])
        assert [run.id for run in await store.runs(RunQuery())] == ["same"]
    await asyncio.gather(*(store.close() for store in stores))


@workflow(name="patient", version="1")
async def patient(ctx: Context) -> str:
    value: str = await ctx.wait_for_signal("go", type=str)
    return value


@pytest.mark.parametrize("name", ['Ünï-co"de', "é" * 31])
async def test_f86_hints_reach_other_processes_whatever_the_schema_is_called(name: str, database: str) -> None:
    url = named(database, name)
    store, other = (PostgresStore(url, clock=ManualClock()) for _ in range(2))
    await store.open()
    await other.open()
    heard = asyncio.Event()
    loop = asyncio.get_running_loop()

    def hear() -> None:
        loop.call_soon_threadsafe(heard.set)

    store.on_change(lambda: None)
    other.on_change(hear)
    number = 0
    await asyncio.wait_for(heard.wait(), 10)  # the first look
    heard.clear()
    while not heard.is_set():
        number += 1
        await store.write([Create(run=new(f"r{number}"))])
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(heard.wait(), 0.1)
    await store.close()
    await other.close()
    async with (
        Perdure(url, include=[patient], poll=60) as app,
        Perdure(url, include=[patient], consume=False) as caller,
    ):
        run = await caller.start(patient, id="p")
        await run.signal("go", "now")
        assert await run.result(timeout=20) == "now"
        assert await app.get_run("p").result(timeout=20) == "now"


@pytest.mark.parametrize("path", ["''", "elsewhere", "elsewhere, pg_catalog", '"$user", public'])
async def test_f86_the_search_path_of_the_role_does_not_matter(path: str, role: str, database: str) -> None:
    with Admin(database) as admin:
        admin.execute(
            f"CREATE SCHEMA elsewhere; CREATE TABLE elsewhere.runs (x int); CREATE SCHEMA mine AUTHORIZATION {role}"
        )
        admin.execute("CREATE FUNCTION elsewhere.clock_1() RETURNS bigint LANGUAGE sql AS 'SELECT 1'")
        admin.execute(f"GRANT USAGE ON SCHEMA elsewhere TO {role}; ALTER ROLE {role} SET search_path = {path}")
        await works(store_as(role, Schema(database, "mine")))
        assert admin.value("SELECT count(*) FROM elsewhere.runs") == 0
        admin.execute(f"DROP OWNED BY {role}")


# -- rights -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("without", "told"),
    [
        ("INSERT ON {0}.history", "INSERT on table history"),
        ("USAGE ON SEQUENCE {0}.arrivals", "USAGE on sequence arrivals"),
        ("ALL ON ALL TABLES IN SCHEMA {0}", "more; as the role that migrated, GRANT"),
    ],
)
async def test_a_right_that_is_missing_is_told_at_opening(
    without: str, told: str, role: str, postgres_schema: Schema, postgres_admin: Admin
) -> None:
    store = PostgresStore(postgres_schema.store, clock=ManualClock())
    await store.open()
    await store.close()
    schema = f'"{postgres_schema.name}"'
    postgres_admin.execute(GRANTS.format(schema, role))
    postgres_admin.execute(
        f"REVOKE {without.format(schema)} FROM {role}; GRANT SELECT ON {schema}.migrations TO {role}"
    )
    for migrate in (True, False):
        with pytest.raises(StoreMismatch, match=f"cannot be used by role {role}: it lacks .*{told}"):
            await store_as(role, postgres_schema).open(migrate=migrate)


def test_a_table_migrations_of_others_is_told_as_such(postgres_schema: Schema, postgres_admin: Admin) -> None:
    name = f'"{postgres_schema.name}"'
    postgres_admin.execute(f"CREATE SCHEMA {name}; CREATE TABLE {name}.migrations (id int)")
    for arguments in (["migrate"], ["migrate", "--plan"], ["runs", "list"]):
        result = call(*arguments, "--store", postgres_schema.store)
        assert (result.exit_code, "table migrations that is not ours; choose another" in result.stderr) == (1, True)


# -- options ----------------------------------------------------------------------------------------------------------


async def test_the_name_of_the_application_is_that_of_the_url(postgres_migrated: Schema, postgres_admin: Admin) -> None:
    place = place_of(f"{postgres_migrated.store}&application_name=billing")
    connection = await connect(place)
    assert await connection.fetchval("SHOW application_name") == "billing"
    await connection.close()


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("postgresql://host/db?schema=a&schema=b", "the option 'schema' more than once"),
        ("postgresql://host/db?listen=mysql://me:hunter2@host/db", "not 'mysql://me:***@host/db'"),
    ],
)
def test_an_option_that_cannot_be_meant_is_refused_without_secrets(url: str, shown: str) -> None:
    with pytest.raises(UsageError) as refused:
        place_of(url)
    assert shown in str(refused.value)
    assert "hunter2" not in str(refused.value)


def test_host_and_password_may_stand_among_the_options() -> None:
    place = place_of("postgresql:///db?host=/var/run/postgresql&user=me&password=hunter2")
    assert "hunter2" not in str(place)
    assert "/var/run/postgresql" in str(place)
    options = parse_qs(urlsplit(place.dsn).query)
    assert (options["host"], options["password"]) == (["/var/run/postgresql"], ["hunter2"])
