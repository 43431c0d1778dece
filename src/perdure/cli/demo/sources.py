"""Which files there are to index."""

from __future__ import annotations

import os
import sysconfig
from pathlib import Path

#: Folders that are not of the standard library itself.
_FOREIGN = frozenset({"site-packages", "dist-packages", "__pycache__"})

#: The name for modules that lie in no package.
TOP_LEVEL = "(top level)"


def standard_library() -> Path:
    """Where this Python keeps it."""
    return Path(sysconfig.get_path("stdlib"))


def find(root: str) -> dict[str, list[str]]:
    """Every .py file below `root`, relative to it, by top-level directory: the largest first, each in order."""
    packages: dict[str, list[str]] = {}
    for folder, folders, names in os.walk(root):
        folders[:] = sorted(set(folders) - _FOREIGN)
        relative = Path(folder).relative_to(root)
        package = relative.parts[0] if relative.parts else TOP_LEVEL
        files = [(relative / name).as_posix() for name in sorted(names) if name.endswith(".py")]
        if files:
            packages.setdefault(package, []).extend(files)
    return dict(sorted(packages.items(), key=lambda item: (-len(item[1]), item[0])))
