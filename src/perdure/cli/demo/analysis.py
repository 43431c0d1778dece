"""What there is to say about one Python file. It is parsed, never run."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

#: How many of a file's longest functions are kept.
_LONGEST = 5


@dataclass(frozen=True)
class Function:
    """A function, by its dotted name in the file."""

    name: str
    lines: int


@dataclass(frozen=True)
class FileFacts:
    """One file. `problem` says why it could not be parsed: then only its size and lines are known."""

    file: str
    bytes: int
    lines: int
    functions: int = 0
    classes: int = 0
    imports: int = 0
    longest: list[Function] = field(default_factory=list[Function])
    problem: str | None = None


def examine(root: str, file: str) -> FileFacts:
    """The facts of a file. Raises `OSError` if it cannot be read."""
    data = Path(root, file).read_bytes()
    lines = data.count(b"\n") + (not data.endswith(b"\n") and data != b"")
    try:
        tree = ast.parse(data)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:  # The library's tests have some on purpose.
        return FileFacts(file, len(data), lines, problem=f"{type(error).__name__}: {error}")
    functions: list[Function] = []
    classes = imports = 0
    for name, node in _named(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            functions.append(Function(name, (node.end_lineno or node.lineno) - node.lineno + 1))
        elif isinstance(node, ast.ClassDef):
            classes += 1
        elif isinstance(node, ast.Import | ast.ImportFrom):
            imports += 1
    longest = sorted(functions, key=lambda one: (-one.lines, one.name))[:_LONGEST]
    return FileFacts(file, len(data), lines, len(functions), classes, imports, longest)


def _named(tree: ast.AST) -> Iterator[tuple[str, ast.AST]]:
    """Every node with the dotted name of what it defines or is in. Without recursion: some files nest deeply."""
    pending: list[tuple[str, ast.AST]] = [("", tree)]
    while pending:
        name, node = pending.pop()
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            name = f"{name}.{node.name}" if name else node.name
        yield name, node
        pending.extend((name, child) for child in ast.iter_child_nodes(node))
