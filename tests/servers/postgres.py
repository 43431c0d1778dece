"""Which PostgreSQL servers a test session has.

In this order: the one of `PERDURE_TEST_POSTGRES_URL` (`given`), and then no other; the one that listens on the usual local
port (`PERDURE_TEST_POSTGRES_PORT`, 5432) and lets user postgres in without a password (`usual`), as the older, beside the
newest of the wheel; else the oldest and the newest of the wheel, called by their versions. With `PERDURE_TEST_POSTGRES_ONE`
only the newest of these.

The decision is made once, by the process that controls the session, and starts nothing. It reaches pytest-xdist's workers, and
a pytest that a test starts, by environment variables. A server of the wheel is started by the first process that asks for its
address, and ends with the session (`folder.py`).
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import os
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

from tests.servers import wheel
from tests.servers.folder import Folder, exclusive
from tests.servers.own import OwnServer, loopback

URL, PORT, ONE = "PERDURE_TEST_POSTGRES_URL", "PERDURE_TEST_POSTGRES_PORT", "PERDURE_TEST_POSTGRES_ONE"

#: What the controlling process tells the others.
NAMES, FOLDER = "PERDURE_TEST_POSTGRES_NAMES", "PERDURE_TEST_SERVERS_FOLDER"

#: Seconds to wait for the usual port's answer.
KNOCK = 2.0

#: A server that several workers share, each with pools and fleets.
SHARED = {"max_connections": 200}


@dataclass(frozen=True)
class Server:
    """One server of the session. Asking for its address starts it, if it is ours and does not run yet."""

    name: str

    def url(self, database: str = "postgres") -> str:
        """The address of a database on it, for a user that may create databases."""
        if self.name == "given":
            return urlunsplit(urlsplit(os.environ[URL])._replace(path=f"/{database}"))
        if self.name == "usual":
            return loopback(usual_port(), database)
        return loopback(brought(self.name, Path(os.environ[FOLDER])), database)

    @property
    def ours(self) -> bool:
        """Whether it ends with the session, and all that is in it."""
        return self.name in wheel.INSTALLS


def servers() -> list[Server]:
    """The session's servers, the older first; none where there is neither a server nor a wheel.

    The same in every process of the session, whoever asks first; also while test modules and conftests are imported.
    """
    if NAMES not in os.environ:
        names = find()
        os.environ[NAMES] = ",".join(names[-1:] if os.environ.get(ONE) else names)
    return [Server(name) for name in os.environ[NAMES].split(",") if name]


def find(environment: Mapping[str, str] = os.environ) -> list[str]:
    """The names of the servers there are. Connects to the usual port, starts nothing."""
    if environment.get(URL):
        return ["given"]
    wheels = wheel.versions()
    if lets_in(loopback(usual_port(environment), "postgres")):
        return ["usual", *wheels[-1:]]
    return list(dict.fromkeys([*wheels[:1], *wheels[-1:]]))


def usual_port(environment: Mapping[str, str] = os.environ) -> int:
    return int(environment.get(PORT) or 5432)


def lets_in(url: str) -> bool:
    """Whether a PostgreSQL server answers there, and lets us in without a password."""
    address = urlsplit(url)
    with contextlib.suppress(OSError), socket.create_connection((address.hostname, address.port), timeout=KNOCK):
        return asyncio.run(_enters(url))
    return False


async def _enters(url: str) -> bool:
    # Here, since most sessions of a few tests never get as far.
    import asyncpg

    try:
        connection = await asyncpg.connect(url, timeout=KNOCK, passfile=os.devnull, password="")
    except (OSError, TimeoutError, asyncpg.PostgresError, asyncpg.InterfaceError):
        return False
    await connection.close()
    return True


class Session:
    """What the controlling process holds from begin to end. A session inside a session uses the outer one's servers."""

    def __init__(self) -> None:
        self._folder = None if FOLDER in os.environ else Folder.claim()
        if self._folder is not None:
            os.environ[FOLDER] = str(self._folder.path)
        servers()

    def end(self) -> None:
        """End the servers that were brought along."""
        if self._folder is not None:
            self._folder.close()
            del os.environ[NAMES], os.environ[FOLDER]
            brought.cache_clear()


@functools.cache
def brought(version: str, folder: Path) -> int:
    """The port of the session's server of that version. Whichever process comes first starts it, the others wait for it."""
    lock, port = folder / f"{version}.lock", folder / f"{version}.port"
    lock.touch()
    with exclusive(lock):
        if not port.exists():
            server = OwnServer(folder, version, SHARED)
            server.start()
            port.write_text(str(server.port), encoding="utf-8")
    return int(port.read_text(encoding="utf-8"))
