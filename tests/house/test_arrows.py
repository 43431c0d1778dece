"""The import contracts of pyproject.toml bite, and name every package they are for."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
PURE = {"authoring", "core", "model", "patterns", "ports", "wire"}

#: Importer, what it imports, and what the linter says about it.
FORBIDDEN = [
    ("perdure.model.a", "perdure.core.a", "perdure.model is not allowed to import perdure.core"),
    ("perdure.core.a", "perdure.ports.a", "perdure.core is not allowed to import perdure.ports"),
    ("perdure.wire.a", "perdure.core.a", "perdure.wire is not allowed to import perdure.core"),
    ("perdure.stores.a", "perdure.engine.a", "perdure.stores is not allowed to import perdure.engine"),
    ("perdure.engine.a", "perdure.stores.a", "perdure.engine is not allowed to import perdure.stores"),
    ("perdure.stores.b", "perdure.core.a", "perdure.stores is not allowed to import perdure.core"),
    ("perdure.telemetry.a", "perdure.authoring.a", "perdure.telemetry is not allowed to import perdure.authoring"),
    ("perdure.authoring.a", "perdure.app", "perdure.authoring is not allowed to import perdure.app"),
    ("perdure.patterns.a", "perdure.engine.b", "perdure.patterns is not allowed to import perdure.engine"),
    ("perdure.console.a", "perdure.cli.a", "perdure.console is not allowed to import perdure.cli"),
    ("perdure.testing.a", "perdure.console.a", "perdure.testing is not allowed to import perdure.console"),
    ("perdure.engine.b", "perdure", "perdure.engine.b is not allowed to import perdure"),
    ("perdure.core.b", "time", "perdure.core is not allowed to import time"),
    ("perdure.ports.a", "asyncio", "perdure.ports is not allowed to import asyncio"),
    ("perdure.model.b", "random", "perdure.model is not allowed to import random"),
]

#: What those same packages may do.
ALLOWED = [
    ("perdure.stores.a", "perdure.ports.a"),
    ("perdure.stores.a", "sqlite3"),
    ("perdure.core.a", "asyncio"),
    ("perdure.engine.a", "perdure.core.a"),
    ("perdure.app", "perdure.stores.a"),
    ("perdure.cli.a", "perdure"),
]


def contract(id: str) -> dict[str, Any]:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    contracts: list[dict[str, Any]] = settings["tool"]["importlinter"]["contracts"]
    (found,) = [one for one in contracts if one["id"] == id]
    return found


def build(folder: Path, arrows: list[tuple[str, str]]) -> None:
    """A package `perdure` with every place in the layers, in which the arrows are imports."""
    places = re.findall(r"\w+", " ".join(contract("layers")["layers"]))
    for place in places:
        for name in ("__init__", "a", "b"):
            path = folder / "perdure" / place / f"{name}.py"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.touch()
    (folder / "perdure" / "__init__.py").touch()
    for importer, imported in arrows:
        path = folder / Path(*importer.split("."))
        path = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
        path.write_text(path.read_text() + f"import {imported}\n")


def lint(folder: Path) -> tuple[int, str]:
    command = [
        str(Path(sys.executable).parent / "lint-imports"),
        "--no-cache",
        "--config",
        str(ROOT / "pyproject.toml"),
    ]
    # From the folder and with its path first, so that its `perdure` hides ours.
    environment = {**os.environ, "PYTHONPATH": str(folder)}
    done = subprocess.run(command, capture_output=True, text=True, cwd=folder, env=environment, check=False, timeout=60)
    return done.returncode, done.stdout


def test_right_arrows_are_kept(tmp_path: Path) -> None:
    build(tmp_path, ALLOWED)
    status, out = lint(tmp_path)
    assert status == 0, out


def test_wrong_arrows_are_found(tmp_path: Path) -> None:
    build(tmp_path, [(importer, imported) for importer, imported, _ in FORBIDDEN])
    status, out = lint(tmp_path)
    assert status == 1
    assert [complaint for _, _, complaint in FORBIDDEN if complaint not in out] == [], out


def test_a_cycle_between_packages_is_found(tmp_path: Path) -> None:
    build(tmp_path, [])
    for name, other in (("one", "two"), ("two", "one")):
        (tmp_path / "perdure" / "engine" / name).mkdir()
        (tmp_path / "perdure" / "engine" / name / "__init__.py").touch()
        (tmp_path / "perdure" / "engine" / name / f"{name}_a.py").write_text(
            f"from perdure.engine.{other} import {other}_b\n"
        )
        (tmp_path / "perdure" / "engine" / name / f"{name}_b.py").touch()
    status, out = lint(tmp_path)
    assert status == 1
    assert "No package imports back what imports it BROKEN" in out


def test_a_new_package_fails_until_it_has_a_place(tmp_path: Path) -> None:
    build(tmp_path, [])
    (tmp_path / "perdure" / "extra").mkdir()
    (tmp_path / "perdure" / "extra" / "__init__.py").touch()
    status, out = lint(tmp_path)
    assert status == 1
    assert "Imports point down BROKEN" in out
    assert "perdure.extra" in out.partition("Broken contracts")[2]


@pytest.mark.parametrize(("id", "packages"), [("pure", PURE), ("values", {"model", "ports", "wire"})])
def test_contracts_name_every_package_they_are_for(id: str, packages: set[str]) -> None:
    there = {path.parent.name for path in (ROOT / "src" / "perdure").glob("*/__init__.py")}
    assert set(contract(id)["source_modules"]) == {f"perdure.{name}" for name in packages & there}
