"""`import perdure` gives what it says, needs nothing but the core's dependencies, and does nothing."""

from __future__ import annotations
import __future__

import importlib.metadata
import re
import subprocess
import sys
import types
from pathlib import Path

import pytest

import perdure
from tests.house import source

ROOT = Path(__file__).parents[2]

#: Parts of Perdure that need an extra to be imported. The first module of each is importable without it, to say so.
NEEDS_EXTRA = ("perdure.cli.", "perdure.stores.postgres")

MODULES = [module.name for module in source.read(ROOT / "src" / "perdure")]


def public_names(module: types.ModuleType) -> set[str]:
    """What a module shows: no underscore, none of the package's own modules, no `from __future__`."""
    return {
        name
        for name, value in vars(module).items()
        if not name.startswith("_")
        and not (isinstance(value, types.ModuleType) and value.__name__.split(".")[0] == module.__name__.split(".")[0])
        and not isinstance(value, __future__._Feature)
    }


def misdeclared(module: types.ModuleType) -> list[str]:
    """Where `__all__` and the public names differ, in words. A name served by the module's `__getattr__` is public too."""
    declared: list[str] = list(getattr(module, "__all__", []))
    complaints = [f"{name} is public but not in __all__" for name in sorted(public_names(module) - set(declared))]
    complaints += [f"{name} is in __all__ but does not exist" for name in declared if not hasattr(module, name)]
    complaints += [f"{name} is in __all__ twice" for name in sorted(set(declared)) if declared.count(name) > 1]
    complaints += [
        f"{name} is in __all__ but has an underscore" for name in declared if re.match(r"_(?!_version__)", name)
    ]
    return complaints


def test_all_is_what_perdure_shows() -> None:
    assert misdeclared(perdure) == []


@pytest.mark.parametrize(
    ("code", "complaint"),
    [
        ("import asyncio", "asyncio is public but not in __all__"),
        ("__all__ = ['gone']", "gone is in __all__ but does not exist"),
        ("__all__ = ['x', 'x']\nx = 1", "x is in __all__ twice"),
        ("__all__ = ['_x']\n_x = 1", "_x is in __all__ but has an underscore"),
    ],
)
def test_a_wrong_all_is_found(code: str, complaint: str) -> None:
    module = types.ModuleType("facade")
    exec(code, vars(module))
    assert misdeclared(module) == [complaint]


def test_a_right_all_is_accepted() -> None:
    module = types.ModuleType("facade")
    exec("from __future__ import annotations\n__all__ = ['x', 'late']\nx = 1\n_hidden = 2", vars(module))
    vars(module)["__getattr__"] = {"late": 3}.__getitem__
    assert misdeclared(module) == []


def start(code: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run code in a fresh interpreter, with warnings as errors."""
    command = [sys.executable, "-B", "-W", "error", "-c", code, *arguments]
    return subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=False, timeout=60)


def run(code: str, *arguments: str) -> str:
    """Standard output of a fresh interpreter that succeeds and does not complain."""
    done = start(code, *arguments)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return done.stdout


#: Refuses every module that is neither ours, nor Python's, nor of the core's dependencies; then imports what it is told.
WITHOUT_EXTRAS = """
import importlib, sys

class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] not in {"perdure", *sys.argv[1].split(",")} | sys.stdlib_module_names:
            raise ModuleNotFoundError(f"{name} needs an extra", name=name)

sys.meta_path.insert(0, Absent())
for name in sys.argv[2:]:
    importlib.import_module(name)
"""


def core_dependencies() -> set[str]:
    """Names of the distributions that a plain installation brings."""
    requires = importlib.metadata.requires("perdure") or []
    return {re.split(r"[^\w-]", line)[0].replace("-", "_") for line in requires if "extra ==" not in line}


def test_everything_but_optional_parts_imports_without_extras() -> None:
    plain = [name for name in MODULES if not name.startswith(NEEDS_EXTRA)]
    assert core_dependencies() == {"msgspec"}
    run(WITHOUT_EXTRAS, ",".join(core_dependencies()), *plain)


def test_the_refusal_refuses() -> None:
    with pytest.raises(AssertionError, match="pytest needs an extra"):
        run(WITHOUT_EXTRAS, "msgspec", "pytest")


def test_the_command_without_its_extra_says_what_to_install() -> None:
    (command,) = importlib.metadata.entry_points(group="console_scripts", name="perdure")
    if command.module in MODULES:  # Until it is written there is nothing to ask.
        call = f"sys.argv[1:] = ['runs', 'list']\nsys.exit(sys.modules[{command.module!r}].{command.attr}())"
        done = start(WITHOUT_EXTRAS + call, "msgspec", command.module)
        assert done.returncode > 0
        assert "perdure[cli]" in done.stderr
        assert "Traceback" not in done.stderr


#: Imports what it is told and prints what Python's audit saw it do to the world, and which heavy modules came along.
WATCHED = """
import sys

seen = []
ACTS = {
    "os.exec", "os.fork", "os.forkpty", "os.posix_spawn", "os.system", "subprocess.Popen", "sqlite3.connect",
    "signal.pthread_kill", "_thread.start_new_thread", "_thread.start_joinable_thread",
}

def watch(event, arguments):
    written = event == "open" and isinstance(arguments[1], str) and set(arguments[1]) & set("wax+")
    if event in ACTS or written or event.startswith(("socket.", "os.mkdir", "os.remove", "os.rename")):
        seen.append(event)

sys.addaudithook(watch)
__import__(sys.argv[1])
import threading
seen += [f"thread {thread.name}" for thread in threading.enumerate() if thread is not threading.main_thread()]
heavy = {"click", "rich", "typer", "sqlite3", "psycopg", "asyncpg", "redis", "pydantic", "multiprocessing", "http.client"}
print(*seen, *sorted(heavy & set(sys.modules)))
"""


def test_importing_perdure_starts_opens_and_drags_in_nothing() -> None:
    assert run(WATCHED, "perdure").split() == []


def test_the_watch_sees(tmp_path: Path) -> None:
    (tmp_path / "busy.py").write_text(
        "import sqlite3, socket, subprocess, sys, threading\n"
        "sqlite3.connect(':memory:').close()\n"
        "socket.socket().close()\n"
        "subprocess.run([sys.executable, '-c', ''])\n"
        "stop = threading.Event()\n"
        "threading.Thread(target=stop.wait, name='busy', daemon=True).start()\n"
        "open(__file__ + '.out', 'w').close()\n"
    )
    out = run(f"import sys; sys.path.insert(0, {str(tmp_path)!r})\n{WATCHED}", "busy")
    assert {"sqlite3.connect", "subprocess.Popen", "socket.__new__", "busy", "open", "sqlite3"} <= set(out.split())
