"""Runs the code of a Markdown page as its reader would: in order, in one namespace, in an empty folder.

What a fenced block does is said by its language and by a comment on the line right above it, which readers do not see:

* ``` ```python ```                         runs; `await` works at the top level, as in a notebook
* `<!-- no-run: it needs a server -->`      does not run; the reason is a must
* `<!-- file: orders/workflows.py -->`      is written to that file (any language), for later blocks to import or use
* ``` ```console ``` with `<!-- run -->`    runs the lines that begin with `$ `, each of which must succeed

Run as a program with the path of a page; the exit status says whether all went well. Other comments there, other names for
Python, and fences that are not closed are errors: nothing is passed over by mistake.
"""

from __future__ import annotations

import ast
import asyncio
import inspect
import os
import re
import subprocess
import sys
import textwrap
import types
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

_FENCE = re.compile(r"^(?P<indent>\s*)(?P<fence>```+|~~~+)\s*(?P<language>[^\s`]*)[^`]*$")
_COMMENT = re.compile(r"^\s*<!--\s*(?P<text>.*?)\s*-->\s*$")
_DIRECTIVE = re.compile(r"^(?:(?P<run>run)|(?P<kind>no-run|file):\s*(?P<value>\S.*))$")
_MISNAMED = {"py", "python3", "pycon", "py3", "Python"}


class PageError(Exception):
    """A page says something that cannot be followed."""


@dataclass(frozen=True)
class Block:
    """A fenced block. `line` is the page's line, from 1, of its first line of code."""

    language: str
    code: str
    line: int
    run: bool = False
    file: str | None = None

    @property
    def works(self) -> bool:
        """Whether it does anything."""
        return self.run or self.file is not None


def parse(text: str, where: str) -> list[Block]:
    """The blocks of a page, in order. Raises `PageError`, which names the line."""
    lines = text.splitlines()
    blocks: list[Block] = []
    number = 0
    while number < len(lines):
        opening = _FENCE.match(lines[number])
        if opening:
            end = _closing(lines, number, opening["fence"])
            if end is None:
                raise PageError(f"{where}:{number + 1}: this block is not closed")
            above = lines[number - 1] if number else ""
            code = textwrap.dedent("\n".join(lines[number + 1 : end])) + "\n"
            blocks.append(_block(opening["language"], code, number + 2, above, where))
            number = end
        number += 1
    return blocks


def _closing(lines: list[str], opening: int, fence: str) -> int | None:
    for number in range(opening + 1, len(lines)):
        line = lines[number].strip()
        if line.startswith(fence) and not line.strip(fence[0]):
            return number
    return None


def _block(language: str, code: str, line: int, above: str, where: str) -> Block:
    place = f"{where}:{line - 1}"
    if language in _MISNAMED:
        raise PageError(f"{place}: write ```python, so that the block runs")
    comment = _COMMENT.match(above)
    if comment is None:
        return Block(language, code, line, run=language == "python")
    directive = _DIRECTIVE.match(comment["text"])
    if directive is None:
        raise PageError(
            f"{place}: the comment above is not `run`, `no-run: <reason>` or `file: <path>`: {comment['text']}"
        )
    if directive["run"] and language != "console":
        raise PageError(f"{place}: `run` is for console blocks; python runs anyway")
    if directive["kind"] == "file":
        return Block(language, code, line, file=directive["value"])
    return Block(language, code, line, run=bool(directive["run"]))


def commands(code: str) -> Iterator[str]:
    """The commands of a console block: lines after `$ `, with the lines that continue them."""
    lines = iter(code.splitlines())
    for line in lines:
        if line.startswith("$ "):
            command = line[2:]
            while command.endswith("\\"):
                command += "\n" + next(lines, "")
            yield command


class Session:
    """Runs blocks, one after the other. Python blocks share the module `__main__` and one event loop."""

    def __init__(self, page: Path) -> None:
        self._page = str(page)
        self._module = types.ModuleType("__main__")
        self._runner = asyncio.Runner()

    def __enter__(self) -> Session:
        sys.modules["__main__"] = self._module
        self._runner.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self._runner.close()

    def run(self, block: Block) -> None:
        if block.file is not None:
            path = Path(block.file)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(block.code, encoding="utf-8")
        elif block.language == "python":
            self._python(block)
        else:
            for command in commands(block.code):
                _shell(command, f"{self._page}:{block.line}")

    def _python(self, block: Block) -> None:
        # Empty lines above put the block where it stands on the page, so that a traceback shows the page's own lines.
        source = "\n" * (block.line - 1) + block.code
        flags = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
        code = compile(source, self._page, "exec", flags=flags, dont_inherit=True)
        result = eval(code, vars(self._module))
        if code.co_flags & inspect.CO_COROUTINE:
            self._runner.run(result)


def _shell(command: str, place: str) -> None:
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    done = subprocess.run(["/bin/sh", "-c", command], env={**os.environ, "PATH": path}, check=False)
    if done.returncode:
        raise PageError(f"{place}: exit status {done.returncode} from: {command}")


def main(page: Path) -> None:
    """Run every block of a page in the current folder."""
    with Session(page) as session:
        for block in parse(page.read_text(encoding="utf-8"), str(page)):
            if block.works:
                session.run(block)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
