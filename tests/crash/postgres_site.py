"""A PostgreSQL server of the crash test's own, whose backends are terminated and which is itself restarted."""

from __future__ import annotations

import asyncio
import contextlib
import random
import re
from collections.abc import Iterable, Iterator, Mapping

from tests.crash.report import Report
from tests.crash.sites import LEFT_OVERS
from tests.servers.own import Mode, PrivateServer
from tests.servers.sql import Admin

#: When the server is restarted, by how much of the test is over, and how.
RESTARTS: tuple[tuple[float, Mode], ...] = ((0.3, "immediate"), (0.6, "fast"))

#: Connections that one process has at most: for its engine, and one each to renew, to listen and to tell.
MOST = 6 + 3

DURABLE = ("fsync", "synchronous_commit", "full_page_writes")

#: `%p %x`: the process, and its transaction's number, 0 if it has not written.
SETTINGS: Mapping[str, str | int] = {"max_connections": 150, "log_line_prefix": "%p %x "}
_TERMINATED = re.compile(r"^(\d+) (\d+) FATAL:  terminating connection due to administrator command", re.MULTILINE)

# Ends one connection of ours: one that is writing, if `aimed` and one is met in time (seconds), else whichever.
STRIKE = """
    CREATE FUNCTION strike(aimed boolean, patience double precision) RETURNS integer LANGUAGE plpgsql AS $$
    DECLARE
        victim integer;
        until timestamptz := clock_timestamp() + make_interval(secs => patience);
    BEGIN
        WHILE aimed AND victim IS NULL AND clock_timestamp() < until LOOP
            PERFORM pg_stat_clear_snapshot();
            SELECT pid INTO victim FROM pg_stat_activity
                WHERE application_name = 'perdure' AND backend_xid IS NOT NULL
                -- At the disk it is committing already, and will have been applied: those are hit too, but not only.
                ORDER BY wait_event_type IN ('IO', 'LWLock') NULLS FIRST, random() LIMIT 1;
        END LOOP;
        IF victim IS NULL THEN
            SELECT pid INTO victim FROM pg_stat_activity WHERE application_name = 'perdure' ORDER BY random() LIMIT 1;
        END IF;
        PERFORM pg_terminate_backend(victim);
        RETURN victim;
    END $$
"""

OURS = "SELECT pid, state, query FROM pg_stat_activity WHERE application_name = 'perdure'"


class PostgresSite:
    """Blocking calls go to threads: meanwhile the load goes on."""

    def __init__(self, server: PrivateServer) -> None:
        self.url = server.url()
        self._server = server
        self._admin = Admin(server.url())
        self._admin.execute(STRIKE)
        self._restarts = list(RESTARTS)
        self._restarted: list[Mode] = []
        self._struck: set[int] = set()

    async def harm(self, rng: random.Random, share: float) -> bool:
        if self._restarts and share >= self._restarts[0][0]:
            _, mode = self._restarts.pop(0)
            await asyncio.to_thread(self._restart, mode)
            self._restarted.append(mode)
        elif rng.random() < 0.35:
            struck = await asyncio.to_thread(self._admin.value, "SELECT strike($1, $2)", rng.random() < 0.7, 0.5)
            if struck is not None:
                self._struck.add(struck)
        else:
            return False
        return True

    def version(self) -> str:
        """The server's version and what makes its commits durable, in words. Blocks."""
        shown = {name: self._admin.value(f"SHOW {name}") for name in ("server_version", *DURABLE)}
        return f"{shown.pop('server_version')}, " + ", ".join(f"{name} {value}" for name, value in shown.items())

    def _restart(self, mode: Mode) -> None:
        self._admin.close()
        self._server.restart(mode)
        self._admin = Admin(self._server.url())

    async def left_over(self) -> Iterable[str]:
        return await asyncio.to_thread(self._left_over)

    def _left_over(self) -> list[str]:
        counts = {
            what: self._admin.value(f"SELECT count(*) FROM {rows.format(at='perdure.')}")
            for what, rows in LEFT_OVERS.items()
        }
        return [f"{left} {what}" for what, left in counts.items() if left]

    async def leaked(self, processes: int) -> Iterable[str]:
        return await asyncio.to_thread(self._leaked, MOST * processes)

    def _leaked(self, most: int) -> list[str]:
        rows = self._admin.rows(OURS)
        for _ in range(500):
            if len(rows) <= most:
                return []
            # A server process ends a moment after its client; there is no event for that.
            self._admin.execute("SELECT pg_sleep(0.01)")
            rows = self._admin.rows(OURS)
        return [f"{len(rows)} connections where at most {most} may be", *(f"  {dict(row)}" for row in rows[:20])]

    def who_holds(self) -> list[str]:
        """Called on the loop, when nothing moves anyway."""
        with contextlib.suppress(Exception):
            return [str(dict(row)) for row in self._admin.rows(f"{OURS} AND state <> 'idle'")]
        return ["the server does not answer"]

    def done(self) -> list[str]:
        return [
            f"{len(self._struck)} connections terminated, {self._writing()} of them inside a transaction that had written",
            f"{len(self._restarted)} restarts of the server: {', '.join(self._restarted)}",
        ]

    def missed(self, report: Report) -> list[str]:
        return [
            what
            for count, what in (
                (self._writing(), "no connection was terminated inside a transaction that had written"),
                (report.fenced, "no run was fenced off from a process that had been paused"),
                (report.adopted, "no commit had been applied although its answer was lost"),
            )
            if not count
        ]

    def _writing(self) -> int:
        ended = _TERMINATED.findall(self._server.log())
        return sum(int(pid) in self._struck and xid != "0" for pid, xid in ended)

    def close(self) -> None:
        self._admin.close()


@contextlib.contextmanager
def private_site() -> Iterator[PostgresSite]:
    with PrivateServer(settings=SETTINGS) as server:
        site = PostgresSite(server)
        try:
            yield site
        finally:
            site.close()
