"""Our own source as data: what the ratchet measures. Reads files, imports nothing of them."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

Function: TypeAlias = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True)
class Module:
    """One file, under its dotted name."""

    name: str
    text: str
    tree: ast.Module
    is_package: bool = False


@dataclass(frozen=True)
class Definition:
    """A function or class, under the dotted name of its module and the names around it."""

    name: str
    node: Function | ast.ClassDef


def read(folder: Path) -> list[Module]:
    """Every module of the package in `folder`, by name."""
    modules: list[Module] = []
    for path in sorted(folder.rglob("*.py")):
        parts = [folder.name, *path.relative_to(folder).with_suffix("").parts]
        is_package = parts[-1] == "__init__"
        text = path.read_text(encoding="utf-8")
        name = ".".join(parts[:-1] if is_package else parts)
        modules.append(Module(name, text, ast.parse(text, str(path)), is_package))
    return modules


def definitions(module: Module) -> Iterator[Definition]:
    """Every function and class of a module, nested ones too."""
    yield from _definitions(module.tree, module.name)


def _definitions(node: ast.AST, prefix: str) -> Iterator[Definition]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, Function | ast.ClassDef):
            name = f"{prefix}.{child.name}"
            yield Definition(name, child)
            yield from _definitions(child, name)
        else:
            yield from _definitions(child, prefix)


def lines(node: Function) -> int:
    """Lines of a function from `def` to its end, docstring and comments included, decorators not."""
    return (node.end_lineno or node.lineno) - node.lineno + 1


def public_methods(node: ast.ClassDef) -> set[str]:
    """Names without an underscore that the class defines as methods or properties; overloads count once."""
    return {item.name for item in node.body if isinstance(item, Function) and not item.name.startswith("_")}


def fields(node: ast.ClassDef) -> set[str]:
    """What an instance holds: annotated names of the class body, `__slots__`, and every `self.x` a method assigns."""
    found: set[str] = set()
    for item in node.body:
        if isinstance(item, ast.AnnAssign) and isinstance(item.target, ast.Name) and not _is_class_var(item.annotation):
            found.add(item.target.id)
        elif isinstance(item, ast.Assign) and [ast.unparse(target) for target in item.targets] == ["__slots__"]:
            slots = ast.literal_eval(item.value)
            found.update([slots] if isinstance(slots, str) else slots)
        elif isinstance(item, Function) and item.args.args:
            found.update(_assigned(item, item.args.args[0].arg))
    return found


def _is_class_var(annotation: ast.expr) -> bool:
    return "ClassVar" in ast.unparse(annotation)


def _assigned(function: Function, owner: str) -> Iterator[str]:
    stored = (
        node for node in ast.walk(function) if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store)
    )
    yield from (node.attr for node in stored if isinstance(node.value, ast.Name) and node.value.id == owner)


def imports(module: Module, names: set[str]) -> set[str]:
    """Those of `names` that a module imports anywhere, also under TYPE_CHECKING and inside functions."""
    found: set[str] = set()
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            submodules = {f"{node.module}.{alias.name}" for alias in node.names} & names
            others = len(submodules) < len(node.names)
            found.update(submodules | ({node.module} if others else set()))
    return (found & names) - {module.name}
