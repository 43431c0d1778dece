"""A schema with its tables, kept from test to test: emptying it takes a hundredth of the time that making it takes.

Tables that were empty when the schema was new are emptied; those that were not (the record of migrations) stay as they are. A
test may do with the schema what it likes: if definitions or those rows are not what they were, the next test gets a new one.
"""

from __future__ import annotations

from collections.abc import Callable

from tests.servers.sql import Admin


class KeptSchema:
    """One schema, and what it was when it was new."""

    def __init__(self, admin: Admin, name: str, make: Callable[[], None]) -> None:
        self.name = name
        self._admin = admin
        make()
        tables = [row[0] for row in admin.rows(TABLES, name)]
        self._emptied = [table for table in tables if not admin.value(f"SELECT EXISTS (SELECT FROM {table})")]
        self._filled = [table for table in tables if table not in self._emptied]
        self._definitions, self._content = self._look(), self._read()

    def empty(self) -> bool:
        """Make it as it was when it was new; False if that takes more than emptying its tables."""
        if self._look() != self._definitions or self._read() != self._content:
            return False
        if self._emptied:
            # One statement: whichever table refers to which, that is looked at in the end.
            deletes = ", ".join(f"d{number} AS (DELETE FROM {table})" for number, table in enumerate(self._emptied))
            self._admin.execute(f"WITH {deletes} SELECT")
        self._admin.execute(RESTART.format(schema=self.name))
        return True

    def _look(self) -> str | None:
        looks: str | None = self._admin.value(DEFINITIONS, self.name)
        return looks

    def _read(self) -> list[str]:
        return [self._admin.value(CONTENT.format(table=table)) for table in self._filled]


TABLES = """
    SELECT format('%I.%I', nspname, relname) FROM pg_class JOIN pg_namespace ON pg_namespace.oid = relnamespace
    WHERE nspname = $1 AND relkind IN ('r', 'p') AND NOT relispartition ORDER BY 1
"""

# A row of the catalog that is written anew has another xmin. Vacuum and analyze do not write anew.
DEFINITIONS = """
    SELECT md5(string_agg(line, ',' ORDER BY line)) FROM (
        SELECT format('%s %s %s', tableoid, oid, xmin) AS line FROM pg_class WHERE relnamespace = to_regnamespace($1)
        UNION ALL SELECT format('%s %s %s', tableoid, oid, xmin) FROM pg_proc WHERE pronamespace = to_regnamespace($1)
    ) AS lines
"""

CONTENT = "SELECT md5(string_agg(line::text, ',' ORDER BY line::text)) FROM {table} AS line"

RESTART = """
    SELECT setval(format('%I.%I', schemaname, sequencename)::regclass, start_value, false)
    FROM pg_sequences WHERE schemaname = '{schema}' AND last_value IS NOT NULL
"""
