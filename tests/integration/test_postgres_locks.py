"""Locks: of writes that touch thousands of tokens, on a server with room for few; and of rows that a stranger holds."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any, Final

import asyncpg
import pytest

from perdure.model.commit import Applied, Cancel, Changed, Create, Delete, Missing, Unstorable
from perdure.model.errors import StoreUnavailable
from perdure.model.run import Status
from perdure.ports.store import Held, Renewal
from perdure.stores.postgres import PostgresStore
from perdure.testing import ManualClock
from perdure.testing.clock import START
from perdure.testing.conformance.kit import LEASE, SECOND, complete, held, new, of, request, to_token, turn
from tests.servers import wheel
from tests.servers.databases import Schema
from tests.servers.own import PrivateServer
from tests.servers.sql import Admin

#: Far more than the server has room for: (connections + 1 or so) * locks for each.
SETTINGS: Final[dict[str, str | int]] = {
    "max_connections": 20,
    "max_locks_per_transaction": 10,
    "fsync": "off",
    "max_parallel_workers_per_gather": 0,
}
MANY: Final = 20_000
#: As many as one turn cancels one by one.
SOME: Final = 3_000


@pytest.fixture(scope="module")
def narrow() -> Iterator[PrivateServer]:
    if not wheel.versions():
        pytest.skip("no PostgreSQL whose settings could be chosen: the wheel is not there")
    with PrivateServer(settings=SETTINGS) as server:
        yield server


@contextlib.asynccontextmanager
async def opened(server: PrivateServer) -> AsyncIterator[PostgresStore]:
    """An empty store."""
    with Admin(server.url()) as admin:
        admin.execute("DROP SCHEMA IF EXISTS perdure CASCADE")
    store = PostgresStore(server.url(), clock=ManualClock())
    await store.open()
    try:
        yield store
    finally:
        await store.close()


#: A run that ada holds, with children that wait each for a token of its own.
TREE = """
INSERT INTO perdure.runs (
    id, incarnation, workflow, version, namespace, status, input, seed, owner, epoch, n, inbox, seen, wake_at, listening, depth,
    format, recoveries, created_at, updated_at, parent_id, parent, parent_seq, awaited_as, urgency, definition
)
SELECT 'c' || i, i + 1, 'work', '1', 'default', CASE i WHEN 0 THEN 1 ELSE 2 END, '{}', 7, CASE i WHEN 0 THEN 'ada' END, 1, 0,
    0, 0, CASE i WHEN 0 THEN @start@ + 60000000 END, i > 0, least(i, 1), 1, 0, @start@, @start@, CASE WHEN i > 0 THEN 'c0' END,
    CASE WHEN i > 0 THEN 1 END, i, CASE WHEN i > 0 THEN 'c' || i END, 0, perdure.definition_1('work', '1')
FROM generate_series(0, @many@) AS i;
INSERT INTO perdure.waits (namespace, token, incarnation, seq)
SELECT 'default', 't' || i, i + 1, 0 FROM generate_series(1, @many@) AS i;
SELECT setval('perdure.incarnations', @many@ + 1);
"""


def grow(server: PrivateServer, many: int = MANY) -> None:
    with Admin(server.url()) as admin:
        admin.execute(TREE.replace("@many@", f"{many}::bigint").replace("@start@", f"{START}::bigint"))


def counted(server: PrivateServer, what: str) -> Any:
    with Admin(server.url()) as admin:
        return admin.value(f"SELECT count(*) FROM perdure.{what}")


async def test_f83_a_batch_to_thousands_of_tokens_needs_no_room_for_each(narrow: PrivateServer) -> None:
    async with opened(narrow) as store:
        answers = await store.write([to_token(f"t{number}") for number in range(5_000)])
        assert set(answers) == {Applied()}
        assert counted(narrow, "kept") == 5_000
        # Those that need few and those that need many exclude each other.
        run = new("r")
        await store.write([Create(run=run)])
        [claimed] = await store.claim(request())
        batches = [[to_token(f"t{start + number}") for number in range(1 + start % 3 * 40)] for start in range(60)]
        for answers in await asyncio.gather(*map(store.write, batches)):
            assert set(answers) == {Applied()}
        assert await store.write([complete(claimed.run)]) == [Applied(claimed.run.key)]


#: What ends a tree with all that waits in it, and how many of it change.
FELLED: dict[str, Callable[[Any], Any]] = {
    "cancel": lambda run: Cancel("c0", b'"stop"'),
    "delete": lambda run: Delete("c0", b'"gone"'),
    "timeout": lambda run: turn(run, Status.CANCELLED, error=b'"late"'),
    "dead": lambda run: turn(run, Status.DEAD, error=b'"often"'),
    "children": lambda run: turn(run, cancels=tuple(f"c{number}" for number in range(1, SOME + 1))),
}


@pytest.mark.parametrize("how", FELLED)
async def test_f83_a_tree_of_thousands_that_wait_ends_on_a_server_with_room_for_few_locks(
    how: str, narrow: PrivateServer
) -> None:
    async with opened(narrow) as store:
        grow(narrow, SOME if how == "children" else MANY)
        parent = await store.get("c0")
        assert parent is not None
        answers = await store.write([to_token("t5", b"1"), FELLED[how](parent), Create(run=new("neighbour"))])
        assert isinstance(answers[0], Applied)
        assert isinstance(answers[1], Changed | Applied), answers[1]
        assert isinstance(answers[2], Applied)
        assert counted(narrow, "waits") == 0
        assert counted(narrow, "kept") == 1  # It was given back.
        assert counted(narrow, "runs WHERE status = 2") == 0


async def test_f83_a_run_with_thousands_of_waits_ends(narrow: PrivateServer) -> None:
    async with opened(narrow) as store:
        grow(narrow)
        with Admin(narrow.url()) as admin:
            admin.execute("UPDATE perdure.waits SET incarnation = 1, seq = place")
        parent = await store.get("c0")
        assert parent is not None
        assert await store.write([complete(parent)]) == [Applied(parent.key)]
        assert counted(narrow, "waits") == 0


#: Raises what PostgreSQL raises where it has no room, for one run.
TOO_LARGE = """
CREATE FUNCTION perdure.too_large() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'out of shared memory' USING ERRCODE = '53200';
END $$;
CREATE TRIGGER too_large BEFORE INSERT ON perdure.runs FOR EACH ROW WHEN (new.id = 'large')
    EXECUTE FUNCTION perdure.too_large();
