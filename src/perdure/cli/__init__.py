"""The command line. Without the extra `cli` there is only `main`, which says how to get the rest."""

from __future__ import annotations

import io
import sys
from importlib.util import find_spec


def main() -> int:
    """The program `perdure`. Ends the process with the command's exit code; returns 1 if it cannot run at all."""
    missing = [name for name in ("click", "rich") if not _is_there(name)]
    if missing:
        names = " and ".join(missing)
        print(f"perdure: the command line needs {names}; install it with: pip install 'perdure[cli]'", file=sys.stderr)
        return 1
    from perdure.cli.command import perdure

    for stream in (sys.stdout, sys.stderr):
        # A terminal that cannot show a character gets its escape, not a traceback.
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    perdure.main(prog_name="perdure")
    return 0


def _is_there(name: str) -> bool:
    try:
        return find_spec(name) is not None
    except ModuleNotFoundError:
        return False
