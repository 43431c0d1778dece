"""A PostgreSQL server of our own, from the wheel: to start, stop, kill and restart as a test likes."""

from __future__ import annotations

import errno
import os
import random
import socket
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import Literal

import psutil  # type: ignore[import-untyped]

from tests.servers import undertaker, wheel
from tests.servers.folder import Folder, guard

#: Below what systems hand out as ports of clients. There, a client that knocks while the server restarts may be given the
#: server's own port: it would talk to itself, and keep the server from coming back.
PORTS = range(20_000, 32_000)

Mode = Literal["smart", "fast", "immediate"]


class OwnServer:
    """One server on a loopback port that stays the same over restarts. Not for several threads at once.

    Durable as PostgreSQL is by default. `settings` go into its configuration (`{"max_connections": 20}`).
    """

    def __init__(self, folder: Path, version: str = "18", settings: Mapping[str, str | int] | None = None) -> None:
        self.version = version
        self.port = 0
        self._folder = folder
        self._data = folder / f"postgres-{version}-{os.urandom(3).hex()}"
        self._settings = dict(settings or {})
        self._bin = wheel.programs(version, folder)

    def url(self, database: str = "postgres") -> str:
        return loopback(self.port, database)

    @property
    def pid(self) -> int:
        """The main process of the running server.

        Raises:
            FileNotFoundError: It does not run.
        """
        return int((self._data / "postmaster.pid").read_text(encoding="utf-8").splitlines()[0])

    def log(self) -> str:
        """What the server has written so far, over all its starts."""
        return (self._data / "log").read_text(encoding="utf-8", errors="replace")

    def start(self) -> None:
        """Start it, and return when it takes connections. The first start makes the cluster and finds a port.

        Raises:
            wheel.ServerFailed: It does not start; the message has its log.
        """
        if self.port:
            self._start()
            return
        guard(self._folder)
        self._make()
        for port in free_ports():
            self._configure(port)
            try:
                self._start()
            except wheel.ServerFailed as error:
                if os.strerror(errno.EADDRINUSE) not in str(error):
                    raise
            else:
                return
        raise OSError(errno.EADDRINUSE, f"no port is free between {PORTS.start} and {PORTS.stop}")

    def stop(self, mode: Mode = "fast") -> None:
        """Stop it as `pg_ctl stop` does: wait for clients, end their sessions, or break off as in a crash."""
        wheel.run(self._bin / "pg_ctl", "stop", "-D", self._data, "-w", "-m", mode, cwd=self._data)

    def restart(self, mode: Mode = "fast") -> None:
        self.stop(mode)
        self.start()

    def kill(self) -> None:
        """Kill its main process with SIGKILL, and return when all of its processes are gone. It can be started again."""
        server = psutil.Process(self.pid)
        family = [*server.children(recursive=True), server]
        server.kill()
        stubborn = undertaker.left(family, undertaker.PATIENCE)
        if stubborn:
            raise wheel.ServerFailed(f"still there after the main process was killed: {stubborn}")
        # Where orphans stay zombies for a while, the next start would take this one for a server that runs.
        (self._data / "postmaster.pid").unlink()

    def _make(self) -> None:
        self._data.mkdir(mode=0o700)
        wheel.give(self._data)
        # --no-sync: a machine that loses its power in a test run has other worries. The server itself syncs as always.
        arguments = ["-U", "postgres", "-A", "trust", "-E", "UTF8", "--no-locale", "--no-sync", "--no-instructions"]
        wheel.run(self._bin / "initdb", "-D", self._data, *arguments, cwd=self._data.parent)

    def _configure(self, port: int) -> None:
        self.port = port
        ours = {"listen_addresses": "127.0.0.1", "port": port, "unix_socket_directories": "", **self._settings}
        lines = [f"{name} = '{value}'" for name, value in ours.items()]
        (self._data / "postgresql.auto.conf").write_text("\n".join([*lines, ""]), encoding="utf-8")

    def _start(self) -> None:
        log = self._data / "log"
        before = len(self.log()) if log.exists() else 0
        try:
            wheel.run(self._bin / "pg_ctl", "start", "-D", self._data, "-w", "-t", "60", "-l", log, cwd=self._data)
        except wheel.ServerFailed as error:
            said = self.log()[before:] if log.exists() else ""
            raise wheel.ServerFailed(f"{error}{said}") from None


class PrivateServer(OwnServer):
    """One in a folder of its own, for as long as a `with` block: `with PrivateServer() as server`. It is started."""

    def __init__(self, version: str = "18", settings: Mapping[str, str | int] | None = None) -> None:
        self._owned = Folder.claim()
        try:
            super().__init__(self._owned.path, version, settings)
        except BaseException:
            self._owned.close()
            raise

    def __enter__(self) -> PrivateServer:
        try:
            self.start()
        except BaseException:
            self._owned.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._owned.close()


def loopback(port: int, database: str) -> str:
    # Without TLS, which Debian's server offers even here: it would cost time and prove nothing.
    return f"postgresql://postgres@127.0.0.1:{port}/{database}?sslmode=disable"


def free_ports() -> Iterator[int]:
    """A few loopback ports on which nothing listens just now, in an order of chance, so that test sessions do not meet."""
    return filter(is_free, random.Random(os.urandom(8)).sample(PORTS, 50))


def is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True