"""


async def test_f83_a_write_that_never_finds_room_is_refused_and_hurts_no_neighbour(narrow: PrivateServer) -> None:
    async with opened(narrow) as store:
        with Admin(narrow.url()) as admin:
            admin.execute(TOO_LARGE)
        names = ["a", "b", "large", "c"]
        answers = await store.write([Create(run=new(name)) for name in names])
        assert [type(answer) for answer in answers] == [Applied, Applied, Unstorable, Applied]
        assert "too large for the server: out of shared memory" in of(Unstorable, answers[2]).reason
        assert await store.get("large") is None
        [answer] = await store.write([Cancel("large", b'"stop"')])
        assert isinstance(answer, Missing)


async def test_f83_where_the_server_has_no_room_for_anybody_nothing_is_refused(narrow: PrivateServer) -> None:
    """What others have taken they will give back: until then the store counts as away."""
    async with opened(narrow) as store:
        await store.write([Create(run=new("first"))])
        hog = await asyncpg.connect(narrow.url())
        try:
            with pytest.raises(asyncpg.OutOfMemoryError):
                await hog.execute("SELECT pg_advisory_lock(number) FROM generate_series(1, 1000000) AS number")
            with pytest.raises(StoreUnavailable, match=r"has no room: (?s:.*), or raise max_locks_per_transaction"):
                await store.write([to_token("t"), to_token("u")])
        finally:
            await hog.close()
        assert await store.write([to_token("t"), to_token("u")]) == [Applied(), Applied()]


# -- rows that a stranger holds ---------------------------------------------------------------------------------------


async def test_f23_a_row_that_a_stranger_has_locked_costs_no_lease(postgres_migrated: Schema) -> None:
    clock = ManualClock()
    store = PostgresStore(postgres_migrated.store, clock=clock)
    await store.open()
    try:
        await store.write([Create(run=new(name)) for name in ("a", "b", "c")])
        runs = {claimed.run.id: claimed.run for claimed in await store.claim(request("ada"))}
        renewer = store.renewer()
        claims = [*held(*runs.values()), Held(runs["a"].incarnation, 7, 0)]
        stranger = await asyncpg.connect(postgres_migrated.url)
        try:
            clock.advance(10)
            async with stranger.transaction():
                await stranger.execute(f'SELECT 1 FROM "{postgres_migrated.name}".runs WHERE id = $1 FOR UPDATE', "b")
                answers = await asyncio.to_thread(renewer.renew, "ada", LEASE, claims)
                assert list(answers) == [
                    Renewal(runs[name].incarnation, lost=False, locked=name == "b") for name in runs
                ] + [Renewal(runs["a"].incarnation, lost=True)]
                # Nor can they be kept from being given back.
                await asyncio.to_thread(renewer.release, "ada", held(runs["b"], runs["c"]))
            wakes = {name: run.wake_at for name in runs if (run := await store.get(name)) is not None}
            assert wakes == {"a": clock.now() + LEASE, "b": clock.now() + LEASE - 10 * SECOND, "c": clock.now()}
            answers = await asyncio.to_thread(renewer.renew, "ada", LEASE, held(runs["b"]))
            assert list(answers) == [Renewal(runs["b"].incarnation, lost=False)]
        finally:
            await stranger.close()
            await asyncio.to_thread(renewer.close)
    finally:
        await store.close()
