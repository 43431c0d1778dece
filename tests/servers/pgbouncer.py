"""A PgBouncer in front of a database, for as long as a `with` block."""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
import threading
from collections.abc import Mapping
from types import TracebackType
from typing import Any
from urllib.parse import unquote, urlsplit

import pytest

from tests.servers import wheel
from tests.servers.folder import Folder, guard
from tests.servers.own import free_ports, loopback

#: Not on everybody's path: Debian keeps it among the administrator's programs.
PLACES = ("pgbouncer", "/usr/sbin/pgbouncer", "/usr/local/sbin/pgbouncer", "/opt/homebrew/bin/pgbouncer")

#: It listens when it says so.
UP = "process up"

#: Seconds that it gets to say it is up, and to end.
PATIENCE = 10.0


def program() -> str:
    """Where PgBouncer is. Where it is not, the test is skipped."""
    for place in PLACES:
        if found := shutil.which(place):
            return found
    pytest.skip("PgBouncer is not installed (apt-get install pgbouncer)")


class PgBouncer:
    """Hands the connections of `url`'s server on, by default in transaction mode; all other settings are PgBouncer's own.

    `settings` go into its configuration (`{"default_pool_size": 2}`). A `with` block starts it and ends it.

    Raises:
        wheel.ServerFailed: It does not start; the message has its log.
    """

    def __init__(self, url: str, settings: Mapping[str, str | int] | None = None) -> None:
        self._program = program()
        self._behind = urlsplit(url)
        self._settings = {"pool_mode": "transaction", **(settings or {})}
        self._said: list[str] = []
        self._folder: Folder | None = None
        self._process: subprocess.Popen[str] | None = None
        self._reader: threading.Thread | None = None
        self.port = 0

    @property
    def url(self) -> str:
        """The address of the same database, by way of PgBouncer."""
        return loopback(self.port, self._behind.path.removeprefix("/"))

    def log(self) -> str:
        return "".join(self._said)

    def __enter__(self) -> PgBouncer:
        self._folder = Folder.claim()
        try:
            guard(self._folder.path)
            for port in free_ports():
                if self._start(port):
                    return self
                if os.strerror(errno.EADDRINUSE) not in self.log():
                    break
            raise wheel.ServerFailed(f"PgBouncer does not start:\n{self.log()}")
        except BaseException:
            self.close()
            raise

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End it, and with it all connections through it. The second time nothing happens."""
        if self._process is not None:
            self._process.terminate()
            try:
                self._process.wait(PATIENCE)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
        if self._reader is not None:
            self._reader.join()
        if self._folder is not None:
            self._folder.close()

    def _start(self, port: int) -> bool:
        """Start it on a port. False if it ended instead, or is up to nothing."""
        self._said.clear()
        assert self._folder is not None
        home = self._folder.path / "pgbouncer"
        home.mkdir(exist_ok=True)
        (home / "users.txt").write_text('"postgres" ""\n', encoding="utf-8")
        (home / "pgbouncer.ini").write_text(self._configuration(port), encoding="utf-8")
        wheel.give(home)
        settled = threading.Event()
        # It refuses to run as root, as PostgreSQL does.
        options: dict[str, Any] = wheel.servant()
        self._process = subprocess.Popen(
            [self._program, home / "pgbouncer.ini"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            cwd=home,
            env=wheel.environment(),
            **options,
        )
        self._reader = threading.Thread(target=self._read, args=(self._process, settled), daemon=True)
        self._reader.start()
        settled.wait(PATIENCE)
        if UP not in self.log():
            self._process.kill()
            self._reader.join()
            self._process.wait()
            return False
        self.port = port
        return True

    def _configuration(self, port: int) -> str:
        assert self._folder is not None
        home = self._folder.path / "pgbouncer"
        ours = {
            "listen_addr": "127.0.0.1",
            "listen_port": port,
            "unix_socket_dir": "",
            "auth_type": "trust",
            "auth_file": home / "users.txt",
            "pidfile": home / "pgbouncer.pid",
            **self._settings,
        }
        lines = [f"{name} = {value}" for name, value in ours.items()]
        behind = f"* = host={self._behind.hostname} port={self._behind.port or 5432} user={self._behind.username}"
        if self._behind.password:
            behind += f" password='{unquote(self._behind.password)}'"
        return "\n".join(["[databases]", behind, "[pgbouncer]", *lines, ""])

    def _read(self, process: subprocess.Popen[str], settled: threading.Event) -> None:
        """Keep what it says, and notice when it listens, or ends."""
        assert process.stderr is not None
        with process.stderr:
            for line in process.stderr:
                self._said.append(line)
                if UP in line:
                    settled.set()
        settled.set()
