"""`python -m perdure.cli` is the program `perdure`."""

from __future__ import annotations

import sys

from perdure.cli import main

if __name__ == "__main__":
    sys.exit(main())
