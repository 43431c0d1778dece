"""A million runs in a schema: most have ended, many sleep, a few are due; in a thousand namespaces."""

from __future__ import annotations

from typing import Final

from perdure.model.attributes import searchable
from perdure.testing.clock import START
from tests.servers.databases import Schema
from tests.servers.sql import Admin

RUNS: Final = 1_000_000

#: By position: 850,000 have ended; 30,000 of one definition are due, all in one namespace; 100,000 sleep; of another
#: definition 19,990 sleep; 10 are due.
ENDED, BACKLOG, SLEEPING, QUIET = 850_000, 880_000, 980_000, 999_990

FILL = """
INSERT INTO @schema@.runs (
    id, incarnation, workflow, version, namespace, status, input, seed, output, owner, epoch, n, inbox, seen, wake_at,
    listening, tags, depth, format, recoveries, created_at, updated_at, ended_at, fingerprint, parent_id, parent,
    urgency, definition
)
SELECT 'run-' || md5(i::text), i, d.workflow, '1',
    CASE WHEN i > @ended@ AND i <= @backlog@ THEN 'busy' ELSE 'ns' || i % 1000 END, d.status, '{"a":1}', i,
    CASE WHEN i <= @ended@ THEN '"done"'::bytea END, NULL, 1, 3, 1, 1, d.wake_at, false, d.tags, 0, 1, 0,
    @now@ - (@runs@ - i) * 1000, @now@ - (@runs@ - i) * 1000, CASE WHEN i <= @ended@ THEN @now@ END,
    CASE WHEN d.status = 3 THEN 'print-a' END,
    CASE WHEN i % 1000 = 7 THEN 'run-' || md5((i - 6)::text) END, CASE WHEN i % 1000 = 7 THEN i - 6 END,
    CASE WHEN i % 100 = 0 THEN 5 ELSE 0 END,
    @schema@.definition_1(d.workflow, '1')
FROM generate_series(1, @runs@) AS i CROSS JOIN LATERAL (
    SELECT
        CASE WHEN i <= @ended@ AND i % 7 = 0 THEN 'old' WHEN i <= @ended@ THEN 'work' WHEN i <= @backlog@ THEN 'busy'
            WHEN i <= @sleeping@ THEN 'work' WHEN i <= @quiet@ THEN 'quiet' ELSE 'work' END AS workflow,
        CASE WHEN i <= @ended@ AND i % 5000 = 0 THEN 5 WHEN i <= @ended@ AND i % 50000 = 1 THEN 3 WHEN i <= @ended@ THEN 4
            WHEN i <= @backlog@ THEN 0 WHEN i <= @quiet@ THEN 2 ELSE 0 END AS status,
        CASE WHEN i <= @ended@ THEN NULL WHEN i <= @backlog@ THEN @now@ - (@backlog@ - i)
            WHEN i <= @quiet@ THEN @now@ + i * 1000 ELSE @now@ - 5 END AS wake_at,
        CASE WHEN i % 100001 = 0 THEN ARRAY['rare', 'even'] WHEN i % 2 = 0 THEN ARRAY['even'] END AS tags
) AS d;
INSERT INTO @schema@.tags SELECT unnest(tags), incarnation FROM @schema@.runs WHERE tags IS NOT NULL;
INSERT INTO @schema@.attributes
SELECT 'customer', CASE i % 50000 WHEN 0 THEN 'n1' ELSE
    'n2' || (499 + length((i % 50000)::text))::text || rtrim((i % 50000)::text, '0') END, i
FROM generate_series(1, @runs@, 5) AS i
UNION ALL SELECT 'plan', CASE WHEN i % 10 = 1 THEN 'spro' ELSE 'sfree' END, i FROM generate_series(1, @runs@, 5) AS i;
INSERT INTO @schema@.history
SELECT i, 0, 0, 0, 'step', 'go', '1', @now@, NULL, NULL, 0 FROM generate_series(1, @runs@, 5) AS i;
INSERT INTO @schema@.messages
SELECT i, 1, 'signal', 'go', NULL, '1', false, @now@, NULL FROM generate_series(@backlog@, @runs@, 100) AS i;
SELECT setval('@schema@.incarnations', @runs@);
"""


def fill(schema: Schema, parts: int = 1) -> None:
    """Into a schema that is migrated and empty: all of them, or one of so many parts. Nobody analyzes but who is told to."""
    facets = searchable(b'{"customer": 42, "plan": "pro"}')
    assert list(facets) == [("customer", "n250142"), ("plan", "spro")]
    numbers = {"runs": RUNS, "ended": ENDED, "backlog": BACKLOG, "sleeping": SLEEPING, "quiet": QUIET}
    text = FILL.replace("@schema@", f'"{schema.name}"').replace("@now@", f"{START}::bigint")
    for name, number in numbers.items():
        text = text.replace(f"@{name}@", f"{number // parts}::bigint")
    with Admin(schema.url) as admin:
        leave_alone(schema, admin)
        # An index is quicker made afterwards than kept up to date. (But that makes sessions forget their plans.)
        indexes = [tuple(row) for row in admin.rows(INDEXES, schema.name)] if parts == 1 else []
        for name, _ in indexes:
            admin.execute(f'DROP INDEX "{schema.name}".{name}')
        admin.execute("SET maintenance_work_mem = '256MB'")
        for statement in text.split(";\n"):
            if statement.strip():
                admin.execute(statement)
        for _, definition in indexes:
            admin.execute(definition)


def leave_alone(schema: Schema, admin: Admin) -> None:
    """The server shall not look at the tables by itself."""
    for table in ("runs", "tags", "attributes", "history", "messages"):
        admin.execute(f'ALTER TABLE "{schema.name}".{table} SET (autovacuum_enabled = false)')


def forget(schema: Schema, admin: Admin) -> None:
    """Empty what is filled here."""
    for table in ("runs", "tags", "attributes", "history", "messages"):
        admin.execute(f'DELETE FROM "{schema.name}".{table}')


#: Not those of primary keys.
INDEXES = """
    SELECT indexname, indexdef FROM pg_indexes WHERE schemaname = $1 AND tablename IN ('runs', 'attributes')
    AND indexname NOT LIKE '%_pkey'
"""
