"""Where they are."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from perdure.stores.postgres import migrations

KEPT: Final = Path(__file__).parent
CURRENT: Final = Path(migrations.__file__).parent


def released() -> list[Path]:
    """The folders, oldest first."""
    return sorted(folder for folder in KEPT.iterdir() if folder.name.isdigit())
