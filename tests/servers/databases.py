"""Databases and schemas for tests, on a server that others may use at the same time.

A database's name says whose it is: `perdure_test_SESSION_WORKER...`. Its maker keeps one connection to it for as long as it is
needed, so a database of ours without a connection is what a session that was killed left behind, and goes at the next start.
An advisory lock closes the gap between a database's creation and that connection.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import re
from collections.abc import Callable, Iterator
from typing import NamedTuple

import asyncpg

from tests.servers.kept import KeptSchema
from tests.servers.postgres import FOLDER, Server
from tests.servers.sql import APPLICATION, Admin

PREFIX = "perdure_test_"

#: The advisory lock in database postgres that whoever makes or sweeps holds.
MAKING = 0x70657264

#: Seconds that the server gets to notice that a test's connections are gone.
PATIENCE = 5.0

#: Seconds between two looks at who is connected.
GLANCE = 0.01

#: PostgreSQL cuts names off behind this many bytes.
LONGEST = 63


class Schema(NamedTuple):
    """A schema's name, which nobody else has used; it does not exist yet. It goes after the test, with all that is in it."""

    url: str
    name: str

    @property
    def store(self) -> str:
        """The store's URL."""
        return f"{self.url}{'&' if '?' in self.url else '?'}schema={self.name}"


class Databases:
    """What one process makes on one server. Blocks; from one thread."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._postgres = Admin(server.url())
        self._made: dict[str, Admin] = {}
        self._numbers = itertools.count(1)
        self._swept = False
        self._quick = ""
        self._kept: dict[Callable[[Schema], None], KeptSchema] = {}

    def create(self, name: str, durable: bool = True) -> str:
        """A new empty database; its address. Not `durable`: its commits do not wait for the disk, all else is the same."""
        database = f"{own_prefix()}_{name}"
        with self._making():
            self._sweep()
            # From template0, which nobody can be connected to: others do not stand in the way.
            self._postgres.execute(f'CREATE DATABASE "{database}" TEMPLATE template0')
            if not durable:
                self._postgres.execute(f'ALTER DATABASE "{database}" SET synchronous_commit = off')
            admin = self._made[self._server.url(database)] = Admin(self._server.url(database))
            admin.execute("SELECT 1")
        return self._server.url(database)

    def quick(self) -> str:
        """The database for tests that need a schema only. Its commits do not wait for the disk."""
        self._quick = self._quick or self.create("quick", durable=False)
        return self._quick

    def admin(self, url: str) -> Admin:
        """The connection that stays in a database for as long as it is needed, to run SQL with."""
        return self._made[url]

    def drop(self, url: str) -> None:
        """Drop a database made by `create`, and end whatever is still connected to it."""
        admin = self._made.pop(url)
        database = admin.value("SELECT current_database()")
        admin.close()
        self._postgres.execute(f'DROP DATABASE "{database}" WITH (FORCE)')

    @contextlib.contextmanager
    def schema(self, url: str, label: str) -> Iterator[Schema]:
        """A name for a schema in a database of ours. Afterwards it is dropped.

        Raises:
            AssertionError: Afterwards, connections to the database are still open: the test leaked them. They are ended.
        """
        name = self._name(label)
        try:
            yield Schema(url, name)
        finally:
            leaked = self.leaked(url)
            self._made[url].execute(f'DROP SCHEMA IF EXISTS "{name}" CASCADE')
        assert not leaked, f"connections were left open: {leaked}"

    @contextlib.contextmanager
    def kept_schema(self, make: Callable[[Schema], None]) -> Iterator[Schema]:
        """A schema in the quick database that `make` has made, empty as it was then; see `kept.py`.

        Raises:
            AssertionError: As `schema` does.
        """
        url = self.quick()
        kept = self._kept.get(make)
        if kept is None or not kept.empty():
            new = Schema(url, self._name(f"kept_{len(self._kept)}"))
            kept = self._kept[make] = KeptSchema(self._made[url], new.name, lambda: make(new))
        try:
            yield Schema(url, kept.name)
        finally:
            leaked = self.leaked(url)
        assert not leaked, f"connections were left open: {leaked}"

    def _name(self, label: str) -> str:
        return f"{re.sub('[^a-z0-9_]', '_', label.lower())[: LONGEST - 8]}_{next(self._numbers)}"

    def leaked(self, url: str) -> list[str]:
        """What is still connected to a database of ours, in words, after it had time to go; then it is ended."""
        admin = self._made[url]
        rows = admin.rows(OTHERS, APPLICATION)
        for _ in range(round(PATIENCE / GLANCE)):
            if not rows:
                return []
            # A server process ends a moment after its client; there is no event for that.
            admin.execute(f"SELECT pg_sleep({GLANCE})")
            rows = admin.rows(OTHERS, APPLICATION)
        admin.execute(f"SELECT pg_terminate_backend(pid) FROM ({OTHERS}) AS others", APPLICATION)
        return [f"{row['application_name'] or 'unnamed'}, {row['state']}: {row['query']}" for row in rows]

    def close(self) -> None:
        """Drop what was made, and close the connections."""
        for url in list(self._made):
            if self._server.ours:
                self._made.pop(url).close()  # The whole server goes.
            else:
                self.drop(url)
        self._postgres.close()

    def _sweep(self) -> None:
        if self._swept or self._server.ours:
            return
        self._swept = True
        for row in self._postgres.rows(ABANDONED, PREFIX):
            with contextlib.suppress(asyncpg.ObjectInUseError, asyncpg.InvalidCatalogNameError):
                self._postgres.execute(f'DROP DATABASE "{row["datname"]}"')

    @contextlib.contextmanager
    def _making(self) -> Iterator[None]:
        self._postgres.execute("SELECT pg_advisory_lock($1)", MAKING)
        try:
            yield
        finally:
            self._postgres.execute("SELECT pg_advisory_unlock($1)", MAKING)


OTHERS = """
    SELECT pid, application_name, state, query FROM pg_stat_activity
    WHERE datname = current_database() AND backend_type = 'client backend' AND application_name <> $1
"""

ABANDONED = """
    SELECT datname FROM pg_database
    WHERE starts_with(datname, $1) AND NOT EXISTS (
        SELECT FROM pg_stat_activity WHERE pg_stat_activity.datname = pg_database.datname
    )
"""


def own_prefix() -> str:
    """What the names of this process's databases begin with: session and worker."""
    session = os.environ[FOLDER].rpartition("-")[2]
    return f"{PREFIX}{session}_{os.environ.get('PYTEST_XDIST_WORKER', 'main')}"
