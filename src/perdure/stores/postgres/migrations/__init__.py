"""The schema, as the numbered SQL that made it. Append only: what was released is never edited.

A migration is all files that begin with its number, in order of their names. New code must run on the schema before its own
migration is applied where it can (`NEEDED` is the newest it cannot do without), and old code on the schema after: tables and
functions are added beside what is there, and taken away a release later.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache
from importlib.resources import files
from itertools import groupby
from typing import Final

from msgspec import Struct

#: The newest migration that this code cannot do without.
NEEDED: Final = 1


class Migration(Struct, frozen=True):
    """One step of the schema."""

    number: int
    name: str
    #: With @schema@ where the quoted schema goes, also at the beginning of texts; bodies of functions between $$.
    sql: str

    def text(self, schema: str) -> str:
        """The SQL for a schema (quoted)."""
        end = "$body$"
        while end in schema:
            end = f"{end[:-1]}_$"
        put = {"$$": end, "'@schema@": "'" + schema.replace("'", "''"), "@schema@": schema}
        # In one go: what was put there may look like any of these.
        return re.sub(r"\$\$|'?@schema@", lambda found: put[found[0]], self.sql)


_NAMES: Final = {1: "initial"}


@cache
def migrations() -> Sequence[Migration]:
    """All that this code knows, oldest first."""
    found = sorted(each.name for each in files(__name__).iterdir() if each.name.endswith(".sql"))
    made: list[Migration] = []
    for number, names in groupby(found, key=lambda name: int(name[:4])):
        sql = "\n".join(files(__name__).joinpath(name).read_text(encoding="utf-8") for name in names)
        made.append(Migration(number, _NAMES[number], sql))
    return tuple(made)
