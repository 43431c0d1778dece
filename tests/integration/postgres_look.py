"""What a schema looks like: everything in it that a migration makes, without its own name."""

from __future__ import annotations

from tests.servers.sql import Admin

LOOK = """
    SELECT 'column', format('%s.%s %s %s %s %s', c.relname, a.attname, format_type(a.atttypid, a.atttypmod), a.attnotnull,
        pg_get_expr(d.adbin, d.adrelid), l.collname)
    FROM pg_class AS c JOIN pg_attribute AS a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
    LEFT JOIN pg_attrdef AS d ON d.adrelid = c.oid AND d.adnum = a.attnum
    LEFT JOIN pg_collation AS l ON l.oid = a.attcollation
    WHERE c.relnamespace = to_regnamespace($1) AND c.relkind IN ('r', 'S', 'v')
    UNION ALL SELECT 'table', format('%s %s %s', relname, relkind, reloptions) FROM pg_class
    WHERE relnamespace = to_regnamespace($1)
    UNION ALL SELECT 'index', pg_get_indexdef(i.indexrelid) FROM pg_index AS i JOIN pg_class AS c ON c.oid = i.indexrelid
    WHERE c.relnamespace = to_regnamespace($1)
    UNION ALL SELECT 'function', pg_get_functiondef(oid) FROM pg_proc WHERE pronamespace = to_regnamespace($1)
    UNION ALL SELECT 'type', format('%s %s', typname, typtype) FROM pg_type
    WHERE typnamespace = to_regnamespace($1) AND typtype <> 'b'
"""


def looks(admin: Admin, schema: str) -> list[str]:
    """Sorted; equal for two schemas that were made alike."""
    quoted = '"' + schema.replace('"', '""') + '"'
    bare = admin.value("SELECT quote_ident($1)", schema)
    rows = admin.rows(LOOK, quoted)
    return sorted(f"{what}: {text}".replace(quoted, "@schema@").replace(f"{bare}.", "@schema@.") for what, text in rows)
