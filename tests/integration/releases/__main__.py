from __future__ import annotations

import shutil
import sys
from itertools import groupby

from tests.integration.releases.kept import CURRENT, KEPT


def main(again: bool) -> None:
    groups = [
        (number, list(files)) for number, files in groupby(sorted(CURRENT.glob("*.sql")), lambda file: file.name[:4])
    ]
    for number, files in groups:
        folder = KEPT / number
        if again and number == groups[-1][0] and folder.exists():
            shutil.rmtree(folder)
        if not folder.exists():
            folder.mkdir()
            for file in files:
                shutil.copyfile(file, folder / file.name)


main("--again" in sys.argv)
