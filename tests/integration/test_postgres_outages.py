"""The server itself goes away and comes back, while processes work on it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import asyncpg
import pytest

from perdure import Perdure, Status, StoreUnavailable
from perdure.model.commit import Create
from perdure.model.history import Event
from perdure.ports.store import Held, Renewal
from perdure.stores.postgres import PostgresStore, connections
from perdure.stores.postgres.connections import Connections
from perdure.stores.postgres.place import place_of
from perdure.stores.postgres.renewer import PostgresRenewer
from perdure.testing import ManualClock
from perdure.testing.conformance.kit import LEASE, new, request
from tests.integration import process_load as load
from tests.integration.process_parent import Part, client
from tests.servers import wheel
from tests.servers.databases import Schema
from tests.servers.own import PrivateServer
from tests.servers.proxy import Proxy
from tests.servers.sql import Admin

SHORT: dict[str, Any] = {"lease": 1.0, "poll": 0.1}
RUNS = 60


@pytest.fixture
def server() -> Iterator[PrivateServer]:
    if not wheel.versions():
        pytest.skip("no PostgreSQL that could be restarted: the wheel is not there")
    with PrivateServer() as server:
        yield server


@pytest.mark.parametrize("mode", ["immediate", "fast"])
def test_f1_a_restart_in_the_middle_of_recovery_loses_no_run(server: PrivateServer, mode: Any) -> None:
    asyncio.run(recovery(server, mode))


async def recovery(server: PrivateServer, mode: Any) -> None:
    """A claims them all and is killed; B has begun to recover them when the server is restarted."""
    async with client(server.url()) as app:
        runs = [await app.start(load.held, id=f"{i}") for i in range(RUNS)]
        async with Part("serve", "a", server.url(), SHORT) as a:
            for _ in runs:
                await a.line("holds")
            a.kill()
            await a.ended()
        # So few at a time that the restart comes in between.
        async with Part("serve", "b", server.url(), {**SHORT, "max_runs": RUNS // 4}) as b:
            await b.line("holds")
            await asyncio.to_thread(server.restart, mode)
            await b.go()
            assert [await run.result(timeout=120) for run in runs] == ["b"] * RUNS
            for run in runs:
                events = [entry.event for entry in await run.history()]
                assert (await run.status(), events.count(Event.RESOLVED)) == (Status.COMPLETED, 1)
            assert await app.engine.store.audit(heal=False) == []
            assert "fault in Perdure" not in b.stderr


def test_f1_a_server_that_takes_no_writes_for_a_while_loses_no_run(server: PrivateServer) -> None:
    """As after a failover: the connections live, what they lead to is a replica for now."""
    asyncio.run(read_only_for_a_while(server))


async def read_only_for_a_while(server: PrivateServer) -> None:
    with Admin(server.url()) as admin:

        def read_only(what: str) -> None:
            admin.execute(f"ALTER SYSTEM SET default_transaction_read_only = {what}")
            admin.execute("SELECT pg_reload_conf()")

        async with (
            Perdure(server.url(), include=[load], consume=False, poll=0.1, patience=0.5) as app,
            Part("serve", "a", server.url(), SHORT) as part,
        ):
            run = await app.start(load.held, id="r")
            await part.line("holds")
            read_only("on")
            with pytest.raises(StoreUnavailable, match="takes no writes"):
                await until_refused(app)
            await part.go()
            # It reports its step, and is not answered until the server takes writes again.
            await part.complains("cannot be reached, trying again: the server of the store")
            read_only("off")
            assert await run.result(timeout=60) == "a"
            assert "left to recovery" not in part.stderr
            assert "fault in Perdure" not in part.stderr


async def until_refused(app: Perdure) -> None:
    """Until a setting of the server has come to all."""
    while True:
        await app.start(load.held, id="other")
        await app.get_run("other").delete()


async def test_f52_a_process_that_is_stopped_within_a_transaction_does_not_keep_its_locks(
    postgres_migrated: Schema, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Through a PgBouncer a commit takes several round trips: it may be stopped between two of them for any time."""
    soon = connections._SET_LOCAL.replace("session_timeout = '10s'", "session_timeout = '100ms'")
    assert soon != connections._SET_LOCAL
    monkeypatch.setattr(connections, "_SET_LOCAL", soon)
    place = place_of(f"{postgres_migrated.store}&pgbouncer=true")
    stopped, other = Connections(place, 1), Connections(place, 1)
    locked = asyncio.Event()

    async def stall(connection: asyncpg.Connection[Any]) -> None:
        await connection.execute(f"LOCK TABLE {place.quoted}.runs")
        locked.set()
        await asyncio.Event().wait()

    async def look(connection: asyncpg.Connection[Any]) -> None:
        await connection.execute(f"LOCK TABLE {place.quoted}.runs")

    stalled = asyncio.create_task(stopped.call(stall))
    await locked.wait()
    await asyncio.wait_for(other.call(look), 10)
    stalled.cancel()
    await asyncio.gather(stalled, return_exceptions=True)
    await asyncio.gather(stopped.close(), other.close())


async def test_f23_a_connection_that_dies_silently_costs_no_lease(postgres_migrated: Schema) -> None:
    """The renewal that finds it out is made on another one, in time."""
    store = PostgresStore(postgres_migrated.store, clock=ManualClock())
    await store.open()
    try:
        await store.write([Create(run=new("r"))])
        [claimed] = await store.claim(request("a"))
        held = [Held(claimed.run.incarnation, claimed.run.epoch, claimed.run.inbox)]
        async with Proxy(postgres_migrated.url) as proxy:
            through = place_of(Schema(proxy.url, postgres_migrated.name).store)
            renewer = PostgresRenewer(through, store.now, lambda: None, limit=0.5)
            kept = [Renewal(claimed.run.incarnation, lost=False)]
            assert await asyncio.to_thread(renewer.renew, "a", LEASE, held) == kept
            proxy.silence()
            assert await asyncio.to_thread(renewer.renew, "a", LEASE, held) == kept
            assert proxy.made > 1
            await asyncio.to_thread(renewer.close)
    finally:
        await store.close()
