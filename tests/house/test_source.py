"""The ratchet's own measures, on code made to break each budget."""

from __future__ import annotations

import ast
from pathlib import Path

from tests.house import source
from tests.house.source import Module
from tests.house.test_ratchet import Allowed, classes, cycle, functions, over, p95


def module(text: str, name: str = "pkg.m") -> Module:
    return Module(name, text, ast.parse(text))


FAT = module(
    '''
from typing import ClassVar

class Fat:
    """Doc."""

    code: ClassVar[str] = "fat"
    first: int
    __slots__ = ("second", "third")

    def __init__(self, other):
        self.fourth, self.fifth = 1, 2
        other.not_ours = 3

        def later():
            self.sixth = 4

    @property
    def shown(self):
        return self.first

    @shown.setter
    def shown(self, value):
        self.first = value

    def visible(self): ...

    def _hidden(self): ...
'''
)


def test_fields_are_what_an_instance_holds() -> None:
    (fat,) = [one for one in source.definitions(FAT) if isinstance(one.node, ast.ClassDef)]
    assert isinstance(fat.node, ast.ClassDef)
    assert source.fields(fat.node) == {"first", "second", "third", "fourth", "fifth", "sixth"}


def test_public_methods_count_a_property_once() -> None:
    assert classes([FAT], source.public_methods) == {"pkg.m.Fat": 2}


def test_functions_are_measured_wherever_they_are_defined() -> None:
    assert functions([FAT])["pkg.m.Fat.__init__"] == 6
    assert functions([FAT])["pkg.m.Fat.__init__.later"] == 2
    assert functions([module("if True:\n    async def f():\n        pass\n")]) == {"pkg.m.f": 2}


def test_p95_is_the_size_that_95_of_100_do_not_exceed() -> None:
    assert p95(range(1, 101)) == 95
    assert p95([]) == 0


def test_a_budget_is_broken_by_size_by_slack_and_by_a_stale_exception() -> None:
    allowed = {"b": Allowed(30, "x"), "c": Allowed(30, "x"), "d": Allowed(30, "x"), "gone": Allowed(30, "x")}
    assert over({"a": 20, "b": 30}, 20, {"b": allowed["b"]}) == []
    assert over({"a": 21, "b": 31, "c": 29, "d": 20}, 20, allowed) == [
        "a has 21, the limit is 20",
        "b has 31, the limit is 30",
        "c has 29: lower its exception from 30",
        "d has 20, the limit is 20: it needs no exception",
        "gone has an exception but does not exist",
    ]


def test_a_cycle_is_found_also_for_types_only_and_inside_functions() -> None:
    a = module("from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from pkg import b", "pkg.a")
    b = module("def f():\n    from pkg.a import thing", "pkg.b")
    assert cycle([a, b]) in (["pkg.a", "pkg.b", "pkg.a"], ["pkg.b", "pkg.a", "pkg.b"])
    assert cycle([a, module("import pkg.c", "pkg.b"), module("", "pkg.c")]) == []


def test_a_package_that_imports_its_own_part_closes_a_cycle_only_if_the_part_looks_back(tmp_path: Path) -> None:
    package = tmp_path / "pkg"
    package.mkdir()
    (package / "__init__.py").write_text("from pkg.part import name, part\nfrom pkg import part\n")
    (package / "part.py").write_text("name = 1\n")
    assert [(one.name, one.is_package) for one in source.read(package)] == [("pkg", True), ("pkg.part", False)]
    assert cycle(source.read(package)) == []
    (package / "part.py").write_text("from pkg import other\nname = 1\n")
    assert set(cycle(source.read(package))) == {"pkg", "pkg.part"}
